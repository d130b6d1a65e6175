"""Tasks of rounds in this process, one after the other: ``Jobs`` without Spark."""

from __future__ import annotations

import strom
from strom.lake.rounds.work import PartResult, RoundWork


class LocalJobs:
    """Runs every task on the calling thread. Nothing can be cancelled."""

    def __init__(self, db: strom.Database) -> None:
        self._db = db

    def run(self, work: RoundWork, *, group: str) -> list[PartResult]:
        table = self._db.table(str(work.path))
        return [found for number in range(len(work.tasks)) for found in work.run(table, number)]

    def done(self, group: str) -> int:
        return 0

    def cancel(self, group: str) -> None:
        """Too late: a task runs to its end."""

    def check(self, group: str) -> None:
        """Nothing was cancelled."""

    def forget(self, group: str) -> None:
        """Nothing is remembered."""
