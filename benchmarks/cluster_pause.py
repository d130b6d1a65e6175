"""How long do a writer and a reader wait when the server that leads their bucket fails, or stops?

Expected, of an idempotent writer and of a lookup loop with three copies and `acks` all: median 0.5 s and p99 1.5 s at
most when the leader's process is killed. It is noticed when the connection breaks (50 ms of grace), one commit in
ZooKeeper elects another copy, which has every row and has applied it; the client, refused, asks where the leader is and
sends again. At most 2 s when the leader is frozen, or cut off from everybody: 0.6 s of silence come before the same
steps. At most 100 ms and no error when another server is told to lead, or the leader is stopped in order. Durability
`os`, and `group` beside it; the pause is the longest time between two answers.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np

import strom
from benchmarks.call_loop import KEYS, CallLoop, calling
from benchmarks.harness import Answer, Bench, Samples, Target
from benchmarks.key_rows import INT_KEY
from benchmarks.on_cluster import CutOff, cluster, let_lead, settle
from benchmarks.workload import SMALL_SCHEMA
from strom.testing.cluster_process import ClusterProcess

LOG, KEYED = "events", "customers"
SETTINGS = {"durability": "os"}
CALM_S = 0.3
"""Before something happens, so that the loops run."""
WATCHED_S = 2.5
"""After it: a pause that is not over by then still counts in full."""
ROUNDS, ROUNDS_QUICK = 30, 1
EVENT_S, EVENT_QUICK_S = 300, 10
"""No round of an event begins after that; how many there were is noted."""


@dataclass(frozen=True)
class Event:
    """Something that happens to a leader, and what puts it right again."""

    words: str
    happens: Callable[[int], object]
    undone: Callable[[int], object]
    median_s: float
    slowest_s: float
    without_error: bool = False


def measure(bench: Bench) -> list[Answer]:
    answers = []
    with cluster(bench.folder / "cluster", SETTINGS) as (running, db):
        _tables(db)
        for event in _events(running, db):
            answers += _pauses(bench, running, db, event)
    return answers + _cut_off(bench)


def _cut_off(bench: Bench) -> list[Answer]:
    """In a cluster of its own: who connects to a proxy is not refused when the server behind it is killed."""
    running = ClusterProcess(bench.folder / "proxied", tablets=3, coordinators=2, settings=SETTINGS)
    with ExitStack() as open_ones:
        cut = {server: CutOff(running, server) for server in running.tablets}
        for one in cut.values():
            open_ones.callback(one.close)
        open_ones.enter_context(running)
        db = open_ones.enter_context(strom.connect(running.address))
        _tables(db)
        event = Event("is cut off", lambda one: cut[one].cut(), lambda one: cut[one].heal(), 2.0, 2.0)
        return _pauses(bench, running, db, event)


def _tables(db: strom.Database) -> None:
    db.create_table(LOG, SMALL_SCHEMA, buckets=1)
    keyed = db.create_table(KEYED, INT_KEY.schema, primary_key=list(INT_KEY.key), buckets=1)
    keyed.upsert(INT_KEY.rows(np.arange(KEYS)))
    keyed.flush()


def _events(running: ClusterProcess, db: strom.Database) -> tuple[Event, ...]:
    tablets = running.tablets

    def elsewhere(leader: int) -> None:
        for name in (LOG, KEYED):
            db.move_bucket(name, 0, leader=leader % len(tablets) + 1)

    return (
        Event("is killed", lambda one: tablets[one].kill(), lambda one: tablets[one].start(), 0.5, 1.5),
        Event("is frozen", lambda one: tablets[one].pause(), lambda one: tablets[one].resume(), 2.0, 2.0),
        Event("hands over", elsewhere, lambda one: None, 0.1, 0.1, without_error=True),
        Event(
            "is stopped in order",
            lambda one: tablets[one].stop(),
            lambda one: tablets[one].start(),
            0.1,
            0.1,
            without_error=True,
        ),
    )


def _pauses(bench: Bench, running: ClusterProcess, db: strom.Database, event: Event) -> list[Answer]:
    windows: list[tuple[int, int]] = []
    with (
        calling("appends", running.address, LOG) as writer,
        calling("lookups", running.address, KEYED) as reader,
    ):
        end = time.monotonic() + bench.size(EVENT_S, EVENT_QUICK_S)
        for number in range(bench.size(ROUNDS, ROUNDS_QUICK)):
            if windows and time.monotonic() > end:
                break
            leader = number % len(running.tablets) + 1
            settle(db)
            let_lead(db, leader, LOG, KEYED)
            time.sleep(CALM_S)
            began = time.monotonic_ns()
            event.happens(leader)
            time.sleep(WATCHED_S)
            windows.append((began, time.monotonic_ns()))
            event.undone(leader)
        settle(db)
        time.sleep(CALM_S)
    return [
        one
        for who, loop in (("an idempotent writer", writer), ("a lookup loop", reader))
        for one in _answers(f"pause of {who} when its leader {event.words}", event, loop, windows)
    ]


def _answers(question: str, event: Event, loop: CallLoop, windows: list[tuple[int, int]]) -> list[Answer]:
    pauses = tuple(loop.pause_s(*one) for one in windows)
    notes: dict[str, object] = {
        "rounds": len(windows),
        "errors": len(loop.failed),
        "first_errors": loop.failed[:3],
    }
    found = [
        Answer(
            question, Samples(values, "s", 0.0, 0.0), None, "", figure, Target(limit, at_least=False), notes
        )
        for question, values, figure, limit in (
            (f"{question}, median", pauses, statistics.median(pauses), event.median_s),
            (f"{question}, slowest", (max(pauses),), max(pauses), event.slowest_s),
        )
    ]
    if event.without_error:
        failed = float(len(loop.failed))
        count = Samples((failed,), "errors", 0.0, 0.0)
        found.append(
            Answer(f"{question}, failed calls", count, None, "", failed, Target(0, at_least=False), notes)
        )
    return found
