"""Kernels that copy values from many sources to one place, column by column.

Rows are named by (source, row); source -1 is a row of NULLs. Addresses are those of ``columns.Source``, side by side:
``addresses[source, column] = validity, values, data``. The target of a column is three addresses too, and a first row
number, so that the same kernels fill a new batch and a block that grows. Targets always have validity bitmaps.

Only :func:`prepare` checks anything: call it first, and go on only if it returns ``WELL``.
"""

from __future__ import annotations

from typing import Any

from strom.kv.gather.column_source import ABSENT
from strom.kv.gather.source_kernels import BITS, FIXED, NESTED, VAR, bit_at, length_of, same_value
from strom.kv.kernels.compile import (
    int32,
    int64,
    kernel,
    load_i32,
    load_i64,
    load_u8,
    load_u16,
    load_u32,
    load_u64,
    prefetch,
    ro,
    rw,
    store_i32,
    store_u8,
    store_u16,
    store_u32,
    store_u64,
    uint8,
    uint16,
    uint32,
    uint64,
    void,
)

WELL, OUTSIDE, UNCHECKED = 0, 1, 2
ALIGNMENT = 64
_AHEAD = 16
"""How many values ahead to prefetch."""


@kernel()
def aligned(size: int) -> int:
    """The next multiple of 64, as Arrow wants."""
    return (size + (ALIGNMENT - 1)) & ~(ALIGNMENT - 1)


@kernel(
    int64(
        ro(int64),
        ro(uint8),
        ro(uint8, 2),
        ro(int32),
        ro(int32),
        ro(int64),
        ro(int64),
        ro(int64),
        rw(int64, 2),
        rw(int64),
    )
)
def prepare(
    rows: Any,
    whole: Any,
    sound: Any,
    source: Any,
    row: Any,
    columns: Any,
    forms: Any,
    widths: Any,
    to: Any,
    size: Any,
) -> int:
    """Whether these rows exist and may be read. Fills in where each column goes in one new buffer, and its size."""
    sources = len(rows)
    for i in range(len(source)):
        at = source[i]
        if at < -1 or at >= sources:
            return OUTSIDE
        if at >= 0:
            if row[i] < 0 or row[i] >= rows[at]:
                return OUTSIDE
            if whole[at] == 0:
                for j in range(len(columns)):
                    if sound[at, columns[j]] == 0:
                        return UNCHECKED
    count = len(source)
    bitmap = aligned((count + 7) >> 3)
    position = 0
    for j in range(len(columns)):
        form = forms[j]
        to[j, 0] = position
        to[j, 1] = position + bitmap
        if form == FIXED:
            position += bitmap + aligned(count * widths[j])
        elif form == BITS:
            position += 2 * bitmap
        elif form == VAR:
            position += bitmap + aligned((count + 1) * 4)
    size[0] = position
    return WELL


@kernel()
def _column(addresses: Any, column: int) -> Any:
    """Where the addresses of a column's first source lie; those of the next source are one ``_stride`` further."""
    return int64(addresses.ctypes.data) + 24 * column


@kernel()
def _stride(addresses: Any) -> Any:
    return 24 * addresses.shape[1]


@kernel()
def _values(first: Any, stride: Any, source: Any) -> Any:
    """Where the values of a source begin, or ABSENT. Indexing the array would check its bounds for every value."""
    return ABSENT if source < 0 else load_i64(first + int64(source) * stride + 8)


@kernel()
def _ask(first: Any, stride: Any, source: Any, row: Any, width: Any) -> None:
    """Prefetch a value: rows may lie anywhere, and memory serves many requests at once as fast as one."""
    values = _values(first, stride, source)
    if values != ABSENT:
        prefetch(values + int64(row) * width)


@kernel()
def copy_bits(addresses: Any, column: int, which: int, source: Any, row: Any, target: int, start: int) -> int:
    """Copy bitmap ``which`` (0 validity, 1 values of form bits) to ``target``; return the number of 0 bits."""
    first, stride = _column(addresses, column), _stride(addresses)
    ones = 0
    at = start
    octet = uint8(0) if at & 7 == 0 else uint8(load_u8(target + (at >> 3)) & ((1 << (at & 7)) - 1))
    for i in range(len(source)):
        bit = 0
        if _values(first, stride, source[i]) != ABSENT:
            bitmap = load_i64(first + int64(source[i]) * stride + 8 * which)
            bit = 1 if bitmap == 0 else int64(bit_at(bitmap, int64(row[i])))
        ones += bit
        octet = uint8(octet | (bit << (at & 7)))
        if at & 7 == 7:
            store_u8(target + (at >> 3), octet)
            octet = uint8(0)
        at += 1
    if at & 7 != 0:
        store_u8(target + (at >> 3), octet)
    return len(source) - ones


@kernel()
def _copy_1(first: Any, stride: Any, source: Any, row: Any, target: int) -> None:
    for i in range(len(source)):
        if i + _AHEAD < len(source):
            _ask(first, stride, source[i + _AHEAD], row[i + _AHEAD], 1)
        values = _values(first, stride, source[i])
        store_u8(target + i, uint8(0) if values == ABSENT else load_u8(values + int64(row[i])))


@kernel()
def _copy_2(first: Any, stride: Any, source: Any, row: Any, target: int) -> None:
    for i in range(len(source)):
        if i + _AHEAD < len(source):
            _ask(first, stride, source[i + _AHEAD], row[i + _AHEAD], 2)
        values = _values(first, stride, source[i])
        store_u16(target + 2 * i, uint16(0) if values == ABSENT else load_u16(values + 2 * int64(row[i])))


@kernel()
def _copy_4(first: Any, stride: Any, source: Any, row: Any, target: int) -> None:
    for i in range(len(source)):
        if i + _AHEAD < len(source):
            _ask(first, stride, source[i + _AHEAD], row[i + _AHEAD], 4)
        values = _values(first, stride, source[i])
        store_u32(target + 4 * i, uint32(0) if values == ABSENT else load_u32(values + 4 * int64(row[i])))


@kernel()
def _copy_8(first: Any, stride: Any, source: Any, row: Any, target: int) -> None:
    for i in range(len(source)):
        if i + _AHEAD < len(source):
            _ask(first, stride, source[i + _AHEAD], row[i + _AHEAD], 8)
        values = _values(first, stride, source[i])
        store_u64(target + 8 * i, uint64(0) if values == ABSENT else load_u64(values + 8 * int64(row[i])))


@kernel()
def copy_octets(place: int, target: int, size: int) -> None:
    """Copy some bytes, eight at a time where there are that many; never reads or writes outside."""
    if size >= 8:
        for at in range(0, size - 7, 8):
            store_u64(target + at, load_u64(place + at))
        store_u64(target + size - 8, load_u64(place + size - 8))
    elif size >= 4:
        store_u32(target, load_u32(place))
        store_u32(target + size - 4, load_u32(place + size - 4))
    else:
        for at in range(size):
            store_u8(target + at, load_u8(place + at))


@kernel()
def copy_run(addresses: Any, column: Any, form: Any, width: Any, source: Any, first: Any, count: Any, values: Any,
             data: Any, used: Any) -> Any:  # fmt: skip
    """Copy rows that follow each other, none of them NULL: values, or texts behind ``used`` bytes of data.

    Returns the end of the last text.
    """
    here = addresses[source, column, 1]
    if form == FIXED:
        copy_octets(here + first * width, values, count * width)
        return used
    offsets = here + 4 * first
    begin = int64(load_i32(offsets))
    for i in range(count + 1):
        store_i32(values + 4 * i, int32(used + int64(load_i32(offsets + 4 * i)) - begin))
    size = int64(load_i32(offsets + 4 * count)) - begin
    copy_octets(addresses[source, column, 2] + begin, data + used, size)
    return used + size


@kernel()
def _copy_wide(first: Any, stride: Any, width: int, source: Any, row: Any, target: int) -> None:
    for i in range(len(source)):
        if i + _AHEAD < len(source):
            _ask(first, stride, source[i + _AHEAD], row[i + _AHEAD], width)
        values = _values(first, stride, source[i])
        if values != ABSENT:
            copy_octets(values + int64(row[i]) * width, target + i * width, width)
        else:
            for at in range(width):
                store_u8(target + i * width + at, uint8(0))


@kernel()
def copy_fixed(addresses: Any, column: int, width: int, source: Any, row: Any, target: int) -> None:
    """Copy values of fixed width; zeros for NULL rows."""
    first, stride = _column(addresses, column), _stride(addresses)
    if width == 8:
        _copy_8(first, stride, source, row, target)
    elif width == 4:
        _copy_4(first, stride, source, row, target)
    elif width == 2:
        _copy_2(first, stride, source, row, target)
    elif width == 1:
        _copy_1(first, stride, source, row, target)
    else:
        _copy_wide(first, stride, width, source, row, target)


@kernel()
def copy_offsets(addresses: Any, column: int, source: Any, row: Any, target: int, start: int) -> Any:
    """Append the ends of values of variable length; return the end of the last."""
    end = int64(0)
    if start == 0:
        store_i32(target, int32(0))
    else:
        end = int64(load_i32(target + 4 * start))
    for i in range(len(source)):
        end += length_of(addresses, column, int64(source[i]), int64(row[i]))
        store_i32(target + 4 * (start + i + 1), int32(end))
    return end


@kernel()
def data_size(addresses: Any, column: int, source: Any, row: Any) -> Any:
    """Bytes of values of variable length, none of them NULL."""
    first, stride = _column(addresses, column), _stride(addresses)
    size = int64(0)
    for i in range(len(source)):
        if i + _AHEAD < len(source):
            _ask(first, stride, source[i + _AHEAD], row[i + _AHEAD], 4)
        both = load_u64(_values(first, stride, source[i]) + 4 * int64(row[i]))
        size += int64(both >> uint64(32)) - int64(both & uint64(0xFFFFFFFF))
    return size


@kernel()
def copy_texts(
    addresses: Any, column: int, source: Any, row: Any, nulls: bool, offsets: int, data: int
) -> Any:
    """Append values of variable length; ``offsets`` points to the end of those already there. Returns the new end.

    Without ``nulls`` no value is NULL. The sources' offsets should be in the cache already: they are not prefetched.
    """
    first, stride = _column(addresses, column), _stride(addresses)
    end = int64(load_i32(offsets))
    for i in range(len(source)):
        ahead = i + _AHEAD
        if ahead < len(source):
            values = _values(first, stride, source[ahead])
            if values != ABSENT:
                there = load_i64(first + int64(source[ahead]) * stride + 16)
                prefetch(there + int64(load_i32(values + 4 * int64(row[ahead]))))
        if nulls and length_of(addresses, column, int64(source[i]), int64(row[i])) == 0:
            store_i32(offsets + 4 * (i + 1), int32(end))
            continue
        entry = first + int64(source[i]) * stride
        both = load_u64(load_i64(entry + 8) + 4 * int64(row[i]))
        begin = int64(both & uint64(0xFFFFFFFF))
        size = int64(both >> uint64(32)) - begin
        copy_octets(load_i64(entry + 16) + begin, data + end, size)
        end += size
        store_i32(offsets + 4 * (i + 1), int32(end))
    return end


@kernel(
    void(
        ro(int64, 3),
        ro(int64),
        ro(int64),
        ro(int64),
        ro(int32),
        ro(int32),
        ro(int64, 2),
        int64,
        int64,
        rw(int64, 2),
    )
)
def copy_columns(
    addresses: Any,
    columns: Any,
    forms: Any,
    widths: Any,
    source: Any,
    row: Any,
    to: Any,
    base: int,
    start: int,
    counts: Any,
) -> None:
    """Copy everything but variable data. ``counts[column]`` = NULLs, end of the variable data."""
    for j in range(len(columns)):
        column, form = columns[j], forms[j]
        if form == NESTED:
            continue
        counts[j, 0] = copy_bits(addresses, column, 0, source, row, base + to[j, 0], start)
        target = base + to[j, 1]
        if form == FIXED:
            copy_fixed(addresses, column, widths[j], source, row, target + start * widths[j])
        elif form == BITS:
            copy_bits(addresses, column, 1, source, row, target, start)
        else:
            counts[j, 1] = copy_offsets(addresses, column, source, row, target, start)


@kernel(
    void(
        ro(int64, 3), ro(int64), ro(int64), ro(int32), ro(int32), ro(int64, 2), int64, int64, ro(int64), int64
    )
)
def copy_data(
    addresses: Any,
    columns: Any,
    forms: Any,
    source: Any,
    row: Any,
    to: Any,
    base: int,
    start: int,
    data: Any,
    data_base: int,
) -> None:
    """Copy variable data according to the offsets that ``copy_columns`` wrote."""
    for j in range(len(columns)):
        if forms[j] != VAR:
            continue
        column = columns[j]
        offsets = base + to[j, 1] + 4 * start
        target = data_base + data[j]
        for i in range(len(source)):
            begin = int64(load_i32(offsets + 4 * i))
            size = int64(load_i32(offsets + 4 * i + 4)) - begin
            if size > 0:
                at = source[i]
                first = int64(load_i32(addresses[at, column, 1] + 4 * int64(row[i])))
                copy_octets(addresses[at, column, 2] + first, target + begin, size)


@kernel(void(ro(int64, 3), ro(int64), ro(int64), ro(int32), ro(int32), rw(int64)))
def data_sizes(addresses: Any, columns: Any, forms: Any, source: Any, row: Any, sizes: Any) -> None:
    """Bytes of variable data per column in a copy of these rows."""
    for j in range(len(columns)):
        total = int64(0)
        if forms[j] == VAR:
            for i in range(len(source)):
                total += length_of(addresses, columns[j], int64(source[i]), int64(row[i]))
        sizes[j] = total


@kernel(
    void(
        ro(int64, 3),
        ro(int64),
        ro(int32),
        ro(int32),
        ro(int64, 3),
        ro(int64),
        ro(int32),
        ro(int32),
        ro(int64),
        ro(int64),
        rw(uint8),
    )
)
def compare_columns(
    left: Any,
    left_columns: Any,
    left_source: Any,
    left_row: Any,
    right: Any,
    right_columns: Any,
    right_source: Any,
    right_row: Any,
    forms: Any,
    widths: Any,
    same: Any,
) -> None:
    """Clear ``same`` where a pair of rows differs in one of the columns."""
    for j in range(len(forms)):
        if forms[j] == NESTED:
            continue
        for i in range(len(same)):
            if same[i] != 0 and not same_value(
                left,
                left_columns[j],
                int64(left_source[i]),
                int64(left_row[i]),
                right,
                right_columns[j],
                int64(right_source[i]),
                int64(right_row[i]),
                forms[j],
                widths[j],
            ):
                same[i] = 0
