"""The rounds of a service, each on whatever thread asks: its table is looked up, its lake table found, it is run."""

from __future__ import annotations

from strom.errors import TableNotFound
from strom.lake.rounds.lake_tables import LakeTables
from strom.lake.rounds.round import Round, RoundContext, RoundProgress, RoundResult
from strom.runtime.random import Randomness


class RoundRunner:
    """Runs rounds. Any thread may call."""

    def __init__(self, context: RoundContext, lakes: LakeTables, randomness: Randomness) -> None:
        self._context = context
        self._lakes = lakes
        self._randomness = randomness

    def run(self, progress: RoundProgress) -> RoundResult:
        """One round, from the beginning to its report."""
        assigned, context = progress.assigned, self._context
        try:
            table = context.cluster.table(assigned.path)
            if table.table_id != assigned.table_id:
                raise TableNotFound(f"{assigned.path} was dropped and recreated", table_id=assigned.table_id)
            lake = self._lakes.ensure(table)
            # The number is the coordinator's; the rest makes file names that nobody else ever has.
            round_id = f"{assigned.round}-{self._randomness.token(8).hex()}"
            return Round(context, lake, table, progress, round_id).run()
        finally:
            context.jobs.forget(progress.group)

    def tasks_done(self, progress: RoundProgress) -> int:
        """How many of its tasks have ended."""
        return self._context.jobs.done(progress.group)

    def cancel(self, progress: RoundProgress) -> None:
        """Give a round up; it ends with ``Cancelled`` unless it is committing already."""
        self._context.jobs.cancel(progress.group)

    def close(self) -> None:
        """Let go of the lake's catalog."""
        self._lakes.close()
