"""Plain rows: one row as bytes, read into Python values without Arrow (docs/formats/protocol.md, LookupRow).

Reading gives the same values as ``to_pylist()[0]``. One ``struct`` holds all fixed-width values. Types that need Arrow
(time zones, nanoseconds, decimals, nested values) are not supported: ``PlainRow.of`` returns None.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from datetime import date, datetime, timedelta
from typing import Any

import pyarrow as pa

from strom.errors import MalformedBatch
from strom.runtime.files import Bytes

_EPOCH = datetime(1970, 1, 1)
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_CODES = {
    pa.int8(): "b",
    pa.int16(): "h",
    pa.int32(): "i",
    pa.int64(): "q",
    pa.float32(): "f",
    pa.float64(): "d",
    pa.bool_(): "?",
    pa.string(): "I",
    pa.binary(): "I",
    pa.date32(): "i",
    pa.timestamp("us"): "q",
    pa.timestamp("ms"): "q",
    pa.timestamp("s"): "q",
}


def _day(days: int) -> date:
    return date.fromordinal(_EPOCH_DAY + days)


def _at_micros(count: int) -> datetime:
    return _EPOCH + timedelta(0, 0, count)


def _at_millis(count: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=count)


def _at_seconds(count: int) -> datetime:
    return _EPOCH + timedelta(0, count)


_MADE_OF: dict[pa.DataType, Callable[[int], object]] = {
    pa.date32(): _day,
    pa.timestamp("us"): _at_micros,
    pa.timestamp("ms"): _at_millis,
    pa.timestamp("s"): _at_seconds,
}


class PlainRow:
    """Reads and writes the plain rows of one schema."""

    def __init__(self, schema: pa.Schema) -> None:
        self._names: list[str] = schema.names
        marks = (len(schema) + 7) >> 3
        self._fixed = struct.Struct(f"<{marks}s{''.join(_CODES[field.type] for field in schema)}")
        self._no_nulls = bytes(marks)
        self._parts = [
            (at, pa.types.is_string(field.type))
            for at, field in enumerate(schema, 1)
            if pa.types.is_string(field.type) or pa.types.is_binary(field.type)
        ]
        self._made = [
            (at, _MADE_OF[field.type]) for at, field in enumerate(schema, 1) if field.type in _MADE_OF
        ]

    @classmethod
    def of(cls, schema: pa.Schema) -> PlainRow | None:
        """For columns of numbers, booleans, dates, timestamps without a zone, text and bytes; else None."""
        return cls(schema) if all(field.type in _CODES for field in schema) else None

    def write(self, values: Sequence[int | bytes]) -> bytes:
        """Encode a row of numbers and bytes (text as UTF-8) without NULLs. struct.error when a number does not fit."""
        if not self._parts:
            return self._fixed.pack(self._no_nulls, *values)
        sizes = [len(value) if type(value) is bytes else value for value in values]
        parts = [value for value in values if type(value) is bytes]
        return b"".join((self._fixed.pack(self._no_nulls, *sizes), *parts))

    def read(self, view: Bytes, start: int) -> dict[str, Any]:
        """Decode the row that fills ``view`` from ``start`` on.

        Raises OverflowError or ValueError for a date or timestamp outside Python's range.
        """
        try:
            found = list(self._fixed.unpack_from(view, start))
            at = start + self._fixed.size
            for part, text in self._parts:
                end = at + found[part]
                value = view[at:end]
                found[part] = str(value, "utf-8") if text else bytes(value)
                at = end
            nulls = found[0]
            if nulls == self._no_nulls:
                for place, make in self._made:
                    found[place] = make(found[place])
            else:
                self._with_nulls(found, int.from_bytes(nulls, "little"))
        except (struct.error, UnicodeDecodeError) as error:
            raise MalformedBatch(f"a row cannot be read: {error}") from error
        if at != len(view):
            raise MalformedBatch(f"a row of {len(view) - start} bytes ends after {at - start}")
        del found[0]
        return dict(zip(self._names, found, strict=True))

    def _with_nulls(self, found: list[Any], nulls: int) -> None:
        for place, make in self._made:
            if not nulls >> place - 1 & 1:
                found[place] = make(found[place])
        for place in range(1, len(found)):
            if nulls >> place - 1 & 1:
                found[place] = None
