"""Kernels that write a changelog batch as the log holds it: change types and an Arrow message, straight from the rows.

Old rows lie anywhere in memory, so each is asked for some rows before it is read: the memory then answers many such
questions at once. Rows that follow each other in one source are copied as one piece. Buffers are padded to eight
bytes, with zeros; a column without NULLs has no bitmap.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from strom.kv.columns import ABSENT
from strom.kv.compile import (
    int32,
    int64,
    kernel,
    load_i32,
    load_u8,
    load_u32,
    load_u64,
    prefetch,
    ro,
    rw,
    store_i32,
    store_i64,
    store_u8,
    store_u32,
    store_u64,
    uint8,
    uint32,
    uint64,
    void,
)
from strom.kv.copy_kernels import (
    BITS,
    FIXED,
    OUTSIDE,
    UNCHECKED,
    VAR,
    WELL,
    copy_bits,
    copy_fixed,
    copy_octets,
    length_of,
)

COLUMNS, FORMS, WIDTHS = range(3)
#: Of a column, within the body: where its bitmap, values and data begin, the bytes of each, and how many NULLs.
VALIDITY, VALUES, DATA, VALIDITY_SIZE, VALUES_SIZE, DATA_SIZE, NULLS = range(7)
PLACE_FIELDS = 7
_AHEAD = 16


@kernel()
def _padded(size: Any) -> Any:
    return (size + 7) & ~7


@kernel()
def _readable(rows: Any, whole: Any, sound: Any, spec: Any, source: Any, row: Any, used: Any) -> Any:
    """Whether these rows exist and may be read; ``used`` marks their sources."""
    for i in range(len(source)):
        at = source[i]
        if at < 0 or at >= len(rows) or row[i] < 0 or row[i] >= rows[at]:
            return OUTSIDE
        used[at] = 1
    for at in range(len(rows)):
        if used[at] != 0 and whole[at] == 0:
            for j in range(spec.shape[1]):
                if sound[at, spec[COLUMNS, j]] == 0:
                    return UNCHECKED
    return WELL


@kernel()
def _may_be_null(addresses: Any, column: Any, used: Any) -> Any:
    for at in range(len(used)):
        if used[at] != 0 and (addresses[at, column, 0] != 0 or addresses[at, column, 1] == ABSENT):
            return True
    return False


@kernel()
def _is_null(addresses: Any, column: Any, source: Any, row: Any) -> Any:
    if addresses[source, column, 1] == ABSENT:
        return True
    bitmap = addresses[source, column, 0]
    return bitmap != 0 and (load_u8(bitmap + (row >> 3)) >> (row & 7)) & 1 == 0


@kernel()
def _ask(addresses: Any, column: Any, width: Any, source: Any, row: Any) -> None:
    values = addresses[source, column, 1]
    if values != ABSENT:
        prefetch(values + row * width)


@kernel()
def is_run(source: Any, row: Any) -> Any:
    """Whether rows follow each other in one source."""
    for i in range(1, len(source)):
        if source[i] != source[0] or row[i] != row[i - 1] + 1:
            return False
    return len(source) > 0


@kernel()
def _data_size(addresses: Any, column: Any, source: Any, row: Any, run: Any, nulls: Any) -> Any:
    if run and nulls == 0:
        offsets = addresses[source[0], column, 1] + 4 * int64(row[0])
        return int64(load_i32(offsets + 4 * len(row))) - int64(load_i32(offsets))
    size: Any = int64(0)
    for i in range(len(source)):
        if i + _AHEAD < len(source):
            _ask(addresses, column, 4, int64(source[i + _AHEAD]), int64(row[i + _AHEAD]))
        size += length_of(addresses, column, int64(source[i]), int64(row[i]))
    return size


@kernel(
    int64(
        ro(int64), ro(uint8), ro(uint8, 2), ro(int64, 3), ro(int64, 2), ro(int32), ro(int32), rw(int64, 2)
    )
)  # fmt: skip
def measure_batch(
    rows: Any, whole: Any, sound: Any, addresses: Any, spec: Any, source: Any, row: Any, places: Any
) -> Any:
    """Where each column of these rows would lie in a body. The body's size, or minus the reason why not."""
    used = np.zeros(len(rows), np.uint8)
    answer = _readable(rows, whole, sound, spec, source, row, used)
    if answer != WELL:
        return -answer
    count, run = len(source), is_run(source, row)
    position: Any = int64(0)
    for j in range(spec.shape[1]):
        column, form = spec[COLUMNS, j], spec[FORMS, j]
        nulls = 0
        if _may_be_null(addresses, column, used):
            for i in range(count):
                nulls += 1 if _is_null(addresses, column, int64(source[i]), int64(row[i])) else 0
        places[j, NULLS] = nulls
        places[j, VALIDITY] = position
        places[j, VALIDITY_SIZE] = (count + 7) >> 3 if nulls > 0 else 0
        position += _padded(places[j, VALIDITY_SIZE])
        size = (count + 7) >> 3
        if form == FIXED:
            size = count * spec[WIDTHS, j]
        elif form == VAR:
            size = 4 * (count + 1)
        places[j, VALUES], places[j, VALUES_SIZE] = position, size
        position += _padded(size)
        data = _data_size(addresses, column, source, row, run, nulls) if form == VAR else int64(0)
        places[j, DATA], places[j, DATA_SIZE] = position, data
        position += _padded(data)
    return position


@kernel()
def _copy_8(addresses: Any, column: Any, source: Any, row: Any, target: Any) -> None:
    count = len(source)
    for i in range(count):
        if i + _AHEAD < count:
            _ask(addresses, column, 8, int64(source[i + _AHEAD]), int64(row[i + _AHEAD]))
        values = addresses[source[i], column, 1]
        store_u64(target + 8 * i, uint64(0) if values == ABSENT else load_u64(values + 8 * int64(row[i])))


@kernel()
def _copy_4(addresses: Any, column: Any, source: Any, row: Any, target: Any) -> None:
    count = len(source)
    for i in range(count):
        if i + _AHEAD < count:
            _ask(addresses, column, 4, int64(source[i + _AHEAD]), int64(row[i + _AHEAD]))
        values = addresses[source[i], column, 1]
        store_u32(target + 4 * i, uint32(0) if values == ABSENT else load_u32(values + 4 * int64(row[i])))


@kernel()
def copy_values(addresses: Any, column: Any, width: Any, source: Any, row: Any, target: Any) -> None:
    """Copy values of fixed width, which may lie far from each other."""
    if width == 8:
        _copy_8(addresses, column, source, row, target)
    elif width == 4:
        _copy_4(addresses, column, source, row, target)
    else:
        copy_fixed(addresses, column, width, source, row, target)


@kernel()
def _copy_texts(addresses: Any, column: Any, source: Any, row: Any, offsets: Any, data: Any) -> None:
    """Copy values of variable length, and write their offsets."""
    count = len(source)
    end: Any = int64(0)
    store_i32(offsets, int32(0))
    for i in range(count):
        ahead = i + _AHEAD
        if ahead < count:
            values = addresses[source[ahead], column, 1]
            if values != ABSENT:  # the offsets were read when the batch was measured
                prefetch(
                    addresses[source[ahead], column, 2] + int64(load_i32(values + 4 * int64(row[ahead])))
                )
        at, here = int64(source[i]), int64(row[i])
        size = length_of(addresses, column, at, here)
        if size > 0:
            first = int64(load_i32(addresses[at, column, 1] + 4 * here))
            copy_octets(addresses[at, column, 2] + first, data + end, size)
        end += size
        store_i32(offsets + 4 * (i + 1), int32(end))


@kernel()
def _copy_run(addresses: Any, column: Any, form: Any, width: Any, source: Any, first: Any, count: Any,
              values: Any, data: Any) -> None:  # fmt: skip
    """Copy rows that follow each other, none of them NULL."""
    here = addresses[source, column, 1]
    if form == FIXED:
        copy_octets(here + first * width, values, count * width)
        return
    offsets = here + 4 * first
    begin = int64(load_i32(offsets))
    for i in range(count + 1):
        store_i32(values + 4 * i, int32(int64(load_i32(offsets + 4 * i)) - begin))
    copy_octets(addresses[source, column, 2] + begin, data, int64(load_i32(offsets + 4 * count)) - begin)


@kernel()
def _pad(address: Any, size: Any) -> None:
    for at in range(size, _padded(size)):
        store_u8(address + at, uint8(0))


@kernel()
def _name(entry: Any, position: Any, size: Any, base: Any) -> Any:
    """Name a buffer in the metadata, and fill up behind it; where the next one is named."""
    store_i64(entry, position)
    store_i64(entry + 8, size)
    _pad(base + position, size)
    return entry + 16


@kernel()
def _copy_column(
    addresses: Any, spec: Any, j: Any, source: Any, row: Any, run: Any, places: Any, base: Any
) -> None:
    column, form, width = spec[COLUMNS, j], spec[FORMS, j], spec[WIDTHS, j]
    values, data = base + places[j, VALUES], base + places[j, DATA]
    if places[j, NULLS] > 0:
        copy_bits(addresses, column, 0, source, row, base + places[j, VALIDITY], 0)
    if form == BITS:
        copy_bits(addresses, column, 1, source, row, values, 0)
    elif run and places[j, NULLS] == 0:
        _copy_run(addresses, column, form, width, int64(source[0]), int64(row[0]), len(row), values, data)
    elif form == FIXED:
        copy_values(addresses, column, width, source, row, values)
    else:
        _copy_texts(addresses, column, source, row, values, data)


@kernel(
    void(
        ro(int64, 3), ro(int64, 2), ro(int32), ro(int32), ro(uint8), ro(int64, 2), int64, ro(uint8), ro(int64), int64,
        int64, rw(int64, 2), rw(int64, 2),
    )
)  # fmt: skip
def write_batch(
    addresses: Any, spec: Any, source: Any, row: Any, kinds: Any, places: Any, records: int, template: Any,
    marks: Any, size: int, head: int, written: Any, buffers: Any,
) -> None:  # fmt: skip
    """Write change types and message to an address. ``marks``: where the template wants counts, nodes and buffers.

    ``written`` = the addresses of the columns in the message; ``buffers`` = position and size of each in the batch,
    whose body begins at ``head``.
    """
    count = len(source)
    for at in range(count):
        store_u8(records + at, kinds[at])
    message = records + count
    for at in range(len(template)):
        store_u8(message + at, template[at])
    base = message + len(template)
    store_i64(message + marks[0], count)
    store_i64(message + marks[1], size)
    node, entry, number = message + marks[2], message + marks[3], 0
    run = is_run(source, row)
    for j in range(spec.shape[1]):
        store_i64(node, count)
        store_i64(node + 8, places[j, NULLS])
        node += 16
        _copy_column(addresses, spec, j, source, row, run, places, base)
        written[j, 0] = base + places[j, VALIDITY] if places[j, NULLS] > 0 else 0
        written[j, 1] = base + places[j, VALUES]
        written[j, 2] = base + places[j, DATA]
        for part in range(3 if spec[FORMS, j] == VAR else 2):
            entry = _name(entry, places[j, VALIDITY + part], places[j, VALIDITY_SIZE + part], base)
            buffers[number, 0] = head + places[j, VALIDITY + part]
            buffers[number, 1] = places[j, VALIDITY_SIZE + part]
            number += 1
