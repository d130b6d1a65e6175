"""Reads one data file of the lake back into the table's columns, without PyIceberg: readers' workers stay light.

Columns map by field id: one that is newer than the file is NULL. Rows that position deletes name are left out, row
groups that cannot pass the filter are not read. Types are converted back (``arrow_types.py``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from strom.errors import LakeCorrupt, LakeForeignCommit
from strom.lake.files.arrow_types import ParquetLeaf, from_lake, id_of, lake_schema
from strom.lake.files.bounds import file_statistics
from strom.lake.files.field_ids import BUCKET_ID, OFFSET_ID, TIMESTAMP_ID
from strom.lake.files.statistics import group_stats
from strom.lake.files.storage import Storage
from strom.model.filters.predicate import Predicate
from strom.model.lake.lake_types import BUCKET, OFFSET, TIMESTAMP
from strom.model.schema import Schema
from strom.record.prune import Pruner

POSITION_PATH = "file_path"
POSITION_ROW = "pos"
NO_OFFSET = -1

_DELETES = pa.schema([(POSITION_PATH, pa.dictionary(pa.int32(), pa.string())), (POSITION_ROW, pa.int64())])
_OWN = {BUCKET: BUCKET_ID, OFFSET: OFFSET_ID, TIMESTAMP: TIMESTAMP_ID}
Positions = npt.NDArray[np.int64]


@dataclass(frozen=True)
class LakeFile:
    """One data file of a plan: plain data that can be sent to a worker."""

    path: str
    size: int
    rows: int
    bucket: int
    first_offset: int
    last_offset: int
    partition_id: int | None = None
    partition_name: str | None = None
    deletes: tuple[str, ...] = ()
    """The position delete files that may name its rows."""


def read_file(
    storage: Storage,
    file: LakeFile,
    schema: Schema,
    columns: Sequence[str] | None = None,
    predicate: Predicate | None = None,
    dead: Positions | None = None,
) -> Iterator[pa.RecordBatch]:
    """The file's live rows that pass a checked filter, one batch per row group, in the order of their offsets.

    ``columns``: names of the table's columns and of ``__bucket``, ``__offset``, ``__timestamp``, in the order wanted;
    None: all of the table's. ``dead``: the rows that the delete files name, sorted, if already known.
    """
    wanted = list(schema.names if columns is None else columns)
    with storage.open_input(file.path) as source:
        parquet = _opened(storage, source, file.path)
        reader = _FileReader(storage, file.path, parquet, schema, wanted, predicate)
        if dead is None:
            dead = deleted_rows(storage, file) if file.deletes else np.empty(0, np.int64)
        first = 0
        for group in range(parquet.metadata.num_row_groups):
            count = parquet.metadata.row_group(group).num_rows
            if reader.may_match(group):
                yield from reader.read(group, _slice(dead, first, first + count))
            first += count


def deleted_rows(storage: Storage, file: LakeFile) -> Positions:
    """The rows of a data file that its delete files name, sorted."""
    none = np.empty(0, np.int64)
    found = [rows_by_file(storage, path).get(file.path, none) for path in file.deletes]
    return found[0] if len(found) == 1 else _distinct(np.sort(np.concatenate([none, *found])))


def rows_by_file(storage: Storage, path: str) -> dict[str, Positions]:
    """The rows that a position delete file names, by data file, sorted."""
    table = _read_deletes(storage, path)
    rows = table.column(POSITION_ROW).to_numpy()
    found: dict[str, Positions] = {}
    if not len(rows):
        return found
    codes, names = _numbered(table.column(POSITION_PATH))
    order = np.lexsort((rows, codes))
    codes, rows = codes[order], rows[order]
    starts = np.flatnonzero(np.diff(codes, prepend=-1))
    for start, end in zip(starts, [*starts[1:], len(rows)], strict=True):
        found[names[int(codes[start])]] = _distinct(rows[start:end])
    return found


def _numbered(paths: pa.ChunkedArray) -> tuple[npt.NDArray[np.int32], list[str]]:
    """Each path as a number, and the path of each number."""
    column = paths.unify_dictionaries()
    names = column.chunk(0).dictionary.to_pylist()
    if len(set(names)) < len(names):  # no writer does this; but a path must have one number
        column = pc.dictionary_encode(paths.cast(pa.string())).unify_dictionaries()
        names = column.chunk(0).dictionary.to_pylist()
    return np.concatenate([chunk.indices.to_numpy() for chunk in column.chunks]), names


def _distinct(rows: Positions) -> Positions:
    """Sorted rows without duplicates. NumPy's ``unique`` builds a hash table, which is fifty times slower."""
    return rows[np.flatnonzero(np.diff(rows, prepend=rows[0] - 1))] if len(rows) else rows


def _read_deletes(storage: Storage, path: str) -> pa.Table:
    with storage.open_input(path) as source:
        try:
            file = pq.ParquetFile(source, read_dictionary=[POSITION_PATH])
            table = file.read([POSITION_PATH, POSITION_ROW], use_threads=False)
            table = table.select([POSITION_PATH, POSITION_ROW])
        except (pa.ArrowException, KeyError, OSError) as problem:
            raise storage.damaged(path, problem, "is no file of position deletes") from problem
    sound = pa.types.is_integer(table.column(POSITION_ROW).type) and not table.column(POSITION_ROW).null_count
    if not sound or table.column(POSITION_PATH).null_count:
        raise LakeCorrupt(f"{path} is no file of position deletes", uri=path)
    return _with_types(table)


def _with_types(table: pa.Table) -> pa.Table:
    """Paths as numbers, rows as integers, whatever types the writer used."""
    if table.schema.types == _DELETES.types:
        return table
    plain = table.cast(pa.schema([(POSITION_PATH, pa.string()), (POSITION_ROW, pa.int64())]))
    return plain.cast(_DELETES)


def read_offsets(storage: Storage, path: str) -> Positions:
    """The ``__offset`` of every row of a file, from the column itself; LakeForeignCommit where one has none."""
    found = offsets_or_none(storage, path)
    if len(found) and found.min() <= NO_OFFSET:
        raise LakeForeignCommit(f"{path} has a row without __offset: another engine wrote it", uri=path)
    return found


def offsets_or_none(storage: Storage, path: str) -> Positions:
    """The same; -1 for a row without an offset."""
    with storage.open_input(path) as source:
        parquet = _opened(storage, source, path)
        positions = _columns_by_id(parquet.schema_arrow)
        if OFFSET_ID not in positions:
            raise LakeCorrupt(f"{path} has no column __offset", uri=path)
        _, indices = positions[OFFSET_ID]
        try:
            groups = [
                parquet.reader.read_row_group(group, column_indices=indices).column(0)
                for group in range(parquet.metadata.num_row_groups)
            ]
        except (pa.ArrowException, OSError) as problem:
            raise storage.damaged(path, problem) from problem
    column = pa.chunked_array([chunk for group in groups for chunk in group.chunks], pa.int64())
    return np.asarray(column.fill_null(NO_OFFSET).to_numpy(), np.int64)


class _FileReader:
    """One open file and what to read of it."""

    def __init__(
        self,
        storage: Storage,
        path: str,
        parquet: pq.ParquetFile,
        schema: Schema,
        wanted: list[str],
        predicate: Predicate | None,
    ) -> None:
        self._storage = storage
        self._path = path
        self._parquet = parquet
        self._schema = schema
        self._predicate = predicate
        filtered = predicate.columns() if predicate is not None else frozenset()
        self._wanted = wanted
        self._names = [*wanted, *sorted(filtered - set(wanted))]
        self._fields = [_output_field(schema, name) for name in self._names]
        positions = _columns_by_id(parquet.schema_arrow)
        self._places = [positions.get(_field_id(schema, name)) for name in self._names]
        self._indices = sorted({index for place in self._places if place is not None for index in place[1]})
        self._order = sorted({place[0] for place in self._places if place is not None})
        self._pruner = Pruner(predicate, schema.to_arrow()) if predicate is not None else None
        self._leaves = _known_leaves(parquet.schema_arrow)

    def may_match(self, group: int) -> bool:
        if self._pruner is None:
            return True
        rows = self._parquet.metadata.row_group(group).num_rows
        stats = group_stats(self._parquet.metadata, self._leaves, group)
        return self._pruner.may_match(file_statistics(self._schema, stats, rows), rows)

    def read(self, group: int, dead: Positions) -> Iterator[pa.RecordBatch]:
        count = self._parquet.metadata.row_group(group).num_rows
        table = self._table(group, count)
        if len(dead):
            alive = np.ones(count, np.bool_)
            alive[dead] = False
            table = table.filter(pa.array(alive))
        for batch in table.combine_chunks().to_batches():
            if self._predicate is not None:
                batch = batch.filter(self._predicate.mask(batch))
            if batch.num_rows:
                yield batch.select(range(len(self._wanted)))

    def _table(self, group: int, count: int) -> pa.Table:
        found: dict[int, pa.ChunkedArray] = {}
        if self._indices:
            try:
                table = self._parquet.reader.read_row_group(group, column_indices=self._indices)
            except (pa.ArrowException, OSError) as problem:
                raise self._storage.damaged(self._path, problem) from problem
            found = dict(zip(self._order, table.columns, strict=True))
        arrays = []
        for place, item in zip(self._places, self._fields, strict=True):
            if place is None:
                arrays.append(pa.chunked_array([pa.nulls(count, item.type)]))
            else:
                arrays.append(from_lake(found[place[0]], item))
        return pa.Table.from_arrays(arrays, schema=pa.schema(self._fields))


def _opened(storage: Storage, source: pa.NativeFile, path: str) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(source, pre_buffer=True)
    except (pa.ArrowException, OSError) as problem:
        raise storage.damaged(path, problem, "is no Parquet file") from problem


def _columns_by_id(schema: pa.Schema) -> dict[int, tuple[int, list[int]]]:
    """Field id -> (position in the file, its Parquet columns)."""
    found: dict[int, tuple[int, list[int]]] = {}
    start = 0
    for place, item in enumerate(schema):
        count = _leaf_count(item.type)
        number = id_of(item)
        if number is not None:
            found[number] = (place, list(range(start, start + count)))
        start += count
    return found


def _leaf_count(kind: pa.DataType) -> int:
    if pa.types.is_nested(kind):
        return sum(_leaf_count(kind.field(position).type) for position in range(kind.num_fields))
    return 1


def _known_leaves(schema: pa.Schema) -> list[ParquetLeaf | None]:
    """The plain columns with an id, by Parquet column; None for nested ones."""
    found: list[ParquetLeaf | None] = []
    for item in schema:
        number = id_of(item)
        if pa.types.is_nested(item.type) or number is None:
            found += [None] * _leaf_count(item.type)
        else:
            found.append(ParquetLeaf(number, item.type, False))
    return found


def _field_id(schema: Schema, name: str) -> int:
    number = _OWN.get(name)
    if number is not None:
        return number
    found = id_of(lake_schema(schema).field(schema.column(name).name))
    assert found is not None
    return found


def _output_field(schema: Schema, name: str) -> pa.Field:
    if name in _OWN:
        item: pa.Field = lake_schema(schema).field(name)
        return item.remove_metadata()
    return schema.column(name).to_arrow()


def _slice(sorted_rows: Positions, start: int, end: int) -> Positions:
    low, high = np.searchsorted(sorted_rows, [start, end])
    return sorted_rows[low:high] - start
