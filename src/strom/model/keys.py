"""Keys as bytes: the peer's compacted key encoding, for whole columns at a time.

The key columns' values follow one another without separators or a NULL bitmap (a key has no NULL):

    BOOLEAN TINYINT                 one byte
    SMALLINT FLOAT DOUBLE           2, 4, 8 bytes, little-endian
    INT DATE TIME                   unsigned LEB128 of the 32-bit pattern; TIME is milliseconds of the day
    BIGINT DECIMAL(p ≤ 18)          unsigned LEB128 of the 64-bit pattern
    DECIMAL(p > 18)                 LEB128 length, big-endian two's complement without needless leading bytes
    TIMESTAMP(p ≤ 3)                milliseconds as BIGINT
    TIMESTAMP(p > 3)                milliseconds as BIGINT, then nanoseconds of the millisecond as INT
    CHAR STRING BINARY BYTES        LEB128 length, bytes

Only equality and prefixes matter: byte order is not value order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from strom.errors import SchemaMismatch

Bytes = npt.NDArray[np.uint8]
Lengths = npt.NDArray[np.int64]

_MILLIS = {"s": (1000, 1), "ms": (1, 1), "us": (1, 1000), "ns": (1, 10**6)}
"""Unit to (factor, divisor) that give milliseconds."""


class EncodedKeys(NamedTuple):
    """Key ``i`` is ``data[starts[i] : starts[i + 1]]``."""

    data: Bytes
    starts: Lengths

    @property
    def lengths(self) -> Lengths:
        """Bytes of each key."""
        return np.diff(self.starts)


class _Piece(Protocol):
    """One column's part of every key."""

    lengths: Lengths

    def write(self, out: Bytes, at: Lengths) -> None:
        """Put each row's bytes into ``out``, row ``i`` from position ``at[i]``."""


class _Matrix:
    """Short values: each a row of bytes, of which only the first ``lengths[i]`` count."""

    def __init__(self, rows: Bytes, lengths: Lengths) -> None:
        self.rows = rows
        self.lengths = lengths

    def write(self, out: Bytes, at: Lengths) -> None:
        shortest = int(self.lengths.min(initial=self.rows.shape[1]))
        for column in range(self.rows.shape[1]):
            if column < shortest:
                out[at + column] = self.rows[:, column]
            else:
                rows = np.flatnonzero(self.lengths > column)
                out[at[rows] + column] = self.rows[rows, column]


class _Spans:
    """Text and bytes: a length, then a span of a larger buffer."""

    def __init__(self, data: Bytes, starts: Lengths, sizes: Lengths) -> None:
        self.data = data
        self.starts = starts
        self.sizes = sizes
        self.prefix = _varints(sizes.astype(np.uint64))
        self.lengths = self.prefix.lengths + sizes

    def write(self, out: Bytes, at: Lengths) -> None:
        self.prefix.write(out, at)
        begins = np.cumsum(self.sizes) - self.sizes
        run = np.arange(int(self.sizes.sum()), dtype=np.int64)
        # run minus the begin of the row's span counts 0, 1, 2 … within each row.
        target = run + np.repeat(at + self.prefix.lengths - begins, self.sizes)
        out[target] = self.data[run + np.repeat(self.starts - begins, self.sizes)]


def encode_keys(batch: pa.RecordBatch, columns: Sequence[str]) -> EncodedKeys:
    """The keys of all rows, made of these columns in this order."""
    assert columns
    pieces = [_piece(batch.column(name), name) for name in columns]
    lengths = np.sum([piece.lengths for piece in pieces], axis=0, dtype=np.int64)
    starts = np.zeros(batch.num_rows + 1, np.int64)
    np.cumsum(lengths, out=starts[1:])
    data = np.empty(int(starts[-1]), np.uint8)
    at = starts[:-1].copy()
    for piece in pieces:
        piece.write(data, at)
        at += piece.lengths
    return EncodedKeys(data, starts)


def _piece(array: pa.Array, name: str) -> _Piece:
    if array.null_count:
        raise SchemaMismatch(f"Column {name!r} is part of the key and cannot be NULL", column=name)
    kind = array.type
    if pa.types.is_boolean(kind):
        return _fixed(array.cast(pa.uint8()).to_numpy())
    if pa.types.is_int8(kind) or pa.types.is_int16(kind) or pa.types.is_floating(kind):
        return _fixed(array.to_numpy())
    if pa.types.is_int32(kind) or pa.types.is_date32(kind):
        return _varints(_integers(array, np.int32).astype(np.uint32).astype(np.uint64))
    if pa.types.is_int64(kind):
        return _varints(_integers(array, np.int64).astype(np.uint64))
    if pa.types.is_time(kind):
        factor, divisor = _MILLIS[kind.unit]
        ticks = _integers(array, np.int32 if kind.bit_width == 32 else np.int64).astype(np.int64)
        return _varints((ticks * factor // divisor).astype(np.uint32).astype(np.uint64))
    if pa.types.is_timestamp(kind):
        return _timestamps(_integers(array, np.int64), kind.unit)
    if pa.types.is_decimal128(kind):
        return _decimals(array)
    if pa.types.is_string(kind) or pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return _spans(array)
    raise SchemaMismatch(f"Column {name!r} is {kind}, which cannot be part of a key", column=name)


def _integers(array: pa.Array, kind: type[np.signedinteger[Any]]) -> npt.NDArray[Any]:
    """The column's physical numbers, without conversion."""
    whole = np.frombuffer(array.buffers()[1], kind) if len(array) else np.empty(0, kind)
    return whole[array.offset : array.offset + len(array)]


def _fixed(values: npt.NDArray[Any]) -> _Matrix:
    little = np.ascontiguousarray(values, values.dtype.newbyteorder("<"))
    width = little.dtype.itemsize
    return _Matrix(little.view(np.uint8).reshape(-1, width), np.full(len(values), width, np.int64))


def _varints(values: npt.NDArray[np.uint64]) -> _Matrix:
    """Unsigned LEB128: seven bits a byte, low first, the top bit set on all but the last."""
    widest = max(1, (int(values.max(initial=0)).bit_length() + 6) // 7)
    rows = np.empty((len(values), widest), np.uint8)
    lengths = np.ones(len(values), np.int64)
    rest = values
    for column in range(widest):
        low = (rest & np.uint64(0x7F)).astype(np.uint8)
        rest = rest >> np.uint64(7)
        more = rest != 0
        rows[:, column] = low | (more.astype(np.uint8) << 7)
        lengths += more
    return _Matrix(rows, lengths)


def _timestamps(ticks: npt.NDArray[np.int64], unit: str) -> _Piece:
    factor, divisor = _MILLIS[unit]
    if divisor == 1:
        return _varints((ticks * factor).astype(np.uint64))
    millis, rest = np.divmod(ticks, divisor)
    nanos = rest * (10**6 // divisor)
    return _joined(_varints(millis.astype(np.uint64)), _varints(nanos.astype(np.uint64)))


def _decimals(array: pa.Array) -> _Piece:
    words = np.frombuffer(array.buffers()[1], "<u8") if len(array) else np.empty(0, "<u8")
    words = words.reshape(-1, 2)[array.offset : array.offset + len(array)]
    if array.type.precision <= 18:
        return _varints(words[:, 0].astype(np.uint64))
    big = np.ascontiguousarray(words).view(np.uint8).reshape(-1, 16)[:, ::-1]
    needless = np.zeros(len(big), np.int64)
    leading = np.ones(len(big), bool)
    for column in range(15):  # a leading byte is redundant if it only repeats the next byte's sign
        sign = np.where(big[:, column + 1] & 0x80, 0xFF, 0x00)
        leading &= big[:, column] == sign
        needless += leading
    sizes = 16 - needless
    places = np.minimum(np.arange(16) + needless[:, None], 15)
    shifted = _Matrix(np.take_along_axis(big, places, axis=1), sizes)
    return _joined(_varints(sizes.astype(np.uint64)), shifted)


def _joined(left: _Matrix, right: _Matrix) -> _Matrix:
    """Two adjacent values as one."""
    width = left.rows.shape[1] + right.rows.shape[1]
    both = np.zeros((len(left.rows), width), np.uint8)
    both[:, : left.rows.shape[1]] = left.rows
    places = left.lengths[:, None] + np.arange(right.rows.shape[1])
    # Bytes of the right value beyond its length land in the padding, or in columns that do not count.
    np.put_along_axis(both, places, right.rows, axis=1)
    return _Matrix(both, left.lengths + right.lengths)


def _spans(array: pa.Array) -> _Spans:
    count = len(array)
    if pa.types.is_fixed_size_binary(array.type):
        width = array.type.byte_width
        starts = np.arange(array.offset, array.offset + count, dtype=np.int64) * width
        return _Spans(_buffer(array.buffers()[1]), starts, np.full(count, width, np.int64))
    if not count:
        return _Spans(np.empty(0, np.uint8), np.empty(0, np.int64), np.empty(0, np.int64))
    offsets = np.frombuffer(array.buffers()[1], np.int32)[array.offset : array.offset + count + 1]
    starts = offsets[:-1].astype(np.int64)
    return _Spans(_buffer(array.buffers()[2]), starts, np.diff(offsets).astype(np.int64))


def _buffer(buffer: pa.Buffer | None) -> Bytes:
    return np.empty(0, np.uint8) if buffer is None else np.frombuffer(buffer, np.uint8)
