"""Strom, Fluss and Kafka side by side, each a server of its own on the loopback, and the ways to them by name."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import strom
from benchmarks import peer_jars
from benchmarks.fluss_process import FlussServer, fluss_server
from benchmarks.harness import Answer, Bench, Samples, ratio_of
from benchmarks.kafka_process import KafkaServer, kafka_server
from benchmarks.kafka_ways import KafkaArrow, KafkaRows
from benchmarks.peer_ways import ByPyfluss, ByStrom, Way
from strom.testing.process import ServerProcess

OWN, PEER = "Strom", "Strom by pyfluss"
FLUSS = "Fluss by pyfluss"
KAFKA_ROWS, KAFKA_ARROW = "Kafka, a message per row", "Kafka, a message per Arrow batch"
BESIDE = ((PEER, FLUSS), (OWN, FLUSS), (OWN, KAFKA_ROWS), (OWN, KAFKA_ARROW))
"""Which ways are set beside which: the same client first, then ours against the best that theirs has in Python."""

WARM_UPS = 3
"""Rounds before anything counts: Java compiles what it has run often enough."""


@dataclass(frozen=True)
class Systems:
    """All of them, running."""

    strom: ServerProcess
    db: strom.Database
    fluss: FlussServer
    kafka: KafkaServer

    def pids_of(self, way: str) -> list[int]:
        """Whose processes do the work of a way, by the first word of its name."""
        return {"Strom": self.strom.pids, "Fluss": self.fluss.pids}.get(way.split()[0], self.kafka.pids)

    def address_of(self, way: str) -> str:
        """Whom it asks."""
        return {"Strom": self.strom.address, "Fluss": self.fluss.address}.get(
            way.split()[0], self.kafka.address
        )

    @contextmanager
    def ways(self) -> Iterator[dict[str, Way]]:
        """Every way to a log, connected."""
        with ExitStack() as open_ones:
            runner = open_ones.enter_context(asyncio.Runner())
            pyfluss = {
                name: ByPyfluss(address, runner)
                for name, address in ((PEER, self.strom.address), (FLUSS, self.fluss.address))
            }
            kafka = {KAFKA_ROWS: KafkaRows(self.kafka.address), KAFKA_ARROW: KafkaArrow(self.kafka.address)}
            for way in (*pyfluss.values(), *kafka.values()):
                open_ones.callback(way.close)
            yield {OWN: ByStrom(self.db), **pyfluss, **kafka}


@contextmanager
def running(folder: Path) -> Iterator[Systems]:
    """All three, fresh; Strom with durability `os`, since none of the others waits for the disk."""
    with (
        kafka_server(folder / "kafka") as kafka,
        fluss_server(folder / "fluss") as fluss,
        ServerProcess(folder / "strom", settings={"durability": "os"}) as server,
        strom.connect(server.address) as db,
    ):
        yield Systems(server, db, fluss, kafka)


def turns(
    bench: Bench,
    systems: Systems,
    ways: Mapping[str, Callable[[], float]],
    rows: int,
    unit: str = "rows/s",
) -> dict[str, Samples]:
    """Rows a second of every way, whose calls return seconds."""
    return bench.take_turns(
        _rates(ways, rows),
        unit,
        pids={name: systems.pids_of(name) for name in ways},
        repeats=bench.size(full=5, quick=1),
        warm_ups=bench.size(full=WARM_UPS, quick=1),
    )


def _rates(ways: Mapping[str, Callable[[], float]], rows: int) -> dict[str, Callable[[], float]]:
    """Seconds as rows a second."""

    def rate(way: Callable[[], float]) -> Callable[[], float]:
        return lambda: rows / way()

    return {name: rate(way) for name, way in ways.items()}


def answers(
    words: str, found: Mapping[str, Samples], pairs: Sequence[tuple[str, str]] = BESIDE, **notes: object
) -> list[Answer]:
    """One for each pair; none has a target, since a peer is not a bound that was computed before."""
    return [
        Answer(
            question=f"{words}: {ours} beside {theirs}",
            figure=found[ours],
            reference=found[theirs],
            reference_name=theirs,
            ratio=ratio_of(found[ours], found[theirs]),
            notes={**_cpu(found[ours], found[theirs]), **versions(), **notes},
        )
        for ours, theirs in pairs
    ]


def _cpu(ours: Samples, theirs: Samples) -> dict[str, object]:
    """Client and servers together, for each repeat."""
    return {
        f"{who}_cpu_s": samples.cpu_seconds / len(samples.values)
        for who, samples in (("ours", ours), ("theirs", theirs))
        if samples.cpu_seconds
    }


def versions() -> dict[str, object]:
    """Of the brokers; those of the clients are the machine's."""
    return {peer.name: peer.version for peer in peer_jars.PEERS}
