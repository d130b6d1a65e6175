"""Is the server's memory flat over a long run?

Expected: yes. Appends, scans and tails run for a while (3 minutes; QUICK: 8 s) with segments rolling and old ones
expiring; after the first quarter the resident memory must not grow by more than a tenth. The curve is in the notes.
"""

from __future__ import annotations

import time

import strom
from benchmarks.harness import Answer, Bench, Samples, Target, resident_bytes
from benchmarks.workload import SMALL_SCHEMA, small_batch
from strom.testing.process import ServerProcess

ROWS = 10_000


def measure(bench: Bench) -> list[Answer]:
    seconds = bench.size(full=180, quick=8)
    settings = {"durability": "os", "log.segment.file-size": "16mb", "log.retention.check-interval": "1 s"}
    batches = [small_batch(ROWS, start=i * ROWS) for i in range(8)]
    curve: list[tuple[float, float]] = []
    with (
        ServerProcess(bench.folder / "data", settings=settings) as server,
        strom.connect(server.address) as db,
    ):
        properties = {"table.log.retention-bytes": "64mb", "table.log.arrow.compression.type": "LZ4_FRAME"}
        table = db.create_table("t", SMALL_SCHEMA, buckets=4, properties=properties)
        began = time.perf_counter()
        with table.writer() as writer:
            turn = overtaken = 0
            while (passed := time.perf_counter() - began) < seconds:
                for _ in range(20):
                    writer.append(batches[turn % 8])
                    turn += 1
                writer.flush()
                try:
                    table.scan(columns=["id", "page"], limit=50_000).to_arrow()
                except strom.errors.OffsetOutOfRange:
                    overtaken += 1  # retention, once a second here, removed the oldest rows under the scan
                curve.append((round(passed, 1), sum(map(resident_bytes, server.pids)) / 1e6))
    quarter = [megabytes for passed, megabytes in curve if seconds / 4 <= passed < seconds / 2]
    last = [megabytes for passed, megabytes in curve if passed >= seconds * 3 / 4]
    early = Samples(tuple(quarter), "MB", 0.0, 0.0)
    late = Samples(tuple(last), "MB", 0.0, 0.0)
    step = max(1, len(curve) // 40)
    return [
        Answer(
            question=f"server memory after {seconds} s of load",
            figure=late,
            reference=early,
            reference_name="in the second quarter",
            ratio=late.median / early.median,
            target=Target(1.1, at_least=False),
            notes={
                "curve_seconds_megabytes": curve[::step],
                "batches": turn,
                "scans_overtaken_by_retention": overtaken,
            },
        )
    ]
