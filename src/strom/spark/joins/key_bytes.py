"""Join keys and primary keys as bytes, whole columns at a time.

A key is the concatenation of its columns: numbers have a fixed width, text and bytes are preceded by their length. So
different keys have different bytes, and no key is empty; an empty one stands for "no row". Columns of different types
that can be compared (INT and BIGINT) are converted to one type first (``common_type``).

    join key           0, then its columns
    NULL join key      1 (left) or 2 (right), then the primary key of the row: it has no partner and forms a group alone
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from strom.errors import InvalidRequest
from strom.model import data_type as types
from strom.spark.connect.types import arrow_schema, spark_type

ORDINARY, LEFT_ALONE, RIGHT_ALONE = 0, 1, 2
"""The first byte of a group's key."""
DIGITS_MAX = 38
MICROSECONDS = 6
"""Spark's timestamps have no more digits."""

_WHOLE = {types.TinyInt: 3, types.SmallInt: 5, types.Int: 10, types.BigInt: 19}
"""Integer types and their number of digits."""

Mask = npt.NDArray[np.bool_]
Positions = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]


# --- types ---------------------------------------------------------------------------------------------------------


def common_type(left: types.DataType, right: types.DataType) -> types.DataType:
    """The type in which values of both can be compared; InvalidRequest where there is none."""
    found = _common(left, right)
    if found is None:
        hint = "" if left.nested or not _inexact(left, right) else ": they are not exact, use DECIMAL"
        raise InvalidRequest(f"{_name(left)} and {_name(right)} cannot be a join key{hint}")
    return found


def _common(left: types.DataType, right: types.DataType) -> types.DataType | None:
    both = (left, right)
    if all(type(one) in _WHOLE for one in both):
        return types.BigInt()
    if all(isinstance(one, types.String | types.Char) for one in both):
        return types.String()
    if all(isinstance(one, types.Bytes | types.Binary) for one in both):
        return types.Bytes()
    for kind in (types.Boolean, types.Date):
        if all(isinstance(one, kind) for one in both):
            return kind()
    for precise in (types.Timestamp, types.TimestampLtz):
        if all(isinstance(one, precise) and one.precision <= MICROSECONDS for one in both):
            return precise(MICROSECONDS)
    return _decimal(left, right)


def _decimal(left: types.DataType, right: types.DataType) -> types.DataType | None:
    parts = []
    for one in (left, right):
        if isinstance(one, types.Decimal):
            parts.append((one.precision - one.scale, one.scale))
        elif type(one) in _WHOLE:
            parts.append((_WHOLE[type(one)], 0))
        else:
            return None
    whole, scale = (max(side) for side in zip(*parts, strict=True))
    return types.Decimal(whole + scale, scale) if whole + scale <= DIGITS_MAX else None


def _inexact(*kinds: types.DataType) -> bool:
    return any(isinstance(one, types.Float | types.Double) for one in kinds)


def _name(kind: types.DataType) -> str:
    return kind.as_nullable(True).sql()


def arrow_of(kind: types.DataType) -> pa.DataType:
    """The Arrow type in which Spark passes a column of this type."""
    from pyspark.sql.types import StructField, StructType

    return arrow_schema(StructType([StructField("x", spark_type(kind))])).field(0).type


# --- bytes ---------------------------------------------------------------------------------------------------------


def encoded(columns: Sequence[pa.Array], first: int | None = None) -> pa.BinaryArray:
    """The keys of all rows, with the byte ``first`` in front. Keys of rows with a NULL are undefined."""
    rows = len(columns[0])
    parts: list[pa.Array] = []
    fixed: list[Bytes] = [] if first is None else [np.full((rows, 1), first, np.uint8)]
    for column in columns:
        if _spans(column.type):
            text = column.cast(pa.binary())
            lengths = pc.fill_null(pc.binary_length(text), 0).to_numpy(zero_copy_only=False)
            fixed.append(_matrix(lengths.astype("<i4")))
            parts += [_binary(np.hstack(fixed)), pc.fill_null(text, b"")]
            fixed = []
        else:
            fixed.append(_fixed(column))
    if fixed:
        parts.append(_binary(np.hstack(fixed) if len(fixed) > 1 else fixed[0]))
    return parts[0] if len(parts) == 1 else pc.binary_join_element_wise(*parts, b"")


def decoded(keys: pa.BinaryArray, kinds: Sequence[pa.DataType], skip: int = 0) -> list[pa.Array]:
    """The inverse of ``encoded``, after ``skip`` bytes; InvalidRequest for bytes that are not such keys."""
    offsets = np.frombuffer(keys.buffers()[1], np.int32)[keys.offset : keys.offset + len(keys) + 1]
    content = keys.buffers()[2]
    data = np.empty(0, np.uint8) if content is None else np.frombuffer(content, np.uint8)
    at, ends = offsets[:-1].astype(np.int64) + skip, offsets[1:].astype(np.int64)
    found: list[pa.Array] = []
    for kind in kinds:
        if _spans(kind):
            _check_within(at + 4, ends)
            lengths = data[at[:, None] + np.arange(4)].copy().view("<i4")[:, 0].astype(np.int64)
            at = at + 4
            _check_within(at + np.where(lengths < 0, len(data) + 1, lengths), ends)
            starts = np.cumsum(lengths) - lengths
            taken = data[np.repeat(at - starts, lengths) + np.arange(int(lengths.sum()))]
            places = np.append(starts, lengths.sum()).astype(np.int32)
            buffers = [None, pa.py_buffer(places), pa.py_buffer(taken)]
            found.append(pa.Array.from_buffers(pa.binary(), len(keys), buffers).cast(kind))
            at = at + lengths
        else:
            plain = pa.uint8() if pa.types.is_boolean(kind) else kind
            width = plain.bit_width // 8
            _check_within(at + width, ends)
            taken = np.ascontiguousarray(data[at[:, None] + np.arange(width)])
            column = pa.Array.from_buffers(plain, len(keys), [None, pa.py_buffer(taken)])
            found.append(column if plain is kind else column.cast(kind))
            at = at + width
    return found


def _check_within(at: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]) -> None:
    if (at > ends).any():
        raise InvalidRequest(
            "a key in the result of this join was not written by it: start with rebuild=True"
        )


def _spans(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
    )


def _fixed(column: pa.Array) -> Bytes:
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.uint8())
    width = column.type.bit_width // 8
    buffer = column.buffers()[1]
    if buffer is None or not len(column):
        return np.zeros((len(column), width), np.uint8)
    whole = np.frombuffer(buffer, np.uint8, count=len(column) * width, offset=column.offset * width)
    return whole.reshape(-1, width)


def _matrix(numbers: npt.NDArray[np.int32]) -> Bytes:
    return np.ascontiguousarray(numbers).view(np.uint8).reshape(-1, numbers.dtype.itemsize)


def _binary(rows: Bytes) -> pa.BinaryArray:
    """Rows of one width as an array of bytes."""
    count, width = rows.shape
    offsets = np.arange(count + 1, dtype=np.int32) * np.int32(width)
    data = np.ascontiguousarray(rows)
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


# --- from the common type to a side's own ---------------------------------------------------------------------------


def fitting(column: pa.Array, kind: pa.DataType) -> tuple[pa.Array, Mask | None]:
    """Values in a side's own type, and which of them fit (None: all). Values that do not fit have no row there."""
    if column.type.equals(kind):
        return column, None
    if pa.types.is_decimal(column.type):
        return _fitting_decimal(column, kind)
    if pa.types.is_fixed_size_binary(kind):
        return _fitting_width(column, kind)
    own = column.cast(kind, safe=False)
    if _spans(kind):
        return own, None
    back = own.cast(column.type, safe=False)
    return own, pc.equal(back, column).to_numpy(zero_copy_only=False)


def fitting_keys(
    values: Sequence[pa.Array], kinds: Sequence[pa.DataType], places: Positions
) -> tuple[list[pa.Array], Positions]:
    """Keys in a side's own types, without those that it cannot hold, and the places of the ones that are left."""
    fitted = [fitting(value, kind) for value, kind in zip(values, kinds, strict=True)]
    columns = [column for column, _ in fitted]
    masks = [mask for _, mask in fitted if mask is not None]
    if masks and not (kept := np.logical_and.reduce(masks)).all():
        chosen = pa.array(np.flatnonzero(kept))
        columns, places = [column.take(chosen) for column in columns], places[kept]
    return columns, places


def any_null(columns: Sequence[pa.Array]) -> pa.BooleanArray | None:
    """Which rows have a NULL in one of the columns; None when no row has."""
    found = None
    for column in columns:
        if column.null_count:
            null = pc.is_null(column)
            found = null if found is None else pc.or_(found, null)
    return found


def _fitting_width(column: pa.Array, kind: pa.DataType) -> tuple[pa.Array, Mask]:
    kept = pc.equal(pc.binary_length(column), kind.byte_width)
    blank = pc.if_else(kept, column, pa.scalar(bytes(kind.byte_width), column.type))
    return blank.cast(kind), kept.to_numpy(zero_copy_only=False)


def _fitting_decimal(column: pa.Array, kind: pa.DataType) -> tuple[pa.Array, Mask]:
    whole_numbers = not pa.types.is_decimal(kind)
    decimal = pa.decimal128(_DIGITS[kind.bit_width], 0) if whole_numbers else kind
    whole, scale = decimal.precision - decimal.scale, decimal.scale
    # Towards zero: rounded up, 999.99 would have more digits than its column, and Arrow would refuse it.
    kept = pc.equal(pc.round(column, ndigits=scale, round_mode="towards_zero"), column)
    if whole < column.type.precision - column.type.scale:
        kept = pc.and_(kept, pc.less(pc.abs(column), pa.scalar(Decimal(10) ** whole, column.type)))
    blank = pc.if_else(kept, column, pa.scalar(Decimal(0), column.type)).cast(decimal, safe=False)
    own = blank.cast(kind, safe=False)
    if whole_numbers:  # 200 has three digits as a TINYINT may, and would become another number
        kept = pc.and_(kept, pc.equal(own.cast(decimal), blank))
    return own, kept.to_numpy(zero_copy_only=False)


_DIGITS = {8: 3, 16: 5, 32: 10, 64: 19}
