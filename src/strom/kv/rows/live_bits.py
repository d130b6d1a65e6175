"""Live bits: one for each stored row, set when it is its key's newest image.

Derived, never stored. The bits of a source stay in one array as long as the source is used, and change in place: a
reader in another thread may see a change made after its snapshot, and corrects for it by the series. The number of set
bits follows the bits, so that they never have to be counted while someone waits.

A :class:`Journal` holds the changes made while the bits of a new base file are being prepared. A change is made first
and recorded afterwards. So starting a journal and then copying the bits catches every change in one or the other,
without a lock. Applying a change twice does no harm.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from strom.kv.arrays import Bools, Int64s, Octets
from strom.kv.index.newest_kernels import version_of
from strom.kv.kernels.compile import (
    int32,
    int64,
    kernel,
    load_i64,
    load_u8,
    ro,
    store_i64,
    store_u8,
    uint8,
)
from strom.kv.rows.base_layout import BLOCK_ROWS
from strom.kv.rows.row_places import locate, locate_near

BITS_BYTES = BLOCK_ROWS // 8
COUNT_BYTES = 8


class Journal:
    """Changes of live bits since it was started, in order."""

    __slots__ = ("__weakref__", "changes")

    def __init__(self) -> None:
        self.changes: list[tuple[Int64s, int]] = []


def new_bits() -> Octets:
    """The bits of a block, all dead, and their count."""
    return np.zeros(BITS_BYTES + COUNT_BYTES, np.uint8)


def bits_of(live: Bools) -> Octets:
    """The bits of a block whose first rows have this liveness."""
    bits = new_bits()
    packed = np.packbits(live, bitorder="little")
    bits[: len(packed)] = packed
    bits[BITS_BYTES:].view(np.int64)[0] = np.count_nonzero(live)
    return bits


def live_of(bits: Octets, first: int, last: int) -> Bools:
    """A copy: which of the rows [first, last) are live now."""
    start = first & ~7
    return np.unpackbits(bits[start >> 3 : (last + 7) >> 3], bitorder="little")[
        first - start : last - start
    ].view(np.bool_)


def count(bits: Octets) -> int:
    """The number of live rows."""
    return int(bits[BITS_BYTES:].view(np.int64)[0])


@kernel(int64(ro(int64), ro(int32), ro(int32), int64))
def mark(addresses: Any, source: Any, row: Any, live: int) -> int:
    """Make rows live (1) or dead (0); returns how many changed. Source -1 is skipped."""
    changed = 0
    for i in range(len(source)):
        if source[i] < 0:
            continue
        bits = addresses[source[i]]
        address = bits + (int64(row[i]) >> 3)
        bit = uint8(1 << (row[i] & 7))
        octet = load_u8(address)
        if (octet & bit != 0) != (live != 0):
            store_u8(address, uint8(octet ^ bit))
            number = bits + BITS_BYTES
            store_i64(number, load_i64(number) + (1 if live != 0 else -1))
            changed += 1
    return changed


@kernel(int64(ro(int64), ro(int64), ro(int64, 2), int64, int64, int64, int64, ro(int64), ro(int64)))
def exchange(
    dead: Any,
    born: Any,
    files: Any,
    tail_start: int,
    tail_source: int,
    tail_block: int,
    first_chunk: int,
    chunks: Any,
    addresses: Any,
) -> int:
    """Make the rows at some offsets dead and others live; returns by how much the number of live rows grew.

    Offsets not held are skipped.
    """
    room = max(len(dead), len(born))
    source, row = np.empty(room, np.int32), np.empty(room, np.int32)
    locate(
        dead, files, tail_start, tail_source, tail_block, first_chunk, chunks, source[: len(dead)], row[: len(dead)]
    )  # fmt: skip
    changed = -mark(addresses, source[: len(dead)], row[: len(dead)], 0)
    locate(
        born, files, tail_start, tail_source, tail_block, first_chunk, chunks, source[: len(born)], row[: len(born)]
    )  # fmt: skip
    return changed + mark(addresses, source[: len(born)], row[: len(born)], 1)


@kernel(int64(ro(int64), int64, ro(int64, 2), int64, int64, int64, int64, ro(int64), ro(int64)))
def mark_newest(
    newest: Any,
    size: int,
    files: Any,
    tail_start: int,
    tail_source: int,
    tail_block: int,
    first_chunk: int,
    chunks: Any,
    addresses: Any,
) -> int:
    """Make the rows of all newest images live; returns how many changed."""
    room = 4096
    offsets = np.empty(room, np.int64)
    source, row = np.empty(room, np.int32), np.empty(room, np.int32)
    changed, count = 0, 0
    for row_id in range(size + 1):
        if row_id < size:
            version = version_of(newest, row_id)
            if version >= 0 and version & 1:
                offsets[count] = version >> 1
                count += 1
        if count == room or row_id == size:
            locate_near(
                offsets[:count], files, tail_start, tail_source, tail_block, first_chunk, chunks, source[:count],
                row[:count],
            )  # fmt: skip
            changed += mark(addresses, source[:count], row[:count], 1)
            count = 0
    return changed
