"""Writes manifests: of data files as PyIceberg does, and of position deletes, which it cannot.

Built on undocumented Avro parts of PyIceberg, so its version is pinned. Entries are written as one block.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriterV2,
    write_manifest_list,
)
from pyiceberg.typedef import Record

from strom.lake.files.file_description import DataFileDescription
from strom.lake.iceberg.delete_files import DeleteFileDescription
from strom.lake.iceberg.held_files import POSITION_PATH_ID, POSITION_ROW_ID
from strom.lake.iceberg.iceberg_schema import SPEC_ID
from strom.lake.iceberg.table import LakeTable

_CODEC: Literal["deflate"] = "deflate"


def data_file(found: DataFileDescription) -> DataFile:
    """A data file in Iceberg's form."""
    columns = sorted(found.columns.items())
    return DataFile.from_args(
        _table_format_version=2,
        content=DataFileContent.DATA,
        file_path=found.path,
        file_format=FileFormat.PARQUET,
        partition=Record(*found.partition_values, found.bucket),
        record_count=found.rows,
        file_size_in_bytes=found.size,
        column_sizes={number: stats.size for number, stats in columns},
        value_counts={number: stats.values for number, stats in columns},
        null_value_counts={number: stats.nulls for number, stats in columns if stats.nulls is not None},
        nan_value_counts={number: stats.nans for number, stats in columns if stats.nans is not None},
        lower_bounds={number: stats.lower for number, stats in columns if stats.lower is not None},
        upper_bounds={number: stats.upper for number, stats in columns if stats.upper is not None},
        key_metadata=None,
        split_offsets=list(found.split_offsets),
        equality_ids=None,
        sort_order_id=None,
        spec_id=SPEC_ID,
    )


def delete_file(found: DeleteFileDescription) -> DataFile:
    """A file of position deletes in Iceberg's form."""
    return DataFile.from_args(
        _table_format_version=2,
        content=DataFileContent.POSITION_DELETES,
        file_path=found.path,
        file_format=FileFormat.PARQUET,
        partition=found.partition,
        record_count=found.rows,
        file_size_in_bytes=found.size,
        column_sizes=None,
        value_counts={POSITION_PATH_ID: found.rows, POSITION_ROW_ID: found.rows},
        null_value_counts={POSITION_PATH_ID: 0, POSITION_ROW_ID: 0},
        nan_value_counts=None,
        lower_bounds={
            POSITION_PATH_ID: found.lower_path.encode(),
            POSITION_ROW_ID: found.lower_row.to_bytes(8, "little"),
        },
        upper_bounds={
            POSITION_PATH_ID: found.upper_path.encode(),
            POSITION_ROW_ID: found.upper_row.to_bytes(8, "little"),
        },
        key_metadata=None,
        split_offsets=None,
        equality_ids=None,
        sort_order_id=None,
        spec_id=SPEC_ID,
    )


class ManifestsWriter:
    """Writes the manifests and the list of one snapshot; can remove them if the commit fails."""

    def __init__(self, table: LakeTable, snapshot_id: int, sequence_number: int) -> None:
        self._table = table
        self._snapshot_id = snapshot_id
        self._sequence_number = sequence_number
        self._count = 0
        self.written: list[str] = []

    def added(self, files: Sequence[DataFile], content: ManifestContent) -> ManifestFile:
        """A manifest of new files."""
        return self._manifest(content, [(ManifestEntryStatus.ADDED, _new(file)) for file in files])

    def rewritten(
        self, content: ManifestContent, kept: Iterable[ManifestEntry], removed: Iterable[ManifestEntry] = ()
    ) -> ManifestFile:
        """A manifest of existing files, some of them removed by this snapshot."""
        entries = [(ManifestEntryStatus.EXISTING, entry) for entry in kept]
        entries += [(ManifestEntryStatus.DELETED, entry) for entry in removed]
        return self._manifest(content, entries)

    def manifest_list(self, manifests: list[ManifestFile], parent_id: int | None) -> str:
        """The list of a snapshot's manifests; its path."""
        path = f"{self._table.location}/metadata/snap-{self._snapshot_id}.avro"
        output = self._table.io.new_output(path)
        with (
            self._table.storage.translated(path),
            write_manifest_list(
                2, output, self._snapshot_id, parent_id, self._sequence_number, _CODEC
            ) as writer,
        ):
            writer.add_manifests(manifests)
        self._keep(path)
        return path

    def discard(self) -> None:
        """Remove what was written: the snapshot did not happen."""
        for path in self.written:
            self._table.storage.delete(path)

    def _manifest(
        self, content: ManifestContent, entries: list[tuple[ManifestEntryStatus, ManifestEntry]]
    ) -> ManifestFile:
        path = f"{self._table.location}/metadata/{self._snapshot_id}-m{self._count}.avro"
        self._count += 1
        metadata = self._table.metadata
        spec = metadata.specs()[SPEC_ID]
        output = self._table.io.new_output(path)
        with (
            self._table.storage.translated(path),
            _ManifestWriter(content, spec, metadata.schema(), output, self._snapshot_id) as writer,
        ):
            for status, entry in entries:
                if status == ManifestEntryStatus.ADDED:
                    writer.add(entry)
                elif status == ManifestEntryStatus.EXISTING:
                    writer.existing(entry)
                else:
                    writer.delete(entry)
        self._keep(path)
        live = [
            self._as_read(status, entry) for status, entry in entries if status != ManifestEntryStatus.DELETED
        ]
        self._table.manifests.remember(path, live)  # the next commit need not read it
        return writer.to_manifest_file()

    def _as_read(self, status: ManifestEntryStatus, entry: ManifestEntry) -> ManifestEntry:
        """An entry with what a reader inherits from the list."""
        if status != ManifestEntryStatus.ADDED:
            return entry
        entry.data_file.spec_id = SPEC_ID
        return ManifestEntry.from_args(
            status=status,
            snapshot_id=self._snapshot_id,
            sequence_number=self._sequence_number,
            file_sequence_number=self._sequence_number,
            data_file=entry.data_file,
        )

    def _keep(self, path: str) -> None:
        self._table.storage.sync(path)
        self.written.append(path)


class _ManifestWriter(ManifestWriterV2):
    """PyIceberg's writer for a given content type, with all entries in one block."""

    def __init__(
        self, content: ManifestContent, spec: Any, schema: Any, output: Any, snapshot_id: int
    ) -> None:
        super().__init__(spec, schema, output, snapshot_id, _CODEC)
        self._content = content

    def __enter__(self) -> _ManifestWriter:
        super().__enter__()
        self._writer: Any = _OneBlock(self._writer)
        return self

    def content(self) -> ManifestContent:
        return self._content

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "data" if self._content == ManifestContent.DATA else "deletes"}


class _OneBlock:
    """An Avro file that buffers its records and writes them together."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._records: list[ManifestEntry] = []

    @property
    def output_file(self) -> Any:
        return self._file.output_file

    def write_block(self, records: list[ManifestEntry]) -> None:
        self._records += records

    def __exit__(self, *problem: Any) -> None:
        if problem[0] is None:
            self._file.write_block(self._records)
        self._file.__exit__(*problem)


def _new(file: DataFile) -> ManifestEntry:
    return ManifestEntry.from_args(
        status=ManifestEntryStatus.ADDED, snapshot_id=None, sequence_number=None, data_file=file
    )
