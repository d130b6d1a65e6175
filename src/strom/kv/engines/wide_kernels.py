"""Decimals of 38 digits in kernels: sums, products and quotients of 128-bit numbers, exact or refused.

A number is (low, high): 128 bits of two's complement. Magnitudes are unsigned. A product has 256 bits until it is
scaled back, so nothing is lost on the way; halves are rounded away from zero, as in the peer.
"""

from __future__ import annotations

# ruff: noqa: SIM109 (a chain of comparisons is what Numba compiles best)
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from strom.kv.arrays import Bools, Int64s, Octets
from strom.kv.engines.change_modes import CLEAR, FRESH, OLD, SKIP
from strom.kv.kernels.compile import boolean, int64, kernel, ro, rw, uint8, uint64

Number = Any
Words = npt.NDArray[np.uint64]
_PRODUCT: Final = 1
_HALF: Final = 0xFFFFFFFF


@kernel()
def _negated(low: Number, high: Number) -> Number:
    low = ~low + np.uint64(1)
    high = ~high + (np.uint64(1) if low == np.uint64(0) else np.uint64(0))
    return low, high


@kernel()
def _magnitude(low: Number, high: Number) -> Number:
    """(low, high, whether it was negative)."""
    if high >> np.uint64(63):
        low, high = _negated(low, high)
        return low, high, True
    return low, high, False


@kernel()
def _below(low: Number, high: Number, limit_low: Number, limit_high: Number) -> Number:
    return high < limit_high or (high == limit_high and low < limit_low)


@kernel()
def _fits(low: Number, high: Number, limit_low: Number, limit_high: Number) -> Number:
    low, high, _ = _magnitude(low, high)
    return _below(low, high, limit_low, limit_high)


@kernel()
def _times(a: Number, b: Number) -> Number:
    """64 by 64 bits: (low, high)."""
    half = np.uint64(_HALF)
    s = np.uint64(32)
    a0, a1, b0, b1 = a & half, a >> s, b & half, b >> s
    p00, p01, p10, p11 = a0 * b0, a0 * b1, a1 * b0, a1 * b1
    middle = (p00 >> s) + (p01 & half) + (p10 & half)
    return (p00 & half) | (middle << s), p11 + (p01 >> s) + (p10 >> s) + (middle >> s)


@kernel()
def _add_at(words: Words, at: Number, value: Number) -> Number:
    while value != np.uint64(0) and at < 4:
        words[at] += value
        value = np.uint64(1) if words[at] < value else np.uint64(0)
        at += 1
    return 0


@kernel()
def _divided(words: Words, by_low: Number, by_high: Number, out: Words) -> Number:
    """256 bits by at most 127, rounded half up, into ``out`` (low, high); False when that does not fit 128 bits."""
    rest_low, rest_high = np.uint64(0), np.uint64(0)
    out[0], out[1], out[2], out[3] = np.uint64(0), np.uint64(0), np.uint64(0), np.uint64(0)
    one, top = np.uint64(1), np.uint64(63)
    for bit in range(255, -1, -1):
        word, place = bit >> 6, np.uint64(bit & 63)
        rest_high = (rest_high << one) | (rest_low >> top)
        rest_low = (rest_low << one) | ((words[word] >> place) & one)
        if not _below(rest_low, rest_high, by_low, by_high):
            borrow = one if rest_low < by_low else np.uint64(0)
            rest_low -= by_low
            rest_high -= by_high + borrow
            out[word] |= one << place
    rest_high = (rest_high << one) | (rest_low >> top)
    rest_low = rest_low << one
    if not _below(rest_low, rest_high, by_low, by_high):
        _add_at(out, 0, one)
    return out[2] == np.uint64(0) and out[3] == np.uint64(0) and out[1] >> top == np.uint64(0)


@kernel()
def _product(
    a_low: Number, a_high: Number, b_low: Number, b_high: Number, scale_low: Number, scale_high: Number,
    words: Words, out: Words,
) -> Number:  # fmt: skip
    """(low, high, whether it fits) of a · b / scale."""
    a_low, a_high, a_negative = _magnitude(a_low, a_high)
    b_low, b_high, b_negative = _magnitude(b_low, b_high)
    words[:] = np.uint64(0)
    low, high = _times(a_low, b_low)
    words[0], words[1] = low, high
    low, high = _times(a_low, b_high)
    _add_at(words, 1, low)
    _add_at(words, 2, high)
    low, high = _times(a_high, b_low)
    _add_at(words, 1, low)
    _add_at(words, 2, high)
    low, high = _times(a_high, b_high)
    _add_at(words, 2, low)
    _add_at(words, 3, high)
    if not _divided(words, scale_low, scale_high, out):
        return out[0], out[1], False
    low, high = out[0], out[1]
    if a_negative != b_negative:
        low, high = _negated(low, high)
    return low, high, True


@kernel(
    int64(
        int64, ro(uint8), ro(int64), ro(int64), ro(uint64, 2), ro(boolean), ro(uint64, 2), ro(boolean), ro(uint64),
        ro(uint64), rw(uint64, 2), rw(boolean),
    )
)  # fmt: skip
def fold_wide(
    rule: Number,
    mode: Octets,
    order: Int64s,
    starts: Int64s,
    came: Words,
    came_valid: Bools,
    was: Words,
    was_valid: Bools,
    limit: Words,
    scale: Words,
    values: Words,
    valid: Bools,
) -> Number:
    """Sum or product of decimals; returns the arrival of the first change whose result has too many digits, or -1."""
    words, out = np.empty(4, np.uint64), np.empty(4, np.uint64)
    for j in range(len(starts) - 1):
        low, high = was[j, 0], was[j, 1]
        there = False
        for k in range(starts[j], starts[j + 1]):
            a = order[k]
            how = mode[a]
            if how == SKIP:
                continue
            if how == OLD:
                there = was_valid[j]
            elif how == FRESH or how == CLEAR:
                there = False
            if how != CLEAR and came_valid[a]:
                if not there:
                    low, high = came[a, 0], came[a, 1]
                elif rule == _PRODUCT:
                    low, high, fits = _product(
                        low, high, came[a, 0], came[a, 1], scale[0], scale[1], words, out
                    )
                    if not fits:
                        return a
                else:
                    low = low + came[a, 0]
                    high = high + came[a, 1] + (np.uint64(1) if low < came[a, 0] else np.uint64(0))
                if not _fits(low, high, limit[0], limit[1]):
                    return a
                there = True
            valid[a] = there
            if there:
                values[a, 0] = low
                values[a, 1] = high
    return -1


@kernel(int64(ro(uint64, 2), ro(int64), ro(boolean), ro(uint64), rw(uint64, 2)))
def divide_wide(sums: Words, counts: Int64s, valid: Bools, limit: Words, values: Words) -> Number:
    """Divide each sum by its count, half away from zero; returns the first row with too many digits, or -1."""
    words, out = np.zeros(4, np.uint64), np.empty(4, np.uint64)
    for i in range(len(counts)):
        if not valid[i]:
            continue
        low, high, negative = _magnitude(sums[i, 0], sums[i, 1])
        words[0], words[1] = low, high
        _divided(words, np.uint64(counts[i]), np.uint64(0), out)
        low, high = out[0], out[1]
        if not _below(low, high, limit[0], limit[1]):
            return i
        if negative:
            low, high = _negated(low, high)
        values[i, 0] = low
        values[i, 1] = high
    return -1
