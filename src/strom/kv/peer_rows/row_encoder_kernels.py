"""The loop of the row encoder: one pass over the rows, which accesses columns by the addresses of their buffers."""

from __future__ import annotations

# ruff: noqa: SIM109 (a chain of comparisons is what Numba compiles best)
from typing import Any, Final

import numpy as np

from strom.kv.arrays import Int64s, Octets
from strom.kv.kernels.compile import (
    int64,
    kernel,
    load_i8,
    load_i16,
    load_i32,
    load_i64,
    load_u8,
    ro,
    rw,
    uint8,
)
from strom.kv.peer_rows.row_form import (
    BIGINT,
    BOOL,
    BYTE,
    DECIMAL,
    FIXED,
    INT,
    LONG,
    MILLIS,
    NANOS,
    SHORT,
    SPAN,
    TIME32,
    TIME64,
    WORD,
)

NULL_IN_KEY: Final = -1

Number = Any
"""What a kernel computes with: a number of some width."""


@kernel()
def _put_varint(out: Octets, at: Number, bits: Number) -> Number:
    rest = np.uint64(bits)
    while rest >= np.uint64(0x80):
        out[at] = np.uint8(rest) | np.uint8(0x80)
        rest >>= np.uint64(7)
        at += 1
    out[at] = np.uint8(rest)
    return at + 1


@kernel()
def _put_int(out: Octets, at: Number, value: Number) -> Number:
    return _put_varint(out, at, value & 0xFFFFFFFF)


@kernel()
def _put_fixed(out: Octets, at: Number, value: Number, width: Number) -> Number:
    for k in range(width):
        out[at + k] = np.uint8(value >> (8 * k))
    return at + width


@kernel()
def _put_copy(out: Octets, at: Number, address: Number, size: Number) -> Number:
    for k in range(size):
        out[at + k] = load_u8(address + k)
    return at + size


@kernel()
def _byte_of(low: Number, high: Number, k: Number) -> Number:
    """Byte ``k`` of 16, the lowest first."""
    return (low >> (8 * k)) & 0xFF if k < 8 else (high >> (8 * (k - 8))) & 0xFF


@kernel()
def _put_wide_decimal(out: Octets, at: Number, low: Number, high: Number) -> Number:
    """Length and big-endian bytes, without leading bytes that only repeat the sign."""
    size = 16
    fill = 0xFF if high < 0 else 0
    while size > 1 and _byte_of(low, high, size - 1) == fill:
        if (_byte_of(low, high, size - 2) ^ fill) & 0x80:
            break
        size -= 1
    at = _put_int(out, at, size)
    for k in range(size):
        out[at + k] = np.uint8(_byte_of(low, high, size - 1 - k))
    return at + size


@kernel()
def _put_timestamp(out: Octets, at: Number, ticks: Number, op: Number, number: Number) -> Number:
    if op == MILLIS:
        return _put_varint(out, at, ticks if number > 0 else ticks * -number)
    millis = ticks // number
    at = _put_varint(out, at, millis)
    return _put_int(out, at, (ticks - millis * number) * (1_000_000 // number))


@kernel()
def _put(
    out: Octets, at: Number, op: Number, number: Number, values: Number, text: Number, i: Number
) -> Number:
    """Write value ``i`` of a column; returns the position after it."""
    if op == INT:
        return _put_int(out, at, np.int64(load_i32(values + 4 * i)))
    if op == BIGINT:
        return _put_varint(out, at, load_i64(values + 8 * i))
    if op == SPAN:
        begin = np.int64(load_i32(values + 4 * i))
        size = np.int64(load_i32(values + 4 * i + 4)) - begin
        return _put_copy(out, _put_int(out, at, size), text + begin, size)
    if op == LONG:
        return _put_fixed(out, at, load_i64(values + 8 * i), 8)
    if op == WORD:
        return _put_fixed(out, at, np.int64(load_i32(values + 4 * i)), 4)
    if op == SHORT:
        return _put_fixed(out, at, np.int64(load_i16(values + 2 * i)), 2)
    if op == BYTE:
        return _put_fixed(out, at, np.int64(load_i8(values + i)), 1)
    if op == BOOL:
        out[at] = (load_u8(values + (i >> 3)) >> (i & 7)) & 1
        return at + 1
    if op == TIME32 or op == TIME64:
        ticks = np.int64(load_i32(values + 4 * i)) if op == TIME32 else load_i64(values + 8 * i)
        return _put_int(out, at, ticks // number if number > 0 else ticks * -number)
    if op == MILLIS or op == NANOS:
        return _put_timestamp(out, at, load_i64(values + 8 * i), op, number)
    if op == FIXED:
        return _put_copy(out, _put_int(out, at, number), values + number * i, number)
    low = load_i64(values + 16 * i)
    if op == DECIMAL:
        return _put_varint(out, at, low)
    return _put_wide_decimal(out, at, low, load_i64(values + 16 * i + 8))


@kernel(int64(ro(int64, 2), int64, int64, int64, rw(uint8), rw(int64)))
def write_rows(
    columns: Int64s, rows: Number, head: Number, prefix: Number, out: Octets, starts: Int64s
) -> Number:
    """Write every row; returns where the last one ends, or NULL_IN_KEY.

    ``columns[c]`` = operation, number, address of the validity bits or 0, of the values, of the text, first element.
    A row starts with ``head`` bytes of null bits; a ``prefix`` that is not negative precedes it in two bytes.
    """
    at = 0
    for i in range(rows):
        starts[i] = at
        if prefix >= 0:
            at = _put_fixed(out, at, prefix, 2)
        bits = at
        for k in range(head):
            out[at + k] = 0
        at += head
        for c in range(len(columns)):
            place = columns[c, 5] + i
            validity = columns[c, 2]
            if validity and not load_u8(validity + (place >> 3)) >> (place & 7) & 1:
                if not head:
                    return NULL_IN_KEY
                out[bits + (c >> 3)] |= np.uint8(1) << uint8(c & 7)
                continue
            at = _put(out, at, columns[c, 0], columns[c, 1], columns[c, 3], columns[c, 4], place)
    starts[rows] = at
    return at
