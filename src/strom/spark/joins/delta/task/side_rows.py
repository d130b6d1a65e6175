"""The rows of one side of a join by join key: on the servers and, of partitions that these let go of, in the lake.

A partition whose time is over leaves the servers, and its rows stay in the lake: a row is in one of the two, or in both
for a moment. So the lake is looked at first, the servers are asked, and then it is made sure that no partition went in
between (``settled``).
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
from strom.spark.joins.delta.task.key_groups import JoinGroups
from strom.spark.joins.delta.task.lake_only_lookup import LakeOnlyLookup, look, merged, partitions_of
from strom.spark.joins.key_bytes import arrow_of, encoded, fitting


class SideView(NamedTuple):
    """What the lookups of a batch must see, and what they find in the lake alone."""

    left: WrittenTo
    right: WrittenTo
    result: WrittenTo
    left_kept: LakeOnlyRows | None = None
    right_kept: LakeOnlyRows | None = None


class SideRows:
    """One side, and how it is looked up. ``number``: 1 for the left side, 2 for the right."""

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
        """How often it had to be looked at the lake anew: rows that were ``kept`` before may not be all."""
        self._where: Predicate | None = side.predicate(info)
        self._by_join: Matching = side.access.matching(database, info, side.columns)
        self._by_key = Matching(database, info, side.columns) if side.nulls else None
        arrow = {one.name: one.type for one in info.schema.to_arrow()}
        self._join_types = [arrow[name] for name in side.join]
        self._key_types = [arrow[name] for name in side.key]
        self._encoded_types = [arrow_of(kind) for kind in side.key_types]

    def of(self, groups: JoinGroups, kept: Matches | None = None) -> Matches:
        """The rows of these groups that count: those of the servers, and those that only the lake has (``kept``)."""
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
        fitted = [fitting(value, kind) for value, kind in zip(values, self._join_types, strict=True)]
        masks = [mask for _, mask in fitted if mask is not None]
        columns = [column for column, _ in fitted]
        if masks and not (kept := np.logical_and.reduce(masks)).all():
            chosen = pa.array(np.flatnonzero(kept))
            columns, place = [column.take(chosen) for column in columns], place[kept]
        found = self._by_join.find(pa.RecordBatch.from_arrays(columns, list(self.side.join)), self._seen)
        return Matches(found.rows, place[found.keys])

    def _alone(self, by_key: Matching, groups: JoinGroups) -> Matches:
        """Rows whose join key is NULL: each has a group of its own, named by its primary key."""
        place, values = groups.alone(self._number)
        columns = [fitting(value, kind)[0] for value, kind in zip(values, self._key_types, strict=True)]
        found = by_key.find(pa.RecordBatch.from_arrays(columns, list(self.side.key)), self._seen)
        if not found.rows.num_rows:
            return Matches(found.rows, found.keys)
        nulls = [pc.is_null(found.rows.column(name)) for name in self.side.join]
        still = nulls[0]
        for one in nulls[1:]:
            still = pc.or_(still, one)
        return Matches(found.rows.filter(still), place[found.keys[still.to_numpy(zero_copy_only=False)]])

    def keys(self, rows: pa.RecordBatch) -> pa.BinaryArray:
        """The primary keys of rows, as bytes."""
        columns = [
            rows.column(name).cast(kind, safe=False)
            for name, kind in zip(self.side.key, self._encoded_types, strict=True)
        ]
        return encoded(columns)

    # --- rows that only the lake has ----------------------------------------------------------------------------

    @property
    def in_lake(self) -> bool:
        """Whether there are any."""
        return self._retained is not None and bool(self._retained.files)

    def kept(self, groups: JoinGroups, *, bounded: bool = True) -> Matches | None:
        """Those of these groups; LimitExceeded where they are ``bounded`` and too many to be held."""
        if self._retained is None or not self._retained.files:
            return None
        rows = LakeOnlyLookup(self._plan, self.side, self._number, self._info, self._retained)
        return rows.find(groups, bounded=bounded)

    def settled(self) -> bool:
        """Whether the servers still have all partitions that they had at the last look; otherwise there is a new one.

        Asked after a lookup: what that found and the lake's rows are then all there is.
        """
        if self._retained is None:
            return True
        now = partitions_of(self._plan.server, self.side)
        if self._retained.there <= now:
            return True
        self._retained = look(self._plan.server, self.side)
        self.looks += 1
        return False
