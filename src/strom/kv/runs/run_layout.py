"""Numbers of the format of runs: docs/formats/index_run.md."""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

PAGE_BYTES: Final = 4096
PAGE_HEADER: Final = struct.Struct("<IIQ")
"""Checksum of the rest, entries, number of the page."""
ENTRY: Final = struct.Struct("<Qq")
"""Hash, version."""
PAGE_ENTRIES: Final = (PAGE_BYTES - PAGE_HEADER.size) // ENTRY.size
FENCE_BYTES: Final = 8
BLOCK_BYTES: Final = 64
"""Of the filter."""
FILTER_BITS: Final = 10
"""Per entry."""
FILTER_PROBES: Final = 6
BLOCK_MIX: Final = 0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B
BITS_MIX: Final = 0x6A09E667F3BCC909, 0xFF51AFD7ED558CCD
GONE: Final = -1
"""The version that says: no key has this hash any more."""


class RunRef(NamedTuple):
    """Where a run lies, and what it has: the keys whose hash begins with the ``depth`` bits of ``prefix``."""

    prefix: int
    depth: int
    file: str
    position: int
    pages: int
    blocks: int
    entries: int
    crc: int
    """Of fences and filter; every page has its own."""

    @property
    def end_at(self) -> int:
        """Where fences and filter begin."""
        return self.position + self.pages * PAGE_BYTES

    @property
    def end_bytes(self) -> int:
        """Bytes of fences and filter."""
        return self.pages * FENCE_BYTES + self.blocks * BLOCK_BYTES

    @property
    def bytes(self) -> int:
        """All of it."""
        return self.pages * PAGE_BYTES + self.end_bytes


def blocks_for(entries: int) -> int:
    """Blocks of a filter for this many entries."""
    return max(1, -(-entries * FILTER_BITS // (8 * BLOCK_BYTES)))
