"""The log of one bucket as the object store has it: what is known of its chain, and reads of it.

A read takes several segments at once when they are small. What it needs of them is decided from their directories,
then fetched together; what the reader will want next is fetched with it, and the extent behind that meanwhile.
Everything here runs on the loop of the store.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

from strom.errors import ChecksumMismatch, Corrupt, OffsetOutOfRange
from strom.log.reading.slices import LogSlice
from strom.model.bucket import BucketId
from strom.remote.local_deletion import LocalDeletion
from strom.remote.remote_chain import NO_HEAD, ChainHead, RemoteChain
from strom.remote.remote_manifest import RemoteManifest, RemoteSegment
from strom.remote.segment_directory import Extent, SegmentDirectory
from strom.remote.segment_reader import SegmentReader, cut_columns, rebuilt
from strom.remote.slice_plan import (
    PickedBatch,
    ReadWish,
    SlicePlan,
    by_extent,
    offset_at_time,
    plan_slice,
)
from strom.runtime.files import Bytes
from strom.runtime.objects.range_reader import RangeBudget, RangeReader
from strom.server.remote.extent_memory import ExtentKey, ExtentMemory, HeldExtent
from strom.server.remote.range_cache import CachedParts, RangeCache
from strom.tablet.tablet import PastRange

SEGMENTS_AT_ONCE = 8
"""Of one read."""
DIRECTORIES_KEPT = 64
AHEAD_MAX = 4
"""Extents that are fetched ahead at the same time, of all readers together."""


class _Part(NamedTuple):
    """Batches of one extent of a read."""

    reader: SegmentReader
    segment: RemoteSegment
    directory: SegmentDirectory
    number: int
    picks: list[PickedBatch]
    goes_on: bool
    """Whether the reader will probably want the rest of the extent."""

    @property
    def extent(self) -> Extent:
        """The extent."""
        return self.directory.extents[self.number]

    @property
    def columns(self) -> tuple[int, ...]:
        """What the reader wants of batches that have records."""
        return min((pick.columns_of(self.extent) for pick in self.picks), key=len)


class SharedReads:
    """What the reads of all buckets share."""

    def __init__(
        self,
        budget: RangeBudget,
        memory: ExtentMemory,
        in_flight_of_one: int,
        cache: RangeCache | None = None,
    ) -> None:
        """``cache``: on this disk."""
        self.budget = budget
        self.cache = cache
        self.memory = memory
        self.in_flight_of_one = in_flight_of_one
        self.directories: OrderedDict[tuple[str, str], SegmentReader] = OrderedDict()
        self.ahead: set[asyncio.Task[None]] = set()


class RemoteLog:
    """One bucket's."""

    def __init__(self, bucket: BucketId, chain: RemoteChain, shared: SharedReads) -> None:
        self.bucket = bucket
        self.chain = chain
        self.head: ChainHead | None = None
        """The newest manifest that is known; None: nobody has looked yet."""
        self._shared = shared
        kept = chain.objects if shared.cache is None else CachedParts(chain.objects, shared.cache)
        self.ranges = RangeReader(kept, shared.budget, shared.in_flight_of_one)
        """Of directories and columns, which are kept."""
        self.whole_ranges = RangeReader(chain.objects, shared.budget, shared.in_flight_of_one)
        """Of whole batches: whoever reads everything would push out what others read again."""
        self._deletion = LocalDeletion(chain, shared.budget)
        self._looking, self._proving = asyncio.Lock(), asyncio.Lock()

    @property
    def manifest(self) -> RemoteManifest:
        """The newest that is known."""
        return (self.head or NO_HEAD).manifest

    @property
    def past(self) -> PastRange:
        """The offsets that are there."""
        manifest = self.manifest
        if manifest.dropped or not manifest.segments:
            return PastRange(manifest.end_offset, manifest.end_offset)
        return PastRange(manifest.start_offset, manifest.end_offset)

    async def look(self) -> PastRange:
        """Read the newest manifest."""
        async with self._looking:
            self.head = await self.chain.head(self.head or NO_HEAD)
        return self.past

    async def known(self) -> PastRange:
        """What is there; looks only once, for whoever leads makes the next manifests itself."""
        return self.past if self.head is not None else await self.look()

    async def proven(self, up_to: int, start: int) -> int:
        """Up to where a manifest that was read back, and segments that were, have the rows."""
        async with self._proving:
            proven = await self._deletion.proven_end(up_to, start)
        if self.head is None or self._deletion.head.number > self.head.number:
            self.head = self._deletion.head
        return proven

    # --- reads -----------------------------------------------------------------------------------------------

    async def read(self, offset: int, until: int, wish: ReadWish) -> LogSlice:
        """Batches from the one that holds ``offset`` on; as a read of the local log (``log_reader.py``)."""
        await self.known()
        try:
            return await self._read(offset, until, wish)
        except FileNotFoundError:
            await self.look()  # it left the manifest, and was removed
        try:
            return await self._read(offset, until, wish)
        except FileNotFoundError as error:
            raise ChecksumMismatch(
                f"the object store lacks {error.filename}, which the newest manifest names",
                first_offset=offset,
                end_offset=offset + 1,
            ) from None

    async def _read(self, offset: int, until: int, wish: ReadWish) -> LogSlice:
        segments = await self._segments(offset, wish.max_bytes)
        readers = [self._reader(segment) for segment in segments]
        directories = await self._directories(readers)
        found, parts = LogSlice([], offset), []
        for reader, segment, directory in zip(readers, segments, directories, strict=True):
            plan = plan_slice(directory, found.next_offset, until, wish.max_bytes - found.size, wish)
            found = _counted(found, plan)
            parts += [
                _Part(reader, segment, directory, number, picks, plan.full and wish.skip is None)
                for number, picks in by_extent(directory, plan.picks)
            ]
            if plan.full or found.next_offset < segment.end_offset or found.next_offset >= until:
                break
        pieces = await asyncio.gather(*(self._batches(part) for part in parts))
        if parts and parts[-1].goes_on:
            self._fetch_ahead(parts[-1])
        return found._replace(buffers=[one for several in pieces for one in several])

    async def offset_at(self, timestamp_ms: int) -> int | None:
        """The first offset of the first batch at or after a time; None when all are older."""
        await self.known()
        segment = next((one for one in self.manifest.segments if one.last_timestamp_ms >= timestamp_ms), None)
        if segment is None:
            return None
        return offset_at_time(await self._reader(segment).directory(), timestamp_ms)

    async def rows_begin(self, before: int, rows: int, bytes_max: int) -> int:
        """Where the last batches below ``before`` begin that hold so many rows together, or as many as fit."""
        await self.known()
        begin = before
        for segment in reversed(self.manifest.segments):
            if segment.start_offset >= before:
                continue
            for batch in reversed((await self._reader(segment).directory()).batches):
                if batch.entry.base_offset >= before:
                    continue
                bytes_max -= batch.entry.batch_size
                if bytes_max < 0:
                    return begin
                begin = batch.entry.base_offset
                rows -= batch.entry.record_count
                if rows <= 0:
                    return begin
        return begin

    # --- segments --------------------------------------------------------------------------------------------

    async def _segments(self, offset: int, max_bytes: int) -> list[RemoteSegment]:
        """The segments from the one with ``offset`` on that a read of so many bytes may reach."""
        if (first := self._index(offset)) is None:
            await self.look()
            first = self._index(offset)
        past = self.past
        if first is None or offset < past.start:
            raise OffsetOutOfRange(
                f"offset {offset} of bucket {self.bucket} is not in the object store, which has {past.start} to "
                f"{past.end}: it has expired",
                offset=offset,
                start_offset=past.start,
            )
        found: list[RemoteSegment] = []
        size = 0
        for segment in islice(self.manifest.segments, first, first + SEGMENTS_AT_ONCE):
            if found and size >= max_bytes:
                break
            found.append(segment)
            size += segment.size
        return found

    async def _directories(self, readers: Sequence[SegmentReader]) -> list[SegmentDirectory]:
        try:
            return await asyncio.gather(*(reader.directory() for reader in readers))
        except Corrupt:
            if self._shared.cache is not None:  # what is kept of them may be what is wrong
                for reader in readers:
                    await self._shared.cache.forget(reader.key)
        return await asyncio.gather(*(reader.directory() for reader in readers))

    def _index(self, offset: int) -> int | None:
        segments = self.manifest.segments
        index = bisect_right(segments, offset, key=lambda one: one.start_offset) - 1
        return index if index >= 0 and offset < segments[index].end_offset else None

    def _reader(self, segment: RemoteSegment) -> SegmentReader:
        """A reader of a segment; its directory is kept for the next ones."""
        directories, key = self._shared.directories, (self.chain.names.folder, segment.name)
        reader = directories.get(key)
        if reader is None:
            reader = SegmentReader(self.ranges, self.chain.names.segment(segment.name), segment)
            directories[key] = reader
            while len(directories) > DIRECTORIES_KEPT:
                directories.popitem(last=False)
        directories.move_to_end(key)
        return reader

    # --- extents ---------------------------------------------------------------------------------------------

    async def _batches(self, part: _Part) -> list[Bytes]:
        """The batches of one extent, checked; what does not fit is fetched once more."""
        try:
            return self._made(part, await self._held(part))
        except Corrupt:
            await self._forget(part)
        return self._made(part, await self._held(part))

    async def _forget(self, part: _Part) -> None:
        """Let go of what was kept of an extent, wherever it is."""
        self._shared.memory.forget(self._key(part.segment, part.number))
        if self._shared.cache is not None:
            await self._shared.cache.forget(self.chain.names.segment(part.segment.name))

    def _made(self, part: _Part, held: HeldExtent) -> list[Bytes]:
        made: list[Bytes] = []
        for pick in part.picks:
            batch = part.directory.batches[pick.number]
            runs = [memoryview(held.pieces[pick.number, one]) for one in pick.columns_of(part.extent)]
            try:
                if pick.projection is None:
                    made.append(rebuilt(batch, runs))
                else:
                    key = self.chain.names.segment(part.segment.name)
                    made.append(cut_columns(batch, runs, part.extent, pick.projection, key, pick.cut))
            except Corrupt as error:
                error.facts |= {
                    "first_offset": batch.entry.base_offset,
                    "end_offset": batch.entry.next_offset,
                }
                raise
        return made

    async def _held(self, part: _Part) -> HeldExtent:
        """The bytes that the picks need, and what their reader goes on to."""
        extent = part.extent
        wanted = {(pick.number, column) for pick in part.picks for column in pick.columns_of(extent)}
        if part.goes_on:
            last = extent.first_batch + extent.batch_count
            wanted |= {
                (number, column) for column in part.columns for number in range(part.picks[0].number, last)
            }
        filtered = not part.goes_on and len(part.picks) < extent.batch_count
        return await self._fetched(part.reader, part.segment, part.number, extent, wanted, filtered)

    async def _fetched(
        self,
        reader: SegmentReader,
        segment: RemoteSegment,
        number: int,
        extent: Extent,
        wanted: set[tuple[int, int]],
        filtered: bool,
    ) -> HeldExtent:
        key = self._key(segment, number)
        held = self._shared.memory.of(key)
        async with held.fetching:
            missing = sorted(wanted - held.pieces.keys())
            if missing:
                whole = len({column for _, column in missing}) == len(extent.columns) > 1
                ranges = self.whole_ranges if whole else None
                came = await reader.fetch(extent, missing, filtered=filtered, ranges=ranges)
                self._shared.memory.add(key, held, came)
        return held

    def _key(self, segment: RemoteSegment, number: int) -> ExtentKey:
        return ExtentKey(self.chain.names.folder, segment.name, number)

    def _fetch_ahead(self, part: _Part) -> None:
        """Fetch the same columns of the next extent of the segment meanwhile."""
        ahead, number = self._shared.ahead, part.number + 1
        extents = part.directory.extents
        if len(ahead) >= AHEAD_MAX or number >= len(extents):
            return
        extent = extents[number]
        if len(extent.columns) != len(part.extent.columns):
            return  # of another schema
        numbers: Sequence[int] = range(extent.first_batch, extent.first_batch + extent.batch_count)
        wanted = {(one, column) for column in part.columns for one in numbers}
        task = asyncio.get_running_loop().create_task(self._ahead(part, number, extent, wanted))
        ahead.add(task)
        task.add_done_callback(ahead.discard)

    async def _ahead(self, part: _Part, number: int, extent: Extent, wanted: set[tuple[int, int]]) -> None:
        try:
            await self._fetched(part.reader, part.segment, number, extent, wanted, filtered=False)
        except Exception:  # whoever reads there meets it, and says so
            return


def _counted(found: LogSlice, plan: SlicePlan) -> LogSlice:
    """What the slice will hold with these batches."""
    return found._replace(
        next_offset=max(plan.next_offset, found.next_offset),
        batches=found.batches + len(plan.picks),
        rows=found.rows + plan.rows,
        size=found.size + plan.size,
        bytes_skipped=found.bytes_skipped + plan.bytes_skipped,
        rows_skipped=found.rows_skipped + plan.rows_skipped,
        lacking=plan.lacking,
    )
