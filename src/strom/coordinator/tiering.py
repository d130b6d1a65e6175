"""Which tiering service copies which table into the lake, and when: decided on heartbeats, with time as an argument.

A table is due when its freshness has passed since its last round ended, or at once when it never had one or when the
round left rows behind. A service that asks gets the tables that are overdue longest; a table queues again after every
round, so a heavy one does not starve the rest. A service keeps a round by naming it in its heartbeats; after
``LEASE_MS`` of silence it has lost its tables.

Invariants:
    1. A table has at most one round, and a round one service.
    2. A round's number is used once (the caller's numbers only rise).
    3. A table that is due and that no service works on is assigned before any that became due later.

All of it is in memory: after a restart of the coordinator every table is due, and rounds that services name are theirs
again. Correctness does not depend on it: the lake fences its commits. Times are of a clock that never goes back.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace

LEASE_MS = 60_000
UNNAMED_MS = 10_000
"""A round that its living service does not name for this long never reached the service."""
PAUSE_MS_MIN = 1_000
PAUSE_MS_MAX = 60_000
"""The pause after a failed round; it doubles with every further failure."""


Holder = tuple[str, str | None]
"""A service, and the user it is logged in as."""


@dataclass(frozen=True, slots=True)
class ReportedProgress:
    """How far a round is, as reported by its service."""

    rows_done: int = 0
    rows_planned: int = 0
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class ReportedRound:
    """A round under way. ``started_ms`` None: it began under an earlier coordinator."""

    table_id: int
    number: int
    service_id: str
    started_ms: int | None
    named_ms: int
    due_ms: int
    progress: ReportedProgress = ReportedProgress()
    principal: str | None = None
    """The user it was assigned to, where users log in: nobody else may end it."""

    @property
    def holder(self) -> Holder:
        """The service and user that hold it."""
        return self.service_id, self.principal


@dataclass(frozen=True, slots=True)
class Beat:
    """A heartbeat: ``running`` and ``failed`` by (table id, round number)."""

    service_id: str
    wants: int = 0
    running: Mapping[tuple[int, int], ReportedProgress] = field(default_factory=dict)
    failed: Mapping[tuple[int, int], str | None] = field(default_factory=dict)
    only: Collection[int] = ()
    skip: Collection[int] = ()
    at_once: bool = False
    leaving: bool = False
    principal: str | None = None
    """The user who is logged in."""

    @property
    def holder(self) -> Holder:
        """The service and user that sent it."""
        return self.service_id, self.principal


@dataclass(frozen=True, slots=True)
class Orders:
    """The answer to a heartbeat: rounds newly assigned to the service, and numbers of rounds it has lost."""

    assigned: tuple[ReportedRound, ...]
    cancelled: tuple[int, ...]
    next_due_ms: int | None
    """How long until another table is due; None when no table is waiting."""


@dataclass(frozen=True, slots=True)
class LastRound:
    """How a table's last round ended."""

    ended_ms: int
    error: str | None = None


@dataclass(slots=True)
class _Line:
    """A table's place in the queue."""

    due_ms: int
    last: LastRound | None = None
    failures: int = 0
    done: int = 0
    """The newest round that ended: a heartbeat that still names it was sent before."""
    by: Holder | None = None
    """Who held it: a report of its later upkeep is accepted, too."""


class Tiering:
    """The rounds of all tables, in the coordinator's memory."""

    def __init__(self, *, lease_ms: int = LEASE_MS) -> None:
        self.lease_ms = lease_ms
        self._rounds: dict[int, ReportedRound] = {}
        self._lines: dict[int, _Line] = {}

    # --- facts ---------------------------------------------------------------------------------------------

    def round_of(self, table_id: int) -> ReportedRound | None:
        """The round under way, or None."""
        return self._rounds.get(table_id)

    def last_of(self, table_id: int) -> LastRound | None:
        """How the last round ended; None when this coordinator saw none."""
        line = self._lines.get(table_id)
        return None if line is None else line.last

    # --- heartbeats ----------------------------------------------------------------------------------------

    def heartbeat(
        self, beat: Beat, tables: Mapping[int, int], now_ms: int, numbers: Iterator[int], *, issued: int
    ) -> Orders:
        """Process a heartbeat and answer it.

        ``tables``: the freshness, in milliseconds, of every table that may be tiered. ``numbers`` gives numbers for new
        rounds; every number below ``issued`` was given out before.
        """
        self._forget_gone(tables)
        for key, error in beat.failed.items():
            self._fail(beat.holder, key, error, now_ms)
        cancelled = [
            number
            for (table_id, number), progress in beat.running.items()
            if not self._keep(beat.holder, table_id, number, progress, tables, now_ms, issued)
        ]
        self._free_lost(beat, now_ms)
        for table_id in tables:
            self._lines.setdefault(table_id, _Line(due_ms=now_ms))
        chosen = [] if beat.leaving else self._choose(beat, tables, now_ms)
        assigned = tuple(
            self._assign(table_id, beat.holder, now_ms, numbers) for table_id in chosen[: beat.wants]
        )
        return Orders(assigned, tuple(cancelled), self._next_due(beat, tables, now_ms))

    def ended(
        self, table_id: int, number: int, freshness_ms: int, now_ms: int, *, more: bool
    ) -> ReportedRound | None:
        """A round was reported: the table waits for its freshness, or with ``more`` not at all. Returns the round, if
        known."""
        found = self._rounds.get(table_id)
        if found is None or found.number != number:
            return None
        del self._rounds[table_id]
        due_ms = now_ms if more else now_ms + freshness_ms
        self._lines[table_id] = _Line(due_ms=due_ms, last=LastRound(now_ms), done=number, by=found.holder)
        return found

    def not_held(
        self,
        holder: Holder,
        table_id: int,
        number: int,
        tables: Mapping[int, int],
        now_ms: int,
        *,
        issued: int,
    ) -> str | None:
        """Why a report of a round is refused; None: the reporter holds the round, or held the table's last one.

        As with heartbeats, a round that is unknown here belongs to the service that names it: it began under an earlier
        coordinator.
        """
        found, line = self._rounds.get(table_id), self._lines.get(table_id)
        if line is not None and number <= line.done:
            if number == line.done and line.by == holder:
                return None
            return f"round {number} is older than the last one of the table, or was not service {holder[0]}'s"
        if found is not None and (found.number != number or found.holder != holder):
            return f"round {number} is not service {holder[0]}'s, or not any more"
        if found is not None and found.named_ms + self.lease_ms <= now_ms:
            return f"service {holder[0]} was silent for too long, and round {number} is not its any more"
        progress = ReportedProgress() if found is None else found.progress
        if not self._keep(holder, table_id, number, progress, tables, now_ms, issued):
            return f"round {number} was given to nobody"
        return None

    def _forget_gone(self, tables: Mapping[int, int]) -> None:
        """Drop rounds and places of tables that were dropped or are no longer tiered."""
        for kept in (self._rounds, self._lines):
            for table_id in [one for one in kept if one not in tables]:
                del kept[table_id]

    def _keep(
        self,
        holder: Holder,
        table_id: int,
        number: int,
        progress: ReportedProgress,
        tables: Mapping[int, int],
        now_ms: int,
        issued: int,
    ) -> bool:
        """Whether a round that a service names is its own; if so, it is renewed."""
        found = self._rounds.get(table_id)
        line = self._lines.get(table_id)
        if line is not None and number <= line.done:
            return number == line.done  # an older one was taken from its service long ago
        if found is None:
            if table_id not in tables or not 0 < number < issued:
                return False
            # Free, and named: it began under an earlier coordinator, or its service was silent and nobody took it.
            due_ms = now_ms if line is None else line.due_ms
            found = ReportedRound(table_id, number, holder[0], None, now_ms, due_ms, principal=holder[1])
        elif found.holder != holder or found.number != number:
            return False
        self._rounds[table_id] = replace(found, named_ms=now_ms, progress=progress)
        return True

    def _fail(self, holder: Holder, key: tuple[int, int], error: str | None, now_ms: int) -> None:
        table_id, number = key
        found = self._rounds.get(table_id)
        if found is None or found.holder != holder or found.number != number:
            return
        del self._rounds[table_id]
        line = self._lines.setdefault(table_id, _Line(due_ms=now_ms))
        line.last = LastRound(now_ms, error or "it was given up")
        line.failures += 1
        line.done, line.by = number, holder
        line.due_ms = now_ms + min(PAUSE_MS_MAX, PAUSE_MS_MIN << min(line.failures - 1, 16))

    def _free_lost(self, beat: Beat, now_ms: int) -> None:
        """Free the rounds of services that are silent, leave, or do not know of them; their tables are first in the
        queue again."""
        for table_id, found in list(self._rounds.items()):
            mine = found.holder == beat.holder
            lease_ms = min(UNNAMED_MS, self.lease_ms) if mine else self.lease_ms
            if (mine and beat.leaving) or found.named_ms + lease_ms <= now_ms:
                del self._rounds[table_id]
                self._lines.setdefault(table_id, _Line(found.due_ms)).due_ms = found.due_ms

    # --- choosing ------------------------------------------------------------------------------------------

    def _choose(self, beat: Beat, tables: Mapping[int, int], now_ms: int) -> list[int]:
        waiting = [
            table_id
            for table_id in self._waiting(beat, tables)
            if self._lines[table_id].due_ms <= now_ms or (beat.at_once and not self._lines[table_id].failures)
        ]
        return sorted(waiting, key=lambda table_id: (self._lines[table_id].due_ms, table_id))

    def _waiting(self, beat: Beat, tables: Mapping[int, int]) -> list[int]:
        """The tables without a round that the service would take."""
        only, skip = set(beat.only), set(beat.skip)
        return [
            table_id
            for table_id in tables
            if table_id not in self._rounds and table_id not in skip and (not only or table_id in only)
        ]

    def _assign(self, table_id: int, holder: Holder, now_ms: int, numbers: Iterator[int]) -> ReportedRound:
        due_ms = min(self._lines[table_id].due_ms, now_ms)
        found = ReportedRound(table_id, next(numbers), holder[0], now_ms, now_ms, due_ms, principal=holder[1])
        self._rounds[table_id] = found
        return found

    def _next_due(self, beat: Beat, tables: Mapping[int, int], now_ms: int) -> int | None:
        times = [self._lines[table_id].due_ms for table_id in self._waiting(beat, tables)]
        return max(0, min(times) - now_ms) if times else None
