"""Which role a server has in a bucket: read from the entry, never from a command (R2)."""

from __future__ import annotations

from typing import NamedTuple

from strom.replication.bucket_entry import BucketEntry


class Standing(NamedTuple):
    """A server's part in a bucket so far, as its process remembers it."""

    server_id: int
    incarnation: int
    placement: int
    """Of the copy on its disk; 0 if it has none."""
    losses: int
    """Of the entry it saw last."""
    led: int = 0
    """The highest epoch that this process has begun to lead."""
    heard: int = 0
    """The highest epoch that a pull has told of."""
    leading: bool = False
    """Whether it leads ``led`` now."""
    following: int = 0
    """The epoch it follows now; 0 if none."""


class LeadEpoch(NamedTuple):
    """Drop an open group (R13), make the epoch durable, begin a ``Leadership``."""

    epoch: int


class FollowEpoch(NamedTuple):
    """Drop an open group (R13), stop leading, begin a ``Followership`` of this leader."""

    leader: int
    epoch: int


class StepDown(NamedTuple):
    """Stop leading and following; whoever waits is sent to the next leader."""


class KeepRole(NamedTuple):
    """Nothing changes."""


class NoCopy(NamedTuple):
    """The server has no part in this bucket (any longer)."""


RoleStep = LeadEpoch | FollowEpoch | StepDown | KeepRole | NoCopy


class RoleChange(NamedTuple):
    """What an entry means for a server, in this order."""

    forget_watermarks: bool
    """What was committed may be no more: high and stable go back to the base (R10)."""
    drop_copy: bool
    """The copy on the disk was made for another assignment: delete its folder, begin empty (R19)."""
    step: RoleStep


def role_in(entry: BucketEntry, standing: Standing) -> RoleChange:
    """Compare an entry, as it was read, with what the server does."""
    placement = entry.placement_of(standing.server_id)
    other_copy = standing.placement not in (0, placement)
    return RoleChange(
        entry.losses > standing.losses, other_copy, _step(entry, standing, placement, other_copy)
    )


def _step(entry: BucketEntry, standing: Standing, placement: int, other_copy: bool) -> RoleStep:
    if placement == 0:
        return NoCopy()
    if is_mine(entry, standing):
        # R3: an epoch is led once, and none below the highest that somebody has told of.
        may_lead = standing.led < entry.epoch >= standing.heard
        return LeadEpoch(entry.epoch) if may_lead else KeepRole()
    if entry.leader == standing.server_id:
        # The process that led died, this one took its place: it waits until somebody is elected.
        return StepDown() if standing.leading or standing.following else KeepRole()
    if entry.epoch > standing.following or standing.leading or other_copy:
        return FollowEpoch(entry.leader, entry.epoch)
    return KeepRole()


def is_mine(entry: BucketEntry, standing: Standing) -> bool:
    """Whether the entry names this process as the leader (R3)."""
    return entry.leader == standing.server_id and entry.incarnation == standing.incarnation
