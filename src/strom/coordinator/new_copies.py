"""The entries of new buckets: who gets their copies, and who leads.

A new bucket is empty, so the copies of all servers that live are in sync from the beginning. The entries of a large
table do not fit into one commit: they are put before the table itself, under its id, where nobody finds them until the
table's own entry names it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from strom.coordinator import keys
from strom.coordinator.catalog import Catalog
from strom.coordinator.plan import CommitStep, UpdatePlan
from strom.errors import InvalidConfig
from strom.metadata.changes import Delete, Put
from strom.model import properties
from strom.model.bucket import BucketId
from strom.model.table import TableDescription, TableEntry
from strom.replication.assignment import ServerLoad, assign
from strom.replication.bucket_entry import Assignment, BucketEntry, encode_bucket
from strom.replication.member import CopyPromise, Member, identity_of
from strom.replication.registration import Registration, Registrations

T = TypeVar("T")

FIRST_EPOCH = 1
FIRST_PLACEMENT = 1
STEP_ENTRIES_MAX = 500
"""Buckets in one commit: some 150 KB, where a store takes 512 KB at once."""


def promise_of(catalog: Catalog, description: TableDescription) -> CopyPromise:
    """What a table promises of its copies."""
    said, limits = description.properties, catalog.limits
    factor = properties.replication_factor(said) or limits.replication_factor_default
    return CopyPromise(
        properties.durability(said) or limits.durability_default,
        properties.min_insync(said) or min_insync_default(factor),
    )


def min_insync_default(factor: int) -> int:
    """Copies that must be in sync for a write with ``acks=all`` where the table does not say: two of three."""
    return 1 if factor <= 2 else 2


def check_copies(catalog: Catalog, description: TableDescription) -> None:
    """Refuse a table whose copies the cluster cannot hold."""
    factor = properties.replication_factor(description.properties) or 1
    staying = catalog.registrations.keys() - catalog.operations.leaving
    if factor > len(staying):
        leaving = len(catalog.registrations) - len(staying)
        raise InvalidConfig(
            f"table.replication.factor is {factor}, but the cluster has {len(staying)} tablet servers"
            f"{f' beside {leaving} that leave it' if leaving else ''}: start more, or ask for fewer copies",
            property="table.replication.factor",
            value=factor,
        )
    if promise_of(catalog, description).min_insync > factor:
        raise InvalidConfig(
            f"table.min.insync is above table.replication.factor, which is {factor}: no write would be acknowledged",
            property="table.min.insync",
            value=factor,
        )


def new_entries(
    catalog: Catalog, table: TableEntry, partition_ids: Sequence[int | None], alive: Collection[int] | None
) -> dict[BucketId, BucketEntry]:
    """The entries of the buckets of a new table, or of new partitions.

    ``alive``: who seems to live; None: who is announced, or all where nobody is.
    """
    promise = promise_of(catalog, table.description)
    factor = properties.replication_factor(table.description.properties) or 1
    servers = _servers(catalog, alive, factor)
    buckets = [
        BucketId(table.table_id, partition_id, number)
        for partition_id in partition_ids
        for number in range(table.bucket_count)
    ]
    living = {one.server_id for one in servers if one.leaders < _DEAD} or {one.server_id for one in servers}
    return {
        bucket: _entry(bucket, wanted, living, catalog.registrations, promise)
        for bucket, wanted in zip(buckets, assign(servers, len(buckets), factor), strict=True)
    }


_DEAD = 1 << 40
"""Added to the load of servers that do not live: they get a copy only if there are not enough others."""


def _servers(catalog: Catalog, alive: Collection[int] | None, factor: int) -> list[ServerLoad]:
    """Who gets copies. Servers that leave get none, unless a table had more copies before than there are others now."""
    if alive is None:
        alive = catalog.alive.keys() or catalog.registrations.keys()
    rows, found = catalog.replicas, []
    staying = catalog.registrations.keys() - catalog.operations.leaving
    for server_id, registration in sorted(catalog.registrations.items()):
        if server_id not in staying and len(staying) >= factor:
            continue
        dead = 0 if server_id in alive else _DEAD
        leaders, copies = rows.leader_count(server_id) + dead, rows.copy_count(server_id) + dead
        found.append(ServerLoad(server_id, registration.rack, leaders, copies))
    return found


def _entry(
    bucket: BucketId,
    wanted: tuple[int, ...],
    living: Collection[int],
    registrations: Registrations,
    promise: CopyPromise,
) -> BucketEntry:
    members = [_member(registrations[one], bucket, promise) for one in wanted if one in living]
    leader = members[0].server_id
    return BucketEntry(
        replicas=tuple(Assignment(one, FIRST_PLACEMENT) for one in wanted),
        wanted=wanted,
        leader=leader,
        incarnation=registrations[leader].incarnation,
        epoch=FIRST_EPOCH,
        in_sync=tuple(sorted(members)),
        drawn=FIRST_PLACEMENT,
    )


def _member(registration: Registration, bucket: BucketId, promise: CopyPromise) -> Member:
    """The first copy on a server; of several disks the one that its number falls on. The server makes it there."""
    disk, lineage = registration.disks[(bucket.table_id + bucket.bucket) % len(registration.disks)]
    identity = identity_of(disk, FIRST_PLACEMENT, lineage, promise.durability)
    return Member(registration.server_id, identity)


# --- in steps ----------------------------------------------------------------------------------------------------


def put_steps(catalog: Catalog, entries: Mapping[BucketId, BucketEntry]) -> list[CommitStep]:
    """Put new entries, some at a time; each rests on the registrations it names (R1)."""
    steps = []
    for some in _some_at_a_time(list(entries.items())):
        servers = sorted({server for _, entry in some for server in entry.servers})
        steps.append(
            CommitStep(
                [catalog.unchanged(keys.server(server)) for server in servers],
                [Put(keys.replicas(bucket), encode_bucket(entry)) for bucket, entry in some],
            )
        )
    return steps


def delete_steps(catalog: Catalog, buckets: Iterable[BucketId]) -> list[CommitStep]:
    """Delete the entries of buckets that no longer exist, some at a time."""
    found = [bucket for bucket in buckets if catalog.replicas.get(bucket) is not None]
    return [
        CommitStep((), [Delete(keys.replicas(bucket)) for bucket in some]) for some in _some_at_a_time(found)
    ]


def buckets_of(catalog: Catalog, table: TableEntry) -> Iterator[BucketId]:
    """Every bucket of a table."""
    partitions: list[int | None] = [None]
    if table.partitioned:
        partitions = [one.partition_id for one in catalog.partitions_of(table.table_id)]
    for partition_id in partitions:
        yield from buckets_in(table, partition_id)


def buckets_in(table: TableEntry, partition_id: int | None) -> Iterator[BucketId]:
    """The buckets of a partition, or of a table without partitions."""
    return (BucketId(table.table_id, partition_id, number) for number in range(table.bucket_count))


def lost_entries(catalog: Catalog) -> list[BucketId]:
    """Buckets whose tables or partitions do not exist, because their making or dropping was cut short.

    Look for them when a term begins, before anything is created in it: later, an entry without a table may belong to
    one that is being made.
    """
    return [bucket for bucket in catalog.replicas if not catalog.has_bucket(bucket)]


def sweep(catalog: Catalog, lost: Iterable[BucketId]) -> UpdatePlan[int]:
    """Delete the entries of buckets that were found lost, some at a time; returns how many, 0 when none is left."""
    found = [one for one in lost if catalog.replicas.get(one) is not None and not catalog.has_bucket(one)]
    some = found[:STEP_ENTRIES_MAX]
    return UpdatePlan(len(some), (), [Delete(keys.replicas(bucket)) for bucket in some])


def _some_at_a_time(items: Sequence[T]) -> list[Sequence[T]]:
    return [items[at : at + STEP_ENTRIES_MAX] for at in range(0, len(items), STEP_ENTRIES_MAX)]
