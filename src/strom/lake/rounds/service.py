"""The tiering service: takes tables that are due, runs a round of each on a separate thread, reports how they ended.

The coordinator decides which service tiers which table; a heartbeat reports what is running and takes what is due.
Several services may run. A round whose service was silent too long is assigned to another; if both go on, the lake
takes the rows once.

A table that fails is retried with growing pauses. One whose lake is wrong is quarantined, with the reason, until an
operator acts. The other tables are not affected.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from strom.client.admin.lake_admin import Assigned, Ended, Heartbeat, LakeFacts, Running, Tidings
from strom.client.admin.lake_status import LakeStatus
from strom.errors import (
    LakeCorrupt,
    LakeForeignCommit,
    LakeUnsupported,
    Retry,
    StromError,
    TableNotFound,
)
from strom.lake.rounds.jobs import Cancelled
from strom.lake.rounds.metrics import TieringMetrics
from strom.lake.rounds.parts import Bounds
from strom.lake.rounds.quarantine import quarantined
from strom.lake.rounds.round import RoundProgress, RoundResult
from strom.model.lake.lake_record import LakeReport
from strom.model.names import nearest
from strom.model.table import TablePath

WRONG = (LakeCorrupt, LakeForeignCommit, LakeUnsupported)
"""Errors that no retry mends: the table is quarantined."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class TieringOptions:
    """How a service works."""

    tables: tuple[str, ...] = ()
    """Only these; empty: every table that should be in the lake."""
    once: bool = False
    """End when everything that existed at the start is in the lake."""
    tables_at_once: int = 4
    bounds: Bounds = field(default_factory=Bounds)
    beat_s: float = 1.0
    """Seconds between heartbeats."""


@dataclass(frozen=True)
class RoundEnd:
    """How a round ended: with a result, or with an error."""

    assigned: Assigned
    result: RoundResult | None = None
    error: BaseException | None = None
    quarantined: bool = False

    @property
    def given_up(self) -> bool:
        """Whether it was cancelled or its table is gone: not a failure."""
        return isinstance(self.error, Cancelled | TableNotFound)


class Coordination(Protocol):
    """What a service needs of the cluster."""

    def lake_tables(self) -> list[LakeFacts]: ...

    def describe(self, path: TablePath) -> LakeFacts: ...

    def status(self, path: TablePath) -> LakeStatus: ...

    def heartbeat(self, beat: Heartbeat) -> Tidings: ...

    def report(
        self, table_id: int, report: LakeReport, *, service_id: str, round_number: int
    ) -> str | None: ...


class Rounds(Protocol):
    """Runs rounds; ``runner.py`` in production."""

    def run(self, progress: RoundProgress) -> RoundResult: ...

    def tasks_done(self, progress: RoundProgress) -> int: ...

    def cancel(self, progress: RoundProgress) -> None: ...

    def close(self) -> None: ...


class RoundListener:
    """Hears about rounds; ``strom.spark.tiering.progress`` shows them to people."""

    def began(self, assigned: Assigned) -> None:
        """A round begins."""

    def going(self, rounds: Sequence[tuple[RoundProgress, int]]) -> None:
        """The progress of rounds: each with the rows that are done."""

    def ended(self, end: RoundEnd) -> None:
        """A round ended."""

    def unreachable(self, error: StromError) -> None:
        """The coordinator does not answer."""


def table_ids(cluster: Coordination, names: Sequence[str]) -> list[int]:
    """The ids of these tables; TableNotFound, with the nearest name, when one is not tiered."""
    known = {str(one.path): one for one in cluster.lake_tables()} if names else {}
    found = []
    for name in names:
        path = str(TablePath.parse(name))
        if path not in known or not known[path].enabled:
            hint = nearest(path, known)
            raise TableNotFound(
                f"{path} is not tiered{hint}. "
                f"Switch it on: strom table alter {path} --set table.datalake.enabled=true",
                table=path,
            )
        found.append(known[path].table_id)
    return found


class TieringService:
    """One service. ``run`` returns after ``stop``, from any thread, or with ``once`` when everything is done."""

    def __init__(
        self,
        service_id: str,
        cluster: Coordination,
        rounds: Rounds,
        options: TieringOptions,
        *,
        listener: RoundListener | None = None,
    ) -> None:
        self.service_id = service_id
        self._cluster = cluster
        self._rounds = rounds
        self._options = options
        self._listener = listener or RoundListener()
        self._paths: dict[TablePath, None] = {TablePath.parse(one): None for one in options.tables}
        self.metrics = TieringMetrics(lambda: tuple(self._paths), cluster.status)
        self._running: dict[int, RoundProgress] = {}
        self._threads: dict[int, threading.Thread] = {}
        self._ends: list[RoundEnd] = []
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._stopping = False
        self._done: set[int] = set()
        """With ``once``: tables that need no further round."""
        self.failures: list[RoundEnd] = []

    def stop(self) -> None:
        """Cancel what is under way, and end."""
        self._stopping = True
        self._wake.set()

    def run(self) -> None:
        """Serve."""
        wanted = table_ids(self._cluster, self._options.tables)
        ended: list[Ended] = []
        try:
            while not self._stopping:
                tidings = self._beat(wanted, ended)
                if tidings is not None:
                    ended = []
                    self._obey(tidings)
                    if self._options.once and not self._running and not self._others_at_work(wanted):
                        return
                self._pause(tidings)
                ended += self._collect()
        finally:
            self._leave(ended)

    # --- the coordinator ----------------------------------------------------------------------------------------

    def _others_at_work(self, wanted: Sequence[int]) -> bool:
        """Whether another service, or a dead one whose lease has not expired, holds a table that is not done."""
        return any(
            one.state == "tiering"
            and one.table_id not in self._done
            and (not wanted or one.table_id in wanted)
            for one in self._cluster.lake_tables()
        )

    def _beat(self, wanted: Sequence[int], ended: Sequence[Ended]) -> Tidings | None:
        free = self._options.tables_at_once - len(self._running)
        running = self._progress()
        self._listener.going([(one, rows) for one, rows in running])
        try:
            beat = Heartbeat(
                self.service_id,
                wants=max(free, 0),
                running=[
                    Running(one.assigned.table_id, one.assigned.round, rows, one.rows_planned, one.size_bytes)
                    for one, rows in running
                    if one.step
                    != "upkeep"  # its report ended it: if named, it would be cancelled when the next round ends
                ],
                ended=ended,
                tables=wanted,
                skip=sorted(self._done),
                at_once=self._options.once,
            )
            return self._cluster.heartbeat(beat)
        except Retry as error:
            self._listener.unreachable(error)
            return None

    def _progress(self) -> list[tuple[RoundProgress, int]]:
        found = []
        for one in list(self._running.values()):
            done = self._rounds.tasks_done(one) if one.step == "writing" else 0
            over = one.step in ("committing", "reporting", "upkeep")
            share = 1.0 if over else min(done / max(one.tasks, 1), 1.0)
            found.append((one, int(one.rows_planned * share)))
        return found

    def _obey(self, tidings: Tidings) -> None:
        for number in tidings.cancelled:
            progress = self._running.get(number)
            if progress is not None:
                self._rounds.cancel(progress)
        for assigned in tidings.assigned:
            self._start(assigned)

    def _pause(self, tidings: Tidings | None) -> None:
        """Wait for the next heartbeat; a round that ends cuts it short, because a table may be due."""
        seconds = self._options.beat_s
        if (
            tidings is not None
            and tidings.next_due_ms is not None
            and len(self._running) < self._options.tables_at_once
        ):
            seconds = min(seconds, max(tidings.next_due_ms / 1000, 0.02))
        self._wake.wait(seconds)
        self._wake.clear()

    def _leave(self, ended: Sequence[Ended]) -> None:
        for progress in list(self._running.values()):
            self._rounds.cancel(progress)
        for thread in list(self._threads.values()):
            thread.join()
        left = [*ended, *self._collect()]
        try:
            self._cluster.heartbeat(Heartbeat(self.service_id, ended=left, leaving=True))
        except StromError as error:
            logger.info("the coordinator did not hear that this service ends: %s", error)  # the lease expires
        self._rounds.close()

    # --- rounds -------------------------------------------------------------------------------------------------

    def _start(self, assigned: Assigned) -> None:
        progress = RoundProgress(assigned, f"{self.service_id}-{assigned.round}")
        self._running[assigned.round] = progress
        self._paths[assigned.path] = None
        self.metrics.rounds_running.set(len(self._running))
        self._listener.began(assigned)
        thread = threading.Thread(target=self._round, args=(progress,), name=f"strom-round-{assigned.round}")
        self._threads[assigned.round] = thread
        thread.start()

    def _round(self, progress: RoundProgress) -> None:
        """The body of a round's thread: no error may reach the service or another table."""
        assigned = progress.assigned
        try:
            end = RoundEnd(assigned, self._rounds.run(progress))
            assert end.result is not None
            self.metrics.ended(str(assigned.path), end.result)
        except Exception as error:
            wrong = isinstance(error, WRONG) and not isinstance(error, Retry)
            end = RoundEnd(assigned, error=error, quarantined=wrong)
            if wrong:
                self._quarantine(assigned, error)
            if not end.given_up:
                self.metrics.failed(str(assigned.path), quarantined=wrong)
                level = logging.INFO if isinstance(error, StromError) else logging.ERROR
                logger.log(level, "round %d of %s failed", assigned.round, assigned.path, exc_info=error)
        with self._lock:
            self._ends.append(end)
        self._wake.set()

    def _quarantine(self, assigned: Assigned, error: BaseException) -> None:
        try:
            facts = self._cluster.describe(assigned.path)
            self._cluster.report(
                assigned.table_id,
                quarantined(facts.record, str(error)),
                service_id=self.service_id,
                round_number=assigned.round,
            )
        except StromError as problem:
            logger.warning("%s could not be quarantined: %s", assigned.path, problem)

    def _collect(self) -> list[Ended]:
        """Collect the rounds that ended; returns those that no report told the coordinator about."""
        with self._lock:
            ends, self._ends = self._ends, []
        untold = []
        for end in ends:
            number, table_id = end.assigned.round, end.assigned.table_id
            self._threads.pop(number).join()
            del self._running[number]
            if end.error is not None and not end.quarantined:
                untold.append(Ended(table_id, number, None if end.given_up else str(end.error)[:500]))
            if end.error is not None and not end.given_up:
                self.failures.append(end)
            if self._options.once and (end.result is None or not end.result.more):
                self._done.add(table_id)
            self._listener.ended(end)
        self.metrics.rounds_running.set(len(self._running))
        return untold
