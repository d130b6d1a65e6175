"""The values of a batch of one row as Python objects, read from its buffers: what ``to_pylist()[0]`` gives, sooner."""

from __future__ import annotations

import struct
from collections.abc import Callable
from datetime import date, datetime, timedelta
from typing import Any

import pyarrow as pa

from strom.errors import MalformedBatch
from strom.record.batch import check_crc, read_columns, read_header
from strom.record.columns import BatchColumns, ColumnLayout
from strom.record.decode import decode
from strom.record.layout import NOT_COMPRESSED
from strom.runtime.files import Bytes

Read = Callable[[Bytes, int], tuple[Any, ...]]

_FIXED = {
    pa.int8(): struct.Struct("<b"),
    pa.int16(): struct.Struct("<h"),
    pa.int32(): struct.Struct("<i"),
    pa.int64(): struct.Struct("<q"),
    pa.float32(): struct.Struct("<f"),
    pa.float64(): struct.Struct("<d"),
}
_OFFSETS = struct.Struct("<ii")
_DAYS, _COUNT = _FIXED[pa.int32()], _FIXED[pa.int64()]
_EPOCH = datetime(1970, 1, 1)
_EPOCH_DAY = date(1970, 1, 1).toordinal()


def _day(view: Bytes, position: int) -> tuple[date]:
    return (date.fromordinal(_EPOCH_DAY + _DAYS.unpack_from(view, position)[0]),)


def _instants(microseconds: int) -> Read:
    """Timestamps without a zone, counted in units of so many microseconds."""

    def read(view: Bytes, position: int) -> tuple[datetime]:
        return (_EPOCH + timedelta(microseconds=microseconds * _COUNT.unpack_from(view, position)[0]),)

    return read


# Nanoseconds and zones are left to pyarrow, which knows types for them.
_READ: dict[pa.DataType, Read] = {
    **{kind: fixed.unpack_from for kind, fixed in _FIXED.items()},
    pa.date32(): _day,
    pa.timestamp("us"): _instants(1),
    pa.timestamp("ms"): _instants(1_000),
    pa.timestamp("s"): _instants(1_000_000),
}

_FIXED_WIDTH, _BIT, _TEXT, _BYTES = range(4)


class RowValues:
    """Reads rows of one schema. ``of`` gives None when a column's values need more than unpacking."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._layout = ColumnLayout.of(schema)
        self._columns: list[tuple[str, int | None, int, Read | None]] = []
        """Name, form, the buffer after the validity, how to unpack it."""
        at = 0
        for field in schema:
            form = _form(field.type)
            self._columns.append((field.name, form, at + 1, _READ.get(field.type)))
            at += 3 if form in (_TEXT, _BYTES) else 2

    @classmethod
    def of(cls, schema: pa.Schema) -> RowValues | None:
        """For columns of numbers, booleans, days, timestamps without a zone, text and bytes."""
        return cls(schema) if all(_form(field.type) is not None for field in schema) else None

    def read(self, records: Bytes, schema_id: int) -> dict[str, Any]:
        """The one row of a batch, checked as every batch is that comes from outside."""
        view = memoryview(records)
        header = read_header(view)
        columns = read_columns(view, header)
        if columns.codec != NOT_COMPRESSED or header.size != len(view) or header.schema_id != schema_id:
            row: dict[str, Any] = decode(view, self._schema, aligned=True).to_pylist()[0]
            return row
        if header.record_count != 1:
            raise MalformedBatch(f"one row was asked for, and {header.record_count} came")
        check_crc(view, header)
        self._layout.check(view, columns, record_count=1, decompressed_bytes_max=len(view))
        try:
            return self._values(view, columns)
        except UnicodeDecodeError as error:
            raise MalformedBatch(f"text that is not UTF-8: {error}") from error
        except (OverflowError, ValueError):
            # A day or an instant that Python has no value for: pyarrow says so in its own words.
            values: dict[str, Any] = decode(view, self._schema, aligned=True).to_pylist()[0]
            return values

    def _values(self, view: memoryview, columns: BatchColumns) -> dict[str, Any]:
        nodes, buffers = columns.nodes, columns.buffers
        found: dict[str, Any] = {}
        node = 1
        for name, form, buffer, unpack in self._columns:
            if nodes[node]:  # the null count of one value
                found[name] = None
            else:
                position = buffers[buffer][0]
                if unpack is not None:
                    found[name] = unpack(view, position)[0]
                elif form == _BIT:
                    found[name] = bool(view[position] & 1)
                else:
                    start, end = _OFFSETS.unpack_from(view, position)
                    base = buffers[buffer + 1][0]
                    value = view[base + start : base + end]
                    found[name] = str(value, "utf-8") if form == _TEXT else bytes(value)
            node += 2
        return found


def _form(kind: pa.DataType) -> int | None:
    if kind in _READ:
        return _FIXED_WIDTH
    if pa.types.is_boolean(kind):
        return _BIT
    if pa.types.is_string(kind):
        return _TEXT
    return _BYTES if pa.types.is_binary(kind) else None
