"""What do three copies of every row cost a writer?

Expected, with three copies and `acks` all: at least 0.35 of the appends that one copy takes in the same cluster. Every
byte goes through two more sockets and into two more files, and three servers share two cores with the client; but
followers take batches as they are stored, check one CRC, and encode nothing. A batch is acknowledged when the copies in
sync have it; five are under way, so that the writer does not wait for each. 10 columns of ~90 B rows, 10 k rows a
batch, one bucket, no compression, durability `os`; `group` is reported beside it.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable

import strom
from benchmarks.harness import Answer, Bench, Target, ratio_of
from benchmarks.on_cluster import cluster, copies, server_pids
from benchmarks.workload import SMALL_SCHEMA, ipc_frames, small_batch

ROWS = 10_000
WAYS = {"three copies": 3, "one copy": 1}
REPEATS_QUICK = 3
TARGETS = {"os": Target(0.35), "group": None}


def measure(bench: Bench) -> list[Answer]:
    batches = [small_batch(ROWS, start=i * ROWS) for i in range(10)]
    count = bench.size(full=150, quick=30)
    megabytes = sum(map(len, ipc_frames(batches))) / 1e6 * count / len(batches)
    work = [batches[i % 10] for i in range(count)]
    with cluster(bench.folder / "cluster") as (running, db):
        return [
            _answer(bench, server_pids(running), db, durability, work, megabytes) for durability in TARGETS
        ]


def _answer(
    bench: Bench, pids: list[int], db: strom.Database, durability: str, work: list[object], megabytes: float
) -> Answer:
    names = (f"{durability}_{number}" for number in itertools.count())

    def way(factor: int) -> Callable[[], float]:
        properties = {"table.log.arrow.compression.type": "NONE", "table.durability": durability}

        def append() -> float:
            table = db.create_table(next(names), SMALL_SCHEMA, properties={**properties, **copies(factor)})
            with table.writer() as writer:
                writer.append(work[0])
                writer.flush()
                began = time.perf_counter()
                for batch in work:
                    writer.append(batch)
                writer.flush()
                seconds = time.perf_counter() - began
            db.drop_table(table.name)
            return megabytes / seconds

        return append

    found = bench.take_turns(
        {name: way(factor) for name, factor in WAYS.items()},
        "MB/s",
        pids=dict.fromkeys(WAYS, pids),
        repeats=bench.size(bench.repeats, REPEATS_QUICK),
    )
    three, one = found.values()
    return Answer(
        question=f"append 10 k-row batches, three copies ({durability})",
        figure=three,
        reference=one,
        reference_name="one copy",
        ratio=ratio_of(three, one),
        target=TARGETS[durability],
        notes={"ours_cpu_s": three.cpu_seconds, "theirs_cpu_s": one.cpu_seconds, "megabytes": megabytes},
    )
