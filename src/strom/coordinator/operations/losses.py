"""Leaders that are elected though acknowledged rows may be lost, and what is remembered of it.

The rules elect one when all members that can still answer have (R10). Otherwise a person may, who is told before what
each copy holds. Either way ``losses`` of the bucket's entry rises, and what was declared is put beside it in the same
commit, so that it can be read later.
"""

from __future__ import annotations

from collections.abc import Mapping

from strom.coordinator import keys
from strom.coordinator.catalog import Catalog
from strom.coordinator.operation_rows import DeclaredLoss, encode_losses
from strom.coordinator.plan import UpdatePlan
from strom.coordinator.replicas import entries_plan, entry_of, promise_for
from strom.errors import Conflict
from strom.metadata.changes import Delete, Put
from strom.model.bucket import BucketId
from strom.replication import elections
from strom.replication.bucket_entry import BucketEntry
from strom.replication.elections import EntryChange, FoundCopy

NOBODY = ""
"""Who decided where the rules did."""


def recover(
    catalog: Catalog, bucket: BucketId, found: Mapping[int, FoundCopy], *, now_ms: int
) -> UpdatePlan[BucketEntry | None]:
    """A leader for a bucket whose in-sync copies are not what they were, from what its servers answered (R10).

    None: nothing can be decided yet.
    """
    entry, promise = entry_of(catalog, bucket), promise_for(catalog, bucket)
    change = elections.recover(entry, catalog.registrations, found, promise)
    return UpdatePlan(None) if change is None else _declared(catalog, bucket, change, found, now_ms, NOBODY)


def elect_uncleanly(
    catalog: Catalog,
    bucket: BucketId,
    found: Mapping[int, FoundCopy],
    to: int,
    *,
    epoch: int,
    now_ms: int,
    by: str,
) -> UpdatePlan[BucketEntry | None]:
    """Let ``to`` lead, whatever its copy lacks: a person gives up what only others may have. None: it did not answer.

    ``epoch``: of the entry that the person was told of; Conflict if somebody was elected since.
    """
    entry, promise = entry_of(catalog, bucket), promise_for(catalog, bucket)
    if entry.epoch != epoch:
        raise Conflict(
            f"a leader of {catalog.bucket_name(bucket)} was elected meanwhile, in epoch {entry.epoch}: look again"
        )
    change = elections.force(entry, catalog.registrations, found, promise, to=to)
    return UpdatePlan(None) if change is None else _declared(catalog, bucket, change, found, now_ms, by)


def _declared(
    catalog: Catalog,
    bucket: BucketId,
    change: EntryChange,
    found: Mapping[int, FoundCopy],
    now_ms: int,
    by: str,
) -> UpdatePlan[BucketEntry | None]:
    before, entry = entry_of(catalog, bucket), change.entry
    answered = elections.answering(before, catalog.registrations, found, promise_for(catalog, bucket))
    missing = tuple(one.server_id for one in before.in_sync if one.server_id not in answered)
    loss = DeclaredLoss(now_ms, entry.epoch, entry.leader, found[entry.leader].end, missing, by)
    key = keys.losses(bucket)
    plan = entries_plan(catalog, {bucket: change}, entry)
    return UpdatePlan(
        entry,
        [*plan.requirements, catalog.unchanged(key)],
        [*plan.updates, Put(key, encode_losses([*catalog.operations.losses_of(bucket), loss]))],
    )


def forget_losses(catalog: Catalog) -> UpdatePlan[int]:
    """Forget losses of tables and partitions that do not exist any more; returns how many buckets that were."""
    gone = [one for one in catalog.operations.buckets_with_losses() if not catalog.has_bucket(one)]
    return UpdatePlan(len(gone), (), [Delete(keys.losses(one)) for one in gone])
