"""The description of a data file that was written and not yet committed: plain data that travels as JSON.

A worker describes what it wrote; the driver commits what it collected. Bounds are in Iceberg's single-value format
(little-endian numbers, UTF-8 text, big-endian unscaled decimals), so that the commit just copies them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from strom.errors import LakeCorrupt
from strom.model.document import Document

PartitionValue = bool | int | str | bytes
"""A partition column's value as Iceberg keeps it: days, microseconds, text, bytes."""

OWN_PREFIX = "strom-"
"""Prefix of the names of Strom's data files: their rows are in the order of their offsets."""

_NUMBER_MAX = 2**63 - 1
_WORD_MAX = 2**64 - 1


def is_own(path: str) -> bool:
    """Whether Strom wrote a data file: its rows are in order, and every column of it has statistics."""
    return path.rpartition("/")[2].startswith(OWN_PREFIX)


@dataclass(frozen=True)
class ColumnStats:
    """Statistics of one Parquet column. ``lower``/``upper`` None: unknown, or all NULL (``nulls == values``)."""

    size: int
    values: int
    nulls: int | None = None
    nans: int | None = None
    lower: bytes | None = None
    upper: bytes | None = None


@dataclass(frozen=True)
class DataFileDescription:
    """One Parquet file of one bucket, sorted by offset."""

    path: str
    size: int
    rows: int
    bucket: int
    first_offset: int
    last_offset: int
    partition_id: int | None = None
    partition_name: str | None = None
    partition_values: tuple[PartitionValue, ...] = ()
    """The values of the partition columns, in order."""
    columns: Mapping[int, ColumnStats] = field(default_factory=dict)
    """By field id."""
    split_offsets: tuple[int, ...] = ()
    sidecar: str | None = None
    """The file that lists its offsets; None where they are consecutive."""
    sidecar_size: int = 0
    offsets_total: int | None = None
    """The total of the print of its offsets (``offset_print.py``); None where it was not computed."""

    def to_json(self) -> str:
        """As text; ``from_json`` reads it."""
        plain = {
            "path": self.path,
            "size": self.size,
            "rows": self.rows,
            "bucket": self.bucket,
            "first_offset": self.first_offset,
            "last_offset": self.last_offset,
            "partition_id": self.partition_id,
            "partition_name": self.partition_name,
            "partition_values": [_packed(value) for value in self.partition_values],
            "columns": {str(number): _stats_json(stats) for number, stats in self.columns.items()},
            "split_offsets": self.split_offsets,
            "sidecar": self.sidecar,
            "sidecar_size": self.sidecar_size,
            "offsets_total": self.offsets_total,
        }
        return json.dumps(plain, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes) -> DataFileDescription:
        """From text; what is not a description is LakeCorrupt."""
        doc = Document.parse(text, "data file", LakeCorrupt)
        try:
            columns = {int(name): _stats(value) for name, value in doc.document("columns").value.items()}
            values = tuple(_unpacked(item) for item in doc.value.get("partition_values", ()))
            splits = tuple(int(number) for number in doc.value.get("split_offsets", ()))
        except (TypeError, ValueError, AttributeError) as problem:
            raise LakeCorrupt(f"A data file's description cannot be read: {problem}") from problem
        return cls(
            path=doc.text("path"),
            size=_number(doc, "size"),
            rows=_number(doc, "rows"),
            bucket=doc.integer("bucket", low=0),
            first_offset=_number(doc, "first_offset"),
            last_offset=_number(doc, "last_offset"),
            partition_id=_number(doc, "partition_id") if doc.has("partition_id") else None,
            partition_name=doc.text_or_none("partition_name"),
            partition_values=values,
            columns=columns,
            split_offsets=splits,
            sidecar=doc.text_or_none("sidecar"),
            sidecar_size=_number(doc, "sidecar_size"),
            offsets_total=doc.integer("offsets_total", low=0, high=_WORD_MAX)
            if doc.has("offsets_total")
            else None,
        )


def _number(doc: Document, key: str) -> int:
    return doc.integer(key, low=0, high=_NUMBER_MAX)


def _stats_json(stats: ColumnStats) -> list[Any]:
    return [stats.size, stats.values, stats.nulls, stats.nans, _hex(stats.lower), _hex(stats.upper)]


def _stats(value: Any) -> ColumnStats:
    size, values, nulls, nans, lower, upper = value
    return ColumnStats(
        int(size), int(values), _optional(nulls), _optional(nans), _bytes(lower), _bytes(upper)
    )


def _optional(value: Any) -> int | None:
    return None if value is None else int(value)


def _hex(value: bytes | None) -> str | None:
    return None if value is None else value.hex()


def _bytes(value: str | None) -> bytes | None:
    return None if value is None else bytes.fromhex(value)


def _packed(value: PartitionValue) -> Any:
    return {"hex": value.hex()} if isinstance(value, bytes) else value


def _unpacked(value: Any) -> PartitionValue:
    if isinstance(value, dict):
        return bytes.fromhex(value["hex"])
    if isinstance(value, bool | int | str):
        return value
    raise TypeError(f"{value!r} is no partition value")
