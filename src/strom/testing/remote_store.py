"""The metadata of a process on another machine: one store for all, and what the network between does to it.

Each process has a mirror of the entries, which learns of the commits of others a little later, as with ZooKeeper. It
may be out of reach; then what it announced ends with its session. A commit may get no answer: it happened, or did not,
or happens a moment later, and nobody can tell (``OutcomeUnknown``).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import Context, copy_context
from dataclasses import dataclass

from strom.errors import Closed, Conflict, Disconnected, OutcomeUnknown
from strom.metadata.changes import Requirement, Update
from strom.metadata.deltas import RecentDeltas
from strom.metadata.memory import MemoryStore
from strom.metadata.store import Announcement, Delta, Snapshot, Watcher, Watchers
from strom.runtime.random import Randomness
from strom.testing.mortal import Life

CLUSTER_ID = "5" * 32
PER_MILLE = 1000


class StoreWeather:
    """How well the metadata can be reached; the same for all processes, and changed at any time."""

    def __init__(self, randomness: Randomness, *, session_s: float, lag_ms: int = 0) -> None:
        self.randomness = randomness
        self.session_s = session_s
        """How long a process that is gone, or cut off, stays announced."""
        self.lag_ms = lag_ms
        """How much later than others a process learns of a commit, at most."""
        self.unanswered = 0
        """How many of a thousand commits get no answer."""
        self.away = False
        """Whether a process that starts does not find it."""
        self.late_ms = 200
        """How much later an unanswered commit may still happen."""

    def draw_lag_s(self) -> float:
        """For one commit and one process."""
        return self.randomness.below(self.lag_ms * 1000) / 1e6 if self.lag_ms else 0.0


@dataclass
class _Announced:
    """What a process announced; after a lost session, announced anew."""

    value: bytes
    announcement: Announcement


class RemoteStore:
    """A :class:`strom.metadata.store.MetadataStore` as one process on another machine has it."""

    notice: str | None = None
    hears = True
    cluster_id = CLUSTER_ID

    def __init__(self, life: Life, store: MemoryStore, weather: StoreWeather) -> None:
        """On the loop, if there is one; without a loop everything is learnt at once."""
        self._life = life
        self._store = store.another()
        self._weather = weather
        self._loop = asyncio.get_running_loop() if weather.lag_ms or _on_a_loop() else None
        with life.inside():
            self._context = copy_context()
        known = self._store.read()
        self._mirror = RecentDeltas(known.version, known.entries)
        self._learning = threading.Lock()
        self._watchers = Watchers()
        self._closed = False
        self.hard_of_hearing = False
        """Whether it hears of the commits of others only when it is read: as if its connection were slow."""
        self.reads = 0
        """How often it was read."""
        self._cut_since: float | None = None
        self._announced: dict[str, _Announced] = {}
        self._forget = self._store.watch(self._changed)
        life.on_death.append(self._process_ended)

    # --- the session -----------------------------------------------------------------------------------------

    @property
    def silent_s(self) -> float:
        """For how long it is out of reach."""
        return 0.0 if self._cut_since is None else self._now() - self._cut_since

    def cut(self) -> None:
        """Do not reach it any more, until ``heal``. What was announced ends after the time of a session."""
        if self._cut_since is None:
            assert self._loop is not None
            self._cut_since = self._now()
            self._loop.call_later(self._weather.session_s, self._expire, self._cut_since, context=Context())

    def heal(self) -> None:
        """Reach it again. What was announced stands again, unless somebody else took its place."""
        if self._life.dead or self._closed:
            return
        self._cut_since = None
        there = self._store.read().entries
        for key, one in self._announced.items():
            if key not in there:
                one.announcement = self._store.announce(key, one.value)
        self._learn()

    def _expire(self, since: float) -> None:
        if self._cut_since == since:
            for one in self._announced.values():
                one.announcement.close()

    def _process_ended(self) -> None:
        self._forget()
        if self._loop is None:
            self._store.close()
        else:
            self._loop.call_later(self._weather.session_s, self._store.close, context=Context())

    def _now(self) -> float:
        assert self._loop is not None
        return self._loop.time()

    # --- the mirror ------------------------------------------------------------------------------------------

    def _changed(self, version: int) -> None:
        """Somebody committed: this process hears of it, if it is in reach, after the lag."""
        if self.hard_of_hearing:
            return
        lag_s = self._weather.draw_lag_s()
        if self._loop is None or lag_s == 0.0:
            self._learn()
        else:
            self._loop.call_later(lag_s, self._learn, context=self._context)

    def _learn(self) -> None:
        if self._closed or self._life.dead or self._cut_since is not None:
            return
        mirror = self._mirror
        with self._learning:
            delta = self._store.changes_since(mirror.known.version)
            if delta is None:
                found = self._store.read()
                mirror.start_over(found.version, found.entries)
            elif delta.version != mirror.known.version:
                mirror.advance(delta)
        self._watchers.tell(mirror.known.version)

    # --- the store -------------------------------------------------------------------------------------------

    def read(self, prefix: str = "") -> Snapshot:
        self._check()
        self.reads += 1
        self._learn()
        known = self._mirror.known
        return Snapshot(known.version, known.entries.below(prefix))

    def commit(self, requirements: Sequence[Requirement], updates: Sequence[Update]) -> int:
        self._check()
        self._life.change()
        weather = self._weather
        if weather.unanswered and weather.randomness.below(PER_MILLE) < weather.unanswered:
            self._commit_unanswered(requirements, updates)
        try:
            version = self._store.commit(requirements, updates)
        finally:
            self._learn()  # also after a conflict
        self._life.change()  # dead before anybody heard that it was done
        return version

    def _commit_unanswered(self, requirements: Sequence[Requirement], updates: Sequence[Update]) -> None:
        weather = self._weather
        outcome = weather.randomness.below(3)
        if outcome == 0:
            self._happens(requirements, updates)
        elif outcome == 1:
            assert self._loop is not None
            late_s = weather.randomness.below(weather.late_ms * 1000) / 1e6
            self._loop.call_later(late_s, self._happens, requirements, updates, context=Context())
        raise OutcomeUnknown("the metadata did not answer: it may have happened, or may still happen")

    def _happens(self, requirements: Sequence[Requirement], updates: Sequence[Update]) -> None:
        with suppress(Conflict, Closed):
            self._store.commit(requirements, updates)

    def announce(self, key: str, value: bytes) -> Announcement:
        self._check()
        self._life.change()
        one = self._announced[key] = _Announced(value, self._store.announce(key, value))
        self._learn()
        return Announcement(
            key, end=lambda: self._take_back(key, one), stands=lambda: one.announcement.stands
        )

    def _take_back(self, key: str, one: _Announced) -> None:
        if self._announced.get(key) is one:
            del self._announced[key]
        one.announcement.close()
        self._learn()

    def changed_since(self, version: int) -> bool:
        self._check_open()
        return self._mirror.known.version != version

    def changes_since(self, version: int) -> Delta | None:
        self._check_open()
        return self._mirror.since(version)

    def watch(self, callback: Watcher) -> Callable[[], None]:
        return self._watchers.add(callback)

    def close(self) -> None:
        self._closed = True
        self._forget()
        self._announced.clear()
        self._store.close()

    def _check(self) -> None:
        self._check_open()
        if self._cut_since is not None:
            raise Disconnected("the metadata cannot be reached: try again")

    def _check_open(self) -> None:
        self._life.check()
        if self._closed:
            raise Closed("this metadata store was closed")


def _on_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
