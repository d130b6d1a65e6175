"""How long do a writer and a reader wait when the server that leads their bucket fails, or stops?

Expected, of an idempotent writer and of a lookup loop with three copies and `acks` all: median 0.5 s and p99 1.5 s at
most when the leader's process is killed. It is noticed when the connection breaks (50 ms of grace), one commit in
ZooKeeper elects another copy, which has every row and has applied it; the client, refused, asks where the leader is and
sends again. At most 2 s when the leader is frozen, or cut off from everybody: 0.6 s of silence come before the same
steps. At most 100 ms and no error when another server is told to lead, or the leader is stopped in order. Durability
`os`; the pause is the longest time between two answers, and the slowest of a few dozen stands for the p99. One pair of
loops goes through all that happens to a cluster; a round is over when both go on.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field

import numpy as np

import strom
from benchmarks.call_loop import KEYS, CallLoop, calling
from benchmarks.harness import Answer, Bench, Samples, Target
from benchmarks.key_rows import INT_KEY
from benchmarks.on_cluster import POLL_S, CutOff, cluster, let_lead, patient, settle
from benchmarks.workload import SMALL_SCHEMA
from strom.testing.cluster_process import ClusterProcess

LOG, KEYED = "events", "customers"
SETTINGS = {"durability": "os"}
CALM_S = 0.3
"""Before something happens, so that the loops run, and after they go on."""
PATIENCE_S = 10.0
"""How long the loops are waited for; a pause that is longer still counts so much."""
EVENT_S, EVENT_QUICK_S = 200, 15
"""No round of an event begins after that; how many there were is noted."""


@dataclass(frozen=True)
class Event:
    """Something that happens to a leader, and what puts it right again."""

    words: str
    happens: Callable[[int], object]
    """Returns when it has happened: whoever is answered from then on goes on."""
    undone: Callable[[int], object]
    median_s: float
    slowest_s: float
    rounds: int
    rounds_quick: int = 1
    without_error: bool = False


@dataclass
class Rounds:
    """When an event began, when its loops went on, and when it was undone, in nanoseconds."""

    pauses: list[tuple[int, int]] = field(default_factory=list)
    whole: list[tuple[int, int]] = field(default_factory=list)


def measure(bench: Bench) -> list[Answer]:
    with cluster(bench.folder / "cluster", SETTINGS) as (running, db):
        _tables(db)
        answers = _pauses(bench, running, db, _events(running, db))
    return answers + _cut_off(bench)


def _cut_off(bench: Bench) -> list[Answer]:
    """In a cluster of its own: who connects to a proxy is not refused when the server behind it is killed."""
    running = ClusterProcess(bench.folder / "proxied", tablets=3, coordinators=2, settings=SETTINGS)
    with ExitStack() as open_ones:
        cut = {server: CutOff(running, server) for server in running.tablets}
        for one in cut.values():
            open_ones.callback(one.close)
        open_ones.enter_context(patient(running))
        db = open_ones.enter_context(strom.connect(running.address))
        _tables(db)
        event = Event("is cut off", lambda one: cut[one].cut(), lambda one: cut[one].heal(), 2.0, 2.0, 12)
        return _pauses(bench, running, db, [event])


def _tables(db: strom.Database) -> None:
    db.create_table(LOG, SMALL_SCHEMA, buckets=1)
    keyed = db.create_table(KEYED, INT_KEY.schema, primary_key=list(INT_KEY.key), buckets=1)
    keyed.upsert(INT_KEY.rows(np.arange(KEYS)))
    keyed.flush()


def _events(running: ClusterProcess, db: strom.Database) -> list[Event]:
    tablets = running.tablets

    def start(one: int) -> None:
        tablets[one].start()

    def elsewhere(leader: int) -> None:
        let_lead(db, leader % len(tablets) + 1, LOG, KEYED)

    return [
        Event("hands over", elsewhere, lambda one: None, 0.1, 0.1, 30, 4, without_error=True),
        Event("is frozen", lambda one: tablets[one].pause(), lambda one: tablets[one].resume(), 2.0, 2.0, 15),
        Event("is killed", lambda one: tablets[one].kill(), start, 0.5, 1.5, 30, 2),
        Event("is stopped in order", lambda one: tablets[one].stop(), start, 0.1, 0.1, 8, without_error=True),
    ]


def _pauses(bench: Bench, running: ClusterProcess, db: strom.Database, events: list[Event]) -> list[Answer]:
    with (
        calling("appends", running.address, LOG) as writer,
        calling("lookups", running.address, KEYED) as reader,
    ):
        loops = {"an idempotent writer": writer, "a lookup loop": reader}
        met = [(event, _rounds(bench, running, db, event, list(loops.values()))) for event in events]
        time.sleep(CALM_S)
    return [
        answer
        for event, rounds in met
        for who, loop in loops.items()
        for answer in _answers(f"pause of {who} when its leader {event.words}", event, loop, rounds)
    ]


def _rounds(
    bench: Bench, running: ClusterProcess, db: strom.Database, event: Event, loops: list[CallLoop]
) -> Rounds:
    """Each server in turn is the one that it happens to."""
    found, end = Rounds(), time.monotonic() + bench.size(EVENT_S, EVENT_QUICK_S)
    for number in range(bench.size(event.rounds, event.rounds_quick)):
        if number and time.monotonic() > end:
            break
        leader = number % len(running.tablets) + 1
        settle(db)
        let_lead(db, leader, LOG, KEYED)
        time.sleep(CALM_S)
        began = time.monotonic_ns()
        event.happens(leader)
        _await_answers(loops, time.monotonic_ns())
        found.pauses.append((began, time.monotonic_ns()))
        event.undone(leader)
        settle(db)
        found.whole.append((began, time.monotonic_ns()))
    return found


def _await_answers(loops: list[CallLoop], since: int) -> None:
    """Until all of them were answered something that they asked after it, and a moment longer."""
    end = time.monotonic() + PATIENCE_S
    while not all(one.goes_on(since) for one in loops) and time.monotonic() < end:
        time.sleep(POLL_S)
    time.sleep(CALM_S)


def _answers(question: str, event: Event, loop: CallLoop, rounds: Rounds) -> Iterator[Answer]:
    pauses = tuple(loop.pause_s(*one) for one in rounds.pauses)
    failed = [error for one in rounds.whole for error in loop.errors(*one)]
    notes: dict[str, object] = {"rounds": len(pauses), "errors": len(failed), "first_errors": failed[:3]}
    for words, values, figure, limit in (
        ("median", pauses, statistics.median(pauses), event.median_s),
        ("slowest", (max(pauses),), max(pauses), event.slowest_s),
    ):
        samples = Samples(values, "s", 0.0, 0.0)
        target = Target(limit, at_least=False)
        yield Answer(f"{question}, {words}", samples, None, "", figure, target, notes)
    if event.without_error:
        count = Samples((float(len(failed)),), "errors", 0.0, 0.0)
        target = Target(0, at_least=False)
        yield Answer(f"{question}, failed calls", count, None, "", float(len(failed)), target, notes)
