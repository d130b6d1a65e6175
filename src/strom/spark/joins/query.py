"""A delta join that runs: what it did, how far it is behind, and its end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from strom.spark import frames

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery


@dataclass(frozen=True)
class Progress:
    """What one batch did."""

    batch: int
    began: float
    """Seconds since 1970."""
    seconds: float
    changes: int
    """Images of the changelogs that were read: an update has two."""
    keys: int
    """Join keys that were touched, and looked up on both sides and in the result."""
    left_rows: int
    right_rows: int
    result_rows: int
    """Rows that were found there."""
    written: int
    deleted: int
    read_s: float
    lookup_s: float
    stage_s: float
    """Seconds of all tasks together."""
    warnings: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """For a metrics system."""
        return asdict(self)


class JoinQuery:
    """The streaming query of a delta join, and those of the joins before it in a chain."""

    def __init__(
        self,
        query: StreamingQuery,
        table: str,
        progress: Sequence[Progress],
        before: tuple[JoinQuery, ...] = (),
    ) -> None:
        self.query = query
        """Spark's own."""
        self.table = table
        self.before = before
        self._progress = progress

    def __repr__(self) -> str:
        state = "running" if self.active else "ended"
        return f"JoinQuery(into {self.table}, {state}, {self.lag()} rows behind)"

    @property
    def active(self) -> bool:
        """Whether it runs, with everything before it."""
        return bool(self.query.isActive) and all(one.active for one in self.before)

    @property
    def progress(self) -> list[Progress]:
        """The last hundred batches.

        >>> query.progress[-1].keys
        1200
        """
        return list(self._progress)

    def lag(self) -> int | None:
        """How many changes of its inputs it had not seen at its last batch, the joins before it included.

        >>> query.lag()
        0
        """
        known = [frames.lag(self.query), *(one.lag() for one in self.before)]
        told = [one for one in known if one is not None]
        return sum(told) if told else None

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for its end (of a query with ``availableNow``, or one that failed, which is raised); False: not yet."""
        if timeout_s is None:
            self.query.awaitTermination()
            return True
        return bool(self.query.awaitTermination(timeout_s))  # type: ignore[arg-type]

    def stop(self) -> None:
        """End it, and everything before it. A start from the same checkpoint goes on."""
        self.query.stop()
        for one in self.before:
            one.stop()
