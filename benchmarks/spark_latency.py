"""How soon does a row that was appended arrive in ``foreachBatch``?

Expected: the median at most 1.3 of the same with a Python source that keeps its rows in memory and does
nothing else, as most of the time is Spark's own: two log writes, a job, a Python worker. One row every 50 ms,
one bucket, the settings of ``strom.spark.session``. Ours adds three calls to the server: where does it end,
are there new columns, the rows.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from benchmarks import on_spark
from benchmarks.harness import Answer, Bench, Samples, Target

PAUSE_S = 0.05
WARM_UP = 20


class CountingReader(DataSourceStreamReader):
    """A row every 50 ms, by the clock: what is there is known without asking anybody."""

    def __init__(self, began: float) -> None:
        self._began = began

    def initialOffset(self) -> dict[str, Any]:
        return {"rows": int((time.time() - self._began) / PAUSE_S)}

    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, Any]:
        return {"rows": int((time.time() - self._began) / PAUSE_S)}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return [InputPartition((start["rows"], end["rows"]))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        first, last = partition.value
        times = [self._began + number * PAUSE_S for number in range(first + 1, last + 1)]
        yield pa.RecordBatch.from_arrays(
            [pa.array(times, pa.float64())], schema=pa.schema([pa.field("at", pa.float64(), nullable=False)])
        )


class CountingSource(DataSource):
    """The least that a source can be."""

    @classmethod
    def name(cls) -> str:
        return "counting"

    def schema(self) -> str:
        return "at DOUBLE NOT NULL"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return CountingReader(float(self.options["began"]))


def measure(bench: Bench) -> list[Answer]:
    samples = bench.size(full=200, quick=20)
    with on_spark.place(bench) as (spark, server, db):
        spark.dataSource.register(CountingSource)
        table = db.create_table("t", {"at": "DOUBLE NOT NULL"}, buckets=1)
        ours, theirs = Seen(samples), Seen(samples)
        for turn in range(bench.size(2, 1)):  # in turn, so that a noisy moment hits both
            began = str(time.time())
            reference = spark.readStream.format("counting").option("began", began).load()
            theirs.follow(reference, bench.folder / f"theirs-{turn}", None)
            frame = spark.readStream.format("strom").option("bootstrap.servers", server.address)
            started = frame.option("start", "latest").load(table.name)
            ours.follow(started, bench.folder / f"ours-{turn}", lambda: _append(table))
    figure, reference_figure = ours.samples(), theirs.samples()
    return [
        Answer(
            question="row appended to row in foreachBatch, median",
            figure=figure,
            reference=reference_figure,
            reference_name="trivial Python source",
            ratio=figure.median / reference_figure.median,
            target=Target(1.3, at_least=False),
            notes={"p90_ms": ours.percentile(90), "reference_p90_ms": theirs.percentile(90)},
        )
    ]


def _append(table: Any) -> None:
    table.append([{"at": time.time()}])
    table.flush()


class Seen:
    """How long rows took, in milliseconds."""

    def __init__(self, wanted: int) -> None:
        self._wanted = wanted
        self._took: list[float] = []

    def follow(self, frame: DataFrame, checkpoint: Path, write: Callable[[], None] | None) -> None:
        """Run a stream until enough rows were seen."""
        took: list[float] = []
        enough = threading.Event()

        def take(batch: DataFrame, number: int) -> None:
            rows = batch.collect()
            now = time.time()
            took.extend((now - row.at) * 1000 for row in rows)
            if len(took) >= self._wanted + WARM_UP:
                enough.set()

        query = frame.writeStream.foreachBatch(take).option("checkpointLocation", str(checkpoint)).start()
        try:
            deadline = time.monotonic() + 120
            while not enough.is_set() and time.monotonic() < deadline and query.isActive:
                if write is not None:
                    write()
                enough.wait(PAUSE_S)
        finally:
            query.stop()
        assert enough.is_set(), query.exception()
        self._took += took[WARM_UP:]

    def percentile(self, which: int) -> float:
        return round(statistics.quantiles(self._took, n=100)[which - 1], 1)

    def samples(self) -> Samples:
        return Samples(tuple(round(one, 2) for one in self._took), "ms", sum(self._took) / 1000, 0.0)
