"""How fast do rows come out of Strom, Fluss and Kafka as Arrow: all columns, and two of ten?

Expected: all columns by pyfluss as fast as out of Fluss (the client's decode is the same, and both servers send files
almost untouched); two columns too, since both send only those. By our own client twice that. Beside Kafka with a
message per row five times and more: each row is a Python object before it is Arrow; the figure without the decoding
is beside it. Beside Kafka with an Arrow batch in a message we lose some of a full scan: its broker sends the file and
its client checks nothing, ours checks every batch. Of two columns Kafka has no idea: all bytes move, and we win by
what stays. One million of the rows of `peers_append` (100 k in the quick form), from the page cache.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from benchmarks.harness import Answer, Bench
from benchmarks.kafka_ways import KafkaLog
from benchmarks.peer_systems import BESIDE, KAFKA_ROWS, OWN, answers, running, turns
from benchmarks.peer_ways import Way
from benchmarks.workload import small_batch

ROWS = 10_000
TWO = ("id", "price")
RAW = "Kafka, raw messages of a row"


def measure(bench: Bench) -> list[Answer]:
    count = bench.size(full=100, quick=10)
    rows = count * ROWS
    with running(bench.folder) as systems, systems.ways() as ways:
        for way in ways.values():
            way.fill([small_batch(ROWS, start=i * ROWS) for i in range(count)])
        kafka = ways[KAFKA_ROWS]
        assert isinstance(kafka, KafkaLog)
        whole = turns(bench, systems, {**_scans(ways, None), RAW: kafka.consume}, rows)
        two = turns(bench, systems, _scans(ways, TWO), rows)
    return [
        *answers("full scan to Arrow", whole, [*BESIDE, (OWN, RAW)], rows=rows),
        *answers("two of ten columns", two, rows=rows),
    ]


def _scans(ways: dict[str, Way], columns: Sequence[str] | None) -> dict[str, Callable[[], float]]:
    return {name: partial(way.scan, columns) for name, way in ways.items()}
