"""How fast do appends arrive on disk?

Expected: at least half of the same bytes pushed through a raw loopback socket into a file. Both copy every byte out of
the socket and into the page cache; Strom also builds the Arrow message and statistics in the client (one copy), checks
one CRC over the batch and takes one per column buffer (about 10 GB/s each), and acknowledges every batch. 10 columns of
~90 B rows, 10 k rows a batch, no compression, durability `os`; `group` is reported beside it.
"""

from __future__ import annotations

import time

import strom
from benchmarks import raw
from benchmarks.harness import Answer, Bench, Samples, Target, ratio_of
from benchmarks.workload import SMALL_SCHEMA, ipc_frames, small_batch
from strom.testing.process import ServerProcess

ROWS = 10_000


def measure(bench: Bench) -> list[Answer]:
    count = bench.size(full=150, quick=30)
    batches = [small_batch(ROWS, start=i * ROWS) for i in range(10)]
    frames = ipc_frames(batches)
    work = [batches[i % 10] for i in range(count)]
    chunks = [frames[i % 10] for i in range(count)]
    megabytes = sum(map(len, chunks)) / 1e6
    answers = []
    with raw.started("sink", str(bench.folder / "sink.bin")) as (port, _):

        def reference() -> float:
            return megabytes / raw.push(port, chunks)

        for durability, target in (("os", Target(0.5)), ("group", None)):
            ours, theirs = _appends(bench, durability, work, megabytes, reference)
            answers.append(
                Answer(
                    question=f"append 10 k-row batches ({durability})",
                    figure=ours,
                    reference=theirs,
                    reference_name="raw socket into a file",
                    ratio=ratio_of(ours, theirs),
                    target=target,
                    notes={
                        "rows_per_second": ours.median / megabytes * count * ROWS,
                        "bytes_per_row": len(frames[0]) / ROWS,
                    },
                )
            )
    return answers


def _appends(
    bench: Bench, durability: str, work: list, megabytes: float, reference
) -> tuple[Samples, Samples]:  # type: ignore[no-untyped-def,type-arg]
    folder = bench.folder / durability
    with (
        ServerProcess(folder, settings={"durability": durability}) as server,
        strom.connect(server.address) as db,
    ):
        bench.pids = server.pids
        properties = {"table.log.arrow.compression.type": "NONE"}
        names = iter(range(10_000))

        def ours() -> float:
            table = db.create_table(f"t{next(names)}", SMALL_SCHEMA, properties=properties)
            with table.writer() as writer:
                began = time.perf_counter()
                for batch in work:
                    writer.append(batch)
                writer.flush()
                seconds = time.perf_counter() - began
            db.drop_table(table.name)
            return megabytes / seconds

        try:
            return bench.compare(ours, reference, "MB/s")
        finally:
            bench.pids = []
