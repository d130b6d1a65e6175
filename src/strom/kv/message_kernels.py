"""Kernels that write gathered rows as one Arrow message: metadata and body in one piece of memory.

pyarrow opens a message of ten columns in the time it takes to make two arrays, and the wire wants a message anyway.
Every byte is written, padding too: what lies in a message may leave the process.
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
    prefetch,
    ro,
    rw,
    store_i32,
    store_i64,
    store_u8,
    uint8,
    void,
)
from strom.kv.copy_kernels import (
    BITS,
    FIXED,
    OUTSIDE,
    UNCHECKED,
    VAR,
    WELL,
    aligned,
    copy_bits,
    copy_fixed,
    copy_octets,
    copy_offsets,
    length_of,
)

COLUMNS, FORMS, WIDTHS = range(3)
#: Of a column, within the body: where its bitmap, values and data begin, and the bytes of the last two.
VALIDITY, VALUES, DATA, VALUES_SIZE, DATA_SIZE = range(5)
PLACE_FIELDS = 5
_AHEAD = 12
_SOME = 16
"""Rows that are copied while the next ones are fetched: memory answers many questions at once as fast as one."""


@kernel()
def _readable(rows: Any, whole: Any, sound: Any, spec: Any, source: Any, row: Any) -> Any:
    for i in range(len(source)):
        at = source[i]
        if at < -1 or at >= len(rows):
            return OUTSIDE
        if at >= 0:
            if row[i] < 0 or row[i] >= rows[at]:
                return OUTSIDE
            if whole[at] == 0:
                for j in range(spec.shape[1]):
                    if sound[at, spec[COLUMNS, j]] == 0:
                        return UNCHECKED
    return WELL


@kernel()
def _ask_lengths(addresses: Any, spec: Any, source: Any, row: Any) -> None:
    """Have the offsets of a row's values of variable length fetched."""
    if source >= 0:
        for j in range(spec.shape[1]):
            if spec[FORMS, j] == VAR:
                bitmap, offsets = (
                    addresses[source, spec[COLUMNS, j], 0],
                    addresses[source, spec[COLUMNS, j], 1],
                )
                prefetch(offsets + 4 * row)
                if bitmap != 0:
                    prefetch(bitmap + (row >> 3))


@kernel()
def _ask_values(addresses: Any, spec: Any, source: Any, row: Any) -> None:
    """Have the values of a row fetched; the offsets of those of variable length are read, so they should be there."""
    if source < 0:
        return
    for j in range(spec.shape[1]):
        column, form = spec[COLUMNS, j], spec[FORMS, j]
        bitmap, values = addresses[source, column, 0], addresses[source, column, 1]
        if values == ABSENT:
            continue
        if bitmap != 0:
            prefetch(bitmap + (row >> 3))
        if form == FIXED:
            prefetch(values + row * spec[WIDTHS, j])
        elif form == BITS:
            prefetch(values + (row >> 3))
        else:
            first = int64(load_i32(values + 4 * row))
            prefetch(addresses[source, column, 2] + first)
            prefetch(addresses[source, column, 2] + first + 63)


@kernel(
    int64(
        ro(int64), ro(uint8), ro(uint8, 2), ro(int64, 3), ro(int64, 2), ro(int32), ro(int32), rw(int64, 2)
    )
)  # fmt: skip
def measure(
    rows: Any, whole: Any, sound: Any, addresses: Any, spec: Any, source: Any, row: Any, places: Any
) -> Any:
    """Where each column of these rows would lie in a body. The body's size, or minus the reason why not."""
    answer = _readable(rows, whole, sound, spec, source, row)
    if answer != WELL:
        return -answer
    count = len(source)
    for j in range(spec.shape[1]):
        places[j, DATA_SIZE] = 0
    for i in range(min(_AHEAD, count)):
        _ask_lengths(addresses, spec, int64(source[i]), int64(row[i]))
    for i in range(count):
        if i + _AHEAD < count:
            _ask_lengths(addresses, spec, int64(source[i + _AHEAD]), int64(row[i + _AHEAD]))
        for j in range(spec.shape[1]):
            if spec[FORMS, j] == VAR:
                places[j, DATA_SIZE] += length_of(
                    addresses, spec[COLUMNS, j], int64(source[i]), int64(row[i])
                )
    bitmap = aligned((count + 7) >> 3)
    position: Any = int64(0)
    for j in range(spec.shape[1]):
        form = spec[FORMS, j]
        places[j, VALIDITY] = position
        position += bitmap
        places[j, VALUES] = position
        size = (count + 7) >> 3
        if form == FIXED:
            size = count * spec[WIDTHS, j]
        elif form == VAR:
            size = 4 * (count + 1)
        places[j, VALUES_SIZE] = size
        position += aligned(size)
        places[j, DATA] = position
        position += aligned(places[j, DATA_SIZE])
    return position


@kernel()
def _pad(address: Any, size: Any) -> None:
    for at in range(size, aligned(size)):
        store_u8(address + at, uint8(0))


@kernel()
def _write_buffer(entry: Any, position: Any, size: Any, base: Any) -> Any:
    """Name a buffer in the metadata, and fill up behind it; where the next one is named."""
    store_i64(entry, position)
    store_i64(entry + 8, size)
    _pad(base + position, size)
    return entry + 16


@kernel()
def _copy_data(addresses: Any, column: Any, source: Any, row: Any, offsets: Any, data: Any) -> None:
    for i in range(len(source)):
        begin = int64(load_i32(offsets + 4 * i))
        size = int64(load_i32(offsets + 4 * i + 4)) - begin
        if size > 0:
            at = source[i]
            first = int64(load_i32(addresses[at, column, 1] + 4 * int64(row[i])))
            copy_octets(addresses[at, column, 2] + first, data + begin, size)


@kernel()
def _copy_some(
    addresses: Any, spec: Any, source: Any, row: Any, places: Any, base: Any, start: Any, nulls: Any
) -> None:
    """Copy rows to behind the first ``start``, a multiple of eight; count their NULLs."""
    for j in range(spec.shape[1]):
        column, form, width = spec[COLUMNS, j], spec[FORMS, j], spec[WIDTHS, j]
        values = base + places[j, VALUES]
        nulls[j] += copy_bits(addresses, column, 0, source, row, base + places[j, VALIDITY], start)
        if form == FIXED:
            copy_fixed(addresses, column, width, source, row, values + start * width)
        elif form == BITS:
            copy_bits(addresses, column, 1, source, row, values, start)
        else:
            copy_offsets(addresses, column, source, row, values, start)
            _copy_data(addresses, column, source, row, values + 4 * start, base + places[j, DATA])


@kernel(
    void(
        ro(int64, 3), ro(int64, 2), ro(int32), ro(int32), ro(int64, 2), int64, ro(uint8), ro(int64), int64
    )
)  # fmt: skip
def write(
    addresses: Any,
    spec: Any,
    source: Any,
    row: Any,
    places: Any,
    message: int,
    template: Any,
    marks: Any,
    size: int,
) -> None:
    """Write the message to an address. ``marks``: where the template wants record count, body size, nodes, buffers.

    The body's own places have room for every bitmap; a column without NULLs does not name its.
    """
    for at in range(len(template)):
        store_u8(message + at, template[at])
    base = message + len(template)
    count = len(source)
    store_i64(message + marks[0], count)
    store_i64(message + marks[1], size)
    nulls = np.zeros(spec.shape[1], np.int64)
    for i in range(min(_SOME, count)):
        _ask_values(addresses, spec, int64(source[i]), int64(row[i]))
    for start in range(0, count, _SOME):
        stop = min(start + _SOME, count)
        for i in range(stop, min(stop + _SOME, count)):
            _ask_values(addresses, spec, int64(source[i]), int64(row[i]))
        _copy_some(addresses, spec, source[start:stop], row[start:stop], places, base, start, nulls)
    node, entry = message + marks[2], message + marks[3]
    bitmap = (count + 7) >> 3
    for j in range(spec.shape[1]):
        store_i64(node, count)
        store_i64(node + 8, nulls[j])
        node += 16
        _pad(base + places[j, VALIDITY], bitmap)
        entry = _write_buffer(entry, places[j, VALIDITY], bitmap if nulls[j] > 0 else 0, base)
        if spec[FORMS, j] == VAR and count == 0:
            store_i32(base + places[j, VALUES], int32(0))
        entry = _write_buffer(entry, places[j, VALUES], places[j, VALUES_SIZE], base)
        if spec[FORMS, j] == VAR:
            entry = _write_buffer(entry, places[j, DATA], places[j, DATA_SIZE], base)
