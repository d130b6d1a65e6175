"""Kernels over the newest version of every row, by row id. A cell is the version + 1, so that zero means NONE."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from strom.kv.arrays import Int64s
from strom.kv.kernels.compile import (
    boolean,
    int64,
    kernel,
    load_i64,
    prefetch,
    ro,
    rw,
    store_i64,
    uint32,
    void,
)
from strom.kv.kernels.reserved_memory import CHUNK_BITS, CHUNK_MASK

_AHEAD = 16


@kernel()
def _cell(table: Int64s, row_id: int) -> int:
    return table[row_id >> CHUNK_BITS] + (row_id & CHUNK_MASK) * 8  # type: ignore[no-any-return]


@kernel()
def version_of(table: Int64s, row_id: int) -> int:
    """The newest version of a row id that exists."""
    return load_i64(_cell(table, row_id)) - 1  # type: ignore[no-any-return]


@kernel(void(ro(int64), int64, ro(int64), rw(int64)))
def load_all(row_ids: Int64s, size: int, table: Int64s, out: Int64s) -> None:
    for i in range(len(row_ids)):
        ahead = i + _AHEAD
        if ahead < len(row_ids) and 0 <= row_ids[ahead] < size:
            prefetch(_cell(table, row_ids[ahead]))
        row_id = row_ids[i]
        out[i] = load_i64(_cell(table, row_id)) - 1 if 0 <= row_id < size else -1


@kernel(boolean(ro(int64), ro(int64), int64, ro(int64)))
def store_all(row_ids: Int64s, versions: Int64s, size: int, table: Int64s) -> bool:
    """All or none: False when a row id or a version is out of range."""
    for i in range(len(row_ids)):
        if not 0 <= row_ids[i] < size or versions[i] < -1:
            return False
    for i in range(len(row_ids)):
        ahead = i + _AHEAD
        if ahead < len(row_ids):
            prefetch(_cell(table, row_ids[ahead]))
        store_i64(_cell(table, row_ids[i]), versions[i] + 1)
    return True


@kernel(boolean(ro(uint32), ro(int64), ro(int64)))
def fill_empty(row_ids: npt.NDArray[np.uint32], versions: Int64s, table: Int64s) -> bool:
    """Store into empty cells; False at the first row that has a version already, or at a negative version."""
    for i in range(len(row_ids)):
        ahead = i + _AHEAD
        if ahead < len(row_ids):
            prefetch(_cell(table, int64(row_ids[ahead])))
        cell = _cell(table, int64(row_ids[i]))
        if load_i64(cell) != 0 or versions[i] < 0:
            return False
        store_i64(cell, versions[i] + 1)
    return True


@kernel(int64(int64, ro(int64), rw(int64)))
def take_empty(size: int, table: Int64s, out: Int64s) -> int:
    """Count the rows below ``size`` without a version, and list them in ``out`` as far as there is room."""
    count = 0
    for row_id in range(size):
        if load_i64(_cell(table, row_id)) == 0:
            if count < len(out):
                out[count] = row_id
            count += 1
    return count
