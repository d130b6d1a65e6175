"""The loops of the row decoder: one pass reads every value of every row, another copies text and bytes.

Memory is accessed by address. ``row_decoder`` plans where values go; every byte read is first checked to lie within its
row.
"""

from __future__ import annotations

# ruff: noqa: SIM109 (a chain of comparisons is what Numba compiles best)
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from strom.kv.arrays import Bools, Int32s, Int64s, Octets
from strom.kv.kernels.compile import (
    boolean,
    int32,
    int64,
    kernel,
    load_i16,
    load_i32,
    load_i64,
    load_u8,
    load_u64,
    ro,
    rw,
    store_i16,
    store_i32,
    store_i64,
    store_u8,
    store_u64,
    uint8,
    uint64,
)
from strom.kv.peer_rows.row_form import (
    BIGINT,
    BYTE,
    DAY_MILLIS,
    DECIMAL,
    FIXED,
    INT,
    LONG,
    MILLIS,
    SHORT,
    SPAN,
    TIME32,
    TIME64,
    WORD,
)

COLUMN_BITS: Final = 16
"""The place of an error is ``row << 16 | column``; column 0xffff stands for the whole row."""
WHOLE_ROW: Final = 0xFFFF
OFFSET_MAX: Final = 2**31 - 1
_NANOS_MAX: Final = 999_999
_WRONG: Final = 0
"""Not an address: what a reader returns on bad bytes, instead of the address after the value."""
_LONG_MAX: Final = 2**63 - 1

Number = Any
"""What a kernel computes with: a number of some width."""


@kernel()
def _int(at: Number, end: Number) -> Number:
    """An unsigned LEB128 number of 32 bits, and the address after it."""
    if at >= end:
        return int64(0), int64(_WRONG)
    byte = int64(load_u8(at))
    at += 1
    if byte < 0x80:
        return byte, at
    value = byte & 0x7F
    shift = int64(7)
    while at < end:
        byte = int64(load_u8(at))
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return int64(int32(value)), at if value <= 0xFFFFFFFF else int64(_WRONG)
        shift += 7
        if shift > 28:
            break
    return value, int64(_WRONG)


@kernel()
def _bigint(at: Number, end: Number) -> Number:
    """An unsigned LEB128 number of 64 bits, and the address after it."""
    if at >= end:
        return int64(0), int64(_WRONG)
    byte = int64(load_u8(at))
    at += 1
    if byte < 0x80:
        return byte, at
    value = byte & 0x7F
    shift = int64(7)
    while at < end:
        byte = int64(load_u8(at))
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at if shift < 63 or byte <= 1 else int64(_WRONG)
        shift += 7
        if shift > 63:
            break
    return value, int64(_WRONG)


@kernel()
def _fits(low: Number, high: Number, digits: Number, tens: Any) -> Number:
    """Whether a number of 128 bits has at most ``digits`` digits."""
    low_bits, high_bits = np.uint64(low), np.uint64(high)
    if high < 0:
        low_bits = ~low_bits + np.uint64(1)
        high_bits = ~high_bits + (np.uint64(1) if low_bits == np.uint64(0) else np.uint64(0))
    limit_high, limit_low = tens[2 * digits], tens[2 * digits + 1]
    return high_bits < limit_high or (high_bits == limit_high and low_bits < limit_low)


@kernel()
def _big_endian(at: Number, size: Number) -> Number:
    """Up to 16 bytes of two's complement as (low, high)."""
    fill = int64(-1) if load_u8(at) >= 0x80 else int64(0)
    low, high = fill, fill
    for k in range(size):
        high = (high << 8) | ((low >> 56) & 0xFF)
        low = (low << 8) | int64(load_u8(at + k))
    return low, high


@kernel()
def _scaled(value: Number, number: Number) -> Number:
    return value * number if number > 0 else value // -number


@kernel()
def _time(at: Number, end: Number, number: Number) -> Number:
    value, at = _int(at, end)
    if value < 0 or value >= DAY_MILLIS:
        return value, int64(_WRONG)
    return _scaled(value, number), at


@kernel()
def _timestamp(at: Number, end: Number, op: Number, number: Number) -> Number:
    value, at = _bigint(at, end)
    if op == MILLIS or at == _WRONG:
        return _scaled(value, number), at
    nanos, at = _int(at, end)
    largest = _LONG_MAX // number
    if nanos < 0 or nanos > _NANOS_MAX or value > largest or value < -largest - 1:
        return value, int64(_WRONG)
    ticks = value * number + nanos * number // 1_000_000
    if (ticks < 0) != (
        value < 0
    ):  # overflow: 64 bits hold only a part of the last millisecond on either side
        return value, int64(_WRONG)
    return ticks, at


@kernel()
def _decimal(at: Number, end: Number, op: Number, digits: Number, tens: Any, out: Number) -> Number:
    if op == DECIMAL:
        low, at = _bigint(at, end)
        high = low >> 63
    else:
        size, at = _int(at, end)
        if at == _WRONG or size < 1 or size > 16 or size > end - at:
            return int64(_WRONG)
        low, high = _big_endian(at, size)
        at += size
    if not _fits(low, high, digits, tens):
        return int64(_WRONG)
    store_i64(out, low)
    store_i64(out + 8, high)
    return at


@kernel()
def _as_it_is(at: Number, end: Number, op: Number, values: Number, i: Number) -> Number:
    """Read a value whose bytes are the same in Arrow."""
    width = int64(1) if op <= BYTE else int64(2) if op == SHORT else int64(4) if op == WORD else int64(8)
    if end - at < width:
        return int64(_WRONG)
    if op == LONG:
        store_i64(values + 8 * i, load_i64(at))
    elif op == WORD:
        store_i32(values + 4 * i, load_i32(at))
    elif op == SHORT:
        store_i16(values + 2 * i, load_i16(at))
    elif op == BYTE:
        store_u8(values + i, load_u8(at))
    elif load_u8(at):
        place = values + (i >> 3)
        store_u8(place, load_u8(place) | uint8(int64(1) << (i & 7)))
    return at + width


@kernel()
def _value(
    at: Number, end: Number, op: Number, number: Number, values: Number, i: Number, tens: Any
) -> Number:
    """Read one value that is not text; returns the address after it, or _WRONG."""
    if op <= LONG:
        return _as_it_is(at, end, op, values, i)
    if op >= DECIMAL:
        return _decimal(at, end, op, number, tens, values + 16 * i)
    if op == INT:
        value, at = _int(at, end)
    elif op == BIGINT:
        value, at = _bigint(at, end)
    elif op == TIME32 or op == TIME64:
        value, at = _time(at, end, number)
    else:
        value, at = _timestamp(at, end, op, number)
    if op == INT or op == TIME32:
        store_i32(values + 4 * i, int32(value))
    else:
        store_i64(values + 8 * i, value)
    return at


@kernel(
    int64(
        int64, int64, ro(int64), ro(int64), ro(int64, 2), ro(boolean), boolean, ro(uint64), rw(int64, 2), rw(int64, 2)
    )
)  # fmt: skip
def read_rows(
    base: Number,
    size: Number,
    starts: Int64s,
    ends: Int64s,
    columns: Int64s,
    required: Bools,
    null_bits: bool,
    tens: npt.NDArray[np.uint64],
    spans: Int64s,
    sums: Int64s,
) -> Number:
    """Read all rows of the ``size`` bytes at ``base``; returns the place of the first error, or -1.

    ``columns[c]`` = operation, number, address of the validity bits, address of the values, row of ``spans``. Validity
    bits must be set. Fills ``sums[c]`` with (nulls, bytes of text) and ``spans`` with where each text starts in the
    data.
    """
    count = len(columns)
    head = (count + 7) >> 3 if null_bits else 0
    for i in range(len(starts)):
        if starts[i] < 0 or ends[i] > size or ends[i] - starts[i] < head:
            return i << COLUMN_BITS | WHOLE_ROW
        start, end = base + starts[i], base + ends[i]
        at = start + head
        for c in range(count):
            op, values = columns[c, 0], columns[c, 3]
            if head > 0 and (load_u8(start + (c >> 3)) >> (c & 7)) & 1:
                if required[c]:
                    return i << COLUMN_BITS | c
                sums[c, 0] += 1
                place = columns[c, 2] + (i >> 3)
                store_u8(place, load_u8(place) & uint8(~(int64(1) << (i & 7)) & 0xFF))
                if op == SPAN:
                    spans[columns[c, 4], i] = 0
                    store_i32(values + 4 * i + 4, int32(sums[c, 1]))
                continue
            if op == SPAN or op == FIXED:
                length, at = _int(at, end)
                if at == _WRONG or length < 0 or length > end - at:
                    return i << COLUMN_BITS | c
                if op == SPAN:
                    sums[c, 1] += length
                    if sums[c, 1] > OFFSET_MAX:
                        return i << COLUMN_BITS | c
                    spans[columns[c, 4], i] = at - base
                    store_i32(values + 4 * i + 4, int32(sums[c, 1]))
                else:
                    if length != columns[c, 1]:
                        return i << COLUMN_BITS | c
                    for k in range(length):
                        store_u8(values + i * length + k, load_u8(at + k))
                at += length
                continue
            at = _value(at, end, op, columns[c, 1], values, i, tens)
            if at == _WRONG:
                return i << COLUMN_BITS | c
        if at != end:
            return i << COLUMN_BITS | WHOLE_ROW
    return -1


@kernel()
def _is_text(out: Octets, at: Number, end: Number) -> Number:
    """Whether bytes are UTF-8: no overlong forms, no surrogates, nothing above U+10FFFF."""
    while at < end:
        lead = out[at]
        if lead < 0x80:
            at += 1
            continue
        size = 2 if 0xC2 <= lead <= 0xDF else 3 if 0xE0 <= lead <= 0xEF else 4 if 0xF0 <= lead <= 0xF4 else 0
        if size == 0 or end - at < size:
            return False
        low = 0xA0 if lead == 0xE0 else 0x90 if lead == 0xF0 else 0x80
        high = 0x9F if lead == 0xED else 0x8F if lead == 0xF4 else 0xBF
        if out[at + 1] < low or out[at + 1] > high:
            return False
        for k in range(2, size):
            if out[at + k] & 0xC0 != 0x80:
                return False
        at += size
    return True


_HIGH_BITS = 0x8080808080808080


@kernel(int64(int64, ro(int64), ro(int32), rw(uint8), boolean))
def copy_spans(base: Number, starts: Int64s, offsets: Int32s, out: Octets, text: bool) -> Number:
    """Copy the spans that :func:`read_rows` found; returns the row of the first value that is not text, or -1."""
    high, target = uint64(0), int64(out.ctypes.data)
    for i in range(len(starts)):
        place, source = target + int64(offsets[i]), base + starts[i]
        size = int64(offsets[i + 1]) - int64(offsets[i])
        words = size & ~7
        for at in range(0, words, 8):
            word = load_u64(source + at)
            store_u64(place + at, word)
            high |= word
        for at in range(words, size):
            byte = load_u8(source + at)
            store_u8(place + at, byte)
            high |= uint64(byte)
    if text and high & uint64(_HIGH_BITS) != uint64(0):
        for i in range(len(starts)):
            if not _is_text(out, int64(offsets[i]), int64(offsets[i + 1])):
                return i
    return -1
