"""What does a query over one column cost by the SQL catalog?

Expected: the server sends one column of ten, so a sum costs the way of that column from the server through a Python
worker to the JVM. Parquet's reader does the same inside the JVM, without a second process: we should reach 0.4 of it.
Without pruning all ten columns make that way: at least 3.5 times as long.
"""

from __future__ import annotations

from benchmarks.harness import Answer, Bench, Target, ratio_of
from benchmarks.on_spark import Clock, filled, parquet, place

COLUMN = "amount"


def measure(bench: Bench) -> list[Answer]:
    rows = bench.size(full=10_000_000, quick=200_000)
    with place(bench) as (spark, server, db):
        table = filled(db, "rows", rows)
        files = parquet(bench.folder / "parquet", rows)
        clock = Clock(rows, server)
        source = spark.read.format("strom").option("bootstrap.servers", server.address)

        pruned = clock.of(
            "catalog", lambda: spark.sql(f"SELECT sum({COLUMN}) FROM strom.{table.name}").collect()
        )
        whole = clock.of("whole", lambda: source.load(table.name).agg({COLUMN: "sum"}).collect())
        native = clock.of("parquet", lambda: spark.read.parquet(files).agg({COLUMN: "sum"}).collect())

        repeats = 1 if bench.quick else 5
        ours, theirs = bench.compare(pruned, native, "rows/s", repeats=repeats)
        again, unpruned = bench.compare(pruned, whole, "rows/s", repeats=repeats)
        cpu = {name: clock.cpu_of(name) for name in ("catalog", "whole", "parquet")}
    return [
        Answer(
            question="sum of one column by the SQL catalog",
            figure=ours,
            reference=theirs,
            reference_name="spark.read.parquet",
            ratio=ratio_of(ours, theirs),
            target=Target(0.4),
            notes={
                "rows": rows,
                "cpu seconds a run": cpu,
                "cpu ratio": round(cpu["parquet"] / cpu["catalog"], 2),
            },
        ),
        Answer(
            question="sum of one column by the SQL catalog",
            figure=again,
            reference=unpruned,
            reference_name="the same without pruning",
            ratio=ratio_of(again, unpruned),
            target=Target(3.5),
            notes={"cpu ratio": round(cpu["whole"] / cpu["catalog"], 2)},
        ),
    ]
