"""Lake files as a relation in DuckDB: read by DuckDB itself where they are local, through Arrow where they are not.

Columns map by field id, so a file that is too old for a column gives NULL. Position deletes and offsets that died since
the snapshot are removed by an anti-join; files that have none are read without it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from strom.lake.files.field_ids import BUCKET_ID, OFFSET_ID, TIMESTAMP_ID, field_id
from strom.lake.files.file_description import is_own
from strom.lake.files.file_reader import LakeFile, deleted_rows
from strom.lake.files.storage import Storage
from strom.lake.read.union_files import read_planned
from strom.lake.read.union_plan import UnionPlan
from strom.model.data_type import DataType, Double, Float, Row
from strom.model.filters.predicate import Predicate
from strom.model.lake.lake_types import BUCKET, OFFSET, TIMESTAMP
from strom.model.schema import Schema
from strom.sql.duck import literal, quoted
from strom.sql.streaming import StreamedRows

Register = Callable[[str, object], None]
"""Registers rows with DuckDB under a name."""

_OWN = {
    BUCKET: (BUCKET_ID, "INTEGER"),
    OFFSET: (OFFSET_ID, "BIGINT"),
    TIMESTAMP: (TIMESTAMP_ID, "TIMESTAMPTZ"),
}
ROW_NUMBER, FILE_NUMBER = "file_row_number", "file_index"
"""DuckDB's fixed names for a row's position in its file, and for the file's position in the list."""
_GLOB = frozenset("*?[]{}")
"""Characters that make DuckDB search for matching files."""


class LakeRelation:
    """The lake part of one table's plan. ``types`` is every column of the relation, with its DuckDB type."""

    def __init__(
        self,
        schema: Schema,
        types: Mapping[str, str],
        plan: UnionPlan,
        storage: Storage,
        streams: list[StreamedRows],
    ) -> None:
        self._schema = schema
        self._types = types
        self._plan = plan
        self._storage = storage
        self._streams = streams

    def select(
        self,
        register: Register,
        name: str,
        columns: frozenset[str],
        where: Predicate | None,
    ) -> str:
        """A SELECT of the rows; what it needs is registered under names that begin with ``name``."""
        paths = [self._storage.path(file.path) for file in self._plan.files]
        if not self._storage.config.local or any(_GLOB & set(path) for path in paths) or self._hides_nans():
            return self._through_arrow(register, name, columns, where)
        clean: list[LakeFile] = []
        touched: list[LakeFile] = []
        for file in self._plan.files:
            dead = self._plan.dead_of(file)
            (touched if file.deletes or len(dead) else clean).append(file)
        parts = []
        if clean:
            parts.append(f"SELECT {self._columns()} FROM {self._parquet(clean)}")
        if touched and {ROW_NUMBER, FILE_NUMBER} & {column.lower() for column in self._types}:
            return self._through_arrow(register, name, columns, where)
        if touched:
            parts.append(self._without_dead(register, name, touched))
        return " UNION ALL ".join(parts)

    def _hides_nans(self) -> bool:
        """Whether DuckDB might wrongly skip rows: in other engines' files, minima and maxima leave NaN out."""
        floats = any(_has_float(column.type) for column in self._schema.columns)
        return floats and not all(is_own(file.path) for file in self._plan.files)

    def _columns(self) -> str:
        return ", ".join(quoted(name) for name in self._types)

    def _parquet(self, files: Sequence[LakeFile]) -> str:
        paths = ", ".join(literal(self._storage.path(file.path)) for file in files)
        return f"read_parquet([{paths}], hive_partitioning = false, schema = {self._map()})"

    def _map(self) -> str:
        entries = []
        for name, kind in {**self._types, OFFSET: _OWN[OFFSET][1]}.items():
            own = _OWN.get(name)
            number = own[0] if own is not None else field_id(self._schema.column(name).id)
            entries.append(f"{number}: {{name: {literal(name)}, type: {literal(kind)}, default_value: NULL}}")
        return f"MAP {{{', '.join(entries)}}}"

    def _without_dead(self, register: Register, name: str, files: Sequence[LakeFile]) -> str:
        condition = ""
        for column, suffix, dead in zip(
            (ROW_NUMBER, OFFSET), ("rows", "dead"), _gathered(self._storage, self._plan, files), strict=True
        ):
            if dead.num_rows:
                other = f"{name}_{suffix}"
                register(other, dead)
                condition += (
                    f" ANTI JOIN {other} ON f.{FILE_NUMBER} = {other}.file AND f.{column} = {other}.row"
                )
        return f"SELECT {self._columns()} FROM {self._parquet(files)} f{condition}"

    def _through_arrow(
        self,
        register: Register,
        name: str,
        columns: frozenset[str],
        where: Predicate | None,
    ) -> str:
        def batches(wanted: Sequence[str]) -> Generator[pa.RecordBatch, None, None]:
            yield from read_planned(self._storage, self._plan, self._schema, wanted, where)

        stream = StreamedRows(_arrow_of(self._schema, self._types), sorted(columns), batches)
        self._streams.append(stream)
        register(f"{name}_lake", stream)
        return f"SELECT {self._columns()} FROM {name}_lake"


def _has_float(data_type: DataType) -> bool:
    inner = [field.type for field in data_type.fields] if isinstance(data_type, Row) else []
    return isinstance(data_type, Float | Double) or any(map(_has_float, inner))


def _arrow_of(schema: Schema, types: Mapping[str, str]) -> pa.Schema:
    own = {BUCKET: pa.int32(), OFFSET: pa.int64(), TIMESTAMP: pa.timestamp("us", "UTC")}
    arrow = schema.to_arrow()
    return pa.schema([pa.field(name, own[name]) if name in own else arrow.field(name) for name in types])


def _gathered(storage: Storage, plan: UnionPlan, files: Sequence[LakeFile]) -> tuple[pa.Table, pa.Table]:
    """(file, row) that delete files name, and (file, offset) that died since; files by their place in the list."""
    found: list[pa.Table] = []
    for select in (
        lambda file: deleted_rows(storage, file) if file.deletes else np.empty(0, np.int64),
        plan.dead_of,
    ):
        dead = [select(file) for file in files]
        numbers = np.repeat(np.arange(len(files), dtype=np.uint64), [len(one) for one in dead])
        rows = np.concatenate(dead).astype(np.int64, copy=False)
        found.append(pa.table([pa.array(numbers), pa.array(rows)], names=["file", "row"]))
    return found[0], found[1]
