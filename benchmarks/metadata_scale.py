"""What do 20,000 tables and 20,000 partitions cost those who create the next one, start the server, or look at it?

Expected: creating one costs the server as much CPU for the last hundred as for the first (at most 1.5 times): the
catalog shares what stayed the same, the store hands out deltas, and watchers look only at what was touched; what is
left is SQLite's tree, which grows by a level. A restart reads and checks every entry twice and decodes it once: a few
seconds. Listing and the pages of the HTTP port take as long as what they say is long, but off the loop, so that others
do not wait for them; a round of auto-partitioning asks for commits only where time calls for one.
"""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import pyarrow as pa

import strom
from benchmarks.harness import Answer, Bench, Samples, Target, cpu_seconds, resident_bytes
from strom.testing.process import ServerProcess

SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.string()), ("price", pa.float64())])
ENDS = 100
"""Creations at either end that are compared."""
PARTITIONS_OF_ONE = 1_000
AUTO = {
    "table.auto-partition.enabled": "true",
    "table.auto-partition.num-precreate": "1",
    "table.auto-partition.time-unit": "YEAR",
}
WAIT_MS_MAX = 250.0
"""What a small call may wait while a page is put together or partitions are looked after, on two shared cores."""


def measure(bench: Bench) -> list[Answer]:
    tables, partitions = bench.size(20_000, 1_000), bench.size(20_000, 1_000)
    settings = {"durability": "os", "auto-partition.check.interval": "3 s"}
    with ServerProcess(bench.folder / "data", settings=settings) as server:
        with strom.connect(server.address) as db:
            held = Server(server)
            empty = held.memory()
            created = held.costs(lambda number: _create(db, number), tables)
            made = held.costs(Partitions(db), partitions)
            full = held.memory()
            listing = [_seconds(lambda: _expect(len(db.tables()), tables + made.more)) for _ in range(3)]
            pages = {path: held.page(path) for path in ("/", "/status.json", "/metrics")}
            waits = held.waits_while(db, lambda: [held.page(path) for path in pages])
            ticking = held.waits_while(db, lambda: time.sleep(8))
        server.kill()
        server.start()
        started = server.started_in_s
        restarted = held.memory()
    growth = (full - empty) / 1e6
    return [
        _ratio(f"create a table among {tables:,}: CPU", created),
        _ratio(f"create a partition among {partitions:,}: CPU", made),
        _figure(
            f"restart with {tables:,} tables and {partitions:,} partitions",
            started,
            "s",
            Target(20, at_least=False),
        ),
        _figure(
            "memory they take in the server",
            growth,
            "MB",
            Target(1_000, at_least=False),
            after_restart_mb=restarted / 1e6,
        ),
        _figure("list the tables", min(listing), "s", Target(2.0, at_least=False)),
        _figure(
            "99 of 100 small calls wait at most, while pages are drawn",
            waits,
            "ms",
            Target(WAIT_MS_MAX, at_least=False),
            pages=pages,
        ),
        _figure(
            "99 of 100 small calls wait at most, during rounds of auto-partitioning",
            ticking,
            "ms",
            Target(WAIT_MS_MAX, at_least=False),
        ),
    ]


class Costs:
    """CPU milliseconds per creation, of the first and of the last."""

    def __init__(self, first: float, last: float, more: int) -> None:
        self.first, self.last, self.more = first, last, more


class Partitions:
    """Creates partitions one by one, in as many tables as that takes."""

    def __init__(self, db: strom.Database) -> None:
        self._db = db
        self.tables = 0

    def __call__(self, number: int) -> None:
        if number % PARTITIONS_OF_ONE == 0:
            self.tables += 1
            self._table = self._db.create_table(f"parts_{self.tables}", SCHEMA, partition_by=["day"])
        self._table.create_partition({"day": f"d{number}"})


class Server:
    """The server's own figures."""

    def __init__(self, server: ServerProcess) -> None:
        self._server = server

    def memory(self) -> int:
        return sum(map(resident_bytes, self._server.pids))

    def costs(self, create: Callable[[int], None], count: int) -> Costs:
        marks = {0: 0.0, ENDS: 0.0, count - ENDS: 0.0, count: 0.0}
        for number in range(count):
            if number in marks:
                marks[number] = self._cpu()
            create(number)
        marks[count] = self._cpu()
        first, last = marks[ENDS] - marks[0], marks[count] - marks[count - ENDS]
        return Costs(1000 * first / ENDS, 1000 * last / ENDS, getattr(create, "tables", 0))

    def page(self, path: str) -> dict[str, float]:
        """How long a page takes, and how long it is."""
        began = time.perf_counter()
        with urllib.request.urlopen(f"http://{self._server.http_address}{path}") as answer:
            size = len(answer.read())
        return {"seconds": time.perf_counter() - began, "bytes": size}

    def waits_while(self, db: strom.Database, work: Callable[[], object]) -> float:
        """What 99 of 100 small calls take at most meanwhile, in milliseconds."""
        waits: list[float] = []
        with ThreadPoolExecutor(1) as beside:
            working: Future[object] = beside.submit(work)
            while not working.done():
                waits.append(_seconds(lambda: db.describe_database("fluss")))
                time.sleep(0.002)
            working.result()
        return 1000 * sorted(waits)[int(len(waits) * 0.99) - 1]

    def _cpu(self) -> float:
        return sum(map(cpu_seconds, self._server.pids))


def _create(db: strom.Database, number: int) -> None:
    if number % 20:
        db.create_table(f"t{number}", SCHEMA)
    else:
        db.create_table(f"t{number}", SCHEMA, partition_by=["day"], properties=AUTO)


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _expect(found: int, expected: int) -> None:
    assert found == expected, (found, expected)


def _ratio(question: str, costs: Costs) -> Answer:
    last, first = _one(costs.last, "ms"), _one(costs.first, "ms")
    return Answer(
        question, last, first, f"the first {ENDS}", costs.last / costs.first, Target(1.5, at_least=False)
    )


def _figure(question: str, value: float, unit: str, target: Target, **notes: object) -> Answer:
    return Answer(
        question, _one(value, unit), None, "", value, target, {**notes, "ratio_is": "the figure itself"}
    )


def _one(value: float, unit: str) -> Samples:
    return Samples((value,), unit, 0.0, 0.0)
