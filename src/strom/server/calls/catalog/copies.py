"""Where the copies of buckets are, and where a person wants them: for the active coordinator of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from strom.coordinator import commands
from strom.coordinator.catalog import Catalog
from strom.coordinator.new_copies import buckets_of, promise_of
from strom.errors import InvalidRequest, UnknownBucket
from strom.model.bucket import BucketId
from strom.model.table import TableEntry
from strom.protocol.api_keys import LIST_COPIES, MOVE_COPIES, Api
from strom.protocol.message import Message
from strom.protocol.messages import copies
from strom.replication.elections import has_leader
from strom.rpc.call import Call
from strom.server.calls.catalog.descriptions import path_message, path_of
from strom.server.calls.dispatch import CallHandler
from strom.server.tablets.catalog_view import CatalogView


class CopyCalls:
    """Answers in the active coordinator's process."""

    def __init__(self, view: CatalogView, alive: Callable[[], Collection[int]]) -> None:
        """``alive``: the tablet servers that answer."""
        self._view = view
        self._alive = alive

    def handlers(self) -> Mapping[Api[Any, Any], CallHandler]:
        return {LIST_COPIES: self.list_copies, MOVE_COPIES: self.move_copies}

    def list_copies(self, call: Call) -> Message:
        """The buckets of a table, or of all."""
        request: copies.ListCopiesRequest = call.request
        catalog, alive = self._view.fresh(), self._alive()
        tables = (
            list(catalog.all_tables())
            if request.table_path is None
            else [catalog.table(path_of(request.table_path))]
        )
        return copies.ListCopiesResponse(
            buckets=[
                _copies(catalog, table, bucket, alive)
                for table in sorted(tables, key=lambda one: str(one.path))
                for bucket in buckets_of(catalog, table)
                if catalog.replicas.get(bucket) is not None
            ]
        )

    async def move_copies(self, call: Call) -> Message:
        """Let other servers have the copies of a bucket, or lead it."""
        request: copies.MoveCopiesRequest = call.request
        catalog = self._view.fresh()
        table = catalog.table(path_of(request.table_path))
        bucket = _bucket(catalog, table, request)
        entry = catalog.replicas.get(bucket)
        assert entry is not None
        wanted = tuple(request.wanted) or entry.wanted
        leader = request.leader_id
        if leader is not None:
            wanted = _led_by(leader, wanted, bucket)
        await self._view.perform(commands.reassign, {bucket: wanted})
        if leader is not None:
            await self._lead(bucket, leader)
        return copies.MoveCopiesResponse(bucket=_copies(self._view.catalog, table, bucket, self._alive()))

    async def _lead(self, bucket: BucketId, leader: int) -> None:
        await self._view.perform_everywhere(commands.move_leader, bucket, leader, alive=self._alive())
        if self._view.catalog.leader_of(bucket) != leader:
            raise InvalidRequest(
                f"server {leader} cannot lead bucket {bucket} now: its copy is not in sync, or it does not answer. "
                "It is the preferred leader from now on; try again when strom cluster buckets shows it in sync",
                bucket=str(bucket),
            )


def _led_by(leader: int, wanted: tuple[int, ...], bucket: BucketId) -> tuple[int, ...]:
    if leader not in wanted:
        raise InvalidRequest(
            f"server {leader} shall have no copy of bucket {bucket}, so it cannot lead it: name one of "
            f"{', '.join(map(str, wanted))}, or move a copy there first",
            bucket=str(bucket),
        )
    return (leader, *(one for one in wanted if one != leader))


def _bucket(catalog: Catalog, table: TableEntry, request: copies.MoveCopiesRequest) -> BucketId:
    """The bucket that is meant; it must have an entry."""
    partition_id = None
    if request.partition_name is not None:
        found = [one for one in catalog.partitions_of(table.table_id) if one.name == request.partition_name]
        if not found:
            raise UnknownBucket(f"table {table.path} has no partition {request.partition_name!r}")
        partition_id = found[0].partition_id
    elif table.partitioned:
        raise InvalidRequest(f"table {table.path} has partitions: name the one whose bucket is meant")
    bucket = BucketId(table.table_id, partition_id, request.bucket_id)
    if catalog.replicas.get(bucket) is None:
        raise UnknownBucket(
            f"table {table.path} has no bucket {request.bucket_id}: it has {table.bucket_count}, from 0 on"
        )
    return bucket


def _copies(
    catalog: Catalog, table: TableEntry, bucket: BucketId, alive: Collection[int]
) -> copies.WireCopies:
    entry = catalog.replicas.get(bucket)
    assert entry is not None
    names = {one.partition_id: one.name for one in catalog.partitions_of(table.table_id)}
    return copies.WireCopies(
        table_path=path_message(table.path),
        partition_name=None if bucket.partition_id is None else names[bucket.partition_id],
        bucket_id=bucket.bucket,
        leader_id=entry.leader if has_leader(entry, catalog.registrations, alive) else None,
        epoch=entry.epoch,
        servers=entry.servers,
        wanted=entry.wanted,
        in_sync=[one.server_id for one in entry.in_sync if one.server_id in alive],
        min_insync=promise_of(catalog, table.description).min_insync,
        losses=entry.losses,
    )
