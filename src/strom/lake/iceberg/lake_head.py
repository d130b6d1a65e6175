"""How far the lake holds a table, read from the lake itself: from the nearest ancestor snapshot that states it.

    head is ours                its summary counts, also after the table was rolled back to it
    foreign ``replace``         checked against the data: if every bucket has the same live offsets as before, the
                                ancestor's summary holds for it, too
    any other foreign commit    LakeForeignCommit: another engine changed rows; the table is quarantined

Other engines may expire snapshots, including ours. An expired ancestor is looked up in earlier versions of the metadata
(``ancestry.py``); if they are gone, too, in the table's property (``summary.py``). Its files may be gone, so the rows
of the head are compared with the prints that it left. A property is wrong after a rollback, so it counts only if the
rows confirm it.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from pyiceberg.table.snapshots import Operation, Snapshot

from strom.errors import LakeCorrupt, LakeForeignCommit
from strom.lake.files.offset_print import OffsetPrint, print_between
from strom.lake.files.storage import Storage
from strom.lake.iceberg.ancestry import Ancestor, Ancestry
from strom.lake.iceberg.deleted_rows import rows_deleted
from strom.lake.iceberg.held_files import HeldFiles, files_of
from strom.lake.iceberg.live_offsets import changed_places, live_prints
from strom.lake.iceberg.summary import LakeOffsets, read_property, read_summary
from strom.lake.iceberg.table import LakeTable
from strom.model.lake.lake import Bounds, LakeKey, Place, Tiered

ANCESTORS_MAX = 10_000
_DIGITS_MAX = 18
_TOTALS = {
    "files": "total-data-files",
    "records": "total-records",
    "size_bytes": "total-files-size",
    "delete_files": "total-delete-files",
    "position_deletes": "total-position-deletes",
}

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Totals:
    """Totals of a snapshot. ``size_bytes`` includes delete files, as in Iceberg."""

    files: int = 0
    records: int = 0
    size_bytes: int = 0
    delete_files: int = 0
    position_deletes: int = 0
    """Rows that delete files name: including rows whose file is gone, and duplicates."""
    live: int | None = None
    """Live rows, where they were counted."""

    @property
    def rows(self) -> int:
        """Live rows."""
        return self.records - self.position_deletes if self.live is None else self.live


@dataclass(frozen=True)
class LakeHead:
    """A lake table at one snapshot; ``snapshot_id`` None: nothing was committed yet."""

    snapshot_id: int | None
    held: LakeOffsets
    totals: Totals = Totals()
    committed_ms: int | None = None
    foreign: bool = False
    """Whether another engine committed the snapshot: our rows in its files."""

    @property
    def round(self) -> str:
        """The round that committed last; after an unknown outcome it shows whether the round landed."""
        return self.held.round

    @property
    def offsets(self) -> Mapping[LakeKey, Tiered]:
        """How far each bucket is held."""
        return self.held.offsets

    @property
    def partitions(self) -> Mapping[int, str]:
        """The names of the partitions among them."""
        return self.held.partitions

    @property
    def bounds(self) -> Bounds:
        """Bounds of the rows."""
        return self.held.bounds


def read_head(table: LakeTable) -> LakeHead:
    """Refresh the table and read its head."""
    return head_at(table.refresh(), table.snapshot())


def head_at(table: LakeTable, head: Snapshot | None) -> LakeHead:
    """The state at a snapshot."""
    if head is None:
        return LakeHead(None, LakeOffsets(table.table_id, ""))
    held, ours = _nearest(table, head)
    foreign = ours is None or ours.snapshot.snapshot_id != head.snapshot_id
    totals = totals_of(table, head)
    if foreign:
        live = _understood(table, held, ours, head)
        held = replace(held, live=live)
        totals = replace(totals, live=held.rows)
    elif held.live is not None:
        totals = replace(totals, live=held.rows)
    return LakeHead(head.snapshot_id, held, totals, head.timestamp_ms, foreign)


def totals_of(table: LakeTable, snapshot: Snapshot) -> Totals:
    """The totals of a snapshot: from its summary, or counted where that lacks them. Live rows are not counted."""
    summary: Mapping[str, object] = snapshot.summary or {}
    texts = {name: summary.get(key) for name, key in _TOTALS.items()}
    if all(
        isinstance(text, str) and text.isdecimal() and len(text) <= _DIGITS_MAX for text in texts.values()
    ):
        return Totals(**{name: int(str(text)) for name, text in texts.items()})
    found = files_of(table, snapshot)
    size = found.size + sum(item.entry.data_file.file_size_in_bytes for item in found.deletes)
    records = sum(item.rows for item in found.data)
    named = sum(item.rows for item in found.deletes)
    return Totals(len(found.data), records, size, len(found.deletes), named, count_live(table.storage, found))


def count_live(storage: Storage, held: HeldFiles) -> int:
    """Count live rows: a delete file may name rows of files that are gone, and rows that another one names."""
    dead = rows_deleted(storage, held, held.data)
    return sum(item.rows for item in held.data) - sum(len(rows) for rows in dead.values())


def _nearest(table: LakeTable, head: Snapshot) -> tuple[LakeOffsets, Ancestor | None]:
    """Our nearest statement below foreign rewrites, and the snapshot that made it (None: the property)."""
    ancestry = Ancestry(table)
    at: Ancestor | None = Ancestor(head, True)
    for _ in range(ANCESTORS_MAX):
        assert at is not None
        held = read_summary(table.storage, at.snapshot.summary or {}, table.iceberg.properties)
        if held is not None:
            return _of(table, held, f"Snapshot {at.snapshot.snapshot_id}"), at
        operation = None if at.snapshot.summary is None else at.snapshot.summary.operation
        if operation != Operation.REPLACE:
            what = f"a foreign {operation.value if operation else 'commit'}"
            raise foreign_commit(table, at.snapshot, what)
        parent = ancestry.parent(at.snapshot)
        if parent is None:
            held = read_property(table.iceberg.properties)
            if held is None:
                raise foreign_commit(table, at.snapshot, "no snapshot of Strom's is left below it")
            logger.warning(
                "%s: another engine expired the snapshots before %d; its rows are compared with what the "
                "table's property says of them",
                table.path,
                at.snapshot.snapshot_id,
            )
            return _of(table, held, "The property strom.held"), None
        at = parent
    raise foreign_commit(table, head, f"{ANCESTORS_MAX} foreign commits follow one another")


class LastWords(NamedTuple):
    """Our last statement, whatever others committed since; None when nothing of it is left."""

    held: LakeOffsets | None
    values_kept: bool
    """Whether every later commit is known and can only have added or removed rows, not changed values."""


def last_words(table: LakeTable, head: Snapshot) -> LastWords:
    """Our last statement below a head."""
    ancestry = Ancestry(table)
    at: Ancestor | None = Ancestor(head, True)
    kept = True
    while at is not None:
        held = read_summary(table.storage, at.snapshot.summary or {}, table.iceberg.properties)
        if held is not None:
            return LastWords(_of(table, held, f"Snapshot {at.snapshot.snapshot_id}"), kept)
        operation = None if at.snapshot.summary is None else at.snapshot.summary.operation
        kept = kept and operation in (Operation.REPLACE, Operation.APPEND, Operation.DELETE)
        at = ancestry.parent(at.snapshot)
    held = read_property(table.iceberg.properties)
    return LastWords(None if held is None else _of(table, held, "The property strom.held"), False)


def _of(table: LakeTable, held: LakeOffsets, who: str) -> LakeOffsets:
    if held.table_id != table.table_id:
        raise LakeCorrupt(f"{who} of lake table {table.path} is of another table")
    return held


def foreign_commit(table: LakeTable, snapshot: Snapshot, what: str) -> LakeForeignCommit:
    """The error of a table that another engine changed."""
    return LakeForeignCommit(
        f"Lake table {table.path} was changed by another engine (snapshot {snapshot.snapshot_id}: {what}). Take that "
        f"back with `strom lake rebuild {table.path} --roll-back`",
        table=str(table.path),
        snapshot_id=snapshot.snapshot_id,
    )


def _understood(
    table: LakeTable, held: LakeOffsets, ours: Ancestor | None, head: Snapshot
) -> dict[Place, OffsetPrint] | None:
    """The prints of the head after foreign rewrites; LakeForeignCommit when a bucket has other rows than ours."""
    after = files_of(table, head)
    if ours is not None and ours.kept:
        before = files_of(table, ours.snapshot)
        places = changed_places(before, after)
        expected = live_prints(table.storage, before, places)
        _compare(table, head, expected, live_prints(table.storage, after, places))
        return None if held.live is None else dict(held.live)
    told = expected_live(table, held)
    if told is None:
        raise foreign_commit(table, head, "no snapshot of Strom's is left below it to compare its rows with")
    _compare(table, head, told, live_prints(table.storage, after))
    return told


def expected_live(table: LakeTable, held: LakeOffsets) -> dict[Place, OffsetPrint] | None:
    """The prints in a summary, or derived from it: a log has every offset from its start to its end."""
    if held.live is not None:
        return dict(held.live)
    if table.description.has_primary_key:
        return None
    starts = {(held.name_of(key), key.bucket): start for key, start in held.starts.items()}
    ends = offsets_by_place(held)
    found = {place: print_between(starts.get(place, 0), end.offset) for place, end in ends.items()}
    return {place: one for place, one in found.items() if one.rows}


def _compare(
    table: LakeTable,
    head: Snapshot,
    expected: Mapping[Place, OffsetPrint],
    found: Mapping[Place, OffsetPrint],
) -> None:
    for place in sorted({*expected, *found}, key=str):
        if expected.get(place) != found.get(place):
            bucket = f"bucket {place[1]}" + (f" of partition {place[0]}" if place[0] else "")
            raise foreign_commit(table, head, f"a foreign replace after which {bucket} has other rows")


def offsets_by_place(held: LakeOffsets) -> dict[Place, Tiered]:
    """How far each bucket is held, by partition name: the furthest, where a name had several ids."""
    found: dict[Place, Tiered] = defaultdict(lambda: Tiered(0, -1))
    for key, tiered in held.offsets.items():
        place = (held.name_of(key), key.bucket)
        found[place] = max(found[place], tiered)
    return dict(found)
