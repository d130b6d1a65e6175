"""What a command decides. Nothing happens until the plan is committed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

from strom.metadata.changes import Requirement, Update

T = TypeVar("T")


class CommitStep(NamedTuple):
    """One commit of several."""

    requirements: Sequence[Requirement]
    updates: Sequence[Update]


@dataclass(frozen=True, slots=True)
class UpdatePlan(Generic[T]):
    """Updates that are valid as long as the requirements hold, and the result once they are committed.

    Without updates there is nothing to do (``ignore_if_exists`` met something that exists). A commit is bounded, so
    what belongs to many buckets is committed in steps: ``earlier`` ones mean nothing to anybody until the plan's own
    commit names them, ``later`` ones remove what it has made meaningless. If they are cut short, ``sweep`` removes the
    rest.
    """

    result: T
    requirements: Sequence[Requirement] = field(default=())
    updates: Sequence[Update] = field(default=())
    earlier: Sequence[CommitStep] = field(default=())
    later: Sequence[CommitStep] = field(default=())
