"""Statistics of a data file, taken from what Parquet computed while writing it: no value is read twice.

Bounds are cut to 64 bytes at a character: a lower bound may be a prefix of the value, an upper bound is then the next
text after all that share the prefix.

Parquet keeps no statistics of floating-point columns: its minima and maxima leave out NaN, which is the largest value
for Strom, DuckDB and Spark, so that they would skip row groups wrongly. Those columns are measured here; one with a NaN
has no bounds.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from strom.lake.files.arrow_types import ParquetLeaf
from strom.lake.files.file_description import ColumnStats

BOUND_BYTES_MAX = 64


@dataclass
class FloatStats:
    """What was seen of one floating-point column."""

    nulls: int = 0
    nans: int = 0
    low: float | None = None
    high: float | None = None

    def see(self, values: pa.ChunkedArray) -> None:
        """Add more values."""
        self.nulls += values.null_count
        self.nans += pc.sum(pc.is_nan(values)).as_py() or 0
        if self.nans:
            return  # then there are no bounds
        found = pc.min_max(values).as_py()
        if found["min"] is not None:
            self.low = found["min"] if self.low is None else min(self.low, found["min"])
            self.high = found["max"] if self.high is None else max(self.high, found["max"])

    def bounds(self, kind: pa.DataType) -> tuple[bytes | None, bytes | None]:
        """In Iceberg's format, where -0.0 is below 0.0; which of the two was seen is unknown, so both are covered."""
        if self.nans or self.low is None or self.high is None:
            return None, None
        form = _FORMATS[kind.id]
        return struct.pack(form, self.low or -0.0), struct.pack(form, self.high or 0.0)


def column_stats(
    metadata: pq.FileMetaData, leaves: Sequence[ParquetLeaf], floats: Mapping[int, FloatStats]
) -> dict[int, ColumnStats]:
    """The statistics by field id. ``floats``: those of floating-point columns, for which Parquet has none."""
    return {
        leaf.field_id: _of_column(metadata, position, leaf, floats.get(leaf.field_id))
        for position, leaf in enumerate(leaves)
    }


def group_stats(
    metadata: pq.FileMetaData, leaves: Sequence[ParquetLeaf | None], group: int
) -> dict[int, ColumnStats]:
    """The same for some leaves of one row group. NaNs are not counted here, so floats have no bounds."""
    return {
        leaf.field_id: _of_column(metadata, position, leaf, None, groups=range(group, group + 1))
        if leaf.type.id in _KNOWN
        else ColumnStats(
            0, metadata.row_group(group).num_rows
        )  # the column exists, but nothing is known about its values
        for position, leaf in enumerate(leaves)
        if leaf is not None
    }


def split_offsets(metadata: pq.FileMetaData) -> tuple[int, ...]:
    """Where the row groups begin."""
    found = []
    for number in range(metadata.num_row_groups):
        column = metadata.row_group(number).column(0)
        dictionary = column.dictionary_page_offset
        found.append(min(column.data_page_offset, dictionary) if dictionary else column.data_page_offset)
    return tuple(found)


def _of_column(
    metadata: pq.FileMetaData,
    position: int,
    leaf: ParquetLeaf,
    floats: FloatStats | None,
    groups: range | None = None,
) -> ColumnStats:
    size = values = nulls = 0
    known_nulls = known_bounds = not leaf.repeated
    lows: list[Any] = []
    highs: list[Any] = []
    for number in range(metadata.num_row_groups) if groups is None else groups:
        chunk = metadata.row_group(number).column(position)
        size += chunk.total_compressed_size
        values += chunk.num_values
        found = chunk.statistics
        if found is None or not found.has_null_count:
            known_nulls = known_bounds = False
            continue
        nulls += found.null_count
        if found.has_min_max:
            lows.append(found.min_raw)
            highs.append(found.max_raw)
        elif found.null_count < chunk.num_values:
            known_bounds = False
    if floats is not None:
        return ColumnStats(size, values, floats.nulls, floats.nans, *floats.bounds(leaf.type))
    if not known_bounds or not lows:
        return ColumnStats(size, values, nulls if known_nulls else None)
    lower = _single_value(_least(lows, leaf.type), leaf.type, upper=False)
    upper = _single_value(_greatest(highs, leaf.type), leaf.type, upper=True)
    return ColumnStats(size, values, nulls, None, lower, upper)


def _least(values: list[Any], kind: pa.DataType) -> Any:
    return min(values, key=lambda value: _ordered(value, kind))


def _greatest(values: list[Any], kind: pa.DataType) -> Any:
    return max(values, key=lambda value: _ordered(value, kind))


def _ordered(value: Any, kind: pa.DataType) -> Any:
    """A raw Parquet value in a form that compares like the column."""
    if pa.types.is_decimal(kind) and isinstance(value, bytes):
        return int.from_bytes(value, "big", signed=True)
    return value


def _single_value(value: Any, kind: pa.DataType, *, upper: bool) -> bytes | None:
    """One value in Iceberg's format."""
    if pa.types.is_boolean(kind):
        return b"\x01" if value else b"\x00"
    if pa.types.is_decimal(kind):
        return signed_bytes(_ordered(value, kind))
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        raw = value.encode() if isinstance(value, str) else bytes(value)
        cut = _cut_text if pa.types.is_string(kind) else _cut_bytes
        return cut(raw, upper)
    if pa.types.is_fixed_size_binary(kind):
        return _cut_bytes(bytes(value), upper) if len(value) <= BOUND_BYTES_MAX else None
    return struct.pack(_FORMATS[kind.id], value)


_FORMATS = {
    kind.id: form
    for kind, form in (
        (pa.int32(), "<i"),
        (pa.int64(), "<q"),
        (pa.float32(), "<f"),
        (pa.float64(), "<d"),
        (pa.date32(), "<i"),
        (pa.time64("us"), "<q"),
        (pa.timestamp("us"), "<q"),
    )
}

_KNOWN = {pa.bool_().id, pa.decimal128(1).id, pa.string().id, pa.binary().id, pa.binary(1).id, *_FORMATS}


def signed_bytes(number: int) -> bytes:
    """The fewest big-endian bytes of a number."""
    length = (number if number >= 0 else ~number).bit_length() // 8 + 1
    return number.to_bytes(length, "big", signed=True)


def _cut_text(raw: bytes, upper: bool) -> bytes | None:
    if len(raw) <= BOUND_BYTES_MAX:
        return raw
    text = raw[:BOUND_BYTES_MAX].decode("utf-8", "ignore")
    if not upper:
        return text.encode()
    for end in range(len(text), 0, -1):
        following = _next_character(text[end - 1])
        if following is not None:
            return (text[: end - 1] + following).encode()
    return None


def _next_character(character: str) -> str | None:
    number = ord(character) + 1
    if 0xD800 <= number <= 0xDFFF:
        number = 0xE000  # half a surrogate pair is no character
    return chr(number) if number <= 0x10FFFF else None


def _cut_bytes(raw: bytes, upper: bool) -> bytes | None:
    if len(raw) <= BOUND_BYTES_MAX:
        return raw
    cut = raw[:BOUND_BYTES_MAX]
    if not upper:
        return cut
    short = cut.rstrip(b"\xff")
    return short[:-1] + bytes([short[-1] + 1]) if short else None
