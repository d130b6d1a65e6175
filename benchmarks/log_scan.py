"""How fast does a full scan become Arrow?

Expected: at least 0.6 of a raw socket that sends the same bytes from a file, plus the IPC decode. Strom's server also
reads and checks a CRC per batch and the client checks it again (about 10 GB/s each); the decode is zero-copy on both
sides. 10 columns of ~90 B rows in 10 k-row batches, no compression.
"""

from __future__ import annotations

import time

import pyarrow as pa

import strom
from benchmarks import raw
from benchmarks.harness import Answer, Bench, Target, ratio_of
from benchmarks.workload import SMALL_SCHEMA, ipc_frames, small_batch
from strom.testing.process import ServerProcess

ROWS = 10_000


def measure(bench: Bench) -> list[Answer]:
    count = bench.size(full=200, quick=50)
    batches = [small_batch(ROWS, start=i * ROWS) for i in range(10)]
    frames = ipc_frames(batches)
    chunks = [frames[i % 10] for i in range(count)]
    megabytes = sum(map(len, chunks)) / 1e6
    path = bench.folder / "source.bin"
    path.write_bytes(b"".join(chunks))
    sizes = [len(chunk) for chunk in chunks]
    with (
        raw.started("source", str(path)) as (port, _),
        ServerProcess(bench.folder / "data", settings={"durability": "os"}) as server,
        strom.connect(server.address) as db,
    ):
        table = db.create_table("t", SMALL_SCHEMA, properties={"table.log.arrow.compression.type": "NONE"})
        with table.writer() as writer:
            for i in range(count):
                writer.append(batches[i % 10])
        bench.pids = server.pids

        def ours() -> float:
            began = time.perf_counter()
            found = table.scan().to_arrow()
            seconds = time.perf_counter() - began
            assert found.num_rows == count * ROWS
            return megabytes / seconds

        def reference() -> float:
            began = time.perf_counter()
            decoded = [
                pa.ipc.read_record_batch(pa.py_buffer(frame), SMALL_SCHEMA) for frame in raw.pull(port, sizes)
            ]
            found = pa.Table.from_batches(decoded)
            seconds = time.perf_counter() - began
            assert found.num_rows == count * ROWS
            return megabytes / seconds

        figure, theirs = bench.compare(ours, reference, "MB/s")
    return [
        Answer(
            question="full scan to Arrow",
            figure=figure,
            reference=theirs,
            reference_name="raw socket + IPC decode",
            ratio=ratio_of(figure, theirs),
            target=Target(0.6),
            notes={"rows_per_second": figure.median / megabytes * count * ROWS},
        )
    ]
