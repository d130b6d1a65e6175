"""Kernels over the cells of the series. ``bounds`` are the first offsets of the runs."""

from __future__ import annotations

from typing import Final

from strom.kv.arrays import Int64s
from strom.kv.kernels.compile import boolean, int64, kernel, load_i64, ro, rw, store_i64, void

FINE, OUTSIDE, FORWARD = 0, 1, 2
_IMAGE: Final = 1


@kernel()
def _cell(offset: int, bounds: Int64s, addresses: Int64s) -> int:
    """The content of an offset's cell. Tries the newest run first, which is read most."""
    piece = len(addresses) - 1
    if offset < bounds[piece]:
        low, high = 0, piece
        while high - low > 1:
            middle = (low + high) >> 1
            if bounds[middle] <= offset:
                low = middle
            else:
                high = middle
        piece = low
    return load_i64(addresses[piece] + (offset - bounds[piece]) * 8)  # type: ignore[no-any-return]


@kernel(boolean(ro(int64), int64, int64, ro(int64), ro(int64), rw(int64)))
def load_all(offsets: Int64s, start: int, end: int, bounds: Int64s, addresses: Int64s, out: Int64s) -> bool:
    for i in range(len(offsets)):
        if not start <= offsets[i] < end:
            return False
        out[i] = _cell(offsets[i], bounds, addresses) - 1
    return True


@kernel(int64(rw(int64), int64, int64, int64, ro(int64), ro(int64)))
def step_back(versions: Int64s, below: int, start: int, end: int, bounds: Int64s, addresses: Int64s) -> int:
    for i in range(len(versions)):
        version = versions[i]
        while version >= 0 and version >> 1 >= below:
            offset = version >> 1
            if not start <= offset < end:
                return OUTSIDE
            version = _cell(offset, bounds, addresses) - 1
            if version < -1 or version >> 1 >= offset:
                return FORWARD
        versions[i] = version
    return FINE


@kernel(boolean(ro(int64), ro(int64), int64, int64))
def sound(offsets: Int64s, previous: Int64s, low: int, high: int) -> bool:
    for i in range(len(offsets)):
        if not low <= offsets[i] < high or previous[i] < -1 or previous[i] >> 1 >= offsets[i]:
            return False
    return True


@kernel(void(ro(int64), ro(int64), int64, int64, int64))
def store_all(offsets: Int64s, previous: Int64s, low: int, high: int, address: int) -> None:
    """Store what lies in [low, high). NONE is not stored: it is there already, and a write would take memory."""
    for i in range(len(offsets)):
        if low <= offsets[i] < high and previous[i] >= 0:
            store_i64(address + (offsets[i] - low) * 8, previous[i] + 1)


@kernel(int64(int64, int64, int64))
def count_replaced(address: int, count: int, below: int) -> int:
    found = 0
    for i in range(count):
        version = load_i64(address + i * 8) - 1
        if version >= 0 and version & _IMAGE and version >> 1 < below:
            found += 1
    return found


@kernel(void(int64, int64, int64, rw(int64)))
def take_replaced(address: int, count: int, below: int, out: Int64s) -> None:
    found = 0
    for i in range(count):
        version = load_i64(address + i * 8) - 1
        if version >= 0 and version & _IMAGE and version >> 1 < below and found < len(out):
            out[found] = version >> 1
            found += 1


@kernel(void(int64, rw(int64)))
def copy(address: int, out: Int64s) -> None:
    for i in range(len(out)):
        out[i] = load_i64(address + i * 8)


@kernel(void(int64, int64))
def clear(address: int, count: int) -> None:
    for i in range(count):
        store_i64(address + i * 8, 0)
