"""What does it cost to write a DataFrame into a table, exactly once?

Expected: most of a Python sink's time is Spark's: rows become Arrow in the JVM and cross to a Python worker. A writer
that only counts pays that and nothing else. On top we route rows to buckets, send them, have them staged and published:
0.7 of the counter's pace for an uncompressed log, 0.5 where batches are compressed or rows are indexed by their key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

import strom
from benchmarks.harness import Answer, Bench, Target, ratio_of
from benchmarks.on_spark import Clock, parquet, place
from benchmarks.workload import SMALL_SCHEMA

BUCKETS = 4


class Counter(DataSourceArrowWriter):
    """Takes every batch and looks at nothing but its length."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        assert sum(batch.num_rows for batch in iterator) >= 0
        return WriterCommitMessage()


class Counting(DataSource):
    """``format("counting")``."""

    @classmethod
    def name(cls) -> str:
        return "counting"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        return Counter()


def measure(bench: Bench) -> list[Answer]:
    rows = bench.size(full=10_000_000, quick=100_000)
    kinds = {
        "a log table, uncompressed": (None, "NONE", 0.7),
        "a primary-key table": ("id", "NONE", 0.5),
    }
    if not bench.quick:
        kinds["a log table, ZSTD"] = (None, "ZSTD", 0.5)
    answers = []
    with place(bench) as (spark, server, db):
        spark.dataSource.register(Counting)
        files = parquet(bench.folder / "parquet", rows)
        clock = Clock(rows, server)
        count = clock.of(
            "counter", lambda: spark.read.parquet(files).write.format("counting").mode("append").save()
        )
        for words, (key, compression, target) in kinds.items():
            write = clock.of(words, _written(db, key, compression, lambda name: _save(spark, files, name)))
            ours, theirs = bench.compare(write, count, "rows/s", repeats=1 if bench.quick else 3)
            cpu = {name: clock.cpu_of(name) for name in (words, "counter")}
            notes = {
                "rows": rows,
                "cpu seconds a run": cpu,
                "cpu ratio": round(cpu["counter"] / cpu[words], 2),
            }
            answers.append(
                Answer(
                    question=f"write {words}",
                    figure=ours,
                    reference=theirs,
                    reference_name="a Python Arrow writer that only counts",
                    ratio=ratio_of(ours, theirs),
                    target=Target(target),
                    notes=notes,
                )
            )
    return answers


def _save(spark: object, files: str, name: str) -> None:
    spark.read.parquet(files).writeTo(f"strom.{name}").append()  # type: ignore[attr-defined]


def _written(
    db: strom.Database, key: str | None, compression: str, save: Callable[[str], None]
) -> Callable[[], None]:
    """Writes into a new table each time; the old one is dropped, so that the disk holds one."""
    numbers = iter(range(1000))
    properties = {"table.log.arrow.compression.type": compression}

    def run() -> None:
        name = f"written_{next(numbers)}"
        table = db.create_table(
            name, SMALL_SCHEMA, buckets=BUCKETS, primary_key=key, properties=properties, if_exists="ignore"
        )
        save(table.name)
        db.drop_table(name)

    return run
