"""The files of one lake snapshot for planning reads: read from the manifests once, then pruned by any filter."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pyiceberg.table.snapshots import Snapshot

from strom.errors import LakeError
from strom.lake.files.bounds import file_statistics
from strom.lake.files.file_description import ColumnStats, is_own
from strom.lake.files.file_reader import LakeFile
from strom.lake.iceberg.held_files import files_of, held_files
from strom.lake.iceberg.lake_head import count_live
from strom.lake.iceberg.summary import ROWS, is_told
from strom.lake.iceberg.table import LakeTable
from strom.model.filters.predicate import Predicate
from strom.model.schema import Schema
from strom.record.prune import Pruner


class SnapshotFiles:
    """The data files of a snapshot, in the order of a scan (partition, bucket, offset)."""

    def __init__(self, files: list[tuple[LakeFile, dict[int, ColumnStats]]]) -> None:
        self._files = files

    def matching(self, schema: Schema, where: Predicate | None, names: Mapping[int, str]) -> list[LakeFile]:
        """Files whose rows may pass a checked filter. ``names``: the current partitions by id."""
        ids = _ids(names)
        return [_placed(file, ids) for file in self._passing(schema, where)]

    def described(self, names: Mapping[int, str]) -> list[tuple[LakeFile, Mapping[int, ColumnStats]]]:
        """All files, with their column statistics by field id."""
        ids = _ids(names)
        return [(_placed(file, ids), columns) for file, columns in self._files]

    def _passing(self, schema: Schema, where: Predicate | None) -> list[LakeFile]:
        if where is None:
            return [file for file, _ in self._files]
        pruner = Pruner(where, schema.to_arrow())
        return [
            file
            for file, columns in self._files
            if pruner.may_match(
                file_statistics(schema, columns, file.rows, complete=is_own(file.path)), file.rows
            )
        ]


def _ids(names: Mapping[int, str]) -> dict[str, int]:
    """Partition ids by name; of two with one name, the newer."""
    return {name: number for number, name in sorted(names.items())}


def _placed(file: LakeFile, ids: Mapping[str, int]) -> LakeFile:
    name = file.partition_name
    return file if name is None else replace(file, partition_id=ids.get(name))


def read_snapshot(table: LakeTable, snapshot_id: int) -> SnapshotFiles:
    """The files of a snapshot; LakeSnapshotNotFound when it has expired."""
    held = held_files(table, snapshot_id)
    return SnapshotFiles([(held.planned(file), file.columns) for file in held.data])


@dataclass(frozen=True)
class SnapshotFacts:
    """One snapshot for people."""

    snapshot_id: int
    parent_id: int | None
    committed_ms: int
    operation: str
    summary: Mapping[str, str]
    rows: int | None
    """Live rows."""

    def facts(self) -> dict[str, Any]:
        """A row of ``t$snapshots``."""
        return {
            "snapshot_id": self.snapshot_id,
            "parent_id": self.parent_id,
            "committed_at": dt.datetime.fromtimestamp(self.committed_ms / 1000, dt.UTC),
            "operation": self.operation,
            "rows": self.rows,
            "files": number_in(self.summary, "total-data-files"),
            "delete_files": number_in(self.summary, "total-delete-files"),
            "bytes": number_in(self.summary, "total-files-size"),
            "round": self.summary.get("strom.round"),
        }


def number_in(summary: Mapping[str, str], key: str) -> int | None:
    """A number from a snapshot's summary; None where it is missing."""
    text = summary.get(key, "")
    return int(text) if text.isdecimal() and len(text) < 20 else None


def _live_rows(table: LakeTable, snapshot: Snapshot, summary: Mapping[str, str]) -> int | None:
    """Live rows: stated by our snapshots; counted for others, whose delete files may name rows that are gone."""
    rows, named = number_in(summary, "total-records"), number_in(summary, "total-position-deletes")
    if ROWS in summary or rows is None or not named:
        return number_in(summary, ROWS) if ROWS in summary else rows
    if is_told(summary):  # of an earlier version, which did not count and left no dangling deletes
        return rows - named
    try:
        return count_live(table.storage, files_of(table, snapshot))
    except LakeError:  # a file is missing or unknown: the rest of the row is still useful
        return None


def snapshots_of(table: LakeTable) -> list[SnapshotFacts]:
    """The snapshots in a table's metadata, oldest first."""
    found = []
    for one in table.metadata.snapshots:
        summary = {} if one.summary is None else dict(one.summary.additional_properties)
        operation = "" if one.summary is None else str(one.summary.operation.value)
        found.append(
            SnapshotFacts(
                one.snapshot_id,
                one.parent_snapshot_id,
                one.timestamp_ms,
                operation,
                summary,
                _live_rows(table, one, summary),
            )
        )
    return sorted(found, key=lambda one: one.committed_ms)
