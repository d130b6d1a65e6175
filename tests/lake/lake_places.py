"""A warehouse in a folder, and tables made by hand: what the tests of the lake share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from strom.lake.files.file_description import DataFileDescription
from strom.lake.files.file_reader import LakeFile
from strom.lake.files.file_writer import FilePartition, FileWriter
from strom.lake.files.storage import Storage
from strom.lake.iceberg.catalogs import open_catalog
from strom.lake.iceberg.commit import commit_round
from strom.lake.iceberg.lake_head import LakeHead, read_head
from strom.lake.iceberg.table import LakeTable
from strom.model.lake.lake import LakeConfig, LakeKey, Tiered
from strom.model.schema import Schema
from strom.model.table import TableDescription, TablePath

EVENTS = Schema.from_arrow(pa.schema([("id", pa.int64()), ("name", pa.string())]))
KEYED = Schema.from_arrow(EVENTS.to_arrow(), ["id"])
LOG = TableDescription(EVENTS, bucket_count=2)


def storage_in(folder: Path) -> Storage:
    """A warehouse in a folder."""
    return Storage(LakeConfig(f"file://{folder}"))


def events(*numbers: int) -> pa.RecordBatch:
    """Rows of EVENTS."""
    return pa.RecordBatch.from_pydict(
        {"id": list(numbers), "name": [f"n{number}" for number in numbers]}, schema=EVENTS.to_arrow()
    )


def written(writer: FileWriter, *parts: tuple[Any, ...]) -> DataFileDescription:
    """The file that a writer makes of these batches."""
    for part in parts:
        writer.write(*part)
    found = writer.finish()
    assert found is not None
    return found


def planned(file: DataFileDescription, *deletes: str) -> LakeFile:
    """The file as a reader gets it."""
    return LakeFile(
        file.path,
        file.size,
        file.rows,
        file.bucket,
        file.first_offset,
        file.last_offset,
        file.partition_id,
        file.partition_name,
        deletes,
    )


class Lake:
    """One lake table of EVENTS by key (or of rows), filled round by round as a tiering service does."""

    def __init__(
        self,
        place: Path | LakeConfig,
        description: TableDescription | None = None,
        table_id: int = 1,
        name: str = "t",
    ) -> None:
        self.catalog = open_catalog(place if isinstance(place, LakeConfig) else LakeConfig(f"file://{place}"))
        self.description = description or TableDescription(KEYED, bucket_count=2)
        self.table = LakeTable.ensure(self.catalog, TablePath("db", name), table_id, self.description)
        self.head = read_head(self.table)
        self._files = 0

    def file(
        self, batch: pa.RecordBatch, offsets: Any, bucket: int = 0, partition: FilePartition | None = None
    ) -> DataFileDescription:
        """A data file that nobody has committed."""
        self._files += 1
        writer = FileWriter(
            self.table.storage,
            self.table.location,
            self.description.schema,
            name=f"r-{id(self)}-{self._files}",
            bucket=bucket,
            partition=partition,
            partition_keys=self.description.partition_keys,
        )
        conformed = pa.RecordBatch.from_arrays(batch.columns, schema=self.description.schema.to_arrow())
        return written(writer, (conformed, np.asarray(offsets), 1_000))

    def round(
        self,
        *added: DataFileDescription,
        end: int,
        bucket: int = 0,
        dead: list[int] | None = None,
        name: str = "round",
        epoch: int = 1,
        partition: FilePartition | None = None,
    ) -> LakeHead:
        """Commit one bucket's round and remember the truth."""
        key = LakeKey(None if partition is None else partition.partition_id, bucket)
        self.head = commit_round(
            self.table,
            self.head,
            round_id=name,
            added=added,
            dead={key: np.array(dead or [], np.int64)},
            offsets={key: Tiered(end, epoch)},
            partitions={} if partition is None else {partition.partition_id: partition.name},
        )
        return self.head

    def rows(self) -> list[dict[str, Any]]:
        """The table's own columns, as PyIceberg reads them, by offset."""
        names = [*self.description.schema.names, "__offset"]
        found = self.catalog.load(self.table.path)
        assert found is not None
        return list(found.scan(selected_fields=tuple(names)).to_arrow().sort_by("__offset").to_pylist())

    def ids(self) -> list[int]:
        """The ids of the rows, in the order of offsets."""
        return [row["id"] for row in self.rows()]
