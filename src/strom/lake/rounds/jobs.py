"""The port through which a round runs its tasks. Spark is one implementation (``strom.spark.tiering.jobs``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from strom.lake.rounds.work import PartResult, RoundWork


class Cancelled(Exception):
    """The round was given up, by the coordinator or because the service ends."""


class Jobs(Protocol):
    """Runs the tasks of rounds. Any thread may call; a round is known by its group."""

    def run(self, work: RoundWork, *, group: str) -> Sequence[PartResult]:
        """Run all tasks of a round; their results in the order of the tasks."""

    def done(self, group: str) -> int:
        """How many tasks of a round have ended."""

    def cancel(self, group: str) -> None:
        """Stop a round's tasks, or keep them from starting."""

    def check(self, group: str) -> None:
        """Raise ``Cancelled`` if the round was cancelled."""

    def forget(self, group: str) -> None:
        """The round is over."""
