"""Which segments may go. The decision itself (``count_expired``) is made over facts, without files.

Segments go oldest first and whole. Time: all of a segment's batches are older than the time to live. Size: the log
without it still holds at least the bytes it may hold. Nothing that ends above ``keep_from`` goes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from strom.log.chain import Chain
from strom.log.segment import Segment


class ExpiredSegments(NamedTuple):
    """What retention removed."""

    segments: int
    bytes: int
    start_offset: int
    """Where the log starts now."""


class SegmentFacts(NamedTuple):
    """A sealed segment, as retention sees it."""

    end_offset: int
    size_bytes: int


def count_expired(
    sealed: Sequence[SegmentFacts],
    *,
    active_bytes: int,
    last_timestamp_ms: Callable[[int], int],
    now_ms: int,
    ttl_ms: int | None,
    bytes_max: int | None,
    keep_from: int | None,
) -> int:
    """How many of the oldest segments may go. Calls ``last_timestamp_ms`` for as few segments as possible."""
    total_bytes = active_bytes + sum(facts.size_bytes for facts in sealed)
    for index, facts in enumerate(sealed):
        if keep_from is not None and facts.end_offset > keep_from:
            return index
        too_much = bytes_max is not None and total_bytes - facts.size_bytes >= bytes_max
        if not too_much and (ttl_ms is None or last_timestamp_ms(index) + ttl_ms >= now_ms):
            return index
        total_bytes -= facts.size_bytes
    return len(sealed)


def expired_segments(
    chain: Chain,
    *,
    now_ms: int,
    ttl_ms: int | None,
    bytes_max: int | None,
    keep_from: int | None,
    segments_min: int = 1,
) -> tuple[Segment, ...]:
    """The oldest segments of a chain that may go; ``segments_min`` stay, the active one among them."""
    sealed = chain.segments[: len(chain.segments) - max(segments_min, 1)]
    count = count_expired(
        [SegmentFacts(segment.sealed_end, segment.log_size) for segment in sealed],
        active_bytes=sum(segment.log_size for segment in chain.segments[len(sealed) :]),
        last_timestamp_ms=lambda number: chain.last_timestamp(sealed[number]),
        now_ms=now_ms,
        ttl_ms=ttl_ms,
        bytes_max=bytes_max,
        keep_from=keep_from,
    )
    return sealed[:count]
