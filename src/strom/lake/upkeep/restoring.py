"""Undoes other engines' changes where no snapshot of ours is left to roll back to, by what each bucket should hold.

How far the lake held every bucket is known from our last statement in the metadata and its log, from the table's
property, or from the cluster's record. Then, for each bucket:

    it has the rows it should have      it stays
    the servers hold all of it          it is removed from the lake, and the next round tiers it again
    it has lake-only rows               rows that no round brought are deleted; missing rows are lost, and reported

All in one commit that lands on the foreign head or not at all.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
from pyiceberg.table.snapshots import Snapshot

from strom.lake.files.file_description import is_own
from strom.lake.files.file_reader import offsets_or_none
from strom.lake.files.offset_print import OffsetPrint, print_of
from strom.lake.iceberg.delete_files import DeadRows, DeleteFileDescription, write_deletes
from strom.lake.iceberg.deleted_rows import rows_deleted
from strom.lake.iceberg.held_files import HeldFile, HeldFiles, files_of
from strom.lake.iceberg.lake_head import LakeHead, LastWords, expected_live, offsets_by_place, totals_of
from strom.lake.iceberg.manifest_writer import delete_file
from strom.lake.iceberg.snapshot_change import SnapshotChange, commit_change, new_snapshot_id
from strom.lake.iceberg.summary import LakeOffsets
from strom.lake.iceberg.table import LakeTable
from strom.model.lake.lake import Place
from strom.runtime.units import counted

Offsets = npt.NDArray[np.int64]
ROUND = "restored"


@dataclass(frozen=True)
class Restoration:
    """The changes to make."""

    held: LakeOffsets
    """How far the buckets are held afterwards."""
    removed: frozenset[str]
    dead: Sequence[DeadRows]
    told: tuple[str, ...]
    """For people: which buckets are tiered again, what is deleted, what is lost."""


@dataclass
class _Bucket:
    """One bucket of the head."""

    files: list[HeldFile]
    start: int
    end: int
    kept: OffsetPrint = field(default_factory=OffsetPrint)
    dead: list[tuple[HeldFile, Offsets]] = field(default_factory=list)
    missing: int = 0


def plan_restoration(
    table: LakeTable, head: Snapshot, words: LastWords, servers: Mapping[Place, int]
) -> Restoration:
    """Plan how to restore our last statement. ``servers``: the first offset they hold of each of their buckets."""
    held = words.held
    assert held is not None
    strays: list[str] = []
    files = files_of(table, head, strays)
    expected = expected_live(table, held)
    plan = _Plan(table, held, files, expected, values_kept=words.values_kept)
    for place in sorted({*plan.ends, *plan.by_place}, key=str):
        plan.decide(place, servers.get(place))
    if strays:
        plan.told.append(f"{counted(len(strays), 'file')} of no bucket taken out")
    return plan.made(strays)


def commit_restoration(table: LakeTable, head: Snapshot, made: Restoration) -> LakeHead:
    """Commit it; LakeConflict when another commit came first."""
    snapshot_id = new_snapshot_id(table)
    written = _written(table, made.dead, snapshot_id)
    base = LakeHead(head.snapshot_id, made.held, totals_of(table, head), head.timestamp_ms)
    change = SnapshotChange(made.held, (), [delete_file(one) for one in written], made.removed)
    return commit_change(table, base, change, snapshot_id)


class _Plan:
    """Decides for each bucket."""

    def __init__(
        self,
        table: LakeTable,
        held: LakeOffsets,
        files: HeldFiles,
        expected: Mapping[Place, OffsetPrint] | None,
        *,
        values_kept: bool,
    ) -> None:
        self._values_kept = values_kept
        self._table, self._held, self._files = table, held, files
        self._expected = expected
        self.ends = offsets_by_place(held)
        self.by_place: dict[Place, list[HeldFile]] = defaultdict(list)
        for file in sorted(files.data, key=lambda one: (not is_own(one.path), one.sequence)):
            self.by_place[file.place].append(file)
        self._deleted = rows_deleted(table.storage, files, files.data)
        self._starts: dict[Place, int] = {}
        for key, start in held.starts.items():
            self._starts[held.name_of(key), key.bucket] = start
        self._live: dict[Place, OffsetPrint] = {}
        self._anew: set[Place] = set()
        self._removed: set[str] = set()
        self._dead: list[DeadRows] = []
        self.told: list[str] = []

    def decide(self, place: Place, from_offset: int | None) -> None:
        """``from_offset``: where the servers' rows of the bucket begin; None: they have none."""
        bucket = self._looked(place)
        expected = None if self._expected is None else self._expected.get(place, OffsetPrint())
        doubtful = not self._values_kept and not all(is_own(file.path) for file in bucket.files)
        whole = not bucket.dead and (bucket.kept == expected or (expected is None and not bucket.missing))
        if whole and not doubtful:
            self._live[place] = bucket.kept
            return
        name = f"bucket {place[1]}" + ("" if place[0] is None else f" of partition {place[0]}")
        if from_offset is not None and from_offset <= bucket.start:
            self._forget(place)
            self.told.append(f"{name} may have other rows than it should: the next round brings it anew")
            return
        if place not in self.ends:
            self._forget(place)
            self.told.append(f"{name} is none of the table's: its rows are taken out")
            return
        self._live[place] = bucket.kept
        rows = {file.path: positions for file, positions in bucket.dead}
        if rows:
            partition = bucket.files[0].entry.data_file.partition
            self._dead.append(DeadRows(partition, tuple(sorted(rows.items()))))
            self.told.append(
                f"{name}: {counted(sum(map(len, rows.values())), 'row')} of somebody else deleted"
            )
        missing = bucket.missing if expected is None else expected.rows - bucket.kept.rows
        if missing > 0:
            self.told.append(f"{name}: {counted(missing, 'row')} lost, below offset {bucket.end:,}")
        if doubtful:
            self.told.append(
                f"{name}: its rows are in files of somebody else, and may have other values than before"
            )

    def made(self, strays: Sequence[str]) -> Restoration:
        """All of it."""
        held = self._held
        offsets = {
            key: tiered
            for key, tiered in held.offsets.items()
            if (held.name_of(key), key.bucket) not in self._anew
        }
        ids = {key.partition_id for key in offsets}
        return Restoration(
            replace(
                held,
                round=ROUND,
                offsets=offsets,
                partitions={number: name for number, name in held.partitions.items() if number in ids},
                starts={key: start for key, start in held.starts.items() if key in offsets},
                live={place: one for place, one in self._live.items() if one.rows},
            ),
            frozenset([*self._removed, *strays]),
            self._dead,
            tuple(self.told),
        )

    def _forget(self, place: Place) -> None:
        self._anew.add(place)
        self._removed |= {file.path for file in self.by_place[place]}
        self._removed |= {one.path for one in self._files.deletes_by_place.get(place, ())}

    def _looked(self, place: Place) -> _Bucket:
        """Divide the rows of a bucket: those to keep, each once, and those that should not be there."""
        end = self.ends[place].offset if place in self.ends else 0
        bucket = _Bucket(self.by_place[place], self._starts.get(place, 0), end)
        seen = np.zeros(max(bucket.end - bucket.start, 0), np.bool_)
        for file, positions, offsets in self._rows(bucket.files):
            inside = (offsets >= bucket.start) & (offsets < bucket.end)
            good = np.zeros(len(offsets), np.bool_)
            fresh = np.flatnonzero(inside)
            fresh = fresh[~seen[offsets[fresh] - bucket.start]]
            _, first = np.unique(offsets[fresh], return_index=True)
            good[fresh[first]] = True
            seen[offsets[good] - bucket.start] = True
            bucket.kept = bucket.kept.plus(print_of(offsets[good]))
            if not good.all():
                bucket.dead.append((file, positions[~good]))
        bucket.missing = 0 if self._table.description.has_primary_key else int((~seen).sum())
        return bucket

    def _rows(self, files: Sequence[HeldFile]) -> Iterator[tuple[HeldFile, Offsets, Offsets]]:
        """The live rows of each file: their positions, and the offset of each."""
        for file in files:
            offsets = offsets_or_none(self._table.storage, file.path)
            alive = np.ones(len(offsets), np.bool_)
            alive[self._deleted.get(file.path, np.empty(0, np.int64))] = False
            positions = np.flatnonzero(alive)
            yield file, positions, offsets[positions]


def _written(table: LakeTable, dead: Sequence[DeadRows], snapshot_id: int) -> list[DeleteFileDescription]:
    parts = [part for one in dead for part in one.apart()]
    return [
        write_deletes(
            table.storage, f"{table.location}/data/strom-{ROUND}-{snapshot_id}-{number}-deletes.parquet", part
        )
        for number, part in enumerate(parts)
    ]
