"""Which lake files Spark's own Parquet reader takes in a query of the SQL catalog, and which of their rows.

It takes files that Strom wrote and that are read whole, if Spark can read the columns: these files use the table's
column names (other writers may rename them and rely on ids, which not every session reads), and the offset of a row
gives its position. Dead rows are passed as one bit per row. The Python source reads the other files and the servers.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.types import StructField, StructType

from strom.errors import LakeCorrupt
from strom.lake.files.field_ids import field_id
from strom.lake.files.file_description import is_own
from strom.lake.files.storage import Storage
from strom.lake.read.union_files import rows_of
from strom.model.data_type import DataType, Time
from strom.model.schema import Schema
from strom.spark.cold.cold_frames import FIELD_ID, uri_of
from strom.spark.cold.dead_offsets import Longs, named_rows
from strom.spark.connect.tasks import LakePart, Part
from strom.spark.connect.types import spark_type

BITS_MAX = 8 * 1024 * 1024
"""Bytes of all bits together. Beyond it, the Python source reads the files and drops dead rows."""
GROUP_BYTES_MIN = 8 * 1024 * 1024
GROUP_BYTES_MAX = 128 * 1024 * 1024
GROUPS_EACH = 2
"""Tasks per core, so that none ends long after the others."""


class ParquetFiles:
    """Takes files out of what the tasks of a query read."""

    def __init__(self, storage: Storage, schema: Schema, columns: StructType, parallelism: int) -> None:
        self._storage = storage
        self._parallelism = parallelism
        asked = [schema.column(name) for name in columns.names]
        self._possible = not has_doubles(schema) and not any(has_time(one.type) for one in asked)
        known = [one for one in schema.columns if not has_time(one.type)]
        self.schema = StructType(
            [StructField(one.name, spark_type(one.type), True, {FIELD_ID: field_id(one.id)}) for one in known]
        )
        """All columns that Spark's reader can find in a file."""
        self.groups: list[list[list[Any]]] = []
        """By task and file: URI, size, bits of dead rows (zstd), and their uncompressed bytes."""

    @property
    def bytes(self) -> int:
        """Bytes of all files that were taken."""
        return sum(size for group in self.groups for _, size, *_ in group)

    def take(self, parts: Sequence[Part]) -> list[Part]:
        """Take files; return the parts that are left."""
        files = (
            [part for part in parts if isinstance(part, LakePart) and is_own(part.file.path) and _whole(part)]
            if self._possible
            else []
        )
        named = named_rows(self._storage, files)
        taken: list[list[Any]] = []
        gone: set[str] = set()
        room = BITS_MAX
        for part in files:
            rows = self._dead(part, named.get(part.file.path))
            if rows is None or (len(rows) and part.file.rows // 8 > room):
                continue
            bits = _bits(part.file.rows, rows)
            room -= len(bits)
            packed = pa.compress(bits, codec="zstd", asbytes=True) if bits else b""
            text = base64.b64encode(packed).decode()
            taken.append([uri_of(self._storage, part.file.path), part.file.size, text, len(bits)])
            gone.add(part.file.path)
        self.groups = list(self._grouped(taken))
        return [part for part in parts if not isinstance(part, LakePart) or part.file.path not in gone]

    def _dead(self, part: LakePart, named: Longs | None) -> Longs | None:
        """The dead rows of a file; None if only its offset column tells."""
        died = rows_of(self._storage, part.file, np.frombuffer(part.dead, "<i8").astype(np.int64))
        if died is None or named is None:
            return died
        if len(named) and not 0 <= named.min() <= named.max() < part.file.rows:
            raise LakeCorrupt(
                f"{part.file.path} has {part.file.rows} rows, and deletes name others", uri=part.file.path
            )
        return np.concatenate([died, named])

    def _grouped(self, files: Sequence[list[Any]]) -> Iterator[list[list[Any]]]:
        total = sum(size for _, size, *_ in files)
        target = total / (self._parallelism * GROUPS_EACH)
        target = min(max(target, GROUP_BYTES_MIN), GROUP_BYTES_MAX)
        held: list[list[Any]] = []
        for file in files:
            if held and sum(size for _, size, *_ in held) + file[1] / 2 > target:
                yield held
                held = []
            held.append(file)
        if held:
            yield held


def _whole(part: LakePart) -> bool:
    """Whether the whole file is read."""
    limits, file = part.limits, part.file
    if limits is None:
        return True
    low, high = limits.low.get(part.bucket, 0), limits.high.get(part.bucket, file.last_offset + 1)
    return not limits.timed and low <= file.first_offset and high > file.last_offset


def _bits(rows: int, dead: Longs) -> bytes:
    if not len(dead):
        return b""
    flags = np.zeros(rows, np.bool_)
    flags[dead] = True
    return np.packbits(flags, bitorder="little").tobytes()


def has_time(kind: DataType) -> bool:
    """Whether it contains a TIME, which Spark 4.3 does not read from files."""
    return isinstance(kind, Time) or any(map(has_time, kind.children()))


def has_doubles(schema: Schema) -> bool:
    """Whether names differ only in case, or clash with Spark's own: it cannot tell them apart in a file."""
    return _doubled([*schema.names, "_metadata"]) or any(_doubled_in(one.type) for one in schema.columns)


def _doubled_in(kind: DataType) -> bool:
    names = [field.name for field in getattr(kind, "fields", ())]
    return _doubled(names) or any(_doubled_in(child) for child in kind.children())


def _doubled(names: Sequence[str]) -> bool:
    return len({name.lower() for name in names}) < len(names)
