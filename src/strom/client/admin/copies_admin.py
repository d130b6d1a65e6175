"""Where the copies of a cluster's buckets are, and moving them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from strom.client.admin.admin import wire_path
from strom.client.cluster.cluster import Cluster
from strom.model.table import TablePath
from strom.protocol.api_keys import LIST_COPIES, MOVE_COPIES
from strom.protocol.messages import copies


@dataclass(frozen=True)
class BucketCopies:
    """One bucket of a cluster. ``leader`` is None while nobody leads it.

    ``servers`` have copies, ``wanted`` shall have them (the preferred leader first), ``in_sync`` answer and are in
    sync. ``losses``: how often acknowledged rows may have been given up.
    """

    table: str
    partition: str | None
    bucket: int
    leader: int | None
    epoch: int
    servers: tuple[int, ...]
    wanted: tuple[int, ...]
    in_sync: tuple[int, ...]
    min_insync: int
    losses: int

    @property
    def moving(self) -> bool:
        """Whether copies are still to be added or removed."""
        return set(self.servers) != set(self.wanted)

    @property
    def lacks(self) -> str:
        """What it lacks, in words; empty if all is well."""
        if self.leader is None:
            return "no leader"
        if len(self.in_sync) < self.min_insync:
            return "too few copies in sync to be written to"
        behind = [str(one) for one in self.wanted if one not in self.in_sync]
        return f"not in sync: {', '.join(behind)}" if behind else ""


class CopiesAdmin:
    """Asks the active coordinator."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def buckets(self, table: TablePath | None) -> list[BucketCopies]:
        """The buckets of a table, or of all tables."""
        path = None if table is None else wire_path(table)
        found: list[BucketCopies] = []
        after: Sequence[int] = ()
        while True:
            answer = await self._cluster.ask(
                LIST_COPIES, copies.ListCopiesRequest(table_path=path, after=tuple(after))
            )
            found += [copies_of(one) for one in answer.buckets]
            after = answer.next
            if not after:
                return sorted(found, key=lambda one: (one.table, one.partition or "", one.bucket))

    async def move(
        self, table: TablePath, bucket: int, partition: str | None, to: Sequence[int], leader: int | None
    ) -> BucketCopies:
        """Other servers for the copies of a bucket, another leader, or both. Asking twice does no harm."""
        request = copies.MoveCopiesRequest(
            table_path=wire_path(table),
            partition_name=partition,
            bucket_id=bucket,
            wanted=tuple(to),
            leader_id=leader,
        )
        return copies_of((await self._cluster.ask(MOVE_COPIES, request)).bucket)


def copies_of(one: copies.WireCopies) -> BucketCopies:
    """A bucket from the wire."""
    path = TablePath(one.table_path.database_name, one.table_path.table_name)
    return BucketCopies(
        table=str(path),
        partition=one.partition_name,
        bucket=one.bucket_id,
        leader=one.leader_id,
        epoch=one.epoch,
        servers=tuple(one.servers),
        wanted=tuple(one.wanted),
        in_sync=tuple(one.in_sync),
        min_insync=one.min_insync,
        losses=one.losses,
    )
