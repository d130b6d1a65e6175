"""Remote segments for tests: batches of a log, and their bytes in a store."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pyarrow as pa

from strom.record.batch import stamp
from strom.record.columns import ColumnLayout
from strom.record.encode import encode
from strom.remote.chain_leader import SegmentContent
from strom.remote.column_extents import LogBatch, transpose
from strom.remote.remote_manifest import RemoteSegment
from strom.remote.segment_reader import SegmentReader
from strom.runtime.objects.range_reader import RangeBudget, RangeReader
from strom.testing.objects import MemoryObjects

KEY = "s/segment"


def stamped(batch: pa.RecordBatch, offset: int, **how: object) -> LogBatch:
    """A batch as a log stores it."""
    content = encode(batch, **({"schema_id": 1} | how))  # type: ignore[arg-type]
    stamp(content, base_offset=offset, timestamp_ms=1000 + offset)
    return LogBatch(memoryview(content), 3)


def following(batches: Sequence[pa.RecordBatch], start: int = 100, **how: object) -> list[LogBatch]:
    """One after the other."""
    found, offset = [], start
    for batch in batches:
        found.append(stamped(batch, offset, **how))
        offset += max(batch.num_rows, 1)
    return found


def layouts(schema: pa.Schema) -> dict[int, ColumnLayout]:
    """Of schema 1."""
    return {1: ColumnLayout(schema)}


def named(content: SegmentContent) -> RemoteSegment:
    """As a manifest names it."""
    return RemoteSegment(
        f"3-{content.start_offset}-{content.end_offset}-r",
        content.start_offset,
        content.end_offset,
        len(content.content),
        content.directory_size,
        content.directory_crc,
        content.first_timestamp_ms,
        content.last_timestamp_ms,
    )


class Stored:
    """A segment in a store, and a reader of it. Inside a running loop."""

    def __init__(self, content: SegmentContent) -> None:
        self.objects = MemoryObjects()
        self.segment = named(content)
        self.content = content
        self.ranges = RangeReader(self.objects, RangeBudget())

    async def reader(self) -> SegmentReader:
        """One that has read nothing yet."""
        await self.objects.put(KEY, self.content.content)
        return SegmentReader(self.ranges, KEY, self.segment)


def whole(batches: Sequence[LogBatch], schema: pa.Schema, extent_size: int | None = None) -> list[bytes]:
    """What comes back of batches that went through a store."""

    async def main() -> list[bytes]:
        stored = Stored(transpose(batches, layouts(schema), extent_size=extent_size))
        reader = await stored.reader()
        return [bytes(one) for one in await reader.whole(0, 1 << 60)]

    return asyncio.run(main())
