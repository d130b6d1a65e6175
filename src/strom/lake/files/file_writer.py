"""Writes one data file: the rows of one bucket, sorted by offset, as Parquet with Iceberg's field ids.

Light on purpose: it runs in Spark's workers, and needs neither PyIceberg nor a catalog. Rows pass by batch. Readers see
a file only once a commit names it, so an abandoned one is garbage and nothing worse; names are never used twice (they
carry round, task and attempt).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from strom.errors import LakeCorrupt, LakeError, SchemaMismatch
from strom.lake.files import sidecar
from strom.lake.files.arrow_types import ParquetLeaf, lake_schema, leaves, to_lake
from strom.lake.files.column_forms import column_forms
from strom.lake.files.file_description import OWN_PREFIX, DataFileDescription, PartitionValue
from strom.lake.files.offset_print import print_of
from strom.lake.files.partition_values import partition_value, value_array
from strom.lake.files.statistics import FloatStats, column_stats, split_offsets
from strom.lake.files.storage import Storage
from strom.model.lake.lake_types import OFFSET
from strom.model.schema import Schema

ROW_GROUP_ROWS = 1 << 18
ROW_GROUP_BYTES = 64 << 20
"""Readers divide a file by row groups: with larger ones, the last few keep one core busy while others wait."""
Longs = npt.NDArray[np.int64]


class FilePartition(NamedTuple):
    """The partition a file belongs to."""

    partition_id: int
    name: str


class FileWriter:
    """One file. ``location`` is the lake table's; ``name`` is unique for ever (``<round>-<task>-<attempt>-<n>``)."""

    def __init__(
        self,
        storage: Storage,
        location: str,
        schema: Schema,
        *,
        name: str,
        bucket: int,
        partition: FilePartition | None = None,
        partition_keys: Sequence[str] = (),
    ) -> None:
        self._storage = storage
        self.path = f"{location}/data/{OWN_PREFIX}{name}.parquet"
        self._table_schema = schema.to_arrow()
        self._schema = lake_schema(schema)
        self._leaves = leaves(self._schema)
        self._bucket = bucket
        self._partition = partition
        self._divided_by = list(partition_keys)
        self._values: list[PartitionValue] = []
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = self._waiting_bytes = 0
        self._offsets: list[Longs] = []
        self._rows = 0
        self._float_stats: dict[int, FloatStats] = {}
        self._file: pa.NativeFile | None = None
        self._parquet: pq.ParquetWriter | None = None

    @property
    def size(self) -> int:
        """Bytes of the file so far, without the row group that is being collected."""
        return 0 if self._file is None else int(self._file.tell())

    def write(
        self, batch: pa.RecordBatch, offsets: Longs | int, timestamps: Longs | int | pa.Array | None = None
    ) -> None:
        """Append rows in the table's schema.

        ``offsets``: of each row, or the first of consecutive ones. ``timestamps``: milliseconds since 1970, of each
        row or of all, or a column of another lake file; None where they are unknown.
        """
        if not batch.num_rows:
            return
        if not batch.schema.equals(self._table_schema, check_metadata=False):
            raise SchemaMismatch(f"A lake file of {self._table_schema} was given {batch.schema}")
        numbers = self._numbered(batch.num_rows, offsets)
        self._offsets.append(numbers)
        self._rows += batch.num_rows
        row = self._conformed(batch, numbers, timestamps)
        self._check_partition(row)
        self._waiting.append(row)
        self._waiting_rows += row.num_rows
        self._waiting_bytes += row.nbytes
        if self._waiting_rows >= ROW_GROUP_ROWS or self._waiting_bytes >= ROW_GROUP_BYTES:
            self._write_row_group()

    def finish(self) -> DataFileDescription | None:
        """Close the file, make it durable, and describe it. None: there was no row, so there is no file."""
        if not self._rows:
            return None
        self._write_row_group()
        assert self._parquet is not None
        assert self._file is not None
        with self._storage.translated(self.path):
            self._parquet.close()
            size = self._file.tell()
            self._file.close()
        self._storage.sync(self.path)
        metadata = self._parquet.writer.metadata
        offsets = np.concatenate(self._offsets)
        held = sidecar.held_offsets(offsets)
        beside, beside_size = self._write_sidecar(held)
        return DataFileDescription(
            path=self.path,
            size=size,
            rows=self._rows,
            bucket=self._bucket,
            first_offset=held.first,
            last_offset=held.last,
            partition_id=None if self._partition is None else self._partition.partition_id,
            partition_name=None if self._partition is None else self._partition.name,
            partition_values=tuple(self._values),
            columns=column_stats(metadata, self._leaves, self._float_stats),
            split_offsets=split_offsets(metadata),
            sidecar=beside,
            sidecar_size=beside_size,
            offsets_total=print_of(offsets).total,
        )

    def abort(self) -> None:
        """Abandon the file, finished or not, and remove what was written."""
        self._waiting.clear()
        if self._file is None:
            return
        for part in (self._parquet, self._file):
            with suppress(OSError, pa.ArrowException):  # what it still had to write does not matter
                if part is not None:
                    part.close()
        for uri in (self.path, self.path + sidecar.SUFFIX):
            with suppress(LakeError):  # maintenance sweeps what is left; the original error matters more
                self._storage.delete(uri)

    def _numbered(self, rows: int, offsets: Longs | int) -> Longs:
        if isinstance(offsets, int | np.integer):
            numbers = np.arange(int(offsets), int(offsets) + rows, dtype=np.int64)
        else:
            numbers = np.asarray(offsets, np.int64)
        last = self._offsets[-1][-1] if self._offsets else -1
        if len(numbers) != rows or numbers[0] <= last or np.any(numbers[1:] <= numbers[:-1]):
            raise LakeCorrupt(
                "The rows of a lake file must come in the order of their offsets, each with one"
            )
        return numbers

    def _conformed(
        self, batch: pa.RecordBatch, offsets: Longs, timestamps: Longs | int | pa.Array | None
    ) -> pa.RecordBatch:
        count = batch.num_rows
        arrays = [to_lake(column, item) for column, item in zip(batch.columns, self._schema, strict=False)]
        arrays.append(pa.array(np.full(count, self._bucket, np.int32)))
        arrays.append(pa.array(offsets))
        if timestamps is None:
            arrays.append(pa.nulls(count, pa.timestamp("us", "UTC")))
        elif isinstance(timestamps, pa.Array):
            arrays.append(timestamps)
        else:
            micros = np.broadcast_to(np.asarray(timestamps, np.int64) * 1000, (count,))
            arrays.append(pa.array(micros).view(pa.timestamp("us", "UTC")))
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _check_partition(self, row: pa.RecordBatch) -> None:
        if not self._divided_by:
            return
        if not self._values:
            self._values = [partition_value(row.column(name), name) for name in self._divided_by]
        for name in self._divided_by:
            column = row.column(name)
            if column.null_count or not pc.all(pc.equal(column, self._first(name, column))).as_py():
                raise LakeCorrupt(
                    f"Rows of two partitions (by {name!r}) were given to one lake file", column=name
                )

    def _first(self, name: str, column: pa.Array) -> pa.Scalar:
        if self._waiting:
            return self._waiting[0].column(name)[0]
        return value_array(self._values[self._divided_by.index(name)], column.type)[0]

    def _write_row_group(self) -> None:
        if not self._waiting:
            return
        table = pa.Table.from_batches(self._waiting, self._schema)
        self._waiting = []
        self._waiting_rows = self._waiting_bytes = 0
        self._see_floats(table)
        if self._parquet is None:
            self._open(table)
        assert self._parquet is not None
        with self._storage.translated(self.path):
            groups = -(-table.num_rows // ROW_GROUP_ROWS)  # a batch may be larger than a row group
            self._parquet.write_table(table, row_group_size=-(-table.num_rows // groups))

    def _see_floats(self, table: pa.Table) -> None:
        for item, column in zip(self._schema, table.columns, strict=True):
            for leaf, values in _floats(item, column):
                self._float_stats.setdefault(leaf, FloatStats()).see(values)

    def _open(self, first: pa.Table) -> None:
        """Begin the file; its first row group decides which columns get a dictionary and compression."""
        self._file = self._storage.open_output(self.path)
        paths = _leaf_paths(self._schema)
        floats = {
            path for path, leaf in zip(paths, self._leaves, strict=True) if pa.types.is_floating(leaf.type)
        }
        forms = column_forms(first, paths)
        plain = {OFFSET, *forms.plain}
        self._parquet = pq.ParquetWriter(
            self._file,
            self._schema,
            compression=forms.codecs(paths),
            use_dictionary=[path for path in paths if path not in plain],
            write_statistics=[path for path in paths if path not in floats],
            column_encoding={OFFSET: "DELTA_BINARY_PACKED"},
            store_decimal_as_integer=True,
            store_schema=False,
        )

    def _write_sidecar(self, held: sidecar.HeldOffsets) -> tuple[str | None, int]:
        if held.words is None and held.listed is None:
            return None, 0
        content = sidecar.encode(held)
        uri = self.path + sidecar.SUFFIX
        self._storage.write(uri, content)
        return uri, len(content)


def _floats(item: pa.Field, column: pa.ChunkedArray) -> list[tuple[int, pa.ChunkedArray]]:
    """The floating-point columns in a column, outside of arrays and maps, which have no bounds."""
    if pa.types.is_floating(item.type):
        return [(_only(leaves(pa.schema([item]))).field_id, column)]
    if not pa.types.is_struct(item.type):
        return []
    found = []
    for position in range(item.type.num_fields):
        inner = item.type.field(position)
        chunks = [pc.struct_field(chunk, [position]) for chunk in column.chunks]
        found += _floats(inner, pa.chunked_array(chunks, inner.type))
    return found


def _only(found: list[ParquetLeaf]) -> ParquetLeaf:
    assert len(found) == 1
    return found[0]


def _leaf_paths(schema: pa.Schema) -> list[str]:
    """The dotted paths of the Parquet columns, as Parquet's writer knows them."""
    probe = pa.BufferOutputStream()
    pq.ParquetWriter(probe, schema).close()
    parquet = pq.ParquetFile(pa.BufferReader(probe.getvalue())).schema
    return [parquet.column(position).path for position in range(len(parquet))]
