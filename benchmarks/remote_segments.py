"""What does it cost to lay a log's batches out for the object store, and to take them back?

Expected: every buffer is copied once and checksummed once, but a batch of 64 KB has 20 of them, and each costs a step
of Python: about a tenth of copying the same bytes. Found: 0.07 to 0.11 (0.65 to 1 GB in a second of one core; memcpy 9,
checksums 10), taking whole batches back 0.04 to 0.06. One core keeps up with 5 GBit/s; at least 0.04 is asked for.
"""

from __future__ import annotations

import asyncio
import time

import numpy as np
import pyarrow as pa

from benchmarks.harness import Answer, Bench, Target, ratio_of
from strom.record.batch import stamp
from strom.record.checksum import crc32c
from strom.record.columns import ColumnLayout
from strom.record.encode import encode
from strom.remote.column_extents import LogBatch, transpose
from strom.remote.remote_manifest import RemoteSegment
from strom.remote.segment_reader import SegmentReader
from strom.runtime.objects.range_reader import RangeBudget, RangeReader
from strom.testing.objects import MemoryObjects

COLUMNS = 10
BATCH_BYTES = 64 * 1024
MB = 1e6


def measure(bench: Bench) -> list[Answer]:
    schema = pa.schema([(f"c{number}", pa.int64()) for number in range(COLUMNS)])
    rows = BATCH_BYTES // (8 * COLUMNS)
    batches = _batches(schema, rows, bench.size(full=1024, quick=128))
    layouts = {1: ColumnLayout(schema)}
    size = sum(len(batch.view) for batch in batches) / MB
    joined = b"".join(batch.view for batch in batches)
    room = bytearray(len(joined))

    def copying() -> float:
        return size / _seconds(lambda: memoryview(room).__setitem__(slice(None), joined))

    answers = []
    for question, work in (
        ("lay 64 MB of batches out by column", lambda: transpose(batches, layouts)),
        ("checksum the same bytes", lambda: crc32c(joined)),
        ("take whole batches back, each proved", _reading(batches, layouts)),
    ):
        work()  # once, to be warm
        ours, reference = bench.compare(lambda work=work: size / _seconds(work), copying, "MB/s")
        answers.append(
            Answer(
                question=question,
                figure=ours,
                reference=reference,
                reference_name="memcpy of the same bytes",
                ratio=ratio_of(ours, reference),
                target=Target(0.04) if question.startswith("lay") else None,
            )
        )
    return answers


def _seconds(work) -> float:  # type: ignore[no-untyped-def]
    """Of this thread's processor: nothing here waits, and neighbours on the machine do not count."""
    began = time.thread_time()
    work()
    return time.thread_time() - began


def _batches(schema: pa.Schema, rows: int, count: int) -> list[LogBatch]:
    random = np.random.default_rng(1)
    found = []
    for number in range(count):
        arrays = [pa.array(random.integers(0, 1 << 62, rows)) for _ in schema]
        content = encode(pa.record_batch(arrays, schema=schema), schema_id=1)
        stamp(content, base_offset=number * rows, timestamp_ms=number)
        found.append(LogBatch(memoryview(content), 1))
    return found


def _reading(batches: list[LogBatch], layouts: dict[int, ColumnLayout]):  # type: ignore[no-untyped-def]
    """Reads all of it from a store in memory."""
    content = transpose(batches, layouts)
    segment = RemoteSegment(
        "1-0-1-r",
        content.start_offset,
        content.end_offset,
        len(content.content),
        content.directory_size,
        content.directory_crc,
        0,
        0,
    )

    async def main() -> None:
        objects = MemoryObjects()
        await objects.put("s", content.content)
        reader = SegmentReader(RangeReader(objects, RangeBudget()), "s", segment)
        assert len(await reader.whole(0, content.end_offset)) == len(batches)

    return lambda: asyncio.run(main())
