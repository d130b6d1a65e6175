"""Bounds of the lake's rows: smallest and largest value per column, over all rows ever committed.

A reader whose filter lies outside skips the lake. Bounds only widen (a deleted row still counts), so they enclose the
rows of every snapshot. Values are *comparable* (``record/aligned_row.py``): integers in the column's unit for dates and
times, bytes for text. The snapshot's summary and the cluster's record of the table store them as text.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from decimal import Decimal as Digits
from typing import Any

from strom.lake.files.field_ids import field_id
from strom.lake.files.file_description import ColumnStats, DataFileDescription
from strom.model import types as t
from strom.model.data_type import DataType
from strom.model.filters.predicate import Predicate
from strom.model.filters.predicate_literals import from_unscaled
from strom.model.lake.lake import UNKNOWN, Bounds, BoundValues
from strom.model.schema import Schema
from strom.record.prune import Pruner
from strom.record.statistics import ColumnStatistics

Comparable = Any
_ROWS = 2
"""Bounds are passed on as statistics of two rows: one NULL and one not, unless all are NULL."""

_MICROS = {"s": 1_000_000, "ms": 1_000, "us": 1}
_FORMATS: dict[type[DataType], str] = {
    t.TinyInt: "<i",
    t.SmallInt: "<i",
    t.Int: "<i",
    t.BigInt: "<q",
    t.Float: "<f",
    t.Double: "<d",
    t.Date: "<i",
}


def comparable(raw: bytes, data_type: DataType) -> Comparable | None:
    """A bound in Iceberg's format as a value of the column; None when it is invalid."""
    try:
        match data_type:
            case t.Boolean():
                return raw != b"\x00"
            case t.Time() | t.Timestamp() | t.TimestampLtz():
                return int(struct.unpack("<q", raw)[0]) // _MICROS[data_type.unit]
            case t.Decimal():
                return from_unscaled(int.from_bytes(raw, "big", signed=True), data_type.scale)
            case t.String() | t.Char() | t.Bytes() | t.Binary():
                return bytes(raw)
            case _:
                return struct.unpack(_FORMATS[type(data_type)], raw)[0]
    except (struct.error, KeyError):
        return None


def file_statistics(
    schema: Schema, columns: Mapping[int, ColumnStats], rows: int, *, complete: bool = True
) -> dict[int, ColumnStatistics]:
    """A file's statistics (by field id) as statistics of the table's columns (by position), where they are known.

    A column that the file does not have is NULL in all its rows. With ``complete``, a column without statistics is such
    a column; otherwise (another engine wrote the file and may keep none) it is unknown. Pass ``rows`` on to
    ``Pruner.may_match``.
    """
    found = {}
    for position, column in enumerate(schema.columns):
        if column.type.nested:
            continue
        stats = columns.get(field_id(column.id))
        if stats is None:
            if complete:
                found[position] = ColumnStatistics(None, None, rows)
            continue
        known = _known(stats, column.type)
        if known is not None and stats.nulls is not None:
            found[position] = ColumnStatistics(*known, stats.nulls)
    return found


def may_match(predicate: Predicate, schema: Schema, bounds: Bounds) -> bool:
    """Whether a row of the lake could pass a checked filter. False: skip the lake."""
    return Pruner(predicate, schema.to_arrow()).may_match(_statistics(schema, bounds), _ROWS)


def widened(
    bounds: Bounds, schema: Schema, added: Iterable[DataFileDescription]
) -> dict[int, BoundValues | str]:
    """The bounds, widened by the rows of these files. Earlier rows have NULL in columns that were added later."""
    found = dict(bounds)
    files = list(added)
    for column in schema.columns:
        found[column.id] = _joined(
            [found.get(column.id), *(_of_file(file, column.id, column.type) for file in files)], column.type
        )
    return found


def _of_file(file: DataFileDescription, column_id: int, data_type: DataType) -> BoundValues | str:
    if data_type.nested:
        return UNKNOWN
    stats = file.columns.get(field_id(column_id))
    if stats is None:
        return None
    known = _known(stats, data_type)
    if known is None:
        return UNKNOWN
    return None if known[0] is None else (_text(known[0]), _text(known[1]))


def _known(stats: ColumnStats, data_type: DataType) -> tuple[Comparable | None, Comparable | None] | None:
    """(low, high), both None when every value is NULL; None when nothing is known."""
    if stats.nulls is not None and stats.nulls == stats.values:
        return None, None
    if stats.lower is None or stats.upper is None or stats.nans:
        return None
    if stats.nans is None and isinstance(data_type, t.Float | t.Double):
        return None  # a foreign file without a NaN count: its bounds leave NaN out, and NaN is the largest
    low, high = comparable(stats.lower, data_type), comparable(stats.upper, data_type)
    return None if low is None or high is None else (low, high)


def _joined(parts: Iterable[BoundValues | str], data_type: DataType) -> BoundValues | str:
    pairs: list[tuple[Comparable, Comparable]] = []
    for part in parts:
        if isinstance(part, str):
            return UNKNOWN
        if part is not None:
            pairs.append((_value(part[0], data_type), _value(part[1], data_type)))
    if not pairs:
        return None
    if any(low is None or high is None for low, high in pairs):
        return UNKNOWN
    return _text(min(low for low, _ in pairs)), _text(max(high for _, high in pairs))


def _statistics(schema: Schema, bounds: Bounds) -> dict[int, ColumnStatistics]:
    found = {}
    for position, column in enumerate(schema.columns):
        known = bounds.get(column.id)
        if known is None:
            found[position] = ColumnStatistics(None, None, _ROWS)
        elif isinstance(known, tuple):
            low, high = (_value(text, column.type) for text in known)
            if low is not None and high is not None:
                found[position] = ColumnStatistics(low, high, 1)
    return found


def _text(value: Comparable) -> str:
    if isinstance(value, bytes):
        return value.hex()
    return repr(value) if isinstance(value, float) else str(value)


def _value(text: str, data_type: DataType) -> Comparable | None:
    """The value behind a text; None when it is invalid."""
    try:
        match data_type:
            case t.Boolean():
                return text == "True"
            case t.Float() | t.Double():
                return float(text)
            case t.Decimal():
                return Digits(text)
            case t.String() | t.Char() | t.Bytes() | t.Binary():
                return bytes.fromhex(text)
            case _:
                return int(text)
    except (ValueError, ArithmeticError):
        return None
