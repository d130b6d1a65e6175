"""A running delta join: its progress, its lag, and its end."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from strom.errors import StromError
from strom.runtime.metrics import render
from strom.runtime.units import counted
from strom.spark.joins.delta.batch_progress import BatchProgress
from strom.spark.joins.delta.join_metrics import JoinMetrics
from strom.spark.source import stream_lag
from strom.spark.source.stream_lag import FollowedSides

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from strom.spark.source.stream_reader import StreamReader

LOOK_S = 0.5
"""How often a wait checks the joins before this one."""


class JoinQuery:
    """The streaming query of a delta join, and those of the joins before it in a chain."""

    def __init__(
        self,
        query: StreamingQuery,
        table: str,
        progress: Sequence[BatchProgress],
        metrics: JoinMetrics,
        sides: Sequence[StreamReader],
        before: tuple[JoinQuery, ...] = (),
    ) -> None:
        self.query = query
        """Spark's own."""
        self.table = table
        self.before = before
        self._progress = progress
        self._metrics = metrics
        self._followed = FollowedSides(query, sides)
        metrics.follow(lambda: stream_lag.missing(self._followed))

    def __repr__(self) -> str:
        state = "running" if self.active else "ended"
        try:
            told = f"{counted(self.lag(), 'change')} behind"
        except StromError as error:
            told = str(error)
        return f"JoinQuery(into {self.table}, {state}, {told})"

    @property
    def active(self) -> bool:
        """Whether it runs, with everything before it."""
        return all(bool(one.query.isActive) for one in self.all)

    @property
    def progress(self) -> list[BatchProgress]:
        """The last hundred batches.

        >>> query.progress[-1].keys
        1200
        """
        return list(self._progress)

    @property
    def all(self) -> list[JoinQuery]:
        """All queries of the chain, the first join first, this one last; each once."""
        found: dict[int, JoinQuery] = {}
        for one in self.before:
            found |= {id(query): query for query in one.all}
        return [*found.values(), self]

    def lag(self) -> int:
        """How many changes of the inputs are not in the result yet, including those of the joins before it.

        LagUnknown says why it cannot be told.

        >>> query.lag()
        0
        """
        # The first join first: what it publishes meanwhile is counted by the next one or twice, but never missed.
        return sum([stream_lag.missing(one._followed) for one in self.all])

    def wait_until_caught_up(self, timeout: float | None = None, *, progress: bool = True) -> None:
        """Wait until everything that its inputs hold now is in the result, through all joins before it.

        Changes that arrive later are not waited for. Raises the failure of any query of the chain, or NotCaughtUp with
        how much is missing (``error.facts["behind"]``) after ``timeout`` seconds or if the query ended before.

        >>> query.wait_until_caught_up(timeout=60)
        """
        until = None if timeout is None else time.monotonic() + timeout
        for one in self.all:  # what a join has written by then is an input of the next
            left = None if until is None else max(until - time.monotonic(), 0.0)
            stream_lag.caught_up(
                one._followed, one.query, left, one.table, progress=progress, check=self._check_before
            )

    def metrics(self) -> str:
        """The metrics of the whole chain since it was started, as a Prometheus page.

        >>> Path("/var/lib/node_exporter/wide.prom").write_text(query.metrics())
        """
        return render(sample for one in self.all for sample in one._metrics.samples())

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for its end (of a query with ``availableNow``, or one that failed); False: not yet.

        A failure is raised, also one of a join before it: then all of them are stopped.
        """
        until = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            left = LOOK_S if until is None else min(LOOK_S, max(until - time.monotonic(), 0.001))
            if self.query.awaitTermination(left):  # type: ignore[arg-type]
                return True
            self._check_before()
            if until is not None and time.monotonic() >= until:
                return False

    def _check_before(self) -> None:
        """If a join before this one failed, stop all and raise: this one would wait forever."""
        for one in self.all[:-1]:
            failed = None if one.query.isActive else one.query.exception()
            if failed is not None:
                self.stop()
                raise failed

    def stop(self) -> None:
        """Stop the whole chain. A start from the same checkpoint continues."""
        for one in reversed(self.all):
            one.query.stop()
