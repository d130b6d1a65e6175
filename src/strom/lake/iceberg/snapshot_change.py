"""One commit of a lake table: files added, files removed, and how far the buckets are held, all at once or not at all.

Compare-and-set on the snapshot that was planned from. Nothing is retried here, because that snapshot is no longer the
head (LakeConflict: read the head and plan again). When the outcome is unknown (LakeCommitUnknown), nothing is deleted,
and the round in the head decides.

Manifests are merged as they pile up, eight of one size into one of the next, so that a commit costs the same after many
rounds as after few, and an entry is rewritten only a few times.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pyiceberg.manifest import DataFile, ManifestContent, ManifestFile
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertRefSnapshotId,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
    TableUpdate,
)
from pyiceberg.typedef import Record

from strom.errors import LakeConflict, LakeCorrupt
from strom.lake.iceberg.held_files import entries_of, manifests_of
from strom.lake.iceberg.lake_head import LakeHead, Totals
from strom.lake.iceberg.manifest_writer import ManifestsWriter
from strom.lake.iceberg.summary import OFFSETS_FILE, LakeOffsets, held_property, write_summary
from strom.lake.iceberg.table import LakeTable
from strom.runtime.clock import Clock, SystemClock

MERGED_AT_ONCE = 8


@dataclass(frozen=True)
class SnapshotChange:
    """What a commit does. ``removed``: paths of data and delete files, all of which must be in the base snapshot."""

    held: LakeOffsets
    added: Sequence[DataFile] = ()
    added_deletes: Sequence[DataFile] = ()
    removed: Collection[str] = ()
    rewrite: bool = False
    """Whether rows stay the same (compaction): Iceberg's ``replace``."""

    @property
    def operation(self) -> Operation:
        """Iceberg's operation."""
        if self.rewrite:
            return Operation.REPLACE
        if not self.added_deletes and not self.removed:
            return Operation.APPEND
        return Operation.OVERWRITE if self.added else Operation.DELETE


class Words(NamedTuple):
    """What a commit states: entries of its snapshot's summary, and properties of the table."""

    summary: Mapping[str, str]
    properties: Mapping[str, str]


def words_of(table: LakeTable, snapshot_id: int, held: LakeOffsets) -> Words:
    """How far the buckets are held, stated twice: in the snapshot, and where no expiry removes it."""
    summary = write_summary(table.storage, table.location, snapshot_id, held)
    return Words(summary, held_property(held))


def new_snapshot_id(table: LakeTable) -> int:
    """An id that no snapshot of the table has."""
    return table.metadata.new_snapshot_id()


def commit_change(
    table: LakeTable, base: LakeHead, change: SnapshotChange, snapshot_id: int, clock: Clock | None = None
) -> LakeHead:
    """Commit the change on top of ``base``; returns the new head."""
    table.check_owner()
    head = table.snapshot()
    if (None if head is None else head.snapshot_id) != base.snapshot_id:
        raise LakeConflict(f"Lake table {table.path} has another snapshot than the one planned from")
    sequence = table.last_sequence_number + 1
    writer = ManifestsWriter(table, snapshot_id, sequence)
    removed = _Removed(change.removed)
    manifests = _manifests(table, head, change, writer, removed)
    removed.check(table)
    totals = _totals(base.totals, change, removed)
    timestamp = max((clock or SystemClock()).now_ms(), table.metadata.last_updated_ms)
    words = words_of(table, snapshot_id, change.held)
    if OFFSETS_FILE in words.summary:
        writer.written.append(words.summary[OFFSETS_FILE])
    snapshot = Snapshot.model_validate(
        {
            "snapshot-id": snapshot_id,
            "parent-snapshot-id": base.snapshot_id,
            "sequence-number": sequence,
            "timestamp-ms": timestamp,
            "manifest-list": writer.manifest_list(manifests, base.snapshot_id),
            "summary": Summary(
                change.operation,
                **_counts(change, removed),
                **_total_counts(totals),
                **words.summary,
            ),
            "schema-id": table.metadata.current_schema_id,
        }
    )
    ref = {"ref-name": MAIN_BRANCH, "type": SnapshotRefType.BRANCH, "snapshot-id": snapshot_id}
    expected = AssertRefSnapshotId.model_validate({"ref": MAIN_BRANCH, "snapshot-id": base.snapshot_id})
    updates: list[TableUpdate] = [
        AddSnapshotUpdate(snapshot=snapshot),
        SetSnapshotRefUpdate.model_validate(ref),
    ]
    if words.properties:
        updates.append(SetPropertiesUpdate(updates=dict(words.properties)))
    try:
        table.commit(*updates, requirements=(expected,))
    except LakeConflict:
        writer.discard()
        raise
    return LakeHead(snapshot_id, change.held, totals, timestamp)


class _Removed:
    """The entries of the files that a change removes."""

    def __init__(self, wanted: Collection[str]) -> None:
        self.paths = frozenset(wanted)
        self.files: list[tuple[ManifestContent, DataFile]] = []

    def check(self, table: LakeTable) -> None:
        missing = self.paths - {file.file_path for _, file in self.files}
        if missing:
            raise LakeCorrupt(
                f"{sorted(missing)[0]} is to be removed from lake table {table.path} and is not in it",
                missing=len(missing),
            )

    def of(self, content: ManifestContent) -> list[DataFile]:
        return [file for kind, file in self.files if kind == content]


def _manifests(
    table: LakeTable,
    head: Snapshot | None,
    change: SnapshotChange,
    writer: ManifestsWriter,
    removed: _Removed,
) -> list[ManifestFile]:
    """The new snapshot's manifests: added files first, then existing ones, merged."""
    before = [] if head is None else manifests_of(table, head)
    before = [one for one in before if one.has_added_files() or one.has_existing_files()]
    kept, rewritten = _without(table, before, writer, removed)
    kept = _merged(table, kept, writer)
    added = []
    if change.added:
        added.append(writer.added(change.added, ManifestContent.DATA))
    if change.added_deletes:
        added.append(writer.added(change.added_deletes, ManifestContent.DELETES))
    return [*added, *rewritten, *kept]


def _without(
    table: LakeTable, before: list[ManifestFile], writer: ManifestsWriter, removed: _Removed
) -> tuple[list[ManifestFile], list[ManifestFile]]:
    """The manifests that stay, and those rewritten because one of their files is removed."""
    if not removed.paths:
        return before, []
    kept: list[ManifestFile] = []
    rewritten: list[ManifestFile] = []
    for manifest in before:
        entries = entries_of(table, manifest)
        gone = [entry for entry in entries if entry.data_file.file_path in removed.paths]
        if not gone:
            kept.append(manifest)
            continue
        removed.files += [(manifest.content, entry.data_file) for entry in gone]
        stay = [entry for entry in entries if entry.data_file.file_path not in removed.paths]
        rewritten.append(writer.rewritten(manifest.content, stay, gone))
    return kept, rewritten


def _merged(table: LakeTable, manifests: list[ManifestFile], writer: ManifestsWriter) -> list[ManifestFile]:
    """The manifests, with the first eight of one kind and size merged into one."""
    piles: dict[tuple[ManifestContent, int], list[ManifestFile]] = defaultdict(list)
    for manifest in manifests:
        piles[manifest.content, _magnitude(manifest)].append(manifest)
    for (content, _), pile in piles.items():
        if len(pile) >= MERGED_AT_ONCE:
            entries = [entry for manifest in pile for entry in entries_of(table, manifest)]
            others = [manifest for manifest in manifests if manifest not in pile]
            return [writer.rewritten(content, entries), *others]
    return manifests


def _magnitude(manifest: ManifestFile) -> int:
    files = (manifest.added_files_count or 0) + (manifest.existing_files_count or 0)
    magnitude = 0
    while files >= MERGED_AT_ONCE:
        files //= MERGED_AT_ONCE
        magnitude += 1
    return magnitude


def _counts(change: SnapshotChange, removed: _Removed) -> dict[str, str]:
    """What this snapshot adds and removes, in the names of Iceberg's summary; zeros are left out."""
    gone, gone_deletes = removed.of(ManifestContent.DATA), removed.of(ManifestContent.DELETES)
    partitions = {_partition(file.partition) for file in (*change.added, *change.added_deletes)}
    partitions |= {_partition(file.partition) for _, file in removed.files}
    found = {
        "added-data-files": len(change.added),
        "added-records": _records(change.added),
        "added-files-size": _size([*change.added, *change.added_deletes]),
        "added-delete-files": len(change.added_deletes),
        "added-position-delete-files": len(change.added_deletes),
        "added-position-deletes": _records(change.added_deletes),
        "deleted-data-files": len(gone),
        "deleted-records": _records(gone),
        "removed-files-size": _size([*gone, *gone_deletes]),
        "removed-delete-files": len(gone_deletes),
        "removed-position-delete-files": len(gone_deletes),
        "removed-position-deletes": _records(gone_deletes),
        "changed-partition-count": len(partitions),
    }
    return {name: str(count) for name, count in found.items() if count}


def _totals(base: Totals, change: SnapshotChange, removed: _Removed) -> Totals:
    gone, gone_deletes = removed.of(ManifestContent.DATA), removed.of(ManifestContent.DELETES)
    return Totals(
        base.files + len(change.added) - len(gone),
        base.records + _records(change.added) - _records(gone),
        base.size_bytes + _size([*change.added, *change.added_deletes]) - _size([*gone, *gone_deletes]),
        base.delete_files + len(change.added_deletes) - len(gone_deletes),
        base.position_deletes + _records(change.added_deletes) - _records(gone_deletes),
        change.held.rows,
    )


def _total_counts(totals: Totals) -> dict[str, str]:
    return {
        "total-data-files": str(totals.files),
        "total-records": str(totals.records),
        "total-files-size": str(totals.size_bytes),
        "total-delete-files": str(totals.delete_files),
        "total-position-deletes": str(totals.position_deletes),
        "total-equality-deletes": "0",
    }


def _records(files: Sequence[DataFile]) -> int:
    return sum(file.record_count for file in files)


def _size(files: Sequence[DataFile]) -> int:
    return sum(file.file_size_in_bytes for file in files)


def _partition(record: Record) -> tuple[object, ...]:
    return tuple(record[place] for place in range(len(record)))
