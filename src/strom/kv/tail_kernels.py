"""The kernel that takes records into a block of the tail: one call for a batch, however many columns there are.

Small batches are common, and what Python does for each column of each would cost more than the copying.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from strom.kv.base_layout import BLOCK_ROWS
from strom.kv.compile import (
    boolean,
    int64,
    kernel,
    load_i32,
    ro,
    rw,
    store_i64,
    store_u8,
    store_u32,
    uint8,
    uint32,
)
from strom.kv.copy_kernels import (
    BITS,
    FIXED,
    NESTED,
    VAR,
    copy_bits,
    copy_fixed,
    copy_octets,
    copy_offsets,
    length_of,
)
from strom.kv.positions import BLOCK_MASK, CHUNK_OFFSETS, CHUNK_SHIFT

#: A column of a block: three addresses, bytes of data used and allocated, whether there are NULLs, and bytes wanted.
VALIDITY, VALUES, DATA, USED, ALLOCATED, NULLS, WANTED = range(7)
COLUMN_FIELDS = 7

#: What became of a batch: taken in; taken in, and a column has its first NULL; nothing done, the block must grow to
#: hold so many rows and ``WANTED`` bytes; nothing done, the rows belong in a new block.
TAKEN, TAKEN_WITH_NULLS, GROW, CLOSE = range(4)


@kernel()
def _chosen(stored: Any, begin: Any, rows: Any) -> Any:
    """Fill ``rows`` with the next stored ones; how many, and where the search stopped."""
    count = 0
    at = begin
    while at < len(stored) and count < len(rows):
        if stored[at]:
            rows[count] = at
            count += 1
        at += 1
    return count, at


@kernel()
def _room(addresses: Any, forms: Any, source: Any, row: Any, count: Any, data_max: Any, table: Any) -> Any:
    """Whether the variable data fits; ``WANTED`` is filled in."""
    answer = TAKEN
    for j in range(len(forms)):
        if forms[j] != VAR:
            continue
        wanted = table[j, USED]
        for i in range(len(row)):
            wanted += length_of(addresses, j, int64(source[i]), int64(row[i]))
        table[j, WANTED] = wanted
        if count > 0 and wanted > data_max:
            return CLOSE
        if wanted > table[j, ALLOCATED]:
            answer = GROW
    return answer


@kernel()
def _copy_data(addresses: Any, column: Any, source: Any, row: Any, offsets: Any, data: Any) -> None:
    for i in range(len(row)):
        begin = int64(load_i32(offsets + 4 * i))
        size = int64(load_i32(offsets + 4 * i + 4)) - begin
        if size > 0:
            at = int64(source[i])
            first = int64(load_i32(addresses[at, column, 1] + 4 * int64(row[i])))
            copy_octets(addresses[at, column, 2] + first, data + begin, size)


@kernel()
def _copy_columns(
    addresses: Any, forms: Any, widths: Any, source: Any, row: Any, count: Any, table: Any
) -> Any:
    answer = TAKEN
    for j in range(len(forms)):
        form = forms[j]
        if form == NESTED:
            continue
        zeros = copy_bits(addresses, j, 0, source, row, table[j, VALIDITY], count)
        if zeros > 0 and table[j, NULLS] == 0:
            table[j, NULLS] = 1
            answer = TAKEN_WITH_NULLS
        target = table[j, VALUES]
        if form == FIXED:
            copy_fixed(addresses, j, widths[j], source, row, target + count * widths[j])
        elif form == BITS:
            copy_bits(addresses, j, 1, source, row, target, count)
        else:
            copy_offsets(addresses, j, source, row, target, count)
            _copy_data(addresses, j, source, row, target + 4 * count, table[j, DATA])
            table[j, USED] = table[j, WANTED]
    return answer


@kernel(
    int64(
        ro(int64, 3), ro(int64), ro(int64), ro(boolean), ro(boolean), int64, int64, int64, int64, int64, int64,
        int64, int64, int64, ro(int64), rw(int64, 2), rw(int64),
    )
)  # fmt: skip
def take_in(
    addresses: Any,
    forms: Any,
    widths: Any,
    stored: Any,
    tombstone: Any,
    begin: int,
    base_offset: int,
    count: int,
    allocated: int,
    data_max: int,
    block: int,
    offsets: int,
    tombstones: int,
    first_chunk: int,
    chunks: Any,
    table: Any,
    done: Any,
) -> Any:
    """Take the stored rows of a batch, from ``begin`` on, into a block that holds ``count``, as many as it may hold.

    ``addresses`` are those of one source. ``done`` = how many rows, and where in the batch the next ones begin. The
    cells of their offsets (``positions``) must be there.
    """
    row = np.empty(min(len(stored) - begin, BLOCK_ROWS - count), np.int32)
    taken, until = _chosen(stored, begin, row)
    row = row[:taken]
    source = np.zeros(taken, np.int32)
    done[0], done[1] = taken, until
    if taken == 0:
        return TAKEN
    answer = _room(addresses, forms, source, row, count, data_max, table)
    if answer == CLOSE:
        return CLOSE
    if answer == GROW or count + taken > allocated:
        return GROW
    answer = _copy_columns(addresses, forms, widths, source, row, count, table)
    place = (block & BLOCK_MASK) << 16
    for i in range(taken):
        at = int64(row[i])
        offset = base_offset + at
        store_u8(tombstones + count + i, uint8(1) if tombstone[at] else uint8(0))
        store_i64(offsets + 8 * (count + i), offset)
        chunk = chunks[(offset >> CHUNK_SHIFT) - first_chunk]
        store_u32(chunk + 4 * (offset & (CHUNK_OFFSETS - 1)), uint32(place + count + i + 1))
    return answer
