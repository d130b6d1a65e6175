"""Spark on a Strom server: the session, the rows and the clock that the questions about Spark share.

``local[2]``: two tasks at a time, as many as this machine's cores. CPU seconds are those of the JVM, of its Python
workers and of the server: whoever does the work, it is counted.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

import strom
import strom.spark
from benchmarks.harness import Bench, cpu_seconds
from benchmarks.workload import SMALL_SCHEMA, small_batch
from strom.spark.tiering.jobs import SETTINGS as TIERING
from strom.testing.process import ServerProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BATCH_ROWS = 50_000
SHARED = TIERING
"""What a session must have from its start on for any question."""


Place = tuple["SparkSession", ServerProcess, strom.Database]
_shared: dict[ExitStack, Place] = {}


@contextmanager
def place(bench: Bench, **config: str) -> Iterator[Place]:
    """A session and a server, both warm enough to be asked; of the question's own, or one for all quick questions."""
    if bench.outliving is None:
        with _own(bench.folder, config) as found:
            yield found
        return
    if bench.outliving not in _shared:
        folder = Path(bench.outliving.enter_context(tempfile.TemporaryDirectory(prefix="strom-bench-spark-")))
        _shared[bench.outliving] = bench.outliving.enter_context(_own(folder, SHARED | config))
    spark, server, db = _shared[bench.outliving]
    for name, text in config.items():
        if name not in SHARED:
            spark.conf.set(name, text)
    try:
        yield spark, server, db
    finally:
        for query in spark.streams.active:
            query.stop()
        for table in db.tables():
            db.drop_table(table)


@contextmanager
def _own(folder: Path, config: Mapping[str, str]) -> Iterator[Place]:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "3g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": str(folder / "spark-local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.shuffle.partitions": "2",
        **config,
    }
    with (
        ServerProcess(folder / "data", settings={"durability": "os"}) as server,
        strom.connect(server.address) as db,
    ):
        spark = strom.spark.session(server.address, master="local[2]", config=settings)
        spark.sparkContext.setLogLevel("OFF")
        try:
            yield spark, server, db
        finally:
            spark.stop()


def filled(
    db: strom.Database, name: str, rows: int, *, buckets: int = 4, compression: str = "NONE"
) -> strom.Table:
    """A log table of the small rows."""
    table = db.create_table(
        name, SMALL_SCHEMA, buckets=buckets, properties={"table.log.arrow.compression.type": compression}
    )
    with table.writer() as writer:
        for start in range(0, rows, BATCH_ROWS):
            writer.append(small_batch(min(BATCH_ROWS, rows - start), start))
    return table


def parquet(folder: Path, rows: int, *, files: int = 4) -> str:
    """The same rows as Parquet files."""
    folder.mkdir(parents=True)
    for number in range(files):
        first, last = rows * number // files, rows * (number + 1) // files
        with pq.ParquetWriter(folder / f"part-{number}.parquet", SMALL_SCHEMA) as writer:
            for start in range(first, last, BATCH_ROWS):
                writer.write_batch(small_batch(min(BATCH_ROWS, last - start), start))
    return str(folder)


def processes(*roots: int) -> list[int]:
    """Processes and all their children: a JVM starts Python workers as it needs them."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents.setdefault(int(fields[1]), []).append(int(entry.name))
    found: list[int] = []
    left = list(roots)
    while left:
        one = left.pop()
        found.append(one)
        left += parents.get(one, [])
    return found


class Clock:
    """Runs a job and tells rows per second; wall and CPU seconds of the last run are kept."""

    def __init__(self, rows: int, server: ServerProcess) -> None:
        self._rows = rows
        self._server = server
        self.cpu: dict[str, list[float]] = {}

    def of(self, name: str, job: Callable[[], object]) -> Callable[[], float]:
        """The job as something that a bench repeats."""

        def run() -> float:
            before, began = self._cpu(), time.perf_counter()
            job()
            seconds = time.perf_counter() - began
            self.cpu.setdefault(name, []).append(self._cpu() - before)
            return self._rows / seconds

        return run

    def cpu_of(self, name: str) -> float:
        """CPU seconds of a run of this job: the least, as what is above it is the neighbours' noise."""
        return round(min(self.cpu[name]), 2)

    def _cpu(self) -> float:
        return sum(cpu_seconds(pid) for pid in {*processes(os.getpid()), *self._server.pids})


def batches(rows: int) -> Iterator[pa.RecordBatch]:
    """The small rows, in batches."""
    for start in range(0, rows, BATCH_ROWS):
        yield small_batch(min(BATCH_ROWS, rows - start), start)
