"""One key in, one row out, in one kernel: hash, probe, compare, step back, locate, copy.

Keys and rows are *plain rows* (docs/formats/protocol.md): a NULL bit per column, then every value of fixed width as in
Arrow (a boolean in a byte; for a text or binary value its length, u32), then the bytes of the values of variable
length. All in the order of the columns, little-endian, without gaps.

The kernel keeps the interpreter's lock: it takes a microsecond, and getting the lock back may take a thousand times as
long when other threads are busy.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from strom.kv.gather.copy_kernels import copy_octets
from strom.kv.gather.source_kernels import (
    BITS,
    COLUMNS,
    FIXED,
    FORMS,
    VAR,
    WIDTHS,
    bit_at,
    is_held,
    is_null,
    is_unchecked,
    length_of,
    same_value,
)
from strom.kv.index.hashing import fold_tuples, pack_tuples
from strom.kv.index.newest_kernels import version_of
from strom.kv.index.resident_kernels import MARK_MAX
from strom.kv.index.series_kernels import step_back
from strom.kv.index.slot_kernels import AREA, MASK, first_slot, next_slot, shard_of, stored_at
from strom.kv.kernels.compile import (
    int32,
    int64,
    kernel,
    load_i32,
    load_u8,
    load_u32,
    ro,
    store_i64,
    store_u8,
    store_u32,
    uint8,
    uint32,
    uint64,
)
from strom.kv.rows.row_places import locate

#: Why there is no row. Anything at or below NO_ROOM: the row's size is NO_ROOM minus this.
MISSING, MALFORMED, UNCHECKED, CORRUPT, NOWHERE, NOT_HERE = -1, -2, -3, -4, -5, -6
NO_ROOM: Final = -16
ROOM_MIN: Final = 64
"""The smallest buffer allowed: it also returns the source to check."""


@kernel()
def _width(form: Any, width: Any) -> Any:
    """Bytes of a value in the fixed-width part."""
    if form == FIXED:
        return width
    return 4 if form == VAR else 1


@kernel()
def _open(key: Any, size: Any, spec: Any, addresses: Any) -> bool:
    """Present the values of a plain row as columns of one row; False when it is malformed or has a NULL.

    The fourth number of a column of variable length holds its two offsets. They are in the array that points to them,
    because Numba frees an array after the last line that names it.
    """
    count = spec.shape[1]
    marks = (count + 7) >> 3
    fixed: Any = int64(marks)
    for j in range(count):
        fixed += _width(spec[FORMS, j], spec[WIDTHS, j])
    if size < fixed:
        return False
    for at in range(marks):
        if load_u8(key + at) != 0:
            return False
    place: Any = key + marks
    data: Any = key + fixed
    left: Any = size - fixed
    for j in range(count):
        form = spec[FORMS, j]
        addresses[j, 0], addresses[j, 1], addresses[j, 2] = 0, place, 0
        if form == VAR:
            length = int64(load_u32(place))
            if length > left:
                return False
            addresses[j, 3] = length << 32
            addresses[j, 1] = addresses.ctypes.data + 8 * (4 * j + 3)
            addresses[j, 2] = data
            data += length
            left -= length
        elif form == BITS and load_u8(place) > 1:
            return False
        place += _width(form, spec[WIDTHS, j])
    return bool(left == 0)


@kernel()
def _size(addresses: Any, spec: Any, source: Any, row: Any) -> Any:
    size: Any = int64((spec.shape[1] + 7) >> 3)
    for j in range(spec.shape[1]):
        size += _width(spec[FORMS, j], spec[WIDTHS, j])
        if spec[FORMS, j] == VAR:
            size += length_of(addresses, spec[COLUMNS, j], source, row)
    return size


@kernel()
def _write(addresses: Any, spec: Any, source: Any, row: Any, out: Any) -> None:
    """Write one row as a plain row."""
    count = spec.shape[1]
    place: Any = out + ((count + 7) >> 3)
    for at in range(out, place):
        store_u8(at, uint8(0))
    data: Any = place
    for j in range(count):
        data += _width(spec[FORMS, j], spec[WIDTHS, j])
    for j in range(count):
        column, form, width = spec[COLUMNS, j], spec[FORMS, j], _width(spec[FORMS, j], spec[WIDTHS, j])
        if is_null(addresses, column, source, row):
            store_u8(out + (j >> 3), uint8(load_u8(out + (j >> 3)) | (1 << (j & 7))))
            for at in range(place, place + width):
                store_u8(at, uint8(0))
        elif form == FIXED:
            copy_octets(addresses[source, column, 1] + row * width, place, width)
        elif form == BITS:
            store_u8(place, uint8(bit_at(addresses[source, column, 1], row)))
        else:
            first = int64(load_i32(addresses[source, column, 1] + 4 * row))
            length = length_of(addresses, column, source, row)
            store_u32(place, uint32(length))
            copy_octets(addresses[source, column, 2] + first, data, length)
            data += length
        place += width


@kernel(
    int64(
        int64, int64, ro(int64, 2), ro(int64, 2), int64, uint64,
        int64, ro(int32), ro(int64, 2), ro(int64), int64,
        int64, int64, int64, int64, ro(int64), ro(int64),
        ro(int64, 2), int64, int64, int64, int64, ro(int64),
        ro(int64), ro(uint8), ro(uint8, 2), ro(int64, 3), ro(int64, 2), int64, int64,
    ),
    nogil=False,
)  # fmt: skip
def find_row(
    key: int, size: int, key_spec: Any, plan: Any, bijective: int, seed: int,
    shift: int, shard_directory: Any, shards: Any, newest: Any, row_ids: int,
    marks: int, below: int, series_start: int, series_end: int, bounds: Any, cells: Any,
    files: Any, tail_start: int, tail_source: int, tail_block: int, first_chunk: int, chunks: Any,
    rows: Any, whole: Any, sound: Any, addresses: Any, spec: Any, out: int, room: int,
) -> Any:  # fmt: skip
    """Write the row that a key has below an offset. Returns its size, or why there is none.

    If columns of a source must be checked first (the row's, or those of a row that may have the key), writes the number
    of that source. Where the index has no such key, writes the hash. ``key_spec`` and ``spec`` are ``Selection.spec``
    of the key and of the requested columns. ``marks``: ``Resident.marks_address``, 0 when all the index is in memory.
    """
    count = key_spec.shape[1]
    asked = np.empty((1, count, 4), np.int64)
    if not _open(key, size, key_spec, asked[0]):
        return MALFORMED
    hashes = np.zeros(1, np.uint64)
    if bijective != 0:
        pack_tuples(asked[0], plan, seed, hashes)
    else:
        fold_tuples(asked[0], plan, seed, hashes)
    value = hashes[0]
    offsets, versions = np.empty(1, np.int64), np.empty(1, np.int64)
    source, row = np.empty(1, np.int32), np.empty(1, np.int32)
    shard = shard_of(value, shift, shard_directory)
    area, mask = shards[shard, AREA], shards[shard, MASK]
    slot = first_slot(area, mask, value)
    version: Any = int64(-1)
    while slot >= 0:
        row_id = int64(stored_at(area, slot)) - 1
        version = int64(-1)
        if 0 <= row_id < row_ids:
            version = version_of(newest, row_id)
        if bijective != 0:
            break
        offsets[0] = version >> 1
        locate(offsets, files, tail_start, tail_source, tail_block, first_chunk, chunks, source, row)
        at = int64(source[0])
        if at >= 0:
            if not is_held(rows, at, int64(row[0])):
                return CORRUPT
            if is_unchecked(whole, sound, at, key_spec):
                store_i64(out, at)
                return UNCHECKED
            same = True
            for j in range(count):
                if same:
                    same = same_value(
                        asked, j, 0, 0, addresses, key_spec[COLUMNS, j], at, int64(row[0]),
                        key_spec[FORMS, j], key_spec[WIDTHS, j],
                    )  # fmt: skip
            if same:
                break
        slot = next_slot(area, mask, value, slot)
    if slot < 0:
        store_i64(out, int64(value))
        return NOT_HERE
    if marks != 0:
        used = marks + int64(stored_at(area, slot)) - 1
        if load_u8(used) < MARK_MAX:
            store_u8(used, uint8(load_u8(used) + 1))
    versions[0] = version
    if step_back(versions, below, series_start, series_end, bounds, cells) != 0:
        return CORRUPT
    if versions[0] < 0 or versions[0] & 1 == 0:
        return MISSING
    offsets[0] = versions[0] >> 1
    locate(offsets, files, tail_start, tail_source, tail_block, first_chunk, chunks, source, row)
    at, within = int64(source[0]), int64(row[0])
    if at < 0:
        store_i64(out, offsets[0])
        return NOWHERE
    if not is_held(rows, at, within):
        return CORRUPT
    if is_unchecked(whole, sound, at, spec):
        store_i64(out, at)
        return UNCHECKED
    needed = _size(addresses, spec, at, within)
    if needed > room:
        return NO_ROOM - needed
    _write(addresses, spec, at, within, out)
    return needed
