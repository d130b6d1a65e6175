"""The kernel that takes records into a block of the tail: one call per batch for all columns.

Small batches are common, and Python's work per column would cost more than the copying.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from strom.kv.gather.column_source import ABSENT
from strom.kv.gather.copy_kernels import copy_bits, copy_fixed, copy_run, copy_texts
from strom.kv.gather.message_kernels import is_run
from strom.kv.gather.source_kernels import BITS, FIXED, NESTED, VAR, length_of
from strom.kv.kernels.compile import (
    boolean,
    int32,
    int64,
    kernel,
    load_i32,
    load_u8,
    ro,
    rw,
    store_i32,
    store_i64,
    store_u8,
    store_u32,
    uint8,
    uint32,
)
from strom.kv.rows.base_layout import BLOCK_ROWS
from strom.kv.rows.tail_positions import BLOCK_MASK, CHUNK_OFFSETS, CHUNK_SHIFT

#: A column of a block: three addresses, bytes of data used and allocated, whether there are NULLs, and bytes wanted.
VALIDITY, VALUES, DATA, USED, ALLOCATED, NULLS, WANTED = range(7)
COLUMN_FIELDS = 7

#: The result: taken in; taken in, and a column has its first NULL; nothing done, because the block must grow (to
#: ``WANTED`` bytes and the rows in ``done``); nothing done, because the rows belong in a new block.
TAKEN, TAKEN_WITH_NULLS, GROW, CLOSE = range(4)


@kernel()
def _chosen(stored: Any, begin: Any, records: Any) -> Any:
    """Fill ``records`` with the next stored ones; returns their number, and where the search stopped."""
    count = 0
    at = begin
    while at < len(stored) and count < len(records):
        if stored[at]:
            records[count] = at
            count += 1
        at += 1
    return count, at


@kernel()
def _has_all(addresses: Any, column: Any) -> Any:
    """Whether the source's column has no NULL."""
    return addresses[0, column, 0] == 0 and addresses[0, column, 1] != ABSENT


@kernel()
def _room(
    addresses: Any, forms: Any, source: Any, row: Any, run: Any, count: Any, data_max: Any, table: Any
) -> Any:
    """Whether the variable data fits. Fills in ``WANTED``."""
    answer = TAKEN
    for j in range(len(forms)):
        if forms[j] != VAR:
            continue
        wanted = table[j, USED]
        if run and _has_all(addresses, j):
            offsets = addresses[0, j, 1] + 4 * int64(row[0])
            wanted += int64(load_i32(offsets + 4 * len(row))) - int64(load_i32(offsets))
        else:
            for i in range(len(row)):
                wanted += length_of(addresses, j, int64(source[i]), int64(row[i]))
        table[j, WANTED] = wanted
        if count > 0 and wanted > data_max:
            return CLOSE
        if wanted > table[j, ALLOCATED]:
            answer = GROW
    return answer


@kernel()
def _set_bits(target: Any, start: Any, count: Any) -> None:
    """Set ``count`` bits from ``start`` on, and clear the rest of the last octet."""
    at, end = start, start + count
    if at & 7 != 0:
        low, high = at & 7, min(int64(8), (at & 7) + count)
        kept = load_u8(target + (at >> 3)) & ((1 << low) - 1)
        store_u8(target + (at >> 3), uint8(kept | (((1 << (high - low)) - 1) << low)))
        at += high - low
    while at + 8 <= end:
        store_u8(target + (at >> 3), uint8(255))
        at += 8
    if at < end:
        store_u8(target + (at >> 3), uint8((1 << (end - at)) - 1))


@kernel()
def _copy_columns(
    addresses: Any, forms: Any, widths: Any, source: Any, row: Any, run: Any, count: Any, table: Any
) -> Any:
    answer = TAKEN
    for j in range(len(forms)):
        form = forms[j]
        if form == NESTED:
            continue
        everything = _has_all(addresses, j)
        if everything:
            _set_bits(table[j, VALIDITY], count, len(row))
        elif copy_bits(addresses, j, 0, source, row, table[j, VALIDITY], count) > 0 and table[j, NULLS] == 0:
            table[j, NULLS] = 1
            answer = TAKEN_WITH_NULLS
        target = table[j, VALUES]
        if form == BITS:
            copy_bits(addresses, j, 1, source, row, target, count)
        elif run and everything:
            values = target + count * (widths[j] if form == FIXED else 4)
            table[j, USED] = copy_run(
                addresses, j, form, widths[j], 0, int64(row[0]), len(row), values, table[j, DATA], table[j, USED]
            )  # fmt: skip
        elif form == FIXED:
            copy_fixed(addresses, j, widths[j], source, row, target + count * widths[j])
        else:
            if count == 0:
                store_i32(target, int32(0))
            copy_texts(addresses, j, source, row, not everything, target + 4 * count, table[j, DATA])
            table[j, USED] = table[j, WANTED]
    return answer


@kernel(
    int64(
        ro(int64, 3), ro(int64), ro(int64), ro(boolean), ro(boolean), ro(int32), int64, int64, int64, int64, int64,
        int64, int64, int64, int64, ro(int64), rw(int64, 2), rw(int64),
    )
)  # fmt: skip
def take_in(
    addresses: Any,
    forms: Any,
    widths: Any,
    stored: Any,
    tombstone: Any,
    rows: Any,
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
    """Take stored rows of a batch, from ``begin`` on, into a block that holds ``count`` rows, as many as fit.

    ``addresses`` are those of one source; ``rows`` gives the row of each record in it (empty: record i is row i). Fills
    ``done``: the number of rows, and where in the batch the next ones begin. The cells of their offsets
    (``tail_positions``) must exist.
    """
    records = np.empty(min(len(stored) - begin, BLOCK_ROWS - count), np.int32)
    taken, until = _chosen(stored, begin, records)
    done[0], done[1] = taken, until
    if taken == 0:
        return TAKEN
    records = records[:taken]
    row = records
    if len(rows) > 0:
        row = np.empty(taken, np.int32)
        for i in range(taken):
            row[i] = rows[records[i]]
    source = np.zeros(taken, np.int32)
    run = is_run(source, row)
    answer = _room(addresses, forms, source, row, run, count, data_max, table)
    if answer == CLOSE:
        return CLOSE
    if answer == GROW or count + taken > allocated:
        return GROW
    answer = _copy_columns(addresses, forms, widths, source, row, run, count, table)
    place = (block & BLOCK_MASK) << 16
    for i in range(taken):
        at = int64(records[i])
        offset = base_offset + at
        store_u8(tombstones + count + i, uint8(1) if tombstone[at] else uint8(0))
        store_i64(offsets + 8 * (count + i), offset)
        chunk = chunks[(offset >> CHUNK_SHIFT) - first_chunk]
        store_u32(chunk + 4 * (offset & (CHUNK_OFFSETS - 1)), uint32(place + count + i + 1))
    return answer
