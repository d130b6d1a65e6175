"""Reads a remote segment: whole batches, byte for byte as they were stored, or batches of some columns only.

Only the directory and the wanted columns' bytes are fetched. Every buffer is checked against its checksum, a whole
batch against its own: what does not fit is fetched once more, past whatever kept it, and then is a ChecksumMismatch.
"""

from __future__ import annotations

from collections.abc import Sequence

from strom.errors import ChecksumMismatch
from strom.log.sidecar import check_batch
from strom.record.checksum import crc32c
from strom.record.project import ProjectedBatch, Projection
from strom.remote.remote_manifest import RemoteSegment
from strom.remote.segment_directory import Extent, RemoteBatch, SegmentDirectory, decode_directory
from strom.runtime.objects.range_plan import FILTERED, UNFILTERED, Part
from strom.runtime.objects.range_reader import RangeReader


class SegmentReader:
    """One segment, as its manifest names it."""

    def __init__(self, ranges: RangeReader, key: str, segment: RemoteSegment) -> None:
        self._ranges = ranges
        self._key = key
        self._segment = segment
        self._directory: SegmentDirectory | None = None

    @property
    def key(self) -> str:
        """Of the object."""
        return self._key

    async def directory(self) -> SegmentDirectory:
        """What lies where; read once. One request: the manifest knows its size."""
        if self._directory is None:
            try:
                self._directory = await self._read_directory()
            except ChecksumMismatch:
                self._directory = await self._read_directory()
        return self._directory

    async def whole(self, start: int, end: int) -> list[memoryview]:
        """The batches that have an offset in [start, end), each as it was stored."""
        directory = await self.directory()
        found: list[memoryview] = []
        for extent in directory.extents:
            numbers = _wanted(directory, extent, start, end)
            if not numbers:
                continue
            every = range(len(extent.columns))
            try:
                found += await self._whole(directory, extent, numbers, every)
            except ChecksumMismatch:
                found += await self._whole(directory, extent, numbers, every)
        return found

    async def projected(
        self, projection: Projection, start: int, end: int, skip: frozenset[int] = frozenset()
    ) -> list[bytes]:
        """The same as batches of some columns only, of a segment whose batches have the projection's schema.

        ``skip``: base offsets of batches that nobody wants.
        """
        directory = await self.directory()
        found: list[bytes] = []
        for extent in directory.extents:
            numbers = [
                number
                for number in _wanted(directory, extent, start, end)
                if directory.batches[number].entry.base_offset not in skip
            ]
            if not numbers:
                continue
            try:
                found += await self._projected(directory, extent, numbers, projection)
            except ChecksumMismatch:
                found += await self._projected(directory, extent, numbers, projection)
        return found

    async def verify(self) -> None:
        """Read all of it, and check all of it: what must be done before the local copy goes."""
        directory = await self.directory()
        for extent in directory.extents:  # one at a time: a segment may be large
            first = directory.batches[extent.first_batch].entry.base_offset
            last = directory.batches[extent.first_batch + extent.batch_count - 1].entry.next_offset
            await self.whole(first, last)

    async def _read_directory(self) -> SegmentDirectory:
        segment = self._segment
        [content] = await self._ranges.read(self._key, [Part(0, segment.directory_size)])
        directory = decode_directory(bytes(content), segment.size, self._key)
        same = (directory.start_offset, directory.end_offset) == (segment.start_offset, segment.end_offset)
        if not same or int.from_bytes(content[8:12], "little") != segment.directory_crc:
            raise ChecksumMismatch(f"{self._key} is another segment than its manifest names", key=self._key)
        return directory

    async def fetch(
        self,
        extent: Extent,
        pairs: Sequence[tuple[int, int]],
        *,
        filtered: bool = False,
        ranges: RangeReader | None = None,
    ) -> dict[tuple[int, int], memoryview]:
        """The bytes of columns of batches, by (number of the batch, column), unchecked.

        ``filtered``: they lie apart. ``ranges``: another way to fetch them.
        """
        directory = await self.directory()
        firsts = _first_buffers(extent)
        parts: dict[tuple[int, int], Part] = {}
        for column in {column for _, column in pairs}:
            parts |= _places(directory, extent, column, firsts[column])
        wanted = {pair: parts[pair] for pair in pairs}
        coalescing = FILTERED if filtered else UNFILTERED
        came = await (ranges or self._ranges).read(self._key, list(wanted.values()), coalescing)
        return dict(zip(wanted, came, strict=True))

    async def _whole(
        self, directory: SegmentDirectory, extent: Extent, numbers: Sequence[int], columns: Sequence[int]
    ) -> list[memoryview]:
        runs = await self._fetched(extent, numbers, columns)
        return [rebuilt(directory.batches[number], run) for number, run in zip(numbers, runs, strict=True)]

    async def _projected(
        self, directory: SegmentDirectory, extent: Extent, numbers: Sequence[int], projection: Projection
    ) -> list[bytes]:
        runs = await self._fetched(extent, numbers, projection.columns)
        return [
            cut_columns(directory.batches[number], run, extent, projection, self._key)
            for number, run in zip(numbers, runs, strict=True)
        ]

    async def _fetched(
        self, extent: Extent, numbers: Sequence[int], columns: Sequence[int]
    ) -> list[list[memoryview]]:
        """By batch, the bytes of each wanted column of it."""
        pairs = [(number, column) for column in columns for number in numbers]
        came = await self.fetch(extent, pairs, filtered=len(numbers) < extent.batch_count)
        return [[came[number, column] for column in columns] for number in numbers]


def _places(
    directory: SegmentDirectory, extent: Extent, column: int, first: int
) -> dict[tuple[int, int], Part]:
    """Where the bytes of a column lie, by (number of the batch, column), of all batches of an extent.

    ``first``: its first buffer.
    """
    position = extent.columns[column].position
    last = first + extent.columns[column].buffer_count
    found = {}
    for number in range(extent.first_batch, extent.first_batch + extent.batch_count):
        length = sum(size for _, size in directory.batches[number].columns.buffers[first:last])
        found[number, column] = Part(position, length)
        position += length
    return found


def _first_buffers(extent: Extent) -> list[int]:
    """By column, its first buffer."""
    firsts, first = [], 0
    for column in extent.columns:
        firsts.append(first)
        first += column.buffer_count
    return firsts


def _wanted(directory: SegmentDirectory, extent: Extent, start: int, end: int) -> list[int]:
    numbers = range(extent.first_batch, extent.first_batch + extent.batch_count)
    return [
        number
        for number in numbers
        if directory.batches[number].entry.base_offset < end
        and directory.batches[number].entry.next_offset > start
    ]


def rebuilt(batch: RemoteBatch, runs: Sequence[memoryview]) -> memoryview:
    """A whole batch out of its columns; its own checksum proves it."""
    whole = bytearray(batch.entry.batch_size)
    whole[: len(batch.head)] = batch.head
    bytes_of_columns = b"".join(runs)
    taken = rest = 0
    end = len(batch.head)
    for position, length in (*batch.columns.buffers, (batch.entry.batch_size, 0)):
        if not length and position < batch.entry.batch_size:
            continue
        if batch.rest and position > end:
            whole[end:position] = batch.rest[rest : rest + position - end]
            rest += position - end
        whole[position : position + length] = bytes_of_columns[taken : taken + length]
        taken += length
        end = position + length
    view = memoryview(whole)
    check_batch(view, batch.entry)
    return view


def cut_columns(
    batch: RemoteBatch,
    runs: Sequence[memoryview],
    extent: Extent,
    projection: Projection,
    key: str,
    cut: ProjectedBatch | None = None,
) -> bytes:
    """A batch of some columns, each buffer checked by its own checksum. ``cut``: of this batch, if it is known."""
    cut = cut or projection.cut(batch.head, batch.header)
    body = bytearray(cut.body.size)
    places = (buffer for step in cut.body.steps for buffer in step.buffers)
    firsts = _first_buffers(extent)
    for column, run in zip(projection.columns, runs, strict=True):
        position, first = 0, firsts[column]
        for buffer in range(first, first + extent.columns[column].buffer_count):
            length = batch.columns.buffers[buffer][1] if batch.columns.buffers else 0
            if not length:
                continue
            found = run[position : position + length]
            if crc32c(found) != batch.buffer_crcs[buffer]:
                raise ChecksumMismatch(
                    f"column {column} of the batch at offset {batch.entry.base_offset} in {key} is damaged",
                    key=key,
                    base_offset=batch.entry.base_offset,
                    next_offset=batch.entry.next_offset,
                )
            place, _ = next(places)
            body[place : place + length] = found
            position += length
    cut.seal(crc32c(body, cut.crc))
    return bytes(cut.head) + bytes(body)
