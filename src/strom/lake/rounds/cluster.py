"""The cluster as the service's threads see it: the calls of a round, each of which blocks until it is answered."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Sequence
from typing import Any, TypeVar

from strom.client.admin.admin import Admin
from strom.client.admin.lake_admin import Heartbeat, LakeAdmin, LakeFacts, OffsetRows, Tidings
from strom.client.admin.lake_status import LakeStatus, lake_status
from strom.client.cluster.blocking import Background
from strom.client.cluster.cluster import Cluster
from strom.client.cluster.metadata import TableInfo
from strom.client.cluster.options import ClientOptions
from strom.client.plan.cut import Cuts, CutTerms
from strom.client.plan.log_plan import buckets_of
from strom.model.bucket import BucketId
from strom.model.lake.lake import Tiered
from strom.model.lake.lake_record import LakeReport
from strom.model.table import TablePath
from strom.runtime.world import World

RETRY_S = 60

Result = TypeVar("Result")
Buckets = Sequence[tuple[BucketId, str | None]]


class TieringCluster:
    """One connection for all threads of a service."""

    def __init__(
        self, address: str, *, user: str | None = None, password: str | None = None, retry_s: int = RETRY_S
    ) -> None:
        self._background = Background.of_this_process()
        options = ClientOptions(retry_timeout_ms=retry_s * 1000)
        connecting = Cluster.connect(World.system(), address, user=user, password=password, options=options)
        self._cluster = self._background.run(connecting)
        self._admin = LakeAdmin(self._cluster)

    def __enter__(self) -> TieringCluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._background.run_unless_ending(self._cluster.close)

    def _run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return self._background.run(work)

    # --- tables -------------------------------------------------------------------------------------------------

    def table(self, path: TablePath) -> TableInfo:
        """A table as it is now."""
        return self._run(self._cluster.table(path))

    def buckets(self, table: TableInfo) -> Buckets:
        """Every bucket of a table with its partition's name."""
        return self._run(self._buckets(table))

    async def _buckets(self, table: TableInfo) -> Buckets:
        if not table.partitioned:
            return list(buckets_of(table, None))
        partitions = await self._cluster.partitions(table)
        await self._cluster.find_leaders(table, [one.partition_id for one in partitions])
        return list(buckets_of(table, partitions))

    def row_bytes(self, table: TableInfo, buckets: Buckets) -> dict[BucketId, float]:
        """Bytes per offset of each bucket, roughly."""
        status = self._run(Admin(self._cluster).status(table))
        by_name = {(one.partition, one.bucket): one for one in status.buckets}
        found = {}
        for bucket, partition in buckets:
            one = by_name.get((partition, bucket.bucket))
            if one is not None and one.end_offset > one.start_offset:
                found[bucket] = one.size_bytes / (one.end_offset - one.start_offset)
        return found

    # --- the lake -----------------------------------------------------------------------------------------------

    def describe(self, path: TablePath) -> LakeFacts:
        """A table and its record, and where the lake is."""
        return self._run(self._admin.describe(path))

    def status(self, path: TablePath) -> LakeStatus:
        """How far the lake is behind a table now."""
        return self._run(self._status(path))

    async def _status(self, path: TablePath) -> LakeStatus:
        return await lake_status(self._cluster, await self._cluster.table(path))

    def lake_tables(self) -> list[LakeFacts]:
        """Every table that is, or should be, in the lake."""
        return self._run(self._admin.tables())

    def heartbeat(self, beat: Heartbeat) -> Tidings:
        """Report what this service is doing, and take tables that are due."""
        return self._run(self._admin.heartbeat(beat))

    def report(
        self,
        table_id: int,
        report: LakeReport,
        *,
        service_id: str,
        round_number: int,
        goes_on: bool = False,
        ahead: bool = False,
    ) -> str | None:
        """Report what the lake holds now; None when the coordinator stored it, else the reason why not."""
        told = self._admin.report(
            table_id, report, service_id=service_id, round=round_number, goes_on=goes_on, ahead=ahead
        )
        return self._run(told)

    def cut(self, table: TableInfo, buckets: Sequence[BucketId], terms: CutTerms) -> Cuts:
        """Where the buckets end, all at one instant, in whole transactions."""
        return self._run(self._admin.cut(table, buckets, terms))

    def resume(self, table: TableInfo, bucket: BucketId, place: Tiered) -> int:
        """Let a log bucket that lost its end continue where the lake ends."""
        return self._run(self._admin.resume(table, bucket, place))

    def restore(self, table: TableInfo, bucket: BucketId, place: Tiered, rows: Iterable[OffsetRows]) -> int:
        """Let a primary-key bucket that lost its end continue where the lake ends, with the lake's rows."""
        return self._run(self._admin.restore(table, bucket, place, rows))
