"""What does Spark's query on lake and log together cost, beside the same query on one Parquet copy of all rows?

Expected, for 10 M rows in the lake and 1 M rows on the server, ``local[2]``: at most 1.5 times by
``strom.spark.table()``. Spark's own reader takes the lake's files as it takes the copy's, ten elevenths of the rows; a
server's row costs about as much as one of Parquet (``spark_read.py``: 0.7 and more). Added are the plan, made when the
DataFrame is (some 50 ms), a task or two of the Python source (50 ms each), and of a primary-key table the rows that
died: a look at one bit for each row of a file that has some. Of the primary-key table here one cold row in
twenty is updated or deleted: half of that in the lake already, half since.

By the SQL catalog at most 2.5 times: it reads the same way, in one scan, and asks Python one question more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from tests.lake.small_tierer import small_tierer

import strom
import strom.spark
from benchmarks import on_spark
from benchmarks.harness import Answer, Bench, Target, ratio_of
from benchmarks.workload import SMALL_SCHEMA, small_batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KEY = "id"
COLUMN = "amount"
FILES = 4
DYING = 20
"""One cold row in so many is updated or deleted."""

Query = Callable[["DataFrame"], object]


def _all(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _sum(frame: DataFrame) -> object:
    return frame.agg({COLUMN: "sum"}).collect()


QUERIES: dict[str, Query] = {"all columns": _all, "the sum of one column": _sum}
WARM_UPS = {"all columns": 2, "the sum of one column": 6}
"""Before anything counts, of both sides. A JVM compiles a loop once it has run for a while: Spark's reader of the copy
is the same for all questions and long compiled by the last of them, the loop that leaves out dead rows is new."""
LIMITS = {"strom.spark.table": 1.5, "the SQL catalog": 2.5}


def measure(bench: Bench) -> list[Answer]:
    cold, hot = bench.size(10_000_000, 400_000), bench.size(1_000_000, 50_000)
    answers = []
    with on_spark.place(bench) as (spark, server, db):
        for keyed in (False, True):
            table = _filled(db, cold, hot, keyed=keyed)
            copy = _copied(table, bench.folder / f"copy-{table.table_id}")
            beside = _Beside(bench, spark, table, copy, on_spark.Clock(table.count(), server))
            answers += beside.answers()
    return answers


@dataclass(frozen=True)
class _Beside:
    """One table, both roads, and a copy."""

    bench: Bench
    spark: SparkSession
    table: strom.Table
    copy: str
    clock: on_spark.Clock

    def answers(self) -> list[Answer]:
        words = ["the sum of one column"] if self.bench.quick else list(QUERIES)
        return [self._answer(road, word) for road in LIMITS for word in words]

    def _frame(self, road: str) -> DataFrame:
        if road == "strom.spark.table":
            frame: DataFrame = strom.spark.table(self.spark, self.table.name)
            return frame
        return self.spark.table(f"strom.{self.table.name}")

    def _answer(self, road: str, word: str) -> Answer:
        kind = "a primary-key table" if self.table.primary_key else "a log"
        name, query = f"{word} of both tiers of {kind}, by {road}", QUERIES[word]
        copy = f"{name}, copy"
        found = self.bench.take_turns(
            {
                copy: self.clock.of(copy, lambda: query(self.spark.read.parquet(self.copy))),
                name: self.clock.of(name, lambda: query(self._frame(road))),
            },
            "rows/s",
            repeats=1 if self.bench.quick else 5,
            warm_ups=1 if self.bench.quick else WARM_UPS[word],
        )
        figure, reference = found[name], found[copy]
        cpu = self.clock.cpu_of(name), self.clock.cpu_of(copy)
        return Answer(
            name,
            figure,
            reference,
            "Spark on one Parquet copy",
            1 / ratio_of(figure, reference),
            Target(LIMITS[road], at_least=False),
            {"cpu seconds": cpu, "cpu ratio": round(cpu[0] / max(cpu[1], 0.01), 2)},
        )


def _filled(db: strom.Database, cold: int, hot: int, *, keyed: bool) -> strom.Table:
    """A table with rows in both tiers."""
    table = db.create_table(
        "keyed" if keyed else "plain",
        SMALL_SCHEMA,
        buckets=FILES,
        primary_key=[KEY] if keyed else None,
        properties={"table.datalake.enabled": "true", "table.log.arrow.compression.type": "NONE"},
    )
    put = table.upsert if keyed else table.append
    with small_tierer(db, file_rows=1_000_000) as tierer:
        for start in range(0, cold, on_spark.BATCH_ROWS):
            put(small_batch(on_spark.BATCH_ROWS, start))
        tierer.round(table)
        if keyed:
            _change(table, np.arange(0, cold, 2 * DYING))
            tierer.round(table)
            _change(table, np.arange(DYING, cold, 2 * DYING))
        for start in range(cold, cold + hot, on_spark.BATCH_ROWS):
            put(small_batch(on_spark.BATCH_ROWS, start))
        table.flush()
    return table


def _change(table: strom.Table, keys: np.ndarray) -> None:
    """Half of these rows are written again, the others deleted."""
    again, gone = keys[::2], keys[1::2]
    rows = pa.Table.from_batches([small_batch(len(again), 0)])
    place = rows.schema.get_field_index(KEY)
    table.upsert(
        rows.set_column(place, rows.schema.field(place), pa.array(again, rows.schema.field(place).type))
    )
    table.delete(pa.table({KEY: pa.array(gone, rows.schema.field(place).type)}))
    table.flush()


def _copied(table: strom.Table, folder: Path) -> str:
    """All rows of a table as Parquet, as the lake has it."""
    folder.mkdir(parents=True)
    batches = table.scan().to_arrow().to_batches(max_chunksize=on_spark.BATCH_ROWS)
    for number in range(FILES):
        with pq.ParquetWriter(folder / f"part-{number}.parquet", table.schema, compression="zstd") as writer:
            mine = pa.Table.from_batches(batches[number::FILES], table.schema)
            writer.write_table(mine, row_group_size=1 << 20)
    return str(folder)
