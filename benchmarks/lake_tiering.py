"""How fast does a log arrive in the lake?

Expected: a round of 10 M rows on a warm Spark ``local[2]``, from planning to commit, at 0.6 or more of the pace of one
process that reads the same rows from the same server and writes the same columns with pyarrow, and does nothing else.
Both write ZSTD Parquet, synced. Two tasks share two cores with the server and the JVM, so little is to be gained from
their number; what a round adds is the job's start, statistics, and the commit.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import strom
from benchmarks import on_lake, on_spark
from benchmarks.harness import Answer, Bench, Target, ratio_of
from strom.client.plan.log_plan import ScanPlan

BUCKETS = 4
ROW_GROUP = 1 << 20


def measure(bench: Bench) -> list[Answer]:
    rows = bench.size(full=10_000_000, quick=200_000)
    with on_lake.place(bench) as lake:
        table = on_spark.filled(lake.db, "t", rows, buckets=BUCKETS)
        clock = on_spark.Clock(rows, lake.server)
        took: list[dict[str, float]] = []

        def ours() -> None:
            shutil.rmtree(bench.folder / "warehouse-ours", ignore_errors=True)
            result = lake.round(table, "warehouse-ours")
            assert result.rows == rows
            took.append({step: round(seconds, 2) for step, seconds in result.took.items()})

        def alone() -> None:
            shutil.rmtree(bench.folder / "alone", ignore_errors=True)
            assert written_alone(table, bench.folder / "alone") == rows

        figure, reference = bench.compare(
            clock.of("round", ours), clock.of("alone", alone), "rows/s", repeats=1 if bench.quick else 3
        )
        cpu = {name: clock.cpu_of(name) for name in ("round", "alone")}
        notes = {"rows": rows, "cpu seconds a run": cpu, "seconds of a round's steps": took[-1]}
        cpu_ratio = cpu["alone"] / cpu["round"]
    return [
        Answer(
            question="tier a log: a round on warm Spark local[2]",
            figure=figure,
            reference=reference,
            reference_name="one process, the same scan, pyarrow's Parquet writer",
            ratio=ratio_of(figure, reference),
            target=Target(0.6),
            notes=notes | {"cpu ratio": round(cpu_ratio, 2)},
        )
    ]


def written_alone(table: strom.Table, folder: Path) -> int:
    """The same rows and columns, a file for each bucket, by one thread."""
    folder.mkdir()
    plan = table.scan(tier="hot").plan()
    assert isinstance(plan, ScanPlan)
    rows = 0
    for one in plan.ranges:
        path = folder / f"{one.bucket.bucket}.parquet"
        scan = table.read_stamped(ScanPlan(plan.table_id, (one,)))
        schema = scan.schema.append(pa.field("__bucket", pa.int32()))
        with pq.ParquetWriter(path, schema, compression="zstd") as writer:
            held: list[pa.RecordBatch] = []
            count = 0
            for batch in scan.to_batches():
                bucket = pa.array(np.full(batch.num_rows, one.bucket.bucket, np.int32))
                held.append(pa.RecordBatch.from_arrays([*batch.columns, bucket], schema=schema))
                count += batch.num_rows
                if count >= ROW_GROUP:
                    writer.write_table(pa.Table.from_batches(held), row_group_size=count)
                    rows, held, count = rows + count, [], 0
            if held:
                writer.write_table(pa.Table.from_batches(held), row_group_size=count)
            rows += count
        handle = os.open(path, os.O_RDONLY)
        os.fsync(handle)
        os.close(handle)
    return rows
