"""Compaction: merges small files, drops dead rows, merges delete files. The live rows stay the same.

Files are written from one snapshot, and committed on whatever snapshot is the newest by then:

    every old file must still exist, with at least the deletes that were seen; otherwise its group is given up
    rows that died meanwhile are deleted in the new file, too: (old file, row) -> offset -> (new file, row)
    deletes of other files that share a delete file with an old one are rewritten
    how far the buckets are held, the round, the bounds: copied from the newest snapshot

So a steady stream of rounds never makes a compaction start over, and a round that plans from an older snapshot loses
its compare-and-set and finds its dead rows in the new files (``lake/rounds/committer.py``). A crash anywhere leaves
only files that no snapshot names.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from pyiceberg.manifest import ManifestEntry, ManifestEntryStatus

from strom.errors import LakeCommitUnknown, LakeConflict, LakeCorrupt
from strom.lake.files.file_description import DataFileDescription
from strom.lake.files.file_reader import rows_by_file
from strom.lake.files.storage import Storage
from strom.lake.iceberg.delete_files import (
    DeadRows,
    DeleteFileDescription,
    offsets_in,
    row_positions,
    write_deletes,
)
from strom.lake.iceberg.deleted_rows import naming, union
from strom.lake.iceberg.held_files import HeldDeletes, HeldFile, HeldFiles, held_files
from strom.lake.iceberg.lake_head import LakeHead, read_head
from strom.lake.iceberg.manifest_writer import data_file, delete_file
from strom.lake.iceberg.snapshot_change import SnapshotChange, commit_change, new_snapshot_id
from strom.lake.iceberg.table import LakeTable
from strom.lake.upkeep.compaction_plan import crowded
from strom.lake.upkeep.rewriting import RewrittenGroup, drop
from strom.model.lake.lake import Place
from strom.runtime.clock import Clock

Positions = npt.NDArray[np.int64]

TRIES = 20
"""Attempts, while other commits keep coming first."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Compacted:
    """What a commit did; ``head`` None: nothing was left to do."""

    head: LakeHead | None = None
    files_before: int = 0
    files_after: int = 0
    rows_removed: int = 0
    deletes_removed: int = 0
    """Position delete files that were removed."""


def commit_rewritten(
    table: LakeTable,
    rewritten: Sequence[RewrittenGroup],
    *,
    merge_deletes_at: int,
    clock: Clock | None = None,
) -> Compacted:
    """Replace old files by new ones, and merge delete files, on top of the current snapshot.

    Unused files are deleted, unless the outcome of the commit is unknown. After an error they stay, too: it may have
    come after the commit.
    """
    unknown = False
    for _ in range(TRIES):
        base = read_head(table)
        if base.snapshot_id is None:
            break
        step = _Step(table, base, held_files(table, base.snapshot_id), merge_deletes_at)
        if unknown and rewritten and step.holds(rewritten):
            return step.told(base, rewritten)
        usable = [one for one in rewritten if step.usable(one)]
        change = step.change(usable)
        if not change.removed:
            break
        try:
            head = commit_change(table, base, change, step.snapshot_id, clock)
        except LakeConflict:
            step.undo()
            continue
        except LakeCommitUnknown as error:
            logger.warning("%s: it is unknown whether a compaction landed: %s", table.path, error)
            unknown = True
            continue
        if not unknown:
            drop(table.storage, [file for one in rewritten if one not in usable for file in one.files])
        return step.told(head, usable)
    if not unknown:
        drop(table.storage, [file for one in rewritten for file in one.files])
    return Compacted()


class _Step:
    """One attempt, on one snapshot."""

    def __init__(self, table: LakeTable, base: LakeHead, held: HeldFiles, merge_deletes_at: int) -> None:
        self._table = table
        self._base = base
        self._held = held
        self._files = {file.path: file for file in held.data}
        self._merge_at = merge_deletes_at
        self._written: list[DeleteFileDescription] = []
        self._deletes_removed = 0
        self._read: dict[str, dict[str, Positions]] = {}
        self.snapshot_id = new_snapshot_id(table)

    def holds(self, rewritten: Sequence[RewrittenGroup]) -> bool:
        """Whether a commit of unknown outcome landed after all."""
        return any(file.path in self._files for one in rewritten for file in one.files)

    def usable(self, one: RewrittenGroup) -> bool:
        """Whether all its old files exist, with at least the deletes that were seen."""
        if not one.group.paths <= self._files.keys():
            return False
        dead = self._dead_of([one])
        return all(
            bool(np.isin(rows, dead.get(path, ()), assume_unique=True).all())
            for path, rows in one.left_out.items()
        )

    def change(self, rewritten: Sequence[RewrittenGroup]) -> SnapshotChange:
        """The commit: files added and removed."""
        removed = {path for one in rewritten for path in one.group.paths}
        deletes: list[DeleteFileDescription] = []
        by_place: dict[Place, list[RewrittenGroup]] = defaultdict(list)
        for one in rewritten:
            by_place[one.group.place].append(one)
        for place, here in self._held.deletes_by_place.items():
            gone, rows = self._deletes_in(here, by_place.get(place, []))
            removed |= gone
            self._deletes_removed += len(gone)
            if rows:
                deletes += self._write(
                    DeadRows(here[0].entry.data_file.partition, tuple(sorted(rows.items())))
                )
        return SnapshotChange(
            self._base.held,
            [data_file(file) for one in rewritten for file in one.files],
            [delete_file(file) for file in deletes],
            removed,
            rewrite=True,
        )

    def undo(self) -> None:
        """Remove the delete files that were written for this snapshot."""
        for file in self._written:
            self._table.storage.delete(file.path)

    def told(self, head: LakeHead, rewritten: Sequence[RewrittenGroup]) -> Compacted:
        """What was done."""
        return Compacted(
            head,
            sum(len(one.group.files) for one in rewritten),
            sum(len(one.files) for one in rewritten),
            sum(one.rows_out for one in rewritten),
            max(self._deletes_removed - len(self._written), 0),  # one that named many files may become many
        )

    def _dead_of(self, rewritten: Sequence[RewrittenGroup]) -> dict[str, Positions]:
        """The dead rows of the old files, as of now."""
        files = [self._files[path] for one in rewritten for path in one.group.paths]
        parts = [self._rows(item.path) for item in naming(self._held, files)]
        known = {file.path for file in files}
        return union({path: rows for path, rows in part.items() if path in known} for part in parts)

    def _deletes_in(
        self, here: Sequence[HeldDeletes], rewritten: Sequence[RewrittenGroup]
    ) -> tuple[set[str], dict[str, Positions]]:
        """For one bucket: the delete files to remove, and the rows that their replacement must name."""
        storage = self._table.storage
        old = {path: self._files[path] for one in rewritten for path in one.group.paths}
        gone = crowded(here, self._merge_at)
        touching = {item.path for item in naming(self._held, old.values())}
        parts: list[dict[str, Positions]] = []
        for item in here:
            if item.path not in gone and item.path not in touching:
                continue
            rows = self._rows(item.path)
            if item.path in gone or rows.keys() & old.keys():
                gone.add(item.path)
                parts.append(rows)
        dead = union(parts)
        left = {path: rows for path, rows in dead.items() if path in self._files and path not in old}
        for one in rewritten:
            left |= _moved(storage, one, old, dead)
        return gone, left

    def _rows(self, path: str) -> dict[str, Positions]:
        """The rows that a delete file names; read once."""
        if path not in self._read:
            self._read[path] = rows_by_file(self._table.storage, path)
        return self._read[path]

    def _write(self, dead: DeadRows) -> list[DeleteFileDescription]:
        found = []
        for part in dead.apart():
            name = f"{self._base.round}-{self.snapshot_id}-{len(self._written)}"
            uri = f"{self._table.location}/data/strom-{name}-deletes.parquet"
            found.append(write_deletes(self._table.storage, uri, part))
            self._written.append(found[-1])
        return found


def _moved(
    storage: Storage, one: RewrittenGroup, old: dict[str, HeldFile], dead: dict[str, Positions]
) -> dict[str, Positions]:
    """Rows that died since the files were written, by new file."""
    late = [
        offsets_in(storage, old[path])[rows]
        for path in sorted(one.group.paths)
        if len(rows := np.setdiff1d(dead.get(path, _NONE), one.left_out.get(path, _NONE), assume_unique=True))
    ]
    if not late:
        return {}
    offsets = np.sort(np.concatenate(late))
    found = {}
    for file in one.files:
        positions = row_positions(storage, _as_held(file), offsets)
        if (positions >= 0).any():
            found[file.path] = np.sort(positions[positions >= 0])
    if sum(map(len, found.values())) != len(offsets):
        raise LakeCorrupt(
            f"{one.files[0].path if one.files else 'No file'} does not hold what its old ones held"
        )
    return found


_NONE = np.empty(0, np.int64)


def _as_held(file: DataFileDescription) -> HeldFile:
    entry = ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, data_file=data_file(file))
    return HeldFile(entry, file.partition_name, file.bucket, file.first_offset, file.last_offset)
