"""What do Strom, Fluss and Kafka need to run: time to start, processes, memory?

Expected: Strom takes the least of all three. It starts in about a second; a JVM of Kafka needs three or more, the
three of Fluss (ZooKeeper, coordinator, tablet server) longer, one after the other. Two Python processes with Arrow
and the compiled kernels take 250 MB; Kafka's heap is fixed at 1 GB by its own script, of which a fresh broker touches
a third; Java chooses Fluss' heaps, up to a quarter of the machine's memory, and returns little of it after a load. A
start ends when the first row of a first table is acknowledged (Kafka's storage is formatted before it begins); memory
is what is resident, of all server processes together, after two quiet seconds, and again after the appends of
`peers_append`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import strom
from benchmarks.fluss_process import fluss_server
from benchmarks.harness import Answer, Bench, Samples
from benchmarks.kafka_process import kafka_server
from benchmarks.kafka_ways import KafkaArrow
from benchmarks.peer_java import memory_bytes
from benchmarks.peer_systems import versions
from benchmarks.peer_ways import Batches, ByPyfluss, ByStrom, Way
from benchmarks.workload import small_batch
from strom.testing.process import ServerProcess

ROWS = 10_000
QUIET_S = 2.0
SYSTEMS = ("Strom", "Fluss", "Kafka")
UNITS = {
    "from the command to the first acknowledged row": "s",
    "server processes": "processes",
    "memory of the servers, idle": "MB",
    "memory of the servers, after the appends": "MB",
}


@dataclass(frozen=True)
class Footprint:
    """Of one run of one system, in the order of the units."""

    start_s: float
    processes: float
    idle_mb: float
    loaded_mb: float


def measure(bench: Bench) -> list[Answer]:
    work = [small_batch(ROWS, start=i * ROWS) for i in range(bench.size(full=100, quick=10))]
    found: dict[str, list[Footprint]] = {name: [] for name in SYSTEMS}
    for number in range(bench.size(full=3, quick=1)):
        for name in SYSTEMS:
            found[name].append(_footprint(name, bench.folder / f"{name}-{number}", work))
    return [
        _answer(words, unit, place, found, beside)
        for place, (words, unit) in enumerate(UNITS.items())
        for beside in SYSTEMS[1:]
    ]


def _footprint(name: str, folder: Path, work: Batches) -> Footprint:
    with ExitStack() as open_ones:
        ready_s, pids, way = STARTS[name](folder, open_ones)
        began = time.perf_counter()
        way.append([work[0].slice(0, 1)])
        started = ready_s + time.perf_counter() - began
        time.sleep(QUIET_S)
        idle = memory_bytes(pids)
        way.append(work)
        return Footprint(started, len(pids), idle / 1e6, memory_bytes(pids) / 1e6)


def _strom(folder: Path, open_ones: ExitStack) -> tuple[float, list[int], Way]:
    server = open_ones.enter_context(ServerProcess(folder, settings={"durability": "os"}))
    return server.started_in_s, server.pids, ByStrom(open_ones.enter_context(strom.connect(server.address)))


def _fluss(folder: Path, open_ones: ExitStack) -> tuple[float, list[int], Way]:
    server = open_ones.enter_context(fluss_server(folder))
    way = ByPyfluss(server.address, open_ones.enter_context(asyncio.Runner()))
    open_ones.callback(way.close)
    return server.started_in_s, server.pids, way


def _kafka(folder: Path, open_ones: ExitStack) -> tuple[float, list[int], Way]:
    server = open_ones.enter_context(kafka_server(folder))
    way = KafkaArrow(server.address)
    open_ones.callback(way.close)
    return server.started_in_s, server.pids, way


STARTS: dict[str, Callable[[Path, ExitStack], tuple[float, list[int], Way]]] = {
    "Strom": _strom,
    "Fluss": _fluss,
    "Kafka": _kafka,
}


def _answer(words: str, unit: str, place: int, found: dict[str, list[Footprint]], beside: str) -> Answer:
    def samples(name: str) -> Samples:
        values = [(one.start_s, one.processes, one.idle_mb, one.loaded_mb)[place] for one in found[name]]
        return Samples(tuple(values), unit, 0.0, 0.0)

    figure, reference = samples("Strom"), samples(beside)
    return Answer(
        question=f"{words}: Strom beside {beside}",
        figure=figure,
        reference=reference,
        reference_name=beside,
        ratio=figure.median / reference.median,
        notes=versions(),
    )
