"""The commit of a tiering round: new files, deletes of dead rows, and how far each bucket is held now, in one snapshot.

It is checked against the head that was planned from, because a wrong commit duplicates or loses rows for ever: a bucket
never goes back, new files lie between its old and its new end and do not overlap, every dead offset is in exactly one
file.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from strom.errors import LakeAhead, LakeConflict, LakeCorrupt
from strom.lake.files.bounds import widened
from strom.lake.files.file_description import DataFileDescription
from strom.lake.files.file_reader import read_offsets
from strom.lake.files.offset_print import OffsetPrint, print_between, print_of
from strom.lake.iceberg.delete_files import DeleteFileDescription, dead_rows, write_deletes
from strom.lake.iceberg.held_files import HeldDeletes, HeldFile, held_files
from strom.lake.iceberg.lake_head import LakeHead, offsets_by_place
from strom.lake.iceberg.live_offsets import live_prints
from strom.lake.iceberg.manifest_writer import data_file, delete_file
from strom.lake.iceberg.snapshot_change import SnapshotChange, commit_change, new_snapshot_id
from strom.lake.iceberg.summary import LakeOffsets
from strom.lake.iceberg.table import LakeTable
from strom.model.lake.lake import LakeKey, Place, Tiered
from strom.runtime.clock import Clock

Offsets = npt.NDArray[np.int64]


def commit_round(
    table: LakeTable,
    base: LakeHead,
    *,
    round_id: str,
    added: Sequence[DataFileDescription] = (),
    dead: Mapping[LakeKey, Offsets] | None = None,
    offsets: Mapping[LakeKey, Tiered],
    partitions: Mapping[int, str] | None = None,
    clock: Clock | None = None,
) -> LakeHead:
    """Commit a round that was planned from ``base``; returns the new head.

    ``offsets``: the new ends of the round's buckets (others stay). ``dead``: offsets below the old end that died since.
    LakeConflict: another commit was first, nothing happened. LakeCommitUnknown: read the head; if its round is
    ``round_id``, it landed.
    """
    held = _advanced(base, round_id, offsets, partitions or {})
    held = replace(
        held,
        bounds=widened(base.bounds, table.schema, added),
        starts={} if table.description.has_primary_key else _starts(base.held, held, added),
        live=_live(table, base, held, added, dead or {}),
    )
    _check_files(base.held, held, added)
    snapshot_id = new_snapshot_id(table)
    deletes = _write_dead(table, base, held, dead or {}, f"{round_id}-{snapshot_id}")
    change = SnapshotChange(
        held, [data_file(file) for file in added], [delete_file(file) for file in deletes]
    )
    try:
        return commit_change(table, base, change, snapshot_id, clock)
    except LakeConflict:
        for file in deletes:
            table.storage.delete(file.path)
        raise


def adopt(table: LakeTable, base: LakeHead, *, clock: Clock | None = None) -> LakeHead:
    """State what is held on top of another engine's rewrite, so that later readers need not compare rows.

    A separate commit that changes no file; returns ``base`` when its snapshot is ours. Errors as in ``commit_round``.
    """
    if not base.foreign:
        return base
    held = replace(base.held, live=known_live(table, base))
    return commit_change(table, base, SnapshotChange(held, rewrite=True), new_snapshot_id(table), clock)


def drop_partitions(
    table: LakeTable, base: LakeHead, names: Collection[str], *, round_id: str, clock: Clock | None = None
) -> LakeHead:
    """Remove dropped partitions from the lake, rows and offsets: a new one of that name starts from nothing.

    A separate commit; returns ``base`` when the lake holds nothing of them. Errors as in ``commit_round``.
    """
    gone = {number for number, name in base.partitions.items() if name in names}
    found = held_files(table, base.snapshot_id) if base.snapshot_id is not None else None
    files: list[HeldFile | HeldDeletes] = [*found.data, *found.deletes] if found is not None else []
    removed = {item.path for item in files if item.partition_name in names}
    if not gone and not removed:
        return base
    held = LakeOffsets(
        table.table_id,
        round_id,
        {key: tiered for key, tiered in base.offsets.items() if key.partition_id not in gone},
        {number: name for number, name in base.partitions.items() if number not in gone},
        base.bounds,
        {key: start for key, start in base.held.starts.items() if key.partition_id not in gone},
        {place: one for place, one in known_live(table, base).items() if place[0] not in names},
    )
    change = SnapshotChange(held, removed=removed)
    return commit_change(table, base, change, new_snapshot_id(table), clock)


def _advanced(
    base: LakeHead, round_id: str, offsets: Mapping[LakeKey, Tiered], partitions: Mapping[int, str]
) -> LakeOffsets:
    """How far the buckets are held after the round."""
    names = {**base.partitions, **partitions}
    ends = dict(base.offsets)
    known = offsets_by_place(base.held)
    for key, tiered in offsets.items():
        if key.partition_id is not None and key.partition_id not in names:
            raise LakeCorrupt(f"A round has no name for partition {key.partition_id}")
        name = None if key.partition_id is None else names[key.partition_id]
        before = known.get((name, key.bucket), Tiered(0, -1))
        if tiered.offset < before.offset:
            raise LakeAhead(
                f"Bucket {key.bucket} is held up to {before.offset} in the lake, and a round would set it back to "
                f"{tiered.offset}: its log was lost or its partition was recreated",
                bucket=key.bucket,
                partition=name,
            )
        ends[key] = tiered
    held = LakeOffsets(base.held.table_id, round_id, ends, names)
    return _one_id_per_name(held, set(offsets))


def _one_id_per_name(held: LakeOffsets, newest: set[LakeKey]) -> LakeOffsets:
    """A recreated partition takes over the offsets of its name: the old id is dropped.

    Ids only rise. A bucket without rows in the new partition is held as far as the old one's.
    """
    taken: dict[str | None, int] = {}
    for key in newest:
        if key.partition_id is not None:
            name = held.name_of(key)
            taken[name] = max(taken.get(name, -1), key.partition_id)
    gone = {number for number, name in held.partitions.items() if name in taken and taken[name] != number}
    ends: dict[LakeKey, Tiered] = {}
    for key, tiered in held.offsets.items():
        if key.partition_id in gone:
            key = LakeKey(taken[held.name_of(key)], key.bucket)
        ends[key] = max(ends.get(key, tiered), tiered)
    names = {number: name for number, name in held.partitions.items() if number not in gone}
    return LakeOffsets(held.table_id, held.round, ends, names)


def _starts(
    before: LakeOffsets, after: LakeOffsets, added: Sequence[DataFileDescription]
) -> dict[LakeKey, int]:
    """Where the rows of each log bucket begin: fixed by the first round that brought it."""
    known = offsets_by_place(before)
    starts: dict[Place, int] = {}
    for key, start in before.starts.items():
        place = before.name_of(key), key.bucket
        starts[place] = min(start, starts.get(place, start))
    firsts: dict[Place, int] = {}
    for file in added:
        place = file.partition_name, file.bucket
        firsts[place] = min(file.first_offset, firsts.get(place, file.first_offset))
    for key, tiered in after.offsets.items():
        place = after.name_of(key), key.bucket
        if place not in known:
            starts[place] = firsts.get(place, tiered.offset)
    found = {key: starts.get((after.name_of(key), key.bucket), 0) for key in after.offsets}
    return {key: start for key, start in found.items() if start}


def known_live(table: LakeTable, base: LakeHead) -> Mapping[Place, OffsetPrint]:
    """The prints of what is live in a snapshot: from its summary, or from the files if an earlier version wrote it."""
    if base.held.live is not None or base.snapshot_id is None:
        return base.held.live or {}
    return live_prints(table.storage, held_files(table, base.snapshot_id))


def _live(
    table: LakeTable,
    base: LakeHead,
    held: LakeOffsets,
    added: Sequence[DataFileDescription],
    dead: Mapping[LakeKey, Offsets],
) -> dict[Place, OffsetPrint]:
    """The prints after the round: plus what it adds, minus what died."""
    found = dict(known_live(table, base))
    for file in added:
        place = file.partition_name, file.bucket
        found[place] = found.get(place, OffsetPrint()).plus(_print(table, file))
    for key, offsets in dead.items():
        if len(offsets):
            place = held.name_of(key), key.bucket
            found[place] = found.get(place, OffsetPrint()).minus(print_of(np.unique(offsets)))
    return {place: one for place, one in found.items() if one.rows}


def _print(table: LakeTable, file: DataFileDescription) -> OffsetPrint:
    if file.offsets_total is not None:
        return OffsetPrint(file.rows, file.offsets_total)
    if file.rows == file.last_offset - file.first_offset + 1:
        return print_between(file.first_offset, file.last_offset + 1)
    return print_of(read_offsets(table.storage, file.path))


def _check_files(before: LakeOffsets, after: LakeOffsets, added: Sequence[DataFileDescription]) -> None:
    """Reject files outside the range that the round adds to their bucket, and files that overlap."""
    starts, ends = offsets_by_place(before), offsets_by_place(after)
    ranges: dict[Place, list[tuple[int, int]]] = defaultdict(list)
    for file in added:
        ranges[file.partition_name, file.bucket].append((file.first_offset, file.last_offset))
    for place, found in ranges.items():
        reached = starts.get(place, Tiered(0, -1)).offset
        end = ends.get(place, Tiered(0, -1)).offset
        for first, last in sorted(found):
            if first < reached or last >= end or last < first:
                raise LakeCorrupt(
                    f"A file of bucket {place[1]} holds offsets {first} to {last}, and the round may add {reached} to "
                    f"{end - 1}",
                    bucket=place[1],
                    partition=place[0],
                )
            reached = last + 1


def _write_dead(
    table: LakeTable, base: LakeHead, held: LakeOffsets, dead: Mapping[LakeKey, Offsets], name: str
) -> list[DeleteFileDescription]:
    by_place: dict[Place, Offsets] = {}
    for key, offsets in dead.items():
        if not len(offsets):
            continue
        place = held.name_of(key), key.bucket
        earlier = by_place.get(place, np.empty(0, np.int64))
        by_place[place] = np.concatenate([earlier, np.asarray(offsets, np.int64)])
    if not by_place:
        return []
    if base.snapshot_id is None:
        raise LakeCorrupt(f"Offsets died that lake table {table.path} should hold, and it is empty")
    files = held_files(table, base.snapshot_id).data
    found = dead_rows(table.storage, files, by_place)
    return [
        write_deletes(table.storage, f"{table.location}/data/strom-{name}-{number}-deletes.parquet", rows)
        for number, rows in enumerate(part for one in found for part in one.apart())
    ]
