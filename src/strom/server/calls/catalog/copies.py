"""Where the copies of buckets are, and where a person wants them: for the active coordinator of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from strom.coordinator import commands
from strom.coordinator.catalog import Catalog
from strom.coordinator.new_copies import buckets_in, promise_of
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

PAGE_BUCKETS = 1000
BEGINNING = (0, -1, -1)


class CopyCalls:
    """Answers in the active coordinator's process."""

    def __init__(
        self,
        view: CatalogView,
        alive: Callable[[], Collection[int]],
        able: Callable[[], Collection[int]],
    ) -> None:
        """``alive``: the tablet servers that answer; ``able``: those of them that are not about to stop."""
        self._view = view
        self._alive = alive
        self._able = able

    def handlers(self) -> Mapping[Api[Any, Any], CallHandler]:
        return {LIST_COPIES: self.list_copies, MOVE_COPIES: self.move_copies}

    def list_copies(self, call: Call) -> Message:
        """The buckets of a table, or of all, a page at a time."""
        request: copies.ListCopiesRequest = call.request
        catalog, alive = self._view.fresh(), self._alive()
        tables = (
            catalog.all_tables()
            if request.table_path is None
            else [catalog.table(path_of(request.table_path))]
        )
        page = list(islice(_behind(catalog, tables, tuple(request.after) or BEGINNING), PAGE_BUCKETS + 1))
        more = len(page) > PAGE_BUCKETS
        return copies.ListCopiesResponse(
            buckets=[wire_copies(catalog, *one, alive) for one in page[:PAGE_BUCKETS]],
            next=_order(page[PAGE_BUCKETS - 1][1]) if more else (),
        )

    async def move_copies(self, call: Call) -> Message:
        """Let other servers have the copies of a bucket, or lead it."""
        request: copies.MoveCopiesRequest = call.request
        catalog = self._view.fresh()
        table = catalog.table(path_of(request.table_path))
        bucket = bucket_named(catalog, table, request.partition_name, request.bucket_id)
        entry = catalog.replicas.get(bucket)
        assert entry is not None
        wanted = tuple(request.wanted) or entry.wanted
        leader = request.leader_id
        if leader is not None:
            wanted = _led_by(leader, wanted, catalog.bucket_name(bucket), str(bucket))
        await self._view.perform(commands.reassign, {bucket: wanted})
        if leader is not None:
            await self._lead(bucket, leader)
        now = self._view.catalog
        name = partition_name_of(now, bucket)
        return copies.MoveCopiesResponse(bucket=wire_copies(now, table, bucket, name, self._alive()))

    async def _lead(self, bucket: BucketId, leader: int) -> None:
        await self._view.perform_everywhere(commands.move_leader, bucket, leader, alive=self._able())
        if self._view.catalog.leader_of(bucket) != leader:
            raise InvalidRequest(
                f"server {leader} cannot lead {self._view.catalog.bucket_name(bucket)} now: its copy is not in "
                "sync, or it does not answer, or it is about to stop. It is the preferred leader from now on; "
                "try again when strom cluster buckets shows it in sync",
                bucket=str(bucket),
            )


def _order(bucket: BucketId) -> tuple[int, ...]:
    return bucket.table_id, -1 if bucket.partition_id is None else bucket.partition_id, bucket.bucket


def _behind(
    catalog: Catalog, tables: Iterable[TableEntry], after: tuple[int, ...]
) -> Iterator[tuple[TableEntry, BucketId, str | None]]:
    """The buckets behind one, by their ids, with the names of their partitions."""
    for table in tables:
        if table.table_id < after[0]:
            continue
        names: dict[int | None, str | None] = {None: None}
        if table.partitioned:
            names = {one.partition_id: one.name for one in catalog.partitions_of(table.table_id)}
        for partition_id in sorted(names, key=lambda one: -1 if one is None else one):
            for bucket in buckets_in(table, partition_id):
                if _order(bucket) > after and catalog.replicas.get(bucket) is not None:
                    yield table, bucket, names[partition_id]


def _led_by(leader: int, wanted: tuple[int, ...], name: str, bucket: str) -> tuple[int, ...]:
    if leader not in wanted:
        raise InvalidRequest(
            f"server {leader} shall have no copy of {name}, so it cannot lead it: name one of "
            f"{', '.join(map(str, wanted))}, or move a copy there first",
            bucket=bucket,
        )
    return (leader, *(one for one in wanted if one != leader))


def bucket_named(catalog: Catalog, table: TableEntry, partition_name: str | None, number: int) -> BucketId:
    """The bucket that is meant; it must have an entry. One that may get it yet is worth asking for again."""
    partition_id = None
    if partition_name is not None:
        partition_id = catalog.partition(table, partition_name).partition_id
    elif table.partitioned:
        raise InvalidRequest(f"table {table.path} has partitions: name the one whose bucket is meant")
    if not 0 <= number < table.bucket_count:
        raise InvalidRequest(
            f"table {table.path} has no bucket {number}: it has {table.bucket_count}, from 0 on"
        )
    bucket = BucketId(table.table_id, partition_id, number)
    if catalog.replicas.get(bucket) is None:
        raise UnknownBucket(f"{catalog.bucket_name(bucket)} is being made: try again", bucket=str(bucket))
    return bucket


def partition_name_of(catalog: Catalog, bucket: BucketId) -> str | None:
    """The name of a bucket's partition; None where its table has none."""
    found = None if bucket.partition_id is None else catalog.partition_by_id(bucket.partition_id)
    return None if found is None else found.name


def wire_copies(
    catalog: Catalog, table: TableEntry, bucket: BucketId, partition_name: str | None, alive: Collection[int]
) -> copies.WireCopies:
    """The copies of a bucket that has an entry."""
    entry = catalog.replicas.get(bucket)
    assert entry is not None
    return copies.WireCopies(
        table_path=path_message(table.path),
        partition_name=partition_name,
        bucket_id=bucket.bucket,
        leader_id=entry.leader if has_leader(entry, catalog.registrations, alive) else None,
        epoch=entry.epoch,
        servers=entry.servers,
        wanted=entry.wanted,
        in_sync=[one.server_id for one in entry.in_sync if one.server_id in alive],
        min_insync=promise_of(catalog, table.description).min_insync,
        losses=entry.losses,
    )
