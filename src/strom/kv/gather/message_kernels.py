"""Kernels that write gathered rows as one Arrow message: metadata and body in one piece of memory.

pyarrow opens a message of ten columns in the time it takes to make two arrays, and the wire and the log want a message
anyway. Every byte is written, padding too, because a message may leave the process. A column without NULLs has no
bitmap. Adjacent rows of one source are copied as one piece.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from strom.kv.gather.column_source import ABSENT
from strom.kv.gather.copy_kernels import (
    OUTSIDE,
    UNCHECKED,
    WELL,
    copy_bits,
    copy_fixed,
    copy_run,
    copy_texts,
    data_size,
)
from strom.kv.gather.source_kernels import BITS, COLUMNS, FIXED, FORMS, VAR, WIDTHS, is_null, length_of
from strom.kv.kernels.compile import (
    boolean,
    int32,
    int64,
    kernel,
    load_i32,
    ro,
    rw,
    store_i32,
    store_i64,
    store_u8,
    uint8,
    void,
)

#: A column within the body: where its bitmap, values and data begin, the bytes of each, and the number of NULLs.
VALIDITY, VALUES, DATA, VALIDITY_SIZE, VALUES_SIZE, DATA_SIZE, NULLS = range(7)
PLACE_FIELDS = 7


@kernel()
def _padded(size: Any, alignment: Any) -> Any:
    return (size + alignment - 1) & -alignment


@kernel()
def _readable(
    rows: Any, whole: Any, sound: Any, spec: Any, source: Any, row: Any, missing: Any, used: Any
) -> Any:
    """Whether these rows exist and may be read. ``used`` marks their sources; its last entry marks rows of NULLs."""
    for i in range(len(source)):
        at = int64(source[i])
        if missing and at == -1:
            used[len(rows)] = 1
            continue
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
    sources = len(used) - 1
    found = used[sources] != 0
    for at in range(sources):
        if used[at] != 0 and (addresses[at, column, 0] != 0 or addresses[at, column, 1] == ABSENT):
            found = True
    return found


@kernel()
def is_run(source: Any, row: Any) -> Any:
    """Whether the rows are adjacent rows of one source."""
    for i in range(1, len(source)):
        if source[i] != source[0] or row[i] != row[i - 1] + 1:
            return False
    return len(source) > 0 and source[0] >= 0


@kernel()
def _data_size(addresses: Any, column: Any, source: Any, row: Any, run: Any, nulls: Any) -> Any:
    if nulls == 0 and run:
        offsets = addresses[source[0], column, 1] + 4 * int64(row[0])
        return int64(load_i32(offsets + 4 * len(row))) - int64(load_i32(offsets))
    if nulls == 0:
        return data_size(addresses, column, source, row)
    size: Any = int64(0)
    for i in range(len(source)):
        size += length_of(addresses, column, int64(source[i]), int64(row[i]))
    return size


@kernel(
    int64(
        ro(int64), ro(uint8), ro(uint8, 2), ro(int64, 3), ro(int64, 2), ro(int32), ro(int32), boolean, int64,
        rw(int64, 2),
    )
)  # fmt: skip
def measure(
    rows: Any, whole: Any, sound: Any, addresses: Any, spec: Any, source: Any, row: Any, missing: bool,
    alignment: int, places: Any,
) -> Any:  # fmt: skip
    """Fill in where each column of these rows goes in a body. Returns the body's size, or minus the reason for failure.

    ``missing``: source -1 is a row of NULLs. ``alignment``: buffers are padded to a multiple of this.
    """
    used = np.zeros(len(rows) + 1, np.uint8)
    answer = _readable(rows, whole, sound, spec, source, row, missing, used)
    if answer != WELL:
        return -answer
    count, run = len(source), is_run(source, row)
    position: Any = int64(0)
    for j in range(spec.shape[1]):
        column, form = spec[COLUMNS, j], spec[FORMS, j]
        nulls = 0
        if _may_be_null(addresses, column, used):
            for i in range(count):
                nulls += 1 if is_null(addresses, column, int64(source[i]), int64(row[i])) else 0
        places[j, NULLS] = nulls
        places[j, VALIDITY] = position
        places[j, VALIDITY_SIZE] = (count + 7) >> 3 if nulls > 0 else 0
        position += _padded(places[j, VALIDITY_SIZE], alignment)
        size = (count + 7) >> 3
        if form == FIXED:
            size = count * spec[WIDTHS, j]
        elif form == VAR:
            size = 4 * (count + 1)
        places[j, VALUES], places[j, VALUES_SIZE] = position, size
        position += _padded(size, alignment)
        data = _data_size(addresses, column, source, row, run, nulls) if form == VAR else int64(0)
        places[j, DATA], places[j, DATA_SIZE] = position, data
        position += _padded(data, alignment)
    return position


@kernel()
def _copy_column(
    addresses: Any, spec: Any, j: Any, source: Any, row: Any, run: Any, places: Any, base: Any
) -> None:
    column, form, width = spec[COLUMNS, j], spec[FORMS, j], spec[WIDTHS, j]
    values, data = base + places[j, VALUES], base + places[j, DATA]
    nulls = places[j, NULLS] > 0
    if nulls:
        copy_bits(addresses, column, 0, source, row, base + places[j, VALIDITY], 0)
    if form == BITS:
        copy_bits(addresses, column, 1, source, row, values, 0)
    elif run and not nulls:
        copy_run(
            addresses, column, form, width, int64(source[0]), int64(row[0]), len(row), values, data, int64(0)
        )  # fmt: skip
    elif form == FIXED:
        copy_fixed(addresses, column, width, source, row, values)
    else:
        store_i32(values, int32(0))
        copy_texts(addresses, column, source, row, nulls, values, data)


@kernel()
def _name(entry: Any, position: Any, size: Any, until: Any, base: Any) -> Any:
    """List a buffer in the metadata and pad it; returns where the next one is listed."""
    store_i64(entry, position)
    store_i64(entry + 8, size)
    for at in range(position + size, until):
        store_u8(base + at, uint8(0))
    return entry + 16


@kernel()
def write_message(
    addresses: Any, spec: Any, source: Any, row: Any, places: Any, message: Any, template: Any, marks: Any, size: Any
) -> None:  # fmt: skip
    """Write the message to an address. ``marks``: where record count, body size, nodes and buffers go."""
    for at in range(len(template)):
        store_u8(message + at, template[at])
    base = message + len(template)
    count, columns = len(source), spec.shape[1]
    store_i64(message + marks[0], count)
    store_i64(message + marks[1], size)
    node, entry = message + marks[2], message + marks[3]
    run = is_run(source, row)
    for j in range(columns):
        store_i64(node, count)
        store_i64(node + 8, places[j, NULLS])
        node += 16
        _copy_column(addresses, spec, j, source, row, run, places, base)
        following = places[j + 1, VALIDITY] if j + 1 < columns else size
        entry = _name(entry, places[j, VALIDITY], places[j, VALIDITY_SIZE], places[j, VALUES], base)
        entry = _name(entry, places[j, VALUES], places[j, VALUES_SIZE], places[j, DATA], base)
        if spec[FORMS, j] == VAR:
            entry = _name(entry, places[j, DATA], places[j, DATA_SIZE], following, base)


@kernel(
    void(
        ro(int64, 3), ro(int64, 2), ro(int32), ro(int32), ro(int64, 2), int64, ro(uint8), ro(int64), int64
    )
)  # fmt: skip
def write(
    addresses: Any, spec: Any, source: Any, row: Any, places: Any, message: int, template: Any, marks: Any, size: int
) -> None:  # fmt: skip
    """``write_message``, callable from Python."""
    write_message(addresses, spec, source, row, places, message, template, marks, size)
