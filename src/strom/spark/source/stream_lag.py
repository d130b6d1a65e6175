"""How far streams are behind: where their tables end now, minus what their committed batches hold.

Lag is computed on demand. The committed position is read first and the tables' ends after it, so rows that arrive in
between count as missing: the number is never too small.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StructType

from strom.client.plan.log_plan import ScanPlan
from strom.errors import InvalidRequest, LagUnknown, NotCaughtUp
from strom.runtime.units import counted
from strom.spark.connect import connections
from strom.spark.connect.options import SourceOptions
from strom.spark.connect.progress_line import ProgressLine
from strom.spark.source.query_checkpoint import QueryCheckpoint
from strom.spark.source.stream_position import Position
from strom.spark.source.stream_reader import StreamReader

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

LOOK_S = 0.2
"""How often a wait checks."""
BOTH = ("left", "right")


@dataclass(frozen=True)
class At:
    """A table that a query follows, and its committed position; None if its start is not decided yet."""

    reader: StreamReader
    position: Position | None

    def missing(self, upto: ScanPlan | None = None) -> int:
        """Rows of the table now, or of what remains of an earlier look, that are not in the result."""
        return self.reader.missing(self.position or self.reader.began(), self.reader.look(), upto)


class Followed:
    """The tables that any query with a Strom source reads (for ``strom.spark.lag``)."""

    def __init__(self, query: StreamingQuery) -> None:
        self._checkpoint = QueryCheckpoint(query)
        self._readers = self._found()

    def at(self) -> list[At]:
        """How far the query is in each."""
        readers = self._readers
        if not readers:
            raise InvalidRequest("this query reads no table of Strom, so it has no lag")
        ends = self._checkpoint.committed()
        if ends is not None:
            return [
                At(readers[one["table"]], Position.from_json(one)) for one in _ours(ends.positions, readers)
            ]
        first = self._checkpoint.planned_first()
        if first is None:
            return [At(reader, None) for reader in readers.values()]
        found = [(readers[one["table"]], Position.from_json(one)) for one in _ours(first.positions, readers)]
        return [At(reader, end.origin) for reader, end in found]

    def _found(self) -> dict[int, StreamReader]:
        """By table id: a table that is read twice has two positions and one end."""
        found = {}
        for said in self._checkpoint.sources():
            options = SourceOptions.of(said)
            table = connections.table(options.server, options.table)
            found[table.table_id] = StreamReader(options, StructType(), None)
        return found


def _ours(positions: Sequence[Any], readers: dict[int, StreamReader]) -> list[dict[str, Any]]:
    """The positions in Strom tables. A recreated table is not the one that was read."""
    found = [one for one in positions if isinstance(one, dict) and "table" in one and "offsets" in one]
    for one in found:
        if one["table"] not in readers:
            raise LagUnknown(
                f"the query has read table {one['table']}, and the table of that name is another one by now: it was "
                "dropped and created again",
                table_id=one["table"],
            )
    return found


class FollowedSides:
    """Both sides of a delta join."""

    def __init__(self, query: StreamingQuery, readers: Sequence[StreamReader]) -> None:
        self._checkpoint = QueryCheckpoint(query)
        self._readers = readers

    def at(self) -> list[At]:
        """How far the query is in each."""
        ends = self._checkpoint.committed()
        if ends is not None:
            (told,) = ends.positions
            return [
                At(reader, Position.from_json(told[side]))
                for side, reader in zip(BOTH, self._readers, strict=True)
            ]
        first = self._checkpoint.planned_first()
        if first is None:
            return [At(reader, None) for reader in self._readers]
        (told,) = first.positions
        return [
            At(reader, Position.from_json(told[side]).origin)
            for side, reader in zip(BOTH, self._readers, strict=True)
        ]


def missing(followed: Followed | FollowedSides) -> int:
    """How many rows of the tables are not in the result yet."""
    return sum([one.missing() for one in followed.at()])


def lag(query: StreamingQuery) -> int:
    """How many rows of its tables are not in a stream's result yet; LagUnknown says why it cannot be told.

    Counts rows of a log, and changes of a primary-key table. Works for a query that ended or has not begun, too.

    >>> strom.spark.lag(query)
    0
    """
    return missing(Followed(query))


def wait_until_caught_up(
    query: StreamingQuery, timeout: float | None = None, *, progress: bool = True
) -> None:
    """Wait until everything that its tables hold now is in a stream's result.

    Rows that arrive later are not waited for. Raises the query's failure, or NotCaughtUp with how much is missing
    (``error.facts["behind"]``) after ``timeout`` seconds or if the query ended before.

    >>> strom.spark.wait_until_caught_up(query, timeout=60)
    """
    caught_up(Followed(query), query, timeout, str(query.name or query.id), progress=progress)


def caught_up(
    followed: Followed | FollowedSides,
    query: StreamingQuery,
    timeout: float | None,
    name: str,
    *,
    progress: bool,
    check: Callable[[], None] = lambda: None,
) -> None:
    """The same for any query; ``check`` raises other failures."""
    until = None if timeout is None else time.monotonic() + timeout
    targets = _Targets(followed)
    with ProgressLine(enabled=progress) as line:
        while True:
            # Before the look, so that the look sees what was committed when the query ended.
            ended = bool(query.awaitTermination(LOOK_S))  # type: ignore[arg-type]
            left = targets.missing()
            if left == 0:
                return
            check()
            line.say(f"{name}: {'its first batch' if left is None else counted(left, 'row')} to go")
            if ended or (until is not None and time.monotonic() >= until):
                raise _not_caught_up(name, left, ended=ended, timeout=timeout)


class _Targets:
    """The ends of the tables when the wait began."""

    def __init__(self, followed: Followed | FollowedSides) -> None:
        self._followed = followed
        self._ends = {one.reader.table: one.reader.look() for one in followed.at()}

    def missing(self) -> int | None:
        """How much is not in the result yet; None while the query's start is not decided."""
        found = 0
        for one in self._followed.at():
            if one.position is None:
                return None
            found += one.missing(self._ends[one.reader.table])
        return found


def _not_caught_up(name: str, left: int | None, *, ended: bool, timeout: float | None) -> NotCaughtUp:
    rows = (
        "its first batch is not planned" if left is None else f"{counted(left, 'row')} {{}} not in its result"
    )
    behind = rows.format("is" if left == 1 else "are")
    why = "the query ended" if ended else f"after {timeout:g} s"
    return NotCaughtUp(f"{name}: {why}, and {behind}", behind=left, ended=ended)
