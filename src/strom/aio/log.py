"""The log of a table: its changes, from the oldest that are kept, and live."""

from __future__ import annotations

from collections.abc import Sequence

from strom.aio.keys import Keys
from strom.aio.tail import Tail
from strom.client.cluster.metadata import TableInfo
from strom.client.cluster.options import ReadOptions
from strom.client.plan.filters import WhereLike, filter_of
from strom.client.plan.log_place import EARLIEST, LATEST, Place, PlaceLike, place_of
from strom.client.plan.partition_choice import PartitionChoice
from strom.client.read.beginning import Missing, check_beginning, check_missing
from strom.client.read.changelog import Changelog
from strom.client.read.row_reader import RowReader
from strom.client.read.row_scan import RowScan as Scan
from strom.client.read.source import Source

LAKE_ENABLED = "table.datalake.enabled"


def tiered(info: TableInfo) -> bool:
    """Whether a table is or was copied into the lake, which may then have rows that no server has any more."""
    return LAKE_ENABLED in info.description.properties


class TableLog(Keys):
    """The part of a table that reads its log."""

    async def flush(self) -> None:
        """Wait until every row given so far is acknowledged; raise a failure."""
        await self.session.flush_table(self._info.table_id)

    def _unflushed(self) -> bool:
        """Whether ``flush`` would wait, or raise a failure; any thread."""
        writer = self.session.writers.get(self._info.table_id)
        return writer is not None and writer.unflushed()

    def changelog(
        self,
        start: PlaceLike = None,
        end: PlaceLike = None,
        *,
        columns: Sequence[str] | None = None,
        where: WhereLike = None,
        limit: int | None = None,
        partitions: PartitionChoice | Sequence[PartitionChoice] | None = None,
        missing: Missing = "error",
    ) -> Scan:
        """Every change with its kind, offset, commit time and bucket, up to now or to ``end``."""
        check_missing(missing)
        info = self.info
        begin, last = place_of(start, default=EARLIEST), place_of(end, default=LATEST)
        found = filter_of(where, info.schema)
        keyed = info.description.has_primary_key
        if missing == "error" and tiered(info) and not keyed:
            from strom.lake.read.union_changelog import UnionChangelog

            return UnionChangelog(
                self.session.cluster,
                self.session.warehouses,
                info,
                columns=columns,
                where=found,
                limit=limit,
                partitions=partitions,
                start=begin,
                end=last,
                lookups=self.lookups,
                before=self.flush,
            )

        async def before() -> None:
            await self.flush()
            await self._check_beginning(begin, partitions, missing)

        return Changelog(
            self.session.cluster,
            info,
            columns=columns,
            where=found,
            start=begin,
            end=last,
            limit=limit,
            partitions=partitions,
            before=before,
        )

    async def _check_beginning(
        self, start: Place, partitions: PartitionChoice | Sequence[PartitionChoice] | None, missing: Missing
    ) -> None:
        """Expired when early changes of a primary-key table are gone; the lake has no changes."""
        info = self.info
        if missing == "error" and start == EARLIEST and info.description.has_primary_key and tiered(info):
            await check_beginning(self.session.cluster, info, partitions)

    def tail(
        self,
        start: PlaceLike = "latest",
        *,
        columns: Sequence[str] | None = None,
        where: WhereLike = None,
        partitions: PartitionChoice | Sequence[PartitionChoice] | None = None,
        timeout: float | None = None,
        idle: float | None = None,
        discovery_s: float = ReadOptions.discovery_ms / 1000,
        missing: Missing = "error",
    ) -> Tail:
        """Batches as they arrive."""
        check_missing(missing)
        info = self.info
        found = filter_of(where, info.schema)
        source = Source(
            cluster=self.session.cluster,
            table=info,
            reader=RowReader(info.schema, columns),
            predicate=None if found is None else found.wire,
            options=ReadOptions(discovery_ms=int(discovery_s * 1000)),
        )
        begin = place_of(start, default=LATEST)
        lake_only = None
        if missing == "error" and begin != LATEST and tiered(info) and not info.description.has_primary_key:
            from strom.lake.read.lake_only_log import LakeOnlyLog

            lake_only = LakeOnlyLog(
                self.session.cluster,
                self.session.warehouses,
                info,
                start=begin,
                columns=source.reader.arrow.names,
                where=found,
                partitions=partitions,
            )
        return Tail(
            source,
            start=begin,
            partitions=partitions,
            predicate=None if found is None else found.predicate,
            timeout=timeout,
            idle=idle,
            lake_only=lake_only,
            check=lambda: self._check_beginning(begin, partitions, missing),
        )
