"""Parts of kernels that look at one row of a source: whether it may be read, and single values where they lie.

Rows are named by (source, row); source -1 is a row of NULLs. ``addresses[source, column] = validity, values, data``, as
in ``column_source``. ``spec`` is ``Selection.spec``: its lines are ``COLUMNS``, ``FORMS`` and ``WIDTHS``.
"""

from __future__ import annotations

from typing import Any

from strom.kv.gather.column_source import ABSENT, FORM_CODES
from strom.kv.kernels.compile import int64, kernel, load_i32, load_i64, load_u8, load_u64

FIXED, BITS, VAR, NESTED = (FORM_CODES[form] for form in ("fixed", "bits", "var", "nested"))
COLUMNS, FORMS, WIDTHS = range(3)


@kernel()
def is_held(rows: Any, source: Any, row: Any) -> bool:
    """Whether there is such a row. The source is not negative."""
    return bool(source < len(rows) and 0 <= row < rows[source])


@kernel()
def is_unchecked(whole: Any, sound: Any, source: Any, spec: Any) -> bool:
    """Whether one of these columns of a source has to be checked before it is read."""
    unchecked = False
    if whole[source] == 0:
        for j in range(spec.shape[1]):
            unchecked |= sound[source, spec[COLUMNS, j]] == 0
    return unchecked


@kernel()
def bit_at(address: int, at: int) -> Any:
    """Bit ``at`` of a bitmap."""
    return (load_u8(address + (at >> 3)) >> (at & 7)) & 1


@kernel()
def is_null(addresses: Any, column: Any, source: Any, row: Any) -> Any:
    """Whether a value is NULL."""
    if source < 0 or addresses[source, column, 1] == ABSENT:
        return True
    bitmap = addresses[source, column, 0]
    return bitmap != 0 and bit_at(bitmap, row) == 0


@kernel()
def length_of(addresses: Any, column: int, source: int, row: int) -> Any:
    """Bytes of a value of variable length; none when it is NULL."""
    if is_null(addresses, column, source, row):
        return 0
    offsets = addresses[source, column, 1]
    return int64(load_i32(offsets + 4 * row + 4)) - int64(load_i32(offsets + 4 * row))


@kernel()
def _same_octets(left: int, right: int, size: int) -> bool:
    at = 0
    while at + 8 <= size:
        if load_u64(left + at) != load_u64(right + at):
            return False
        at += 8
    while at < size:
        if load_u8(left + at) != load_u8(right + at):
            return False
        at += 1
    return True


@kernel()
def same_value(
    left: Any, lc: int, ls: int, lr: int, right: Any, rc: int, rs: int, rr: int, form: int, width: int
) -> Any:
    """Whether two values (column, source, row) are the same, bit by bit; NULL is the same as NULL."""
    null = is_null(left, lc, ls, lr)
    if null != is_null(right, rc, rs, rr):
        return False
    if null:
        return True
    here, there = left[ls, lc, 1], right[rs, rc, 1]
    if form == FIXED:
        if width == 8:
            return load_i64(here + 8 * lr) == load_i64(there + 8 * rr)
        return _same_octets(here + lr * width, there + rr * width, width)
    if form == BITS:
        return bit_at(here, lr) == bit_at(there, rr)
    size = length_of(left, lc, ls, lr)
    if size != length_of(right, rc, rs, rr):
        return False
    begin, other = int64(load_i32(here + 4 * lr)), int64(load_i32(there + 4 * rr))
    return _same_octets(left[ls, lc, 2] + begin, right[rs, rc, 2] + other, size)
