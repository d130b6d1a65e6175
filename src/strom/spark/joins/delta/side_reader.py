"""How a delta join follows one of its tables: a stream of its changelog for which a dropped partition is no loss."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from strom.api.table import Table
from strom.client.plan.log_plan import BucketRange, ScanPlan
from strom.lake.read.lake_only_rows import LakeOnlyRows, Place
from strom.spark.connect import connections
from strom.spark.source.stream_from_lake import in_lake, kept_partitions
from strom.spark.source.stream_position import Position, ids_of, place_of, start_of
from strom.spark.source.stream_reader import StreamReader

log = logging.getLogger("strom.spark")


class SideReader(StreamReader):
    """Follows one side. A partition dropped with unread changes is no loss: its rows are searched for."""

    def _lost_partition(self, sentence: str) -> None:
        log.info("%s; what the result holds of it is recomputed", sentence)

    def gone(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> tuple[str, ...]:
        """Partitions that were dropped, or recreated, between two positions.

        If retention dropped a partition, the lake keeps its rows and union reads return them, so they stay in the
        result. A partition dropped by hand is gone from both tiers.
        """
        last = Position.from_json(end)
        first = start_of(start, last)
        again = {name for name, number in first.partitions.items() if last.partitions.get(name) != number}
        unknown = {name for name, _ in first.offsets if name is not None and name not in last.partitions}
        found = sorted(again | unknown)
        if not found:
            return ()
        # The current table: it may have joined the lake since the query began.
        table = connections.table(self._options.server, self._options.table)
        held = kept_partitions(connections.database(self._options.server), table)
        return tuple(name for name in found if first.partitions.get(name) not in held)

    def unread(
        self, start: Mapping[str, Any], end: Mapping[str, Any], kept: LakeOnlyRows | None
    ) -> dict[Place, int]:
        """Lake-only buckets with rows that no batch has seen, and the first such offset."""
        if kept is None or not kept.ends:
            return {}
        first = start_of(start, Position.from_json(end))
        # A position in a recreated partition says nothing about the old one, whose rows were seen by then.
        now = {name for name, number in first.partitions.items() if number in kept.there}
        since = {place: first.offsets.get(place, 0) for place in kept.ends if place[0] not in now}
        return {place: low for place, low in since.items() if low < kept.ends[place]}

    def _begin(self, table: Table) -> Position:
        start = self._options.start
        if not isinstance(start, Mapping):
            return super()._begin(table)
        # Keep the offsets of partitions dropped since: they show that a partition is gone.
        extent = self._look(table)
        places = {place: at for place, at in start.items() if isinstance(place, tuple) and len(place) == 2}
        return Position(extent.table_id, table.info.schema.schema_id, places, ids_of(extent))

    def missing(self, position: Position, extent: ScanPlan, upto: ScanPlan | None = None) -> int:
        """Changes that no batch has seen. A dropped partition counts as one: the result may hold its rows."""
        now = ids_of(extent)
        gone = sum(now.get(name) != number for name, number in position.partitions.items())
        return super().missing(position, extent, upto) + gone

    def _first(self, one: BucketRange) -> int:
        """A partition created and expired before any batch saw it has unread rows in the lake."""
        return 0 if one.start == one.end else one.start

    # --- what looks like data loss but is not ---------------------------------------------------------------------

    def _checked(self, position: Position, extent: ScanPlan) -> Position:
        """Changes of a partition that went to the lake are not lost: its rows are searched for (``unread``)."""
        late = [
            one
            for one in extent.ranges
            if position.offsets.get(place_of(one), one.end) < one.start == one.end
        ]
        there = self._on_servers() if late else None
        behind = {place_of(one): one.end for one in late if _in_lake_alone(one, there)}
        if behind:
            position = replace(position, offsets={**position.offsets, **behind})
        return super()._checked(position, extent)

    def _still_there(self, part: BucketRange, first: int, *, named: bool) -> BucketRange | None:
        if part.start < first and _in_lake_alone(part, self._on_servers()):
            return None
        return super()._still_there(part, first, named=named)

    def _on_servers(self) -> frozenset[int] | None:
        """The partitions on the servers; None if there are no lake-only rows."""
        table = self._table()
        if not table.partition_by or not in_lake(table):
            return None
        return frozenset(one.partition_id for one in table.partitions())


def _in_lake_alone(one: BucketRange, there: frozenset[int] | None) -> bool:
    return there is not None and one.bucket.partition_id not in there
