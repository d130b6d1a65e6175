"""Three ZooKeepers, of which one after the other is killed or frozen while several processes commit.

What must hold: a commit that returned is there; one whose outcome was unknown is there or not, but never half; versions
never go back; who follows by deltas sees what a fresh reader sees; announcements of the living come back.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

import pytest

from strom.errors import Conflict, OutcomeUnknown, Retry
from strom.metadata.changes import Absent, Put, VersionIs
from strom.metadata.store import Delta, Entry
from strom.metadata.zookeeper.options import ZooKeeperOptions
from strom.metadata.zookeeper.store import ZooKeeperStore
from strom.testing.zookeeper import ZooKeeperEnsemble
from waiting import pause_blocking, until_blocking

WRITERS = 3
TORTURE_MINUTES = float(os.environ.get("STROM_TORTURE_MINUTES", "10"))


@dataclass
class Written:
    """What one writer did, by its own account."""

    returned: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    unknown: dict[str, bytes] = field(default_factory=dict)
    refused: int = 0
    counted: int = 0
    counted_perhaps: int = 0


class PairWriter:
    """Creates pairs of entries, each in one commit, and counts them in an entry that all writers share."""

    def __init__(self, number: int, options: ZooKeeperOptions) -> None:
        self.number = number
        self.store = ZooKeeperStore.open(options)
        self.announcement = self.store.announce(f"alive/{number}", b"%d" % number)
        self.done = Written()
        self.stop = threading.Event()
        self.errors: list[BaseException] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        count = 0
        try:
            while not self.stop.is_set():
                count += 1
                self._pair(f"pairs/{self.number}-{count}", b"%d" % count)
                if count % 3 == 0:
                    self._count()
        except BaseException as error:
            self.errors.append(error)

    def _pair(self, key: str, value: bytes) -> None:
        try:
            version = self.store.commit(
                [Absent(f"{key}/a")], [Put(f"{key}/a", value), Put(f"{key}/b", value)]
            )
        except OutcomeUnknown:
            self.done.unknown[key] = value
        except Retry:
            self.done.refused += 1
        else:
            self.done.returned[key] = version, value

    def _count(self) -> None:
        """One more in the shared counter, by compare-and-set on what this process knows."""
        try:
            found = self.store.read("count").entries.get("count")
            required = Absent("count") if found is None else VersionIs("count", found.version)
            self.store.commit([required], [Put("count", b"%d" % (1 + int(found.value if found else b"0")))])
        except OutcomeUnknown:
            self.done.counted_perhaps += 1
        except Conflict:
            pass
        except Retry:
            self.done.refused += 1
        else:
            self.done.counted += 1

    def finish(self) -> Written:
        self.stop.set()
        self._thread.join(120)
        assert not self._thread.is_alive()
        if self.errors:
            raise self.errors[0]
        return self.done


class DeltaFollower:
    """Follows by deltas in a thread of its own, and checks every one."""

    def __init__(self, options: ZooKeeperOptions) -> None:
        self.store = ZooKeeperStore.open(options)
        snapshot = self.store.read()
        self.version, self.entries = snapshot.version, dict(snapshot.entries)
        self.problems: list[str] = []
        self._woken = threading.Event()
        self._stop = threading.Event()
        self.store.watch(lambda _version: self._woken.set())
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            self._woken.wait(0.2)
            self._woken.clear()
            delta = self.store.changes_since(self.version)
            if delta is None:
                self.problems.append(f"no delta since {self.version}")
                return
            if delta.version != self.version:
                self._take(delta)

    def _take(self, delta: Delta) -> None:
        if delta.version < self.version:
            self.problems.append(f"back from {self.version} to {delta.version}")
        for key in delta.gone:
            self.entries.pop(key, None)
        for key, entry in delta.put.items():
            before = self.entries.get(key)
            if before is not None and before.version > entry.version:
                self.problems.append(f"{key} went back from {before} to {entry}")
            self.entries[key] = entry
        self.version = delta.version
        self.problems += halves(self.entries)

    def finish(self) -> dict[str, Entry]:
        last = self.store.read().version
        until_blocking(lambda: self.version >= last or self.problems)
        self._stop.set()
        self._thread.join(60)
        assert self.problems == []
        return self.entries


def halves(entries: dict[str, Entry]) -> list[str]:
    """Pairs of which one side is missing or different."""
    found: dict[str, list[Entry]] = {}
    for key, entry in entries.items():
        if key.startswith("pairs/"):
            found.setdefault(key[:-2], []).append(entry)
    return [
        f"half of {key}: {sides}" for key, sides in found.items() if len(sides) != 2 or sides[0] != sides[1]
    ]


def play(
    zookeeper: ZooKeeperEnsemble, root: str, misfortunes: Callable[[], None], *, timeout_s: float = 5.0
) -> tuple[int, int]:
    """Write while misfortunes happen, then check; returns how many commits returned, and how many were unknown."""
    options = ZooKeeperOptions(
        zookeeper.addresses, root=root, session_timeout_s=4.0, request_timeout_s=timeout_s
    )
    patient = replace(options, request_timeout_s=30.0)
    follower = DeltaFollower(patient)  # creates the root, which takes longer than the impatient may wait
    writers = [PairWriter(number, options) for number in range(WRITERS)]
    try:
        misfortunes()
        zookeeper.start()
        done = [writer.finish() for writer in writers]
        followed = follower.finish()
        fresh = ZooKeeperStore.open(patient)
        found = dict(fresh.read().entries)
        fresh.close()
        check(found, done)
        until_blocking(lambda: all(writer.announcement.stands for writer in writers))
        settled = dict(follower.store.read("pairs/").entries)
        assert {key: entry for key, entry in followed.items() if key.startswith("pairs/")} == settled
        assert settled == {key: entry for key, entry in found.items() if key.startswith("pairs/")}
    finally:
        for writer in writers:
            writer.stop.set()
            writer.store.close()
        follower._stop.set()
        follower.store.close()
    return sum(len(one.returned) for one in done), sum(len(one.unknown) for one in done)


def check(found: dict[str, Entry], done: list[Written]) -> None:
    assert halves(found) == []
    for one in done:
        for key, (version, value) in one.returned.items():
            assert found.get(f"{key}/a") == Entry(value, version), f"{key} returned and is not there"
    returned = {key for one in done for key in one.returned}
    perhaps = {key for one in done for key in one.unknown}
    there = {key[:-2] for key in found if key.startswith("pairs/")}
    assert there <= returned | perhaps, "what was refused did not happen"
    count = int(found["count"].value) if "count" in found else 0
    counted = sum(one.counted for one in done)
    assert counted <= count <= counted + sum(one.counted_perhaps for one in done)


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperEnsemble]:
    with ZooKeeperEnsemble(tmp_path_factory.mktemp("ensemble"), size=3) as zookeeper:
        yield zookeeper


@pytest.mark.slow
def test_commits_survive_the_death_of_the_leader(ensemble: ZooKeeperEnsemble) -> None:
    def misfortunes() -> None:
        pause_blocking(0.5)
        killed = ensemble.leader()
        killed.kill()
        until_blocking(lambda: any(one.mode() == "leader" for one in ensemble.servers))
        pause_blocking(0.7)
        killed.start()
        pause_blocking(0.5)

    returned, _ = play(ensemble, "/killed", misfortunes)
    assert returned > 20


@pytest.mark.slow
def test_without_a_majority_nothing_is_committed_and_afterwards_everything_goes_on(
    ensemble: ZooKeeperEnsemble,
) -> None:
    def misfortunes() -> None:
        pause_blocking(0.3)
        ensemble.servers[0].kill()
        ensemble.servers[1].kill()
        pause_blocking(0.8)
        ensemble.start()
        pause_blocking(0.5)

    returned, _ = play(ensemble, "/minority", misfortunes, timeout_s=1.0)
    assert returned > 5


@pytest.mark.torture
def test_commits_survive_any_order_of_deaths_and_freezes(tmp_path: Path) -> None:
    random = Random(int(os.environ.get("STROM_TORTURE_SEED", "1")))
    rounds, returned, unknown = 0, 0, 0
    with ZooKeeperEnsemble(tmp_path, size=3) as zookeeper:

        def misfortune() -> None:
            pause_blocking(random.random())
            one = random.choice(zookeeper.servers)
            kind = random.choice(["kill", "kill", "kill leader", "freeze", "kill all"])
            if kind == "freeze":
                one.pause()
                pause_blocking(random.uniform(0.1, 6.0))
                one.resume()
            elif kind == "kill all":
                zookeeper.kill()
            else:
                (one if kind == "kill" else zookeeper.leader()).kill()
            pause_blocking(random.uniform(0.1, 3.0))
            zookeeper.start()

        def misfortunes() -> None:
            for _ in range(8):
                misfortune()

        deadline_rounds = max(1, int(TORTURE_MINUTES))
        while rounds < deadline_rounds:
            rounds += 1
            more, lost = play(zookeeper, f"/round-{rounds}", misfortunes, timeout_s=random.choice([0.7, 3.0]))
            returned, unknown = returned + more, unknown + lost
    print(f"{rounds} rounds: {returned} commits returned, {unknown} were unknown")
    assert returned > 100 * rounds
