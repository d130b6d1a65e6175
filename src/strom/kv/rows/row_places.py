"""Where the row of an offset lies: by rank in base files, by a table in the tail.

A base file has its offsets as a bitmap, with the number of bits before every 512th, or as a sorted list where rows are
sparse. The tail has a cell for every offset (``tail_positions``).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from strom.errors import StoreCorrupt
from strom.kv.arrays import Int32s, Int64s
from strom.kv.kernels.compile import (
    int32,
    int64,
    kernel,
    load_i64,
    load_u32,
    load_u64,
    ones,
    prefetch,
    ro,
    rw,
    trailing_zeros,
    uint8,
    uint64,
    void,
)
from strom.kv.rows.base_layout import SPARSE
from strom.kv.rows.tail_positions import BLOCK_MASK, CHUNK_OFFSETS, CHUNK_SHIFT, PositionsView
from strom.model.schema import Schema

START, END, FORM, FIRST, SECOND, ROWS, SOURCE, BLOCK_ROWS, BLOCKS = range(9)
FILE_FIELDS = 9
_AHEAD = 12
"""How many offsets ahead to prefetch."""


class Places(NamedTuple):
    """How offsets are found in one directory."""

    files: Int64s
    """int64[files, 9], ascending by offset"""
    tail_start: int
    tail_source: int
    """The number of the tail's first source."""
    tail_block: int
    """Its block's number."""
    positions: PositionsView
    held: tuple[Any, ...]
    """Each source's offsets, tombstones and live bits. Owns the memory behind the addresses."""
    live: Int64s
    """The address of each source's live bits."""
    schema: Schema
    """Of the directory's columns, with their ids."""


@kernel()
def _row_by_rank(bits: Any, ranks: Any, at: Any) -> Any:
    """The row of bit ``at``, or -1 when it is not set."""
    word = load_u64(bits + (at >> 6) * 8)
    bit = uint64(1) << uint64(at & 63)
    if word & bit == 0:
        return -1
    row = int64(load_u32(ranks + (at >> 9) * 4))
    for before in range((at >> 9) << 3, at >> 6):
        row += ones(load_u64(bits + before * 8))
    return row + ones(word & (bit - uint64(1)))


@kernel()
def _row_by_search(offsets: Any, rows: Any, offset: Any) -> Any:
    low: Any = int64(0)
    high = rows
    while low < high:
        middle = (low + high) >> 1
        if load_i64(offsets + 8 * middle) < offset:
            low = middle + 1
        else:
            high = middle
    return low if low < rows and load_i64(offsets + 8 * low) == offset else -1


@kernel()
def _file_of(files: Any, offset: int) -> int:
    """The last file that starts at or before this offset, or -1."""
    low, high = 0, len(files)
    while low < high:
        middle = (low + high) >> 1
        if files[middle, START] <= offset:
            low = middle + 1
        else:
            high = middle
    return low - 1


@kernel()
def _cell(first_chunk: Any, chunks: Any, offset: Any) -> Any:
    """What the tail's table says of an offset; 0 when nothing."""
    chunk = (offset >> CHUNK_SHIFT) - first_chunk
    if chunk < 0 or chunk >= len(chunks) or chunks[chunk] == 0:
        return 0
    return int64(load_u32(chunks[chunk] + 4 * (offset & (CHUNK_OFFSETS - 1))))


@kernel()
def _ask(offset: Any, files: Any, tail_start: Any, first_chunk: Any, chunks: Any) -> None:
    """Have the cells fetched that say where an offset lies."""
    if offset >= tail_start:
        chunk = (offset >> CHUNK_SHIFT) - first_chunk
        if 0 <= chunk < len(chunks):
            prefetch(chunks[chunk] + 4 * (offset & (CHUNK_OFFSETS - 1)))
    elif offset >= 0:
        at = _file_of(files, offset)
        if at >= 0 and files[at, FORM] != SPARSE:
            bit = offset - files[at, START]
            prefetch(files[at, FIRST] + (bit >> 6) * 8)
            prefetch(files[at, SECOND] + (bit >> 9) * 4)


@kernel()
def _locate(
    offsets: Any, ahead: Any, files: Any, tail_start: Any, tail_source: Any, tail_block: Any, first_chunk: Any,
    chunks: Any, source: Any, row: Any,
) -> None:  # fmt: skip
    """Fill in source and row of each offset. ``ahead``: ask for the places of this many before they are needed."""
    at = -1
    for i in range(len(offsets)):
        if ahead > 0 and i + ahead < len(offsets):
            _ask(offsets[i + ahead], files, tail_start, first_chunk, chunks)
        offset = offsets[i]
        source[i] = -1
        row[i] = 0
        if offset >= tail_start:
            place = _cell(first_chunk, chunks, offset) - 1
            if place >= 0:
                source[i] = tail_source + (((place >> 16) - tail_block) & BLOCK_MASK)
                row[i] = place & 0xFFFF
            continue
        if at < 0 or offset < files[at, START] or offset >= files[at, END]:
            at = _file_of(files, offset)
        if at < 0 or offset >= files[at, END]:
            continue
        if files[at, ROWS] == files[at, END] - files[at, START]:
            found = offset - files[at, START]  # it holds every offset
        elif files[at, FORM] == SPARSE:
            found = _row_by_search(files[at, FIRST], files[at, ROWS], offset)
        else:
            found = _row_by_rank(files[at, FIRST], files[at, SECOND], offset - files[at, START])
        if found < 0:
            continue
        # Blocks are full but where one was closed early, so the guess is right or a few too low.
        block = found >> 16
        while load_i64(files[at, BLOCK_ROWS] + 8 * (block + 1)) <= found:
            block += 1
        source[i] = files[at, SOURCE] + block
        row[i] = found - load_i64(files[at, BLOCK_ROWS] + 8 * block)


@kernel(void(ro(int64), ro(int64, 2), int64, int64, int64, int64, ro(int64), rw(int32), rw(int32)))
def locate(
    offsets: Any, files: Any, tail_start: int, tail_source: int, tail_block: int, first_chunk: int, chunks: Any,
    source: Any, row: Any,
) -> None:  # fmt: skip
    """Fill in source and row of each offset; source -1 where nothing is held."""
    _locate(offsets, _AHEAD, files, tail_start, tail_source, tail_block, first_chunk, chunks, source, row)


@kernel(void(ro(int64), ro(int64, 2), int64, int64, int64, int64, ro(int64), rw(int32), rw(int32)))
def locate_near(
    offsets: Any, files: Any, tail_start: int, tail_source: int, tail_block: int, first_chunk: int, chunks: Any,
    source: Any, row: Any,
) -> None:  # fmt: skip
    """Like ``locate``, without prefetching: for offsets that mostly lie near the one before."""
    _locate(offsets, 0, files, tail_start, tail_source, tail_block, first_chunk, chunks, source, row)


@kernel(void(ro(uint8), int64, int64, rw(int64)))
def offsets_of_bits(bits: Any, first: int, base: int, found: Any) -> None:
    """The next ``len(found)`` set bits from bit ``first`` on, as offsets from ``base``."""
    count, at = 0, first
    while count < len(found) and at < 8 * len(bits):
        word, place = uint64(0), at >> 3
        for octet in range(min(8, len(bits) - place)):
            word |= uint64(bits[place + octet]) << uint64(8 * octet)
        word &= ~uint64(0) << uint64(at & 7)
        while word != uint64(0) and count < len(found):
            found[count] = base + 8 * place + trailing_zeros(word)
            count += 1
            word &= word - uint64(1)
        at = 8 * (place + 8)
    while count < len(found):
        found[count] = -1
        count += 1


@kernel(uint8(ro(int32), int64))
def offsets_sound(offsets: Any, size: int) -> int:
    """Whether Arrow offsets ascend and stay within ``size`` bytes."""
    if offsets[0] < 0 or offsets[len(offsets) - 1] > size:
        return 0
    for i in range(1, len(offsets)):
        if offsets[i] < offsets[i - 1]:
            return 0
    return 1


def lost_row(offset: int) -> StoreCorrupt:
    """The index leads to an offset that neither a base file nor the tail holds."""
    return StoreCorrupt(f"the row at offset {offset} is in no file", offset=offset)


def found_at(offsets: Int64s, places: Places) -> tuple[Int32s, Int32s]:
    """(source, row) of each offset."""
    source, row = np.empty(len(offsets), np.int32), np.empty(len(offsets), np.int32)
    first_chunk, chunks, _ = places.positions
    locate(
        offsets,
        places.files,
        places.tail_start,
        places.tail_source,
        places.tail_block,
        first_chunk,
        chunks,
        source,
        row,
    )
    return source, row
