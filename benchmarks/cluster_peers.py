"""With three copies on three servers: how does Strom stand beside Kafka and Fluss, in appends, tails and failovers?

Expected, with `acks` all in every system, the same bytes and the same run: at least as many rows a second as Fluss by
pyfluss and as Kafka with a message per row; beside Kafka with a whole Arrow batch in a message about even, since its
broker looks into nothing and its followers copy bytes. The slowest hundredth of one-row appends no worse than theirs.
After kill -9 of the leader a writer waits a fraction of a second; Kafka's controller waits for a session of 9 s, Fluss'
coordinator for one of ZooKeeper, up to a minute. Kafka: three nodes, each broker and controller. Fluss: three tablet
servers, a coordinator, a ZooKeeper. Batches and single rows go to each system in turn. All as they come, nobody waits
for the disk, everything on one machine, whose cores are shared: the more processes a system needs, the more it pays for
that here.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from functools import partial

from benchmarks.beside import quantile
from benchmarks.call_loop import CallLoop, calling
from benchmarks.harness import Answer, Bench, Samples, Target
from benchmarks.on_cluster import POLL_S
from benchmarks.peer_clusters import KAFKA, PeerClusters, running
from benchmarks.peer_systems import BESIDE, FLUSS, OWN, answers, turns, versions
from benchmarks.workload import small_batch

ROWS = 10_000
WARM_S, WARM_QUICK_S = 10, 2
"""Before anything is measured; Java compiles what it runs often, and is several times slower until then."""
TURNS, TURNS_QUICK = 6, 2
TURN_S, TURN_QUICK_S = 4.0, 2.0
"""The loops of one row take turns, so that a noisy moment hits all of them."""
PATIENCE_S, PATIENCE_QUICK_S = 90, 12
"""How long a writer whose leader was killed is waited for; a pause that is longer still counts so much."""
CALM_S, AFTERWARDS_S = 0.5, 1.0
"""Before a leader is killed, and once calls are answered again."""
LOOPS = {KAFKA: "kafka", FLUSS: "pyfluss", OWN: "appends"}
TABLE = "one_by_one"


def measure(bench: Bench) -> list[Answer]:
    count = bench.size(full=50, quick=8)
    work = [small_batch(ROWS, start=i * ROWS) for i in range(count)]
    with running(bench.folder) as clusters:
        with clusters.ways() as ways:
            appends = {name: partial(way.append, work) for name, way in ways.items()}
            for append in appends.values():
                _warm_up(append, bench.size(WARM_S, WARM_QUICK_S))
            found = turns(bench, clusters, appends, count * ROWS)
        met = _one_by_one(bench, clusters)
    return [
        *map(
            _with_target, answers("append 10 k-row batches, three copies", found, BESIDE, rows=count * ROWS)
        ),
        *(one for other in (KAFKA, FLUSS) for one in _loop_answers(met, other)),
    ]


def _with_target(answer: Answer) -> Answer:
    return Answer(**{**answer.__dict__, "target": Target(1.0)})


Span = tuple[int, int]


@dataclass
class Met:
    """What a loop met."""

    calls: list[float]
    """How long each took while nothing happened."""
    pause_s: float
    errors: int


def _one_by_one(bench: Bench, clusters: PeerClusters) -> dict[str, Met]:
    """One row after the other; then their leaders are killed."""
    with ExitStack() as open_ones:
        loops: dict[str, CallLoop] = {}
        for way in LOOPS:
            loops[way] = open_ones.enter_context(_loop(clusters, way))
            time.sleep(bench.size(WARM_S, WARM_QUICK_S))
            loops[way].rest()
        turns: dict[str, list[Span]] = {way: [] for way in LOOPS}
        for _ in range(bench.size(TURNS, TURNS_QUICK)):
            for way, loop in loops.items():
                turns[way].append(_turn(loop, TURN_QUICK_S if bench.quick else TURN_S))
        patience_s = bench.size(PATIENCE_S, PATIENCE_QUICK_S)
        killed = {way: _killed(clusters, way, loop, patience_s) for way, loop in loops.items()}
    return {way: _met(loop, turns[way], killed[way]) for way, loop in loops.items()}


def _loop(clusters: PeerClusters, way: str) -> AbstractContextManager[CallLoop]:
    clusters.create(way, TABLE)
    module = "benchmarks.call_loop" if way == OWN else "benchmarks.peer_call_loop"
    return calling(LOOPS[way], clusters.address_of(way), TABLE, module=module)


def _turn(loop: CallLoop, seconds: float) -> Span:
    loop.go_on()
    began = time.monotonic_ns()
    time.sleep(seconds)
    ended = time.monotonic_ns()
    loop.rest()
    return began, ended


def _killed(clusters: PeerClusters, way: str, loop: CallLoop, patience_s: float) -> Span:
    """From the end of the leader until the loop goes on; then it may rest."""
    loop.go_on()
    time.sleep(CALM_S)
    began = time.monotonic_ns()
    clusters.kill_leader(way, TABLE)
    _await_answer(loop, time.monotonic_ns(), patience_s)
    ended = time.monotonic_ns()
    loop.rest()
    return began, ended


def _warm_up(append: Callable[[], float], seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        append()


def _await_answer(loop: CallLoop, killed: int, patience_s: float) -> None:
    end = time.monotonic() + patience_s
    while not loop.goes_on(killed) and time.monotonic() < end:
        time.sleep(POLL_S)
    time.sleep(AFTERWARDS_S)


def _met(loop: CallLoop, turns: list[Span], killed: Span) -> Met:
    calls = [one for turn in turns for one in loop.seconds(*turn)]
    by_then = CallLoop(
        answered=[at for at in loop.answered if at <= killed[1]]
    )  # later ones came after a rest
    return Met(calls, by_then.pause_s(*killed), len(loop.failed))


def _loop_answers(met: dict[str, Met], other: str) -> list[Answer]:
    ours, theirs = met[OWN], met[other]
    p99 = [quantile(one.calls, 0.99) * 1e3 for one in (ours, theirs)]
    pauses = [ours.pause_s, theirs.pause_s]
    notes: dict[str, object] = {**versions(), "our_calls": len(ours.calls), "their_calls": len(theirs.calls)}
    notes |= {"our_errors": ours.errors, "their_errors": theirs.errors}
    notes |= {
        f"{who}_median_ms": quantile(one.calls, 0.5) * 1e3 for who, one in (("our", ours), ("their", theirs))
    }
    return [
        Answer(
            question=f"{words}, three copies: {OWN} beside {other}",
            figure=Samples((figure,), unit, 0.0, 0.0),
            reference=Samples((reference,), unit, 0.0, 0.0),
            reference_name=other,
            ratio=figure / reference,
            target=Target(1.0, at_least=False),
            notes=notes,
        )
        for words, (figure, reference), unit in (
            ("one-row append until it is acknowledged, p99", p99, "ms"),
            ("pause of a writer whose leader is killed", pauses, "s"),
        )
    ]
