"""Aggregates that compute with machine numbers: sum, product and count of integers and floats.

Integers wrap around at the width of their column, as in the peer. FLOAT is rounded at every step, like DOUBLE, so that
the result does not depend on how changes are batched. NULLs are skipped.
"""

from __future__ import annotations

# ruff: noqa: SIM109 (a chain of comparisons is what Numba compiles best)
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from strom.kv.arrays import Bools, Int64s, Octets
from strom.kv.changes import Changes
from strom.kv.engines.change_modes import CLEAR, FRESH, OLD, SKIP, ChangeModes, valid_rows
from strom.kv.kernels.compile import boolean, float32, float64, int64, kernel, ro, rw, uint8, void

SUM: Final = 0
PRODUCT: Final = 1
RULES: Final = {"sum": SUM, "product": PRODUCT}


class MaskedValues(NamedTuple):
    """Values, and which of them are not NULL."""

    values: npt.NDArray[Any]
    valid: Bools


def column_of(array: pa.Array, kind: npt.DTypeLike) -> MaskedValues:
    """An array of numbers for NumPy, without a copy if it has the wanted kind already."""
    own = array.type.to_pandas_dtype()
    whole = np.frombuffer(array.buffers()[1], own) if len(array) else np.empty(0, own)
    values = whole[array.offset : array.offset + len(array)].astype(kind, copy=False)
    return MaskedValues(values, valid_rows(array))


def fold_numbers(
    rule: int, changes: Changes, modes: ChangeModes, came: MaskedValues, was: MaskedValues
) -> MaskedValues:
    """Sum or product; both columns are int64, float32 or float64."""
    values = np.zeros(len(came.values), came.values.dtype)
    valid = np.zeros(len(values), np.bool_)
    _fold(
        rule, modes.mode, changes.order, changes.starts, came.values, came.valid, was.values, was.valid, values,
        valid,
    )  # fmt: skip
    return MaskedValues(values, valid)


def fold_count(changes: Changes, modes: ChangeModes, came: Bools, was: MaskedValues) -> MaskedValues:
    """The number of values so far that are not NULL."""
    values = np.zeros(len(came), np.int64)
    valid = np.zeros(len(came), np.bool_)
    _count(modes.mode, changes.order, changes.starts, came, was.values, was.valid, values, valid)
    return MaskedValues(values, valid)


def compute(function: str, changes: Changes, modes: ChangeModes, came: pa.Array, was: pa.Array) -> pa.Array:
    """The images' column for sum, product or count of integers or floats."""
    kind = came.type
    own = kind.to_pandas_dtype()
    wide = np.int64 if pa.types.is_integer(kind) else own
    before = column_of(was, wide)
    if function == "count":
        found = fold_count(changes, modes, valid_rows(came), before)
    else:
        found = fold_numbers(RULES[function], changes, modes, column_of(came, wide), before)
    return array_of(found, kind)


def array_of(column: MaskedValues, kind: pa.DataType) -> pa.Array:
    """As Arrow; integers are truncated to the width of the type."""
    own = kind.to_pandas_dtype()
    mask = None if column.valid.all() else ~column.valid
    return pa.array(column.values.astype(own, copy=False), kind, mask=mask)


def _signature(kind: Any) -> Any:
    return void(
        int64, ro(uint8), ro(int64), ro(int64), ro(kind), ro(boolean), ro(kind), ro(boolean), rw(kind), rw(boolean)
    )  # fmt: skip


@kernel(_signature(int64), _signature(float32), _signature(float64))
def _fold(
    rule: int,
    mode: Octets,
    order: Int64s,
    starts: Int64s,
    came: npt.NDArray[Any],
    came_valid: Bools,
    was: npt.NDArray[Any],
    was_valid: Bools,
    values: npt.NDArray[Any],
    valid: Bools,
) -> None:
    for j in range(len(starts) - 1):
        total = was[j]
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
                    total = came[a]
                elif rule == SUM:
                    total = total + came[a]
                else:
                    total = total * came[a]
                there = True
            valid[a] = there
            if there:
                values[a] = total


@kernel(
    void(
        ro(uint8), ro(int64), ro(int64), ro(boolean), ro(int64), ro(boolean), rw(int64), rw(boolean)
    )
)  # fmt: skip
def _count(
    mode: Octets,
    order: Int64s,
    starts: Int64s,
    came: Bools,
    was: Int64s,
    was_valid: Bools,
    values: Int64s,
    valid: Bools,
) -> None:
    for j in range(len(starts) - 1):
        total = np.int64(0)
        for k in range(starts[j], starts[j + 1]):
            a = order[k]
            how = mode[a]
            if how == SKIP:
                continue
            if how == OLD:
                total = was[j] if was_valid[j] else np.int64(0)
            elif how == FRESH or how == CLEAR:
                total = np.int64(0)
            if how == CLEAR:
                continue
            if came[a]:
                total += 1
            values[a] = total
            valid[a] = True
