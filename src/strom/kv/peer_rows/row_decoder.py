"""The peer's compacted rows and keys, as Arrow.

A row starts with null bits (1 = NULL, lowest first) unless it is a key; then come the values that are not NULL, in
column order (``row_form``). Nothing may follow.

Promise: for any bytes, the result is a valid batch or the error is :class:`MalformedBatch` (or :class:`SchemaMismatch`
when a NOT NULL column is NULL; or :class:`RecordTooLarge` when small rows of many NULLs would become a batch of more
than ``BYTES_MAX``). Text is checked to be UTF-8, decimals to have no more digits than their type.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, NoReturn

import numpy as np
import pyarrow as pa

from strom.errors import MalformedBatch, RecordTooLarge, SchemaMismatch
from strom.kv.arrays import Int64s, Octets
from strom.kv.kernels.reserved_memory import address_of
from strom.kv.peer_rows.nested_decoder import decode_nested, spread
from strom.kv.peer_rows.row_decoder_kernels import COLUMN_BITS, WHOLE_ROW, copy_spans, read_rows
from strom.kv.peer_rows.row_form import BOOL, SPAN, form_of, is_nested
from strom.record.batch import DEFAULT_LIMITS

BYTES_MAX: Final = DEFAULT_LIMITS.decompressed_bytes_max
_ALIGNMENT: Final = 64
_TENS: Final = np.array(
    [part for power in range(39) for part in (10**power >> 64, 10**power & (2**64 - 1))], np.uint64
)
"""Ten to the power of 0 to 38, each as its high and its low 64 bits."""

_from_buffers = pa.Array.from_buffers


class _Column(NamedTuple):
    number: int
    type: pa.DataType
    bits: bool
    width: int
    span: int
    """The number among columns of text, bytes and nested values; -1 for others."""
    nested: bool
    text: bool


class RowDecoder:
    """Rows of one schema. ``required``: the columns that cannot be NULL, by default those that are NOT NULL."""

    def __init__(
        self, schema: pa.Schema, required: Sequence[int] | None = None, *, null_bits: bool = True
    ) -> None:
        self.schema = schema
        forms = [form_of(field.type) for field in schema]
        self._plan = np.zeros((len(forms), 5), np.int64)
        self._plan[:, 0] = [form.op for form in forms]
        self._plan[:, 1] = [form.number for form in forms]
        self._plan[:, 4] = np.cumsum(self._plan[:, 0] == SPAN) - 1
        self._columns = tuple(
            _Column(
                number,
                schema.field(number).type,
                form.op == BOOL,
                form.width,
                int(self._plan[number, 4]) if form.op == SPAN else -1,
                is_nested(schema.field(number).type),
                pa.types.is_string(schema.field(number).type),
            )
            for number, form in enumerate(forms)
        )
        self._spans = sum(column.span >= 0 for column in self._columns)
        must = (
            {p for p, field in enumerate(schema) if not field.nullable} if required is None else set(required)
        )
        self._required = np.array([position in must for position in range(len(forms))], np.bool_)
        self._null_bits = null_bits
        self._last_layout: tuple[int, Int64s, Int64s, int] = (-1, self._plan[:, 0], self._plan[:, 0], 0)

    def decode(self, data: Octets, starts: Int64s, ends: Int64s) -> pa.RecordBatch:
        """Row ``i`` lies in ``data[starts[i]:ends[i]]``."""
        rows = len(starts)
        bits, values, size = self._layout(rows)
        whole = np.zeros(
            size + _ALIGNMENT, np.uint8
        )  # the values of NULLs are zero: no stray memory gets out
        shift = -address_of(whole) % _ALIGNMENT
        block = whole[shift : shift + size]
        block[: values[0]] = 0xFF
        columns = self._plan.copy()
        columns[:, 2] = bits + address_of(block)
        columns[:, 3] = values + address_of(block)
        spans = np.empty((self._spans, rows), np.int64)
        sums = np.zeros((len(columns), 2), np.int64)
        starts, ends = np.ascontiguousarray(starts, np.int64), np.ascontiguousarray(ends, np.int64)
        wrong = read_rows(
            address_of(data), len(data), starts, ends, columns, self._required, self._null_bits, _TENS, spans, sums
        )  # fmt: skip
        if wrong >= 0:
            row, column = wrong >> COLUMN_BITS, wrong & WHOLE_ROW
            if column != WHOLE_ROW:
                self._refuse_null(data, int(starts[row]), row, column)
            self._refuse(row, column)
        arrays = self._arrays(data, block, bits.tolist(), values.tolist(), rows, spans, sums.tolist())
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _layout(self, rows: int) -> tuple[Int64s, Int64s, int]:
        """Where each column's validity and values go in the block (validity first), and the block's size."""
        last, bits, values, size = self._last_layout
        if last == rows:
            return bits, values, size
        room = _padded((rows + 7) >> 3)
        sizes = [
            room if column.bits else _padded(column.width * (rows + 1 if column.span >= 0 else rows))
            for column in self._columns
        ]
        size = room * len(sizes) + sum(sizes)
        if size > BYTES_MAX:
            raise RecordTooLarge(
                f"{rows} rows would take {size} bytes, and {BYTES_MAX} are the limit", rows=rows, size=size
            )
        bits = np.arange(len(sizes), dtype=np.int64) * room
        values = room * len(sizes) + np.cumsum([0, *sizes[:-1]], dtype=np.int64)
        self._last_layout = (rows, bits, values, size)
        return bits, values, size

    def _arrays(
        self,
        data: Octets,
        block: Octets,
        bits: list[int],
        values: list[int],
        rows: int,
        spans: Int64s,
        sums: list[list[int]],
    ) -> list[pa.Array]:
        memory = pa.py_buffer(block)
        bitmap = (rows + 7) >> 3
        arrays = []
        for column in self._columns:
            number = column.number
            nulls, length = sums[number]
            validity = memory.slice(bits[number], bitmap) if nulls else None
            place = values[number]
            if column.span < 0:
                room = bitmap if column.bits else rows * column.width
                arrays.append(_from_buffers(column.type, rows, [validity, memory.slice(place, room)], nulls))
                continue
            offsets = block[place : place + 4 * (rows + 1)].view(np.int32)
            if column.nested:
                arrays.append(_nested(column.type, data, spans[column.span], offsets, validity))
                continue
            text = np.empty(length, np.uint8)
            wrong = copy_spans(address_of(data), spans[column.span], offsets, text, column.text)
            if wrong >= 0:
                self._refuse(wrong, number)
            buffers = [validity, memory.slice(place, 4 * (rows + 1)), pa.py_buffer(text)]
            arrays.append(_from_buffers(column.type, rows, buffers, nulls))
        return arrays

    def _refuse_null(self, data: Octets, start: int, row: int, column: int) -> None:
        """Raise if the bytes are well formed but leave out a value that the table requires."""
        if self._null_bits and int(data[start + (column >> 3)]) >> (column & 7) & 1:
            name = self.schema.field(column).name
            raise SchemaMismatch(
                f"column {name!r} is NOT NULL, and row {row} has no value for it", row=row, column=name
            )

    def _refuse(self, row: int, column: int) -> NoReturn:
        if column == WHOLE_ROW:
            raise MalformedBatch(f"row {row} does not end where its last column does", row=row)
        field = self.schema.field(column)
        raise MalformedBatch(
            f"row {row} holds no {field.type} for column {field.name!r}", row=row, column=field.name
        )


class KeyDecoder(RowDecoder):
    """Keys: the key columns in their order, without null bits."""

    def __init__(self, schema: pa.Schema, columns: Sequence[str]) -> None:
        super().__init__(pa.schema([schema.field(name) for name in columns]), null_bits=False)


def _nested(
    kind: pa.DataType, data: Octets, starts: Int64s, offsets: Any, validity: pa.Buffer | None
) -> pa.Array:
    ends = starts + np.diff(offsets)
    if validity is None:
        return decode_nested(kind, data, starts, ends, _decode_rows)
    bits = np.frombuffer(validity, np.uint8)
    valid = np.unpackbits(bits, count=len(starts), bitorder="little").astype(bool)
    return spread(decode_nested(kind, data, starts[valid], ends[valid], _decode_rows), valid)


def _decode_rows(schema: pa.Schema, data: Octets, starts: Int64s, ends: Int64s) -> pa.RecordBatch:
    return RowDecoder(schema).decode(data, starts, ends)


def _padded(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT
