"""Aggregates of decimals: sum, product and average, exact to the last digit or refused.

A sum that outgrows its column raises :class:`SchemaMismatch`, and the whole batch is refused. (The peer makes it NULL,
and then silently continues from there.)
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from strom.errors import SchemaMismatch
from strom.kv.arrays import Bools, Int64s
from strom.kv.changes import Changes
from strom.kv.engines.arithmetic import RULES
from strom.kv.engines.change_modes import ChangeModes, valid_rows
from strom.kv.engines.wide_kernels import divide_wide, fold_wide

Words = npt.NDArray[np.uint64]


def compute_decimal(
    function: str, changes: Changes, modes: ChangeModes, came: pa.Array, was: pa.Array
) -> pa.Array:
    """The images' column for sum or product; ``was`` has the scale of ``came`` and determines the result's type."""
    kind = was.type
    values = np.zeros((len(came), 2), np.uint64)
    valid = np.zeros(len(came), np.bool_)
    wrong = fold_wide(
        RULES[function], modes.mode, changes.order, changes.starts, words_of(came), valid_rows(came), words_of(was),
        valid_rows(was), _power(kind.precision), _power(kind.scale), values, valid,
    )  # fmt: skip
    if wrong >= 0:
        raise SchemaMismatch(
            f"The {function} of row {wrong} has more digits than {kind} holds", row=int(wrong), type=str(kind)
        )
    return decimals_of(values, valid, kind)


def average_decimals(sums: pa.Array, counts: Int64s, kind: pa.DataType) -> pa.Array:
    """Each sum divided by its count, rounded half away from zero to the scale of ``kind``, which is the sums'."""
    valid = valid_rows(sums) & (counts > 0)
    values = np.zeros((len(sums), 2), np.uint64)
    wrong = divide_wide(words_of(sums), counts, valid, _power(kind.precision), values)
    if wrong >= 0:
        raise SchemaMismatch(f"The average of row {wrong} has more digits than {kind} holds", row=int(wrong))
    return decimals_of(values, valid, kind)


def words_of(array: pa.Array) -> Words:
    """Low and high half of each value."""
    if not len(array):
        return np.empty((0, 2), np.uint64)
    return np.frombuffer(array.buffers()[1], np.uint64).reshape(-1, 2)[
        array.offset : array.offset + len(array)
    ]


def decimals_of(values: Words, valid: Bools, kind: pa.DataType) -> pa.Array:
    """As Arrow."""
    bits = None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(kind, len(valid), [bits, pa.py_buffer(values)])


def _power(digits: int) -> Words:
    return np.array([10**digits & (2**64 - 1), 10**digits >> 64], np.uint64)
