"""How fast does Spark read a table of Strom?

Expected: at least 0.7 of ``spark.read.parquet`` of the same rows. Both end in a sink that takes rows and does
nothing. The way of a row: server, socket, Python worker (checked and cut into columns, not touched), Unix
socket, JVM; Parquet has to be decoded, in one process. 10 M rows of 10 columns, ``local[2]``, a log table
without compression.
"""

from __future__ import annotations

import strom.spark
from benchmarks import on_spark
from benchmarks.harness import Answer, Bench, Target, ratio_of


def measure(bench: Bench) -> list[Answer]:
    rows = bench.size(full=10_000_000, quick=200_000)
    with on_spark.place(bench) as (spark, server, db):
        table = on_spark.filled(db, "t", rows)
        files = on_spark.parquet(bench.folder / "parquet", rows)
        clock = on_spark.Clock(rows, server)

        def ours() -> None:
            strom.spark.table(spark, table.name).write.format("noop").mode("overwrite").save()

        def parquet() -> None:
            spark.read.parquet(files).write.format("noop").mode("overwrite").save()

        assert strom.spark.table(spark, table.name).count() == rows
        figure, reference = bench.compare(
            clock.of("strom", ours), clock.of("parquet", parquet), "rows/s", repeats=bench.size(3, 1)
        )
        notes = {"cpu_seconds": clock.cpu_of("strom"), "parquet_cpu_seconds": clock.cpu_of("parquet")}
    return [
        Answer(
            question=f"Spark reads {rows / 1_000_000:g} M rows of 10 columns",
            figure=figure,
            reference=reference,
            reference_name="spark.read.parquet",
            ratio=ratio_of(figure, reference),
            target=Target(0.7),
            notes=notes,
        )
    ]
