"""Commands about the copies of buckets in a cluster: elections, in-sync sets, moves.

Each plan requires the entries it changes and the registrations it rests on as they were read (R1), and changes at most
``STEP_ENTRIES_MAX`` buckets: call again while there are some ``left``. The decisions themselves are in ``replication``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from strom.coordinator import keys
from strom.coordinator.catalog import Catalog
from strom.coordinator.new_copies import STEP_ENTRIES_MAX, promise_of
from strom.coordinator.plan import UpdatePlan
from strom.errors import InvalidRequest, UnknownBucket
from strom.metadata.changes import Put, Requirement, Update, VersionIs
from strom.model.bucket import BucketId
from strom.replication import elections
from strom.replication.bucket_entry import BucketEntry, encode_bucket
from strom.replication.elections import EntryChange
from strom.replication.member import CopyPromise

T = TypeVar("T")


class ChangedBuckets(NamedTuple):
    """What a plan does to many buckets."""

    changed: tuple[BucketId, ...]
    unchanged: tuple[BucketId, ...]
    """Buckets for which nothing can be decided now, or nothing is to do."""
    left: int
    """Buckets that were not looked at: call again."""


Decide = Callable[[BucketEntry, CopyPromise], EntryChange | None]


# --- many buckets ------------------------------------------------------------------------------------------------


def elect_leaders(
    catalog: Catalog, servers: Iterable[int], *, alive: Collection[int]
) -> UpdatePlan[ChangedBuckets]:
    """New leaders for the buckets of servers that died or were restarted."""
    return _many(
        catalog,
        [one for server_id in sorted(set(servers)) for one in catalog.replicas.led_by(server_id)],
        lambda entry, promise: elections.elect(entry, catalog.registrations, alive, promise),
        needed=lambda entry: not elections.has_leader(entry, catalog.registrations, alive),
    )


def replace_cut_off_leaders(
    catalog: Catalog,
    cut_from: Mapping[int, Collection[int]],
    *,
    alive: Collection[int],
) -> UpdatePlan[ChangedBuckets]:
    """Other leaders for buckets whose followers cannot reach the one they have; see ``elections.replace_cut_off``."""
    missed = sorted({one for leaders in cut_from.values() for one in leaders})
    return _many(
        catalog,
        [one for server_id in missed for one in catalog.replicas.led_by(server_id)],
        lambda entry, promise: elections.replace_cut_off(
            entry, catalog.registrations, alive, cut_from, promise
        ),
    )


def drop_dead_members(
    catalog: Catalog, servers: Iterable[int], *, alive: Collection[int]
) -> UpdatePlan[ChangedBuckets]:
    """In-sync sets without servers that died, so that the leaders of their buckets need not wait for them."""
    dead = sorted(set(servers))
    return _many(
        catalog,
        dict.fromkeys(one for server_id in dead for one in catalog.replicas.on(server_id)),
        lambda entry, promise: elections.drop_dead(entry, catalog.registrations, alive, promise),
        needed=lambda entry: (
            any(entry.member_of(server_id) is not None for server_id in dead)
            and elections.has_leader(entry, catalog.registrations, alive)
        ),
    )


def move_leaders_away(
    catalog: Catalog, server_id: int, *, alive: Collection[int]
) -> UpdatePlan[ChangedBuckets]:
    """Other leaders for the buckets of a server that is about to stop: wanted copies that are in sync."""
    return _many(
        catalog,
        catalog.replicas.led_by(server_id),
        lambda entry, promise: elections.move_leader(entry, catalog.registrations, alive, promise),
    )


def prefer_leaders(
    catalog: Catalog, buckets: Iterable[BucketId], *, alive: Collection[int]
) -> UpdatePlan[ChangedBuckets]:
    """Give these buckets back to the leaders that are wanted, where they can lead."""
    return _many(
        catalog,
        buckets,
        lambda entry, promise: elections.move_leader(
            entry, catalog.registrations, alive, promise, to=entry.wanted[0]
        ),
        needed=lambda entry: entry.leader != entry.wanted[0],
    )


def advance_moves(
    catalog: Catalog, buckets: Iterable[BucketId], *, alive: Collection[int]
) -> UpdatePlan[ChangedBuckets]:
    """The next step of each bucket that needs one: a leader, a new copy, the removal of an old one."""
    return _many(
        catalog,
        buckets,
        lambda entry, promise: elections.decide(entry, catalog.registrations, alive, promise),
    )


def _many(
    catalog: Catalog,
    buckets: Iterable[BucketId],
    decide: Decide,
    *,
    needed: Callable[[BucketEntry], bool] = lambda entry: True,
) -> UpdatePlan[ChangedBuckets]:
    """Decide about buckets in order, until there is enough for one commit; those of dropped tables are passed over."""
    changes: dict[BucketId, EntryChange] = {}
    unchanged: list[BucketId] = []
    promises: dict[int, CopyPromise] = {}
    looking = iter(list(buckets))
    for bucket in looking:
        entry, table = catalog.replicas.get(bucket), catalog.table_by_id(bucket.table_id)
        if entry is None or table is None or not needed(entry):
            continue
        if bucket.table_id not in promises:
            promises[bucket.table_id] = promise_of(catalog, table.description)
        change = decide(entry, promises[bucket.table_id])
        if change is None:
            unchanged.append(bucket)
        else:
            changes[bucket] = change
        if len(changes) == STEP_ENTRIES_MAX:
            break
    left = sum(1 for _ in looking)
    return entries_plan(catalog, changes, ChangedBuckets(tuple(changes), tuple(unchanged), left))


# --- one bucket --------------------------------------------------------------------------------------------------


def change_in_sync(catalog: Catalog, bucket: BucketId, entry: BucketEntry, version: int) -> UpdatePlan[bool]:
    """A leader's proposal on the version of the entry that it read; false if the entry has moved on.

    Whatever comes back, also an error, the leader goes on counting what it proposed (R7).
    """
    found = catalog.versioned_entry(bucket)
    if found is None or found[1] != version:
        return UpdatePlan(False)
    key = keys.replicas(bucket)
    return UpdatePlan(True, [VersionIs(key, version)], [Put(key, encode_bucket(entry))])


def change_in_sync_sets(
    catalog: Catalog, proposed: Mapping[BucketId, tuple[BucketEntry, int]]
) -> UpdatePlan[int]:
    """Proposals of a leader for several buckets, each on the version of the entry that it read; how many are made.

    Those whose entries have moved on are left out.
    """
    plans = [change_in_sync(catalog, bucket, *one) for bucket, one in proposed.items()]
    return UpdatePlan(
        sum(plan.result for plan in plans),
        [one for plan in plans for one in plan.requirements],
        [one for plan in plans for one in plan.updates],
    )


def reassign(catalog: Catalog, wanted: Mapping[BucketId, Sequence[int]]) -> UpdatePlan[ChangedBuckets]:
    """Let other servers have the copies of these buckets, the preferred leaders first; ``advance_moves`` does it."""
    changes = {}
    for bucket, servers in wanted.items():
        entry = entry_of(catalog, bucket)
        _check_wanted(catalog, bucket, servers)
        if entry.wanted != tuple(servers):
            changes[bucket] = elections.want(entry, servers)
    some = dict(list(changes.items())[:STEP_ENTRIES_MAX])
    return entries_plan(catalog, some, ChangedBuckets(tuple(some), (), len(changes) - len(some)))


def _check_wanted(catalog: Catalog, bucket: BucketId, servers: Sequence[int]) -> None:
    unknown = sorted(set(servers) - catalog.registrations.keys())
    if unknown or not servers or len(set(servers)) != len(servers):
        known = ", ".join(map(str, sorted(catalog.registrations)))
        raise InvalidRequest(
            f"{catalog.bucket_name(bucket)} cannot have its copies on {list(servers)}: name servers of the "
            f"cluster ({known}), each once",
            bucket=str(bucket),
        )
    new = set(servers) - set(entry_of(catalog, bucket).wanted)
    for server_id in sorted(new & catalog.operations.leaving):
        raise InvalidRequest(
            f"server {server_id} leaves the cluster, so it gets no copies: name another one, or take its leaving back",
            bucket=str(bucket),
        )
    min_insync = promise_for(catalog, bucket).min_insync
    if len(servers) < min_insync:
        raise InvalidRequest(
            f"{catalog.bucket_name(bucket)} would have {len(servers)} copies, but {min_insync} must be "
            "in sync (table.min.insync)",
            bucket=str(bucket),
        )


def move_leader(catalog: Catalog, bucket: BucketId, to: int, *, alive: Collection[int]) -> UpdatePlan[bool]:
    """Let another server lead; false if it leads already, or cannot: it is not wanted, not in sync, or not alive."""
    change = elections.move_leader(
        entry_of(catalog, bucket), catalog.registrations, alive, promise_for(catalog, bucket), to=to
    )
    return UpdatePlan(False) if change is None else entries_plan(catalog, {bucket: change}, True)


# --- plans -------------------------------------------------------------------------------------------------------


def entries_plan(catalog: Catalog, changes: Mapping[BucketId, EntryChange], result: T) -> UpdatePlan[T]:
    """R1: on the versions of the entries, and of the registrations that the decisions rest on."""
    servers = sorted({server_id for change in changes.values() for server_id in change.rests_on})
    requirements: list[Requirement] = [catalog.unchanged(keys.server(one)) for one in servers]
    requirements += [catalog.unchanged(keys.replicas(bucket)) for bucket in changes]
    updates: list[Update] = [
        Put(keys.replicas(bucket), encode_bucket(change.entry)) for bucket, change in changes.items()
    ]
    return UpdatePlan(result, requirements, updates)


def entry_of(catalog: Catalog, bucket: BucketId) -> BucketEntry:
    entry = catalog.replicas.get(bucket)
    if entry is None:
        raise UnknownBucket(f"bucket {bucket} has no copies in this cluster", bucket=str(bucket))
    return entry


def promise_for(catalog: Catalog, bucket: BucketId) -> CopyPromise:
    table = catalog.table_by_id(bucket.table_id)
    if table is None:
        raise UnknownBucket(f"there is no table {bucket.table_id}", bucket=str(bucket))
    return promise_of(catalog, table.description)
