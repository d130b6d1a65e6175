"""Up to where local segments may be deleted: where a manifest that was read back ends, after every segment was read
once (C8).

A manifest that was put is not yet one that is there for good: it is read again, and each segment it names is read
whole and checked before the only other copy goes. Segments never change, so each is read once.
"""

from __future__ import annotations

from strom.remote.remote_chain import NO_HEAD, ChainHead, RemoteChain
from strom.remote.segment_reader import SegmentReader
from strom.runtime.objects.range_reader import RangeBudget, RangeReader


class LocalDeletion:
    """What one copy has seen to be in the store."""

    def __init__(self, chain: RemoteChain, budget: RangeBudget) -> None:
        self._chain = chain
        self._ranges = RangeReader(chain.objects, budget)
        self._head = NO_HEAD
        self._seen: set[str] = set()

    @property
    def head(self) -> ChainHead:
        """The manifest that was read back."""
        return self._head

    async def proven_end(self, up_to: int | None = None, start: int = 0) -> int:
        """Local rows below may go. Reads what was added since the last time, as far as ``up_to``; rows below
        ``start`` are not here any more, so nothing depends on reading them now."""
        self._head = await self._chain.head(self._head)
        names = self._chain.names
        proven = self._head.manifest.start_offset
        for segment in self._head.manifest.segments:
            if up_to is not None and segment.start_offset >= up_to:
                break
            if segment.name not in self._seen and segment.end_offset > start:
                await SegmentReader(self._ranges, names.segment(segment.name), segment).verify()
                self._seen.add(segment.name)
            proven = segment.end_offset
        self._seen &= {segment.name for segment in self._head.manifest.segments}
        return proven
