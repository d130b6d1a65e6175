"""What a command decides. Nothing happens until the plan is committed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from strom.metadata.changes import Requirement, Update

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class UpdatePlan(Generic[T]):
    """Updates that are valid as long as the requirements hold, and the result once they are committed.

    Without updates there is nothing to do (``ignore_if_exists`` met something that exists).
    """

    result: T
    requirements: Sequence[Requirement] = field(default=())
    updates: Sequence[Update] = field(default=())
