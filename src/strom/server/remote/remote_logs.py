"""The remote logs of this server's buckets, as calls and background work use them, from the server's loop.

A tablet knows what the store has of it (``Tablet.past``) once somebody needed to know; until then a server never asks
the store for a bucket. What fails there is told as RemoteLogUnavailable, which every client tries again.
"""

from __future__ import annotations

import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

from strom.errors import OffsetOutOfRange, RemoteLogUnavailable, StoreRefused, StoreUnavailable, StromError
from strom.log.log_reader import TAIL_BYTES_MAX
from strom.log.reading.slices import BATCH_BYTES_ANY, LogSlice, joined
from strom.model.bucket import BucketId
from strom.remote.remote_chain import RemoteChain
from strom.remote.remote_names import RemoteNames
from strom.remote.slice_plan import ReadWish
from strom.runtime.metrics import Metrics
from strom.runtime.objects.own_loop import OwnLoop
from strom.runtime.objects.range_reader import RangeBudget
from strom.runtime.tasks import InlineOffload, Offload, ThreadOffload
from strom.runtime.world import World
from strom.server.remote.extent_memory import ExtentMemory
from strom.server.remote.range_cache import RangeCache
from strom.server.remote.remote_access import RemoteAccess
from strom.server.remote.remote_log import RemoteLog, SharedReads
from strom.tablet.tablet import PastRange, Tablet

THREADS = 2
"""For putting objects together, and for stores that are folders."""

Result = TypeVar("Result")

logger = logging.getLogger(__name__)


class RemoteLogs:
    """All of them. Belongs to the server's loop."""

    def __init__(self, world: World, access: RemoteAccess, metrics: Metrics, cache_folder: str) -> None:
        """``cache_folder``: for parts that were read; its own."""
        inline = isinstance(world.offload, InlineOffload)
        self.access = access
        self.loop = OwnLoop(inline=inline)
        self.threads: Offload = world.offload if inline else ThreadOffload(THREADS, background=True)
        self._own_threads = not inline
        self.objects = access.open(world, self.threads)
        budget = RangeBudget(access.read_parallel, part_bytes=access.read_part, gap_bytes=access.read_gap)
        cache = None
        if access.cache_bytes:
            cache = RangeCache(world.files, cache_folder, access.cache_bytes, self.threads)
        of_one = max(1, access.read_parallel // 4)
        self._shared = SharedReads(budget, ExtentMemory(access.read_memory), of_one, cache)
        self._logs: dict[BucketId, RemoteLog] = {}
        self._reads = metrics.counter(
            "strom_remote_reads_total", "Reads of logs that the object store answered"
        )
        self._read_bytes = metrics.counter(
            "strom_remote_read_bytes_total", "Record bytes that were read from the object store"
        )

    def of(self, bucket: BucketId) -> RemoteLog:
        """The remote log of a bucket."""
        log = self._logs.get(bucket)
        if log is None:
            names = RemoteNames(
                self.access.owner.cluster, bucket.table_id, bucket.partition_id, bucket.bucket
            )
            log = self._logs[bucket] = RemoteLog(bucket, RemoteChain(self.objects, names), self._shared)
        return log

    def forget(self, bucket: BucketId) -> None:
        """The bucket is no more."""
        self._logs.pop(bucket, None)

    def must_look(self, tablet: Tablet, offset: int | None) -> bool:
        """Whether the store has to be asked before a read from ``offset`` (None: from the oldest) can be placed."""
        start = tablet.log.start_offset
        return tablet.past is None and start > 0 and (offset is None or offset < start)

    async def known(self, tablet: Tablet) -> None:
        """Let a tablet know what the store has of it."""
        if tablet.past is None and tablet.log.start_offset > 0:
            self.tell(tablet, await self._asked(tablet, self.of(tablet.bucket).known()))

    def tell(self, tablet: Tablet, past: PastRange) -> None:
        """What the store has of a tablet now."""
        tablet.past = past

    # --- reads -----------------------------------------------------------------------------------------------

    async def read(self, tablet: Tablet, offset: int, wish: ReadWish) -> LogSlice:
        """Batches from ``offset`` on that are older than what is here; as ``Tablet.read``."""
        tablet.check_online()
        until = min(tablet.log.start_offset, tablet.high_watermark)
        if wish.until is not None:
            until = min(until, wish.until)
        log = self.of(tablet.bucket)
        try:
            found = await self._asked(tablet, log.read(offset, until, wish))
        except OffsetOutOfRange:
            self.tell(tablet, log.past)
            raise
        self._reads.inc()
        self._read_bytes.inc(found.size)
        return found

    async def offset_at(self, tablet: Tablet, timestamp_ms: int, here: int) -> int:
        """The first offset at a time; ``here``: as the local log has it."""
        if here > tablet.log.start_offset:
            return here
        await self.known(tablet)
        if tablet.readable_from >= here:
            return here
        found = await self._asked(tablet, self.of(tablet.bucket).offset_at(timestamp_ms))
        return here if found is None else min(here, max(found, tablet.readable_from))

    async def tail_rows(self, tablet: Tablet, here: LogSlice, limit: int) -> LogSlice:
        """The newest rows: those of ``here``, and as many older ones as are missing."""
        await self.known(tablet)
        start, missing = tablet.log.start_offset, limit - here.rows
        if missing <= 0 or tablet.readable_from >= start:
            return here
        log = self.of(tablet.bucket)
        begin = await self._asked(tablet, log.rows_begin(start, missing, TAIL_BYTES_MAX - here.size))
        wish = ReadWish(TAIL_BYTES_MAX, BATCH_BYTES_ANY)
        found = LogSlice([], max(begin, tablet.readable_from))
        while found.next_offset < start:
            more = await self.read(tablet, found.next_offset, wish)
            if more.next_offset <= found.next_offset:
                break
            found = joined(found, more)
        return joined(found, here)

    async def proven(self, tablet: Tablet, up_to: int) -> int:
        """Up to where it was read back that the store has a bucket's rows (C8)."""
        log = self.of(tablet.bucket)
        try:
            proven = await self.loop.run(log.proven(up_to, tablet.log.start_offset))
        except (StoreUnavailable, StoreRefused) as error:
            raise RemoteLogUnavailable(
                f"segments stay here until the object store shows that it has them: {error.message}",
                bucket=str(tablet.bucket),
            ) from error
        self.tell(tablet, log.past)  # before the first of them goes from here
        return min(proven, log.past.end)

    async def _asked(self, tablet: Tablet, work: Coroutine[Any, Any, Result]) -> Result:
        try:
            return await self.loop.run(work)
        except (StoreUnavailable, StoreRefused, OSError) as error:
            why = error.message if isinstance(error, StromError) else type(error).__name__
            raise RemoteLogUnavailable(
                f"offsets of bucket {tablet.bucket} before {tablet.log.start_offset} are in the object store: {why}",
                bucket=str(tablet.bucket),
            ) from error

    def close(self) -> None:
        """Wait for nothing any more."""
        self.loop.close()
        if self._own_threads:
            self.threads.close()
