"""Runs the rounds of a service: looks up the table and its lake table, then runs the round on the caller's thread."""

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
            # The number is the coordinator's; the random rest makes file names unique.
            round_id = f"{assigned.round}-{self._randomness.token(8).hex()}"
            return Round(context, lake, table, progress, round_id).run()
        finally:
            context.jobs.forget(progress.group)

    def tasks_done(self, progress: RoundProgress) -> int:
        """How many of its tasks have ended."""
        return self._context.jobs.done(progress.group)

    def cancel(self, progress: RoundProgress) -> None:
        """Cancel a round; it ends with ``Cancelled`` unless it is committing already."""
        self._context.jobs.cancel(progress.group)

    def close(self) -> None:
        """Close the lake's catalog."""
        self._lakes.close()
