"""With three copies on three servers: how does Strom stand beside Kafka and Fluss, in appends, tails and failovers?

Expected, with `acks` all in every system, the same bytes and the same run: at least as many rows a second as Fluss by
pyfluss and as Kafka with a message per row; beside Kafka with a whole Arrow batch in a message about even, since its
broker looks into nothing and its followers copy bytes. The slowest hundredth of one-row appends no worse than theirs.
After kill -9 of the leader a writer waits a fraction of a second; Kafka's controller waits for a session of 9 s, Fluss'
coordinator for one of ZooKeeper, up to a minute. Kafka: three nodes, each broker and controller. Fluss: three tablet
servers, a coordinator, a ZooKeeper. All as they come, nobody syncs, everything on one machine, whose cores are shared:
the more processes a system needs, the more it pays for that here.
"""

from __future__ import annotations

import time
from collections.abc import Callable
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
PATIENCE_S, PATIENCE_QUICK_S = 90, 15
"""How long a writer whose leader was killed is waited for; a pause that is longer still counts so much."""
AFTERWARDS_S = 1.0
"""Once its calls are answered again."""
LOOPS = {KAFKA: "kafka", FLUSS: "pyfluss", OWN: "appends"}


def measure(bench: Bench) -> list[Answer]:
    count = bench.size(full=50, quick=8)
    work = [small_batch(ROWS, start=i * ROWS) for i in range(count)]
    with running(bench.folder) as clusters:
        with clusters.ways() as ways:
            appends = {name: partial(way.append, work) for name, way in ways.items()}
            for append in appends.values():
                _warm_up(append, bench.size(WARM_S, WARM_QUICK_S))
            found = turns(bench, clusters, appends, count * ROWS)
        met = {way: _loop(bench, clusters, way) for way in LOOPS}
    return [
        *map(
            _with_target, answers("append 10 k-row batches, three copies", found, BESIDE, rows=count * ROWS)
        ),
        *(one for other in (KAFKA, FLUSS) for one in _loop_answers(met, other)),
    ]


def _with_target(answer: Answer) -> Answer:
    return Answer(**{**answer.__dict__, "target": Target(1.0)})


Met = tuple[list[float], float, int]
"""How long calls took, how long the pause was, and how many calls failed."""


def _loop(bench: Bench, clusters: PeerClusters, way: str) -> Met:
    """One row after the other; then its leader is killed."""
    name, calm_s = "one_by_one", bench.size(15, 4)
    clusters.create(way, name)
    module = "benchmarks.call_loop" if way == OWN else "benchmarks.peer_call_loop"
    with calling(LOOPS[way], clusters.address_of(way), name, module=module) as loop:
        time.sleep(bench.size(WARM_S, WARM_QUICK_S))
        began = time.monotonic_ns()
        time.sleep(calm_s)
        killing = time.monotonic_ns()
        clusters.kill_leader(way, name)
        _await_answer(loop, time.monotonic_ns(), bench.size(PATIENCE_S, PATIENCE_QUICK_S))
        ended = time.monotonic_ns()
    return _met(loop, began, killing, ended)


def _warm_up(append: Callable[[], float], seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        append()


def _await_answer(loop: CallLoop, killed: int, patience_s: float) -> None:
    end = time.monotonic() + patience_s
    while not loop.goes_on(killed) and time.monotonic() < end:
        time.sleep(POLL_S)
    time.sleep(AFTERWARDS_S)


def _met(loop: CallLoop, began: int, killed: int, ended: int) -> Met:
    return loop.seconds(began, killed), loop.pause_s(killed, ended), len(loop.failed)


def _loop_answers(met: dict[str, Met], other: str) -> list[Answer]:
    ours, theirs = met[OWN], met[other]
    p99 = [quantile(one[0], 0.99) * 1e3 for one in (ours, theirs)]
    pauses = [ours[1], theirs[1]]
    notes = {**versions(), "our_calls": len(ours[0]), "their_calls": len(theirs[0])}
    return [
        Answer(
            question=f"{words}, three copies: {OWN} beside {other}",
            figure=Samples((figure,), unit, 0.0, 0.0),
            reference=Samples((reference,), unit, 0.0, 0.0),
            reference_name=other,
            ratio=figure / reference,
            target=Target(1.0, at_least=False),
            notes={**notes, "our_errors": ours[2], "their_errors": theirs[2]},
        )
        for words, (figure, reference), unit in (
            ("one-row append until it is acknowledged, p99", p99, "ms"),
            ("pause of a writer whose leader is killed", pauses, "s"),
        )
    ]
