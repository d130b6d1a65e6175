"""What do columns save that are not asked for?

Expected: rows/s follow bytes. 20 columns, 2 KB rows: ten columns hold 50 % of the bytes and two hold 10 %, so reading
them gives about 2 and 10 times the rows/s of a full read, less a fixed cost per batch: at least 1.8 and 8. Compressed
data is cut the same way without touching the compressor: the server's CPU for a projected read of ZSTD data must stay
far below what decompressing the wanted columns alone would cost (measured here, in this process).
"""

from __future__ import annotations

import time

import pyarrow as pa

import strom
from benchmarks.harness import Answer, Bench, Target, cpu_seconds, ratio_of
from benchmarks.workload import WIDE_COLUMNS, wide_batch, wide_schema
from strom.testing.process import ServerProcess

ROWS = 1000
HALF = [name for name, _ in WIDE_COLUMNS[:10]]
TENTH = [name for name, _ in WIDE_COLUMNS[:2]]
CURVE = (1, 2, 3, 5, 7, 10, 15, 20)
"""How many of the columns are read for the curve."""


def measure(bench: Bench) -> list[Answer]:
    # 2 GB: a read of the tenth then lasts a quarter of a second, and its first and last answers are few of many.
    count = bench.size(full=1000, quick=30)
    batches = [wide_batch(ROWS, seed=i) for i in range(8)]
    with (
        ServerProcess(bench.folder / "data", settings={"durability": "os"}) as server,
        strom.connect(server.address) as db,
    ):
        answers = []
        for compression in ("NONE", "ZSTD"):
            table = db.create_table(
                f"t_{compression}".lower(),
                wide_schema(),
                properties={"table.log.arrow.compression.type": compression},
            )
            with table.writer() as writer:
                for i in range(count):
                    writer.append(batches[i % 8])
            bench.pids = server.pids
            if compression == "NONE":
                answers += _pruning(bench, table, count * ROWS)
                answers[0].notes["curve_share_rows_per_second"] = _curve(bench, table, count * ROWS)
            else:
                answers.append(_no_decompression(bench, table, count, batches, server.pids))
    return answers


def _reader(table: strom.Table, columns: list[str] | None, rows: int):  # type: ignore[no-untyped-def]
    def run() -> float:
        began = time.perf_counter()
        found = sum(batch.num_rows for batch in table.scan(columns=columns).to_batches())
        seconds = time.perf_counter() - began
        assert found == rows
        return rows / seconds

    return run


def _pruning(bench: Bench, table: strom.Table, rows: int) -> list[Answer]:
    answers = []
    for words, columns, limit in (("50 %", HALF, 1.8), ("10 %", TENTH, 8.0)):
        ours, full = bench.compare(_reader(table, columns, rows), _reader(table, None, rows), "rows/s")
        answers.append(
            Answer(
                question=f"read columns that hold {words} of the bytes",
                figure=ours,
                reference=full,
                reference_name="all 20 columns",
                ratio=ratio_of(ours, full),
                target=Target(limit),
            )
        )
    return answers


def _curve(bench: Bench, table: strom.Table, rows: int) -> list[tuple[float, float]]:
    """(share of the bytes that is read, rows a second), each the best of a few."""
    columns = [name for name, _ in WIDE_COLUMNS]
    found = []
    for number in CURVE:
        samples = bench.repeat(_reader(table, columns[:number], rows), "rows/s", repeats=bench.size(3, 1))
        found.append((number / len(columns), max(samples.values)))
    return found


def _no_decompression(
    bench: Bench, table: strom.Table, count: int, batches: list[pa.RecordBatch], pids: list[int]
) -> Answer:
    """CPU the server spends on a projected read of ZSTD data, against decompressing just those columns."""
    schema = pa.schema([wide_schema().field(name) for name in HALF])
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    frames = [_stream(batch.select(HALF), options) for batch in batches]

    def server_cpu() -> float:
        before = sum(map(cpu_seconds, pids))
        for _ in table.scan(columns=HALF).to_batches():
            pass
        return (sum(map(cpu_seconds, pids)) - before) * 1e3

    def decompress() -> float:
        before = time.process_time()
        for i in range(count):
            with pa.ipc.open_stream(frames[i % len(frames)]) as reader:
                assert reader.read_next_batch().schema.equals(schema)
        return (time.process_time() - before) * 1e3

    ours, theirs = bench.compare(server_cpu, decompress, "ms CPU")
    return Answer(
        question="server CPU of a projected read of ZSTD data",
        figure=ours,
        reference=theirs,
        reference_name="decompressing those columns",
        ratio=ratio_of(ours, theirs),
        target=Target(0.5, at_least=False),
        notes={"profile": "tests/record shows that a projection never calls a decompressor"},
    )


def _stream(batch: pa.RecordBatch, options: pa.ipc.IpcWriteOptions) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    return sink.getvalue()
