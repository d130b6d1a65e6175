"""The rows of one side by join key: those on the servers and the lake-only ones.

An expired partition leaves the servers, and its rows stay in the lake: a row is in one of the two, or briefly in both.
So the lake is read first, then the servers, and finally ``settled`` checks that no partition expired in between.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strom.api.matching import Matches, Matching
from strom.client.cluster.written import WrittenTo
from strom.lake.read.lake_only_rows import LakeOnlyRows
from strom.model.filters.predicate import Predicate
from strom.spark.connect import connections
from strom.spark.joins.delta.join_plan import Input, JoinPlan
from strom.spark.joins.delta.lake_only import lake_only_rows_of, partitions_of
from strom.spark.joins.delta.task.key_groups import JoinGroups
from strom.spark.joins.delta.task.lake_only_lookup import LakeOnlyLookup, merged
from strom.spark.joins.key_bytes import any_null, arrow_of, encoded, fitting, fitting_keys


class SideView(NamedTuple):
    """What the lookups of a batch must see, and the lake-only rows."""

    left: WrittenTo
    right: WrittenTo
    result: WrittenTo
    left_kept: LakeOnlyRows | None = None
    right_kept: LakeOnlyRows | None = None


class SideRows:
    """Looks up one side. ``number``: 1 for the left side, 2 for the right."""

    def __init__(
        self, plan: JoinPlan, side: Input, number: int, seen: WrittenTo, kept: LakeOnlyRows | None
    ) -> None:
        database = connections.database(plan.server)
        info = side.info(plan.server)
        self.side = side
        self._plan = plan
        self._number = number
        self._seen = seen
        self._info = info
        self._retained = kept
        self.looks = 0
        """How often the lake was read again; rows read before that may be incomplete."""
        self._where: Predicate | None = side.predicate(info)
        self._by_join: Matching = side.access.matching(database, info, side.columns)
        self._by_key = Matching(database, info, side.columns) if side.nulls else None
        arrow = {one.name: one.type for one in info.schema.to_arrow()}
        self._join_types = [arrow[name] for name in side.join]
        self._key_types = [arrow[name] for name in side.key]
        self._encoded_types = [arrow_of(kind) for kind in side.key_types]

    def of(self, groups: JoinGroups, kept: Matches | None = None) -> Matches:
        """The rows of these groups that pass the filter: those of the servers and the lake-only ones (``kept``)."""
        found = [self._ordinary(groups)]
        if self._by_key is not None:
            found.append(self._alone(self._by_key, groups))
        rows = pa.concat_batches([one.rows for one in found]) if len(found) > 1 else found[0].rows
        keys = np.concatenate([one.keys for one in found]) if len(found) > 1 else found[0].keys
        if kept is not None and kept.rows.num_rows:
            rows, keys = merged(Matches(rows, keys), kept, self.keys(rows), self.keys(kept.rows))
        if self._where is not None and rows.num_rows:
            passed = pc.fill_null(self._where.mask(rows), False)
            return Matches(rows.filter(passed), keys[passed.to_numpy(zero_copy_only=False)])
        return Matches(rows, keys)

    def _ordinary(self, groups: JoinGroups) -> Matches:
        place, values = groups.ordinary()
        columns, place = fitting_keys(values, self._join_types, place)
        found = self._by_join.find(pa.RecordBatch.from_arrays(columns, list(self.side.join)), self._seen)
        return Matches(found.rows, place[found.keys])

    def _alone(self, by_key: Matching, groups: JoinGroups) -> Matches:
        """Rows whose join key is NULL: each forms a group alone, named by its primary key."""
        place, values = groups.alone(self._number)
        columns = [fitting(value, kind)[0] for value, kind in zip(values, self._key_types, strict=True)]
        found = by_key.find(pa.RecordBatch.from_arrays(columns, list(self.side.key)), self._seen)
        still = any_null([found.rows.column(name) for name in self.side.join])
        if still is None:
            return Matches(found.rows.slice(0, 0), found.keys[:0])
        return Matches(found.rows.filter(still), place[found.keys[still.to_numpy(zero_copy_only=False)]])

    def keys(self, rows: pa.RecordBatch) -> pa.BinaryArray:
        """The primary keys of rows, as bytes."""
        columns = [
            rows.column(name).cast(kind, safe=False)
            for name, kind in zip(self.side.key, self._encoded_types, strict=True)
        ]
        return encoded(columns)

    # --- lake-only rows ----------------------------------------------------------------------------

    @property
    def in_lake(self) -> bool:
        """Whether there are any."""
        return self._retained is not None and bool(self._retained.files)

    def kept(self, groups: JoinGroups, *, bounded: bool = True) -> Matches | None:
        """The lake-only rows of these groups; LimitExceeded if ``bounded`` and too many to hold."""
        if self._retained is None or not self._retained.files:
            return None
        rows = LakeOnlyLookup(self._plan, self.side, self._number, self._info, self._retained)
        return rows.find(groups, bounded=bounded)

    def settled(self) -> bool:
        """Whether the servers still have all partitions of the last look; if not, look again.

        Called after a lookup: if True, that lookup and the lake-only rows are complete.
        """
        if self._retained is None:
            return True
        now = partitions_of(self._plan.server, self.side)
        if self._retained.there <= now:
            return True
        self._retained = lake_only_rows_of(self._plan.server, self.side)
        self.looks += 1
        return False
