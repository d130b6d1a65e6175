"""Finding an offset by time, the last batches by number of rows, and what cannot be read around an offset."""

from __future__ import annotations

from collections.abc import Iterator

from strom.errors import ChecksumMismatch
from strom.log.chain import Chain
from strom.log.segment import Segment
from strom.log.sidecar import SidecarEntry


def offset_at(chain: Chain, timestamp_ms: int) -> int:
    """The first offset of the first batch whose timestamp is at least this, else the end."""
    end_offset = chain.end_offset
    if timestamp_ms > chain.newest_timestamp_ms:
        return end_offset
    segment = chain.segment_at(timestamp_ms)
    while True:
        stop = end_offset if segment.end_offset is None else min(segment.end_offset, end_offset)
        if segment.base_offset < stop:
            files = chain.files_of(segment)
            walk = chain.walk(segment, files, files.index.before_time(timestamp_ms))
            while walk.offset < stop:
                entry = walk.next()
                if entry.timestamp_ms >= timestamp_ms:
                    return entry.base_offset
        if segment.end_offset is None or segment.end_offset >= end_offset:
            return end_offset
        segment = chain.after(segment)


def tail_begin(chain: Chain, limit: int, *, until: int, max_bytes: int) -> tuple[int, int]:
    """Where the newest batches below ``until`` that hold ``limit`` rows and fit ``max_bytes`` begin; their size."""
    begin = until
    rows = size = 0
    start_offset = chain.start_offset
    while rows < limit and begin > start_offset:
        # Offsets are dense, so this many back hold enough rows, unless batches without records are among them.
        offset = max(start_offset, begin - (limit - rows))
        for entry in reversed(entries_between(chain, offset, begin)):
            if rows >= limit or (size and size + entry.batch_size > max_bytes):
                return begin, size
            rows += entry.record_count
            size += entry.batch_size
            begin = entry.base_offset
    return begin, size


def entries_between(chain: Chain, offset: int, until: int) -> list[SidecarEntry]:
    """The entries from the batch that holds ``offset`` to the one before ``until``."""
    return list(entries_from(chain, offset, until))


def entries_from(chain: Chain, offset: int, until: int) -> Iterator[SidecarEntry]:
    """As ``entries_between``, one by one; none when the log ends at ``until`` and begins there."""
    if offset >= until:
        return
    segment, _, walk, entry = chain.locate(offset)
    yield entry
    while walk.offset < until:
        if walk.offset == segment.end_offset:
            segment = chain.after(segment)
            files = chain.files_of(segment)
            walk = chain.walk(segment, files, files.index.start)
        yield walk.next()


def batch_around(chain: Chain, offset: int) -> tuple[int, int]:
    """The offsets [from, until) of the batch that holds ``offset``.

    Where it cannot be found: from where its segment is no longer readable to the segment's end.
    """
    try:
        entry = chain.locate(offset).entry
    except ChecksumMismatch:
        segment = chain.segment_of(offset)
        end = chain.end_offset if segment.end_offset is None else segment.end_offset
        return min(_readable_until(chain, segment, end), offset), end
    return entry.base_offset, entry.next_offset


def _readable_until(chain: Chain, segment: Segment, end: int) -> int:
    files = chain.files_of(segment)
    walk = chain.walk(segment, files, files.index.start)
    try:
        while walk.offset < end:
            walk.next()
    except ChecksumMismatch:
        pass
    return walk.offset
