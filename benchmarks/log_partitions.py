"""What do partitions save that are not asked for?

Expected: one of 20 equal partitions moves one twentieth of the bytes (target: at most 1/18 of the table's) and, with a
small fixed cost for planning, at most 1/8 of the time.
"""

from __future__ import annotations

import time

import pyarrow as pa

import strom
from benchmarks.harness import Answer, Bench, Target, ratio_of
from benchmarks.workload import SMALL_SCHEMA, small_batch
from strom.testing.process import ServerProcess

PARTITIONS = 20
ROWS = 10_000


def measure(bench: Bench) -> list[Answer]:
    per_partition = bench.size(full=12, quick=5)
    schema = SMALL_SCHEMA.append(pa.field("region", pa.string()))
    with (
        ServerProcess(bench.folder / "data", settings={"durability": "os"}) as server,
        strom.connect(server.address) as db,
    ):
        properties = {"table.log.arrow.compression.type": "NONE"}
        table = db.create_table("t", schema, partition_by=["region"], properties=properties)
        with table.writer() as writer:
            for number in range(PARTITIONS):
                region = pa.array([f"r{number:02d}"] * ROWS)
                for i in range(per_partition):
                    writer.append(small_batch(ROWS, start=i * ROWS).append_column("region", region))
        bench.pids = server.pids
        rows = per_partition * ROWS

        def one() -> float:
            return _seconds(table.scan(partitions={"region": "r07"}), rows)

        def everything() -> float:
            return _seconds(table.scan(), rows * PARTITIONS)

        ours, full = bench.compare(one, everything, "s")
        moved_one = _bytes_sent(db, table.scan(partitions={"region": "r07"}))
        moved_all = _bytes_sent(db, table.scan())
    sent = bench.repeat(lambda: float(moved_one), "bytes", repeats=1)
    sent_all = bench.repeat(lambda: float(moved_all), "bytes", repeats=1)
    return [
        Answer(
            "1 of 20 partitions: time",
            ours,
            full,
            "all partitions",
            ratio_of(ours, full),
            Target(1 / 8, at_least=False),
        ),
        Answer(
            "1 of 20 partitions: bytes",
            sent,
            sent_all,
            "all partitions",
            ratio_of(sent, sent_all),
            Target(1 / 18, at_least=False),
        ),
    ]


def _seconds(scan: strom.Scan, rows: int) -> float:
    began = time.perf_counter()
    found = sum(batch.num_rows for batch in scan.to_batches())
    assert found == rows
    return time.perf_counter() - began


def _bytes_sent(db: strom.Database, scan: strom.Scan) -> int:
    """Bytes that came over the client's connections during the scan."""
    before = db.statistics().bytes_received
    for _ in scan.to_batches():
        pass
    return db.statistics().bytes_received - before
