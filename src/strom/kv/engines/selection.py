"""Aggregates that choose: the result is always one of the incoming values. So they compute row numbers, for any type.

    last_value                  the newest, NULL too        first_value                 the oldest, NULL too
    last_value_ignore_nulls     the newest not NULL         first_value_ignore_nulls    the oldest not NULL
    max bool_or, min bool_and   the largest, the smallest; of equal ones the older

A choice is an index into the incoming rows followed by the old images; -1 is NULL. max and min compare integers that
order as the values do: NaN above all numbers, minus zero below zero, text by its bytes.
"""

from __future__ import annotations

# ruff: noqa: SIM109 (a chain of comparisons is what Numba compiles best)
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from strom.kv.arrays import Bools, Int64s, Octets
from strom.kv.changes import Changes
from strom.kv.engines.change_modes import FRESH, NEXT, OLD, SKIP, ChangeModes, valid_rows
from strom.kv.engines.versioned import whole_numbers
from strom.kv.kernels.compile import boolean, int64, kernel, ro, rw, uint8, void

LAST: Final = 0
LAST_VALUE: Final = 1
FIRST: Final = 2
FIRST_VALUE: Final = 3
MAX: Final = 4
MIN: Final = 5

CHOICES: Final = {
    "last_value": LAST,
    "last_value_ignore_nulls": LAST_VALUE,
    "first_value": FIRST,
    "first_value_ignore_nulls": FIRST_VALUE,
    "max": MAX,
    "min": MIN,
    "bool_or": MAX,
    "bool_and": MIN,
}
_NO_ORDER: Final = np.empty(0, np.int64)


def choose(function: str, changes: Changes, modes: ChangeModes, came: pa.Array, was: pa.Array) -> pa.Array:
    """The images' column, with a row per change."""
    rule = CHOICES[function]
    newest_only = rule == LAST or (rule == LAST_VALUE and not came.null_count)
    if newest_only and not modes.clears:
        return came
    both = pa.concat_arrays([came, was])
    ranks = comparable(both) if rule >= MAX else _NO_ORDER
    pick = np.empty(len(came), np.int64)
    _choose(rule, modes.mode, changes.order, changes.starts, valid_rows(came), valid_rows(was), ranks, pick)
    return both.take(pa.array(pick, mask=pick < 0))


def comparable(array: pa.Array) -> Int64s:
    """Integers that order as the values do; arbitrary for NULLs."""
    kind = array.type
    if pa.types.is_floating(kind):
        return _float_order(array)
    if pa.types.is_boolean(kind):
        return np.asarray(array.cast(pa.int8()).fill_null(0).to_numpy(False), np.int64)
    if pa.types.is_integer(kind) or pa.types.is_temporal(kind):
        return whole_numbers(array)
    return np.asarray(pc.rank(array, sort_keys="ascending", tiebreaker="dense").to_numpy(False)).astype(
        np.int64
    )


def _float_order(array: pa.Array) -> Int64s:
    kind = np.float32 if array.type.bit_width == 32 else np.float64
    whole: npt.NDArray[Any] = np.frombuffer(array.buffers()[1], kind) if len(array) else np.empty(0, kind)
    values = whole[array.offset : array.offset + len(array)].astype(np.float64)
    values[np.isnan(values)] = np.nan  # one NaN, with its sign bit clear
    bits = values.view(np.int64)
    return bits ^ ((bits >> 63) & np.int64(2**63 - 1))


@kernel(void(int64, ro(uint8), ro(int64), ro(int64), ro(boolean), ro(boolean), ro(int64), rw(int64)))
def _choose(
    rule: int,
    mode: Octets,
    order: Int64s,
    starts: Int64s,
    came: Bools,
    was: Bools,
    ranks: Int64s,
    pick: Int64s,
) -> None:
    n = len(came)
    for j in range(len(starts) - 1):
        chosen = -1
        for k in range(starts[j], starts[j + 1]):
            a = order[k]
            how = mode[a]
            if how == OLD:
                chosen = n + j if was[j] else -1
            if how == FRESH:
                chosen = a if came[a] else -1
            elif how == OLD or how == NEXT:
                if rule == LAST:
                    chosen = a if came[a] else -1
                elif rule == LAST_VALUE:
                    chosen = a if came[a] else chosen
                elif rule == FIRST_VALUE:
                    chosen = a if chosen < 0 and came[a] else chosen
                elif rule == MAX and came[a]:
                    chosen = a if chosen < 0 or ranks[a] > ranks[chosen] else chosen
                elif rule == MIN and came[a]:
                    chosen = a if chosen < 0 or ranks[a] < ranks[chosen] else chosen
            elif how != SKIP:  # CLEAR
                chosen = -1
            pick[a] = chosen if how != SKIP else -1
