"""What a command decides: nothing happens until somebody commits it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from strom.metadata.changes import Requirement, Update

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class UpdatePlan(Generic[T]):
    """Updates that are right as long as the requirements hold, and what the caller gets once they are made.

    Without updates there is nothing to do (``ignore_if_exists`` met something that exists).
    """

    result: T
    requirements: Sequence[Requirement] = field(default=())
    updates: Sequence[Update] = field(default=())
