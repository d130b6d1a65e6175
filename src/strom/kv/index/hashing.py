"""Hashes of keys and of secondary tuples, computed from columns in place.

Values are equal when their bytes are, as in the peer's encoded keys: a float is its bit pattern, so -0.0 and 0.0 are
two keys, and so are two NaNs with different bits. Strings are their UTF-8 bytes.

    bijective   columns of fixed width that fit into 8 bytes together (integers, floats, dates, times, booleans, short
                fixed binary): packed and mixed by a function that can be undone, so equal hashes *are* equal keys
    otherwise   every column's bytes are folded in turn, lengths included: 64 good bits, and columns must be compared

NULLs may occur in secondary tuples. A NULL hashes differently from every value, but the bijection holds only for
columns without NULLs (with them there are more tuples than hashes). The seed is part of the hash: store it with stored
hashes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from strom.errors import InvalidTable
from strom.kv.arrays import Hashes, Int64s
from strom.kv.gather.column_source import ABSENT, ColumnKind, ColumnSource, source_of
from strom.kv.gather.source_kernels import BITS, VAR, bit_at
from strom.kv.kernels.compile import (
    fold_multiply,
    int64,
    kernel,
    load_i32,
    load_u8,
    load_u16,
    load_u32,
    load_u64,
    ro,
    rw,
    uint64,
    void,
)

# Odd numbers without a pattern: from the golden ratio, and digits of square roots.
_STEP: Final = 0x9E3779B97F4A7C15
_WORD: Final = 0x6A09E667F3BCC909
_LENGTH: Final = 0xBB67AE8584CAA73B
_NULL: Final = 0x3C6EF372FE94F82B
_MIX_1: Final = 0xFF51AFD7ED558CCD
_MIX_2: Final = 0xC4CEB9FE1A85EC53


class Hasher:
    """Hashes tuples of chosen columns."""

    def __init__(self, kinds: Sequence[ColumnKind], columns: Sequence[int], seed: int = 0) -> None:
        """``kinds``: of all columns of the sources to hash. ``columns``: the positions to hash, in order."""
        for column in columns:
            if kinds[column].form == "nested":
                raise InvalidTable(f"a column of type {kinds[column].type} cannot be part of a key")
        self.columns = tuple(columns)
        self.seed = seed & (1 << 64) - 1
        self._kinds = tuple(kinds)
        codes = [kinds[column].code for column in columns]
        widths = [
            1 if code == BITS else kinds[column].width for code, column in zip(codes, columns, strict=True)
        ]
        self.bijective = VAR not in codes and sum(widths) <= 8
        """Whether equal hashes mean equal tuples (without NULLs)."""
        shifts = [8 * sum(widths[:at]) for at in range(len(widths))]
        self.plan = np.array([self.columns, codes, widths, shifts], np.int64)
        """int64[4, columns]: position, form, width and place in the packed word, as the kernels take them."""

    def hash(self, rows: ColumnSource | pa.RecordBatch, count: int | None = None) -> Hashes:
        """The hash of every row, or of the first ``count`` (a block that still grows states its capacity, not its
        rows).

        A batch has all columns of ``kinds``; its offsets were checked when it was decoded.
        """
        source = rows if isinstance(rows, ColumnSource) else source_of(rows, self._kinds)
        if source.sound is not None and source.check is not None:
            for column in self.columns:
                if not source.sound[column]:
                    source.check(column)
        return self.hash_at(source.addresses, source.rows if count is None else min(count, source.rows))

    def hash_at(self, addresses: Int64s, count: int) -> Hashes:
        """The hash of ``count`` rows whose columns lie at these addresses, as in ``ColumnSource.addresses``."""
        out = np.zeros(count, np.uint64)
        if count == 0:
            return out
        if self.bijective:
            pack_tuples(addresses, self.plan, self.seed, out)
        else:
            fold_tuples(addresses, self.plan, self.seed, out)
        return out


@kernel()
def _is_null(validity: int, row: int) -> bool:
    return validity != 0 and bit_at(validity, row) == 0


@kernel()
def _small(values: int, width: int, row: int) -> Any:
    """A value of up to 8 bytes as a number; no byte beyond it is read."""
    at = values + row * width
    if width == 8:
        return load_u64(at)
    if width == 4:
        return uint64(load_u32(at))
    if width == 2:
        return uint64(load_u16(at))
    word = uint64(0)
    for byte in range(width):
        word |= uint64(load_u8(at + byte)) << uint64(8 * byte)
    return word


@kernel()
def _mix(word: Any) -> Any:
    """A bijection of 64 bits in which every input bit changes about half of the output bits."""
    word ^= word >> uint64(33)
    word *= uint64(_MIX_1)
    word ^= word >> uint64(33)
    word *= uint64(_MIX_2)
    return word ^ (word >> uint64(33))


@kernel()
def _bytes(state: Any, at: int, length: int) -> Any:
    """Fold bytes and their number into the state."""
    whole = length & ~7
    for word in range(0, whole, 8):
        state = fold_multiply(state ^ load_u64(at + word), uint64(_WORD)) + uint64(_STEP)
    rest = uint64(0)
    for byte in range(whole, length):
        rest |= uint64(load_u8(at + byte)) << uint64(8 * (byte - whole))
    return fold_multiply(state ^ rest, uint64(_LENGTH)) ^ (uint64(length) * uint64(_STEP))


@kernel(void(ro(int64, 2), ro(int64, 2), uint64, rw(uint64)))
def pack_tuples(addresses: Int64s, plan: Int64s, seed: int, out: Hashes) -> None:
    """The hashes of a bijective hasher; ``out`` must be zeros."""
    for column in range(plan.shape[1]):
        position, bits, width, shift = (
            plan[0, column],
            plan[1, column] == BITS,
            plan[2, column],
            plan[3, column],
        )
        validity, values = addresses[position, 0], addresses[position, 1]
        for row in range(len(out)):
            if values == ABSENT or _is_null(validity, row):
                out[row] ^= uint64(_NULL) * uint64(2 * column + 1)
            elif bits:
                out[row] ^= uint64(bit_at(values, row)) << uint64(shift)
            else:
                out[row] ^= _small(values, width, row) << uint64(shift)
    for row in range(len(out)):
        out[row] = _mix(out[row] ^ seed)


@kernel(void(ro(int64, 2), ro(int64, 2), uint64, rw(uint64)))
def fold_tuples(addresses: Int64s, plan: Int64s, seed: int, out: Hashes) -> None:
    """The hashes of any other hasher."""
    out[:] = seed
    for column in range(plan.shape[1]):
        position, code, width = plan[0, column], plan[1, column], plan[2, column]
        validity, values, data = addresses[position, 0], addresses[position, 1], addresses[position, 2]
        for row in range(len(out)):
            state = out[row] + uint64(_STEP)
            if values == ABSENT or _is_null(validity, row):
                state = fold_multiply(state ^ uint64(_NULL), uint64(_NULL))
            elif code == VAR:
                start, end = int64(load_i32(values + row * 4)), int64(load_i32(values + row * 4 + 4))
                state = _bytes(state, data + start, end - start)
            elif code == BITS:
                bit = bit_at(values, row)
                state = fold_multiply(state ^ uint64(bit), uint64(_WORD))
            elif width <= 8:
                state = fold_multiply(state ^ _small(values, width, row), uint64(_WORD))
            else:
                state = _bytes(state, values + row * width, width)
            out[row] = state
    for row in range(len(out)):
        out[row] = _mix(out[row])
