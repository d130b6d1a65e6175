"""What does a lookup join cost beside the same join with a dict in the worker?

Expected: at least half the rows a second. A dict in every worker is the fastest lookup there is, and has to be filled,
fits in memory or not, and is as old as its load. Most of the time is Spark's in both cases: rows become Arrow, cross to
a Python worker and come back. On top we send ten thousand keys at a time to a server and read its answer: one to two
microseconds a row.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

import strom
import strom.spark
from benchmarks.harness import Answer, Bench, Target, ratio_of
from benchmarks.on_spark import Clock, place

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CUSTOMERS = {"id": "BIGINT", "name": "STRING", "score": "DOUBLE"}
KEPT = "strom_benchmark_dict"


def measure(bench: Bench) -> list[Answer]:
    rows, customers = bench.size(2_000_000, 200_000), bench.size(1_000_000, 100_000)
    with place(bench) as (spark, server, db):
        path = str(bench.folder / "customers.arrow")
        table = fill(db, customers, path)
        orders = spark.range(rows, numPartitions=4).selectExpr(
            "id as order", f"(id * 7919) % {customers} as customer", "id / 3 as price"
        )
        clock = Clock(rows, server)

        def ours() -> None:
            found = strom.spark.lookup_join(
                orders, table.name, on={"customer": "id"}, columns=["name", "score"]
            )
            found.write.format("noop").mode("overwrite").save()

        def theirs() -> None:
            with_dict(orders, path).write.format("noop").mode("overwrite").save()

        assert _sample(orders, table) == 10
        figure, reference = bench.compare(
            clock.of("lookup", ours), clock.of("dict", theirs), "rows/s", repeats=1 if bench.quick else 5
        )
        return [
            Answer(
                question=f"lookup join of {rows:,} rows with {customers:,} by primary key",
                figure=figure,
                reference=reference,
                reference_name="a dict in the worker",
                ratio=ratio_of(figure, reference),
                target=Target(0.5),
                notes={"cpu_s": clock.cpu_of("lookup"), "cpu_s_dict": clock.cpu_of("dict")},
            )
        ]


def fill(db: strom.Database, customers: int, path: str) -> strom.Table:
    """Customers, in a table and in a file for the dict."""
    ids = np.arange(customers)
    rows = pa.table({"id": ids, "name": pa.array(ids).cast(pa.string()), "score": ids / 9})
    table = db.create_table("customers", CUSTOMERS, primary_key="id", buckets=2)
    with table.writer() as writer:
        writer.upsert(rows)
    with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, rows.schema) as file:
        file.write_table(rows)
    return table


def with_dict(orders: DataFrame, path: str) -> DataFrame:
    """The same by a dict that each worker fills once."""

    def join(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        known = sys.modules.get(KEPT)
        if known is None:
            with pa.memory_map(path) as source:
                table = pa.ipc.open_file(source).read_all()
            columns = [table.column(name).to_pylist() for name in CUSTOMERS]
            known = sys.modules[KEPT] = {key: row for key, *row in zip(*columns, strict=True)}  # type: ignore[assignment]
        for batch in batches:
            found = [known.get(key) for key in batch.column("customer").to_pylist()]  # type: ignore[attr-defined]
            kept = pa.array([row is not None for row in found])
            name = pa.array([row[0] for row in found if row is not None], pa.string())
            score = pa.array([row[1] for row in found if row is not None], pa.float64())
            mine = batch.filter(kept)
            yield pa.RecordBatch.from_arrays(
                [*mine.columns, name, score], [*mine.schema.names, "name", "score"]
            )

    return orders.mapInArrow(join, "order bigint, customer bigint, price double, name string, score double")


def _sample(orders: DataFrame, table: strom.Table) -> int:
    found = strom.spark.lookup_join(
        orders.limit(10), table.name, on={"customer": "id"}, columns=["name", "score"]
    )
    return found.count()
