"""Rewrites a group of data files without their dead rows: one row group in memory at a time.

Offsets and commit times stay the same; a new file gets its own sidecar. Nothing is committed here: what was written is
garbage until a commit names it (``compaction.py``), and ``drop`` removes it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from strom.errors import StromError
from strom.lake.files.file_description import DataFileDescription
from strom.lake.files.file_reader import read_file
from strom.lake.files.file_writer import FilePartition, FileWriter
from strom.lake.files.storage import Storage
from strom.lake.iceberg.deleted_rows import rows_deleted
from strom.lake.iceberg.held_files import HeldFiles
from strom.lake.iceberg.iceberg_schema import iceberg_schema
from strom.lake.iceberg.table import LakeTable
from strom.lake.upkeep.compaction_plan import CompactionGroup
from strom.model.lake.lake_types import OFFSET, TIMESTAMP

Positions = npt.NDArray[np.int64]

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RewrittenGroup:
    """A group and its new files. ``left_out``: the rows of each old file that were dead by then."""

    group: CompactionGroup
    left_out: Mapping[str, Positions]
    files: tuple[DataFileDescription, ...]

    @property
    def rows_out(self) -> int:
        """Rows that were dropped."""
        return sum(len(rows) for rows in self.left_out.values())


class FileRewriter:
    """Writes files of one lake table. ``name``: a unique prefix of their names."""

    def __init__(
        self, table: LakeTable, name: str, file_bytes: int, check: Callable[[], None] = lambda: None
    ) -> None:
        self._table = table
        self._name = name
        self._file_bytes = file_bytes
        self._check = check
        self._count = 0

    def rewrite(
        self, group: CompactionGroup, held: HeldFiles, partitions: Mapping[int, str]
    ) -> RewrittenGroup:
        """Write the group's live rows to new files. ``check`` is called from time to time and may raise, to stop."""
        storage = self._table.storage
        left_out = rows_deleted(storage, held, group.files)
        written: list[DataFileDescription] = []
        writer: FileWriter | None = None
        try:
            for batch in self._rows(group, held, left_out):
                self._check()
                writer = writer or self._writer(group, partitions)
                rows = batch.select(range(batch.num_columns - 2))
                writer.write(rows, batch.column(OFFSET).to_numpy(), batch.column(TIMESTAMP))
                if writer.size >= self._file_bytes:
                    written, writer = _finished(written, writer), None
            if writer is not None:
                written = _finished(written, writer)
        except BaseException:
            if writer is not None:
                writer.abort()
            drop(storage, written)
            raise
        return RewrittenGroup(group, left_out, tuple(written))

    def _rows(
        self, group: CompactionGroup, held: HeldFiles, left_out: Mapping[str, Positions]
    ) -> Iterator[pa.RecordBatch]:
        schema = self._table.schema
        columns = [*schema.names, OFFSET, TIMESTAMP]
        for file in group.files:
            dead = left_out.get(file.path, np.empty(0, np.int64))
            if len(dead) < file.rows:
                yield from read_file(self._table.storage, held.planned(file), schema, columns, dead=dead)

    def _writer(self, group: CompactionGroup, partitions: Mapping[int, str]) -> FileWriter:
        table, (name, bucket) = self._table, group.place
        self._count += 1
        ids = {known: number for number, known in sorted(partitions.items())}
        return FileWriter(
            table.storage,
            table.location,
            table.schema,
            name=f"{self._name}-{self._count}",
            bucket=bucket,
            partition=None if name is None else FilePartition(ids.get(name, 0), name),
            partition_keys=table.partition_keys,
        )


def knows_all_columns(table: LakeTable) -> bool:
    """Whether we know every column that the table's files can have: others would be lost."""
    own = iceberg_schema(table.schema, schema_id=0)
    return set(table.iceberg.schema().field_ids) <= set(own.field_ids)


def drop(storage: Storage, files: list[DataFileDescription] | tuple[DataFileDescription, ...]) -> None:
    """Delete files that no snapshot will ever name."""
    for file in files:
        for uri in (file.path, file.sidecar):
            try:
                if uri is not None:
                    storage.delete(uri)
            except StromError as error:
                logger.warning("%s could not be deleted: %s", uri, error)


def _finished(before: list[DataFileDescription], writer: FileWriter) -> list[DataFileDescription]:
    file = writer.finish()
    assert file is not None
    return [*before, file]
