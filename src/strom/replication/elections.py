"""What a coordinator decides about a bucket: from an entry, the registrations, and a belief in who is alive.

All of these may be out of date, and the belief may be wrong. So a change names what it rests on: it is committed only
if the entry, and the registrations of these servers, are still the ones that were read (R1).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from strom.replication.bucket_entry import Assignment, BucketEntry
from strom.replication.leadership import is_registered
from strom.replication.member import CopyIdentity, CopyPromise, Member
from strom.replication.registration import Registrations


@dataclass(frozen=True, slots=True)
class EntryChange:
    """A changed entry, and the servers whose registrations it rests on."""

    entry: BucketEntry
    rests_on: tuple[int, ...] = ()


class FoundCopy(NamedTuple):
    """What a live server answered when it was asked for its copy (R10)."""

    incarnation: int
    identity: CopyIdentity
    last_epoch: int
    end: int


def sound_members(
    entry: BucketEntry, registrations: Registrations, promise: CopyPromise
) -> tuple[Member, ...]:
    """The in-sync copies that still are what they were: who may lead (R4)."""
    return tuple(one for one in entry.in_sync if is_registered(one, entry, registrations, promise))


def has_leader(entry: BucketEntry, registrations: Registrations, alive: Collection[int]) -> bool:
    """Whether the process that the entry names seems to live."""
    registration = registrations.get(entry.leader)
    return (
        entry.leader in alive and registration is not None and registration.incarnation == entry.incarnation
    )


def decide(
    entry: BucketEntry, registrations: Registrations, alive: Collection[int], promise: CopyPromise
) -> EntryChange | None:
    """The next step of a bucket that needs one: a leader, or the progress of a move. None: there is nothing to do."""
    if not has_leader(entry, registrations, alive):
        return elect(entry, registrations, alive, promise)
    if _joined(entry, registrations, promise) and entry.leader not in entry.wanted:
        return move_leader(entry, registrations, alive, promise)
    return advance_move(entry, registrations, promise)


# --- leaders -----------------------------------------------------------------------------------------------------


def elect(
    entry: BucketEntry, registrations: Registrations, alive: Collection[int], promise: CopyPromise
) -> EntryChange | None:
    """A new leader for a bucket without one; None while no sound member is alive."""
    candidates = _candidates(entry, registrations, alive, promise)
    if not candidates:
        return None
    return _led_by(candidates[0], entry, registrations, alive, promise)


def move_leader(
    entry: BucketEntry,
    registrations: Registrations,
    alive: Collection[int],
    promise: CopyPromise,
    *,
    to: int | None = None,
) -> EntryChange | None:
    """Another leader, though the present one may live: ``to``, or the first that is wanted. None if nobody can.

    A move goes only to a wanted replica, and only to a sound member (R21).
    """
    candidates = [
        one
        for one in _candidates(entry, registrations, alive, promise)
        if one in entry.wanted and one != entry.leader and to in (None, one)
    ]
    return _led_by(candidates[0], entry, registrations, alive, promise) if candidates else None


def replace_cut_off(
    entry: BucketEntry,
    registrations: Registrations,
    alive: Collection[int],
    cut_from: Mapping[int, Collection[int]],
    promise: CopyPromise,
) -> EntryChange | None:
    """Another leader for a bucket whose leader lives and is cut off from those that follow it; None: let it be.

    ``cut_from``: by server, the leaders that it cannot reach, as it says itself. Like every election it is safe however
    wrong that is: the new leader is a sound member, in a new epoch, for which R1 to R4 hold. What is heard decides only
    whether it is *better*: so many copies must miss the leader that they alone are enough for a watermark
    (``min.insync``), and more miss it than do not. The old leader leaves the set in the same commit, as far as R9 lets
    it: the new one need not wait for it.
    """
    if not has_leader(entry, registrations, alive):
        return None
    others = [one for one in entry.servers if one != entry.leader and one in alive]
    missing = [one for one in others if entry.leader in cut_from.get(one, ())]
    if len(missing) < promise.min_insync or 2 * len(missing) <= len(others):
        return None
    reached = [one for one in missing if not any(one in cut_from.get(other, ()) for other in missing)]
    candidates = [one for one in _candidates(entry, registrations, alive, promise) if one in reached]
    if not candidates:
        return None
    return _led_by(candidates[0], entry, registrations, set(alive) - {entry.leader}, promise)


def drop_dead(
    entry: BucketEntry, registrations: Registrations, alive: Collection[int], promise: CopyPromise
) -> EntryChange | None:
    """The in-sync set without members that are gone, so that the leader need not wait for them; None if none can go."""
    in_sync = _without_gone(entry, entry.leader, registrations, alive, promise)
    return None if in_sync == entry.in_sync else EntryChange(replace(entry, in_sync=in_sync))


def _candidates(
    entry: BucketEntry, registrations: Registrations, alive: Collection[int], promise: CopyPromise
) -> list[int]:
    """Who can lead, the preferred first: in the order that is wanted, then whoever else has a copy."""
    able = {one.server_id for one in sound_members(entry, registrations, promise)} & set(alive)
    order = [*entry.wanted, *(one for one in entry.servers if one not in entry.wanted)]
    return [one for one in order if one in able]


def _led_by(
    leader: int,
    entry: BucketEntry,
    registrations: Registrations,
    alive: Collection[int],
    promise: CopyPromise,
) -> EntryChange:
    """R3: a new epoch, for the process that is registered. R21: who is gone leaves in the same commit."""
    changed = replace(
        entry,
        leader=leader,
        incarnation=registrations[leader].incarnation,
        epoch=entry.epoch + 1,
        in_sync=_without_gone(entry, leader, registrations, alive, promise),
    )
    return EntryChange(changed, (leader,))


def _without_gone(
    entry: BucketEntry,
    leader: int,
    registrations: Registrations,
    alive: Collection[int],
    promise: CopyPromise,
) -> tuple[Member, ...]:
    """R9: as far as min.insync allows; first those that lost their copies, then those that may return with them."""
    sound = sound_members(entry, registrations, promise)
    lost = [one for one in entry.in_sync if one not in sound]
    away = [one for one in sound if one.server_id not in alive]
    spare = len(entry.in_sync) - promise.min_insync
    gone = [one for one in (*lost, *away) if one.server_id != leader][: max(spare, 0)]
    return tuple(one for one in entry.in_sync if one not in gone)


# --- after a loss ------------------------------------------------------------------------------------------------


def recover(
    entry: BucketEntry,
    registrations: Registrations,
    found: Mapping[int, FoundCopy],
    promise: CopyPromise,
) -> EntryChange | None:
    """A leader when no in-sync copy is what it was (R10); None: wait, or let a person decide (``force``).

    Under ``os`` that is what a power loss of all does. Every member that still has its disk must have answered: the one
    with most is elected, and the loss is declared. Only members are asked: a copy that was not in sync may have a
    higher epoch and fewer committed rows.
    """
    if promise.durability != "os" or sound_members(entry, registrations, promise):
        return None
    kept = [one for one in entry.in_sync if _has_kept_disk(one, entry, registrations)]
    answered = answering(entry, registrations, found, promise)
    best = _most_complete(
        {one.server_id: answered[one.server_id] for one in kept if one.server_id in answered}
    )
    if best is None or any(one.server_id not in answered for one in kept):
        return None
    return _declared(best, answered[best], entry, registrations)


def force(
    entry: BucketEntry,
    registrations: Registrations,
    found: Mapping[int, FoundCopy],
    promise: CopyPromise,
    *,
    to: int | None = None,
) -> EntryChange | None:
    """What a person may decide when the in-sync copies will not return; None if no copy, or not ``to``, answered.

    Of all copies that answered, in sync or not, the one with most leads unless one is named, and the loss is declared.
    """
    answered = answering(entry, registrations, found, promise)
    best = _most_complete(answered) if to is None else to
    if best is None or best not in answered:
        return None
    return _declared(best, answered[best], entry, registrations)


def _has_kept_disk(member: Member, entry: BucketEntry, registrations: Registrations) -> bool:
    """Whether the disk is still there, though it may have lost what was not synced."""
    registration = registrations.get(member.server_id)
    return (
        registration is not None
        and registration.has_disk(member.identity.disk)
        and entry.placement_of(member.server_id) == member.identity.placement
    )


def answering(
    entry: BucketEntry,
    registrations: Registrations,
    found: Mapping[int, FoundCopy],
    promise: CopyPromise,
) -> dict[int, FoundCopy]:
    """Answers of the processes that are registered, about the copies of this assignment."""
    return {
        server_id: copy
        for server_id, copy in found.items()
        if server_id in registrations
        and registrations[server_id].incarnation == copy.incarnation
        and is_registered(Member(server_id, copy.identity), entry, registrations, promise)
    }


def _most_complete(copies: Mapping[int, FoundCopy]) -> int | None:
    """The highest (last epoch, end): a later epoch began with all that was committed before it."""
    return max(sorted(copies), key=lambda one: (copies[one].last_epoch, copies[one].end), default=None)


def _declared(leader: int, copy: FoundCopy, entry: BucketEntry, registrations: Registrations) -> EntryChange:
    changed = replace(
        entry,
        leader=leader,
        incarnation=registrations[leader].incarnation,
        epoch=entry.epoch + 1,
        in_sync=(Member(leader, copy.identity),),
        losses=entry.losses + 1,
    )
    rests_on = {leader, *(one.server_id for one in entry.in_sync)}  # a member that returns must be asked
    return EntryChange(changed, tuple(sorted(rests_on)))


# --- moving copies (R19) -------------------------------------------------------------------------------------------


def want(entry: BucketEntry, wanted: Sequence[int]) -> EntryChange:
    """Let these servers have the copies, the preferred leader first; ``advance_move`` brings it about."""
    assert len(set(wanted)) == len(wanted) > 0
    return EntryChange(replace(entry, wanted=tuple(wanted)))


def advance_move(
    entry: BucketEntry, registrations: Registrations, promise: CopyPromise
) -> EntryChange | None:
    """The next step towards the wanted copies: add, let them join, then remove. None: wait, or done."""
    new = [one for one in entry.wanted if one not in entry.servers]
    if new:
        return EntryChange(_added(entry, new))
    ready = _joined(entry, registrations, promise) and entry.leader in entry.wanted
    if entry.moving and ready and len(entry.wanted) >= promise.min_insync:
        return EntryChange(_removed(entry, set(entry.servers) - set(entry.wanted)))
    return None


def _joined(entry: BucketEntry, registrations: Registrations, promise: CopyPromise) -> bool:
    """Whether all that are wanted are in sync."""
    sound = {one.server_id for one in sound_members(entry, registrations, promise)}
    return set(entry.wanted) <= sound


def _added(entry: BucketEntry, servers: Iterable[int]) -> BucketEntry:
    """R19: a placement that this bucket never had: whatever these servers hold of it is not this copy."""
    drawn = entry.drawn + 1
    return replace(
        entry, replicas=(*entry.replicas, *(Assignment(one, drawn) for one in servers)), drawn=drawn
    )


def _removed(entry: BucketEntry, servers: Collection[int]) -> BucketEntry:
    return replace(
        entry,
        replicas=tuple(one for one in entry.replicas if one.server_id not in servers),
        in_sync=tuple(one for one in entry.in_sync if one.server_id not in servers),
    )
