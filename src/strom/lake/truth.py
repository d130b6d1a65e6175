"""How far the lake holds a table, read from the lake itself: the nearest ancestor snapshot that says so.

    head is ours                its summary is the truth, also after somebody rolled the table back to it
    foreign ``replace``         understood from the data: if every bucket has the same live offsets as before, the
                                ancestor's summary holds for it too
    any other foreign commit    LakeForeignCommit: somebody changed rows behind Strom's back; the table is quarantined

Nothing else is trusted: properties lie after a rollback, and the cluster's own record may lie behind.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from pyiceberg.table.snapshots import Operation, Snapshot

from strom.errors import LakeCorrupt, LakeForeignCommit
from strom.lake.deletes import offsets_in
from strom.lake.held_files import HeldFiles, Place, files_of, paths
from strom.lake.reading import deleted_rows
from strom.lake.summary import LakeOffsets, read_summary
from strom.lake.table import LakeTable
from strom.model.lake import Bounds, LakeKey, Tiered

ANCESTORS_MAX = 10_000
_DIGITS_MAX = 18
_TOTALS = {
    "files": "total-data-files",
    "records": "total-records",
    "size_bytes": "total-files-size",
    "delete_files": "total-delete-files",
    "position_deletes": "total-position-deletes",
}


@dataclass(frozen=True)
class Totals:
    """What a snapshot holds. ``size_bytes`` counts delete files too, as Iceberg does."""

    files: int = 0
    records: int = 0
    size_bytes: int = 0
    delete_files: int = 0
    position_deletes: int = 0

    @property
    def rows(self) -> int:
        """Live rows."""
        return self.records - self.position_deletes


@dataclass(frozen=True)
class Truth:
    """A lake table at one snapshot; ``snapshot_id`` None: nothing was committed yet."""

    snapshot_id: int | None
    held: LakeOffsets
    totals: Totals = Totals()
    committed_ms: int | None = None

    @property
    def round(self) -> str:
        """The round that committed last (after an unknown outcome: whether it was mine)."""
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
        """What the rows lie between."""
        return self.held.bounds


def read_truth(table: LakeTable) -> Truth:
    """The truth at the table's head, looked up anew."""
    return truth_at(table.refresh(), table.snapshot())


def truth_at(table: LakeTable, head: Snapshot | None) -> Truth:
    """The truth at a snapshot."""
    if head is None:
        return Truth(None, LakeOffsets(table.table_id, ""))
    held, foreign = _nearest(table, head)
    for parent, child in foreign:
        _understand(table, parent, child)
    return Truth(head.snapshot_id, held, totals_of(table, head), head.timestamp_ms)


def totals_of(table: LakeTable, snapshot: Snapshot) -> Totals:
    """What a snapshot holds: by its summary, or counted when that does not say."""
    summary: Mapping[str, object] = snapshot.summary or {}
    texts = {name: summary.get(key) for name, key in _TOTALS.items()}
    if all(
        isinstance(text, str) and text.isdecimal() and len(text) <= _DIGITS_MAX for text in texts.values()
    ):
        return Totals(**{name: int(str(text)) for name, text in texts.items()})
    found = files_of(table, snapshot)
    size = found.size + sum(item.entry.data_file.file_size_in_bytes for item in found.deletes)
    records = sum(item.rows for item in found.data)
    return Totals(len(found.data), records, size, len(found.deletes), records - found.live_rows)


def _nearest(table: LakeTable, head: Snapshot) -> tuple[LakeOffsets, list[tuple[Snapshot, Snapshot]]]:
    """The nearest summary of ours, and the foreign commits since, each with its parent, oldest first."""
    foreign: list[tuple[Snapshot, Snapshot]] = []
    at = head
    for _ in range(ANCESTORS_MAX):
        held = read_summary(table.storage, at.summary or {})
        if held is not None:
            if held.table_id != table.table_id:
                raise LakeCorrupt(f"Snapshot {at.snapshot_id} of lake table {table.path} is of another table")
            return held, foreign[::-1]
        operation = None if at.summary is None else at.summary.operation
        if operation != Operation.REPLACE:
            raise _foreign(table, at, f"a foreign {operation.value if operation else 'commit'}")
        parent = (
            None if at.parent_snapshot_id is None else table.metadata.snapshot_by_id(at.parent_snapshot_id)
        )
        if parent is None:
            raise _foreign(table, at, "no snapshot of Strom's is left behind it")
        foreign.append((parent, at))
        at = parent
    raise _foreign(table, at, f"{ANCESTORS_MAX} foreign commits follow one another")


def _foreign(table: LakeTable, snapshot: Snapshot, what: str) -> LakeForeignCommit:
    return LakeForeignCommit(
        f"Lake table {table.path} was changed by somebody else (snapshot {snapshot.snapshot_id}: {what}). Take that "
        f"back with `strom lake rebuild {table.path} --roll-back`",
        table=str(table.path),
        snapshot_id=snapshot.snapshot_id,
    )


def _understand(table: LakeTable, parent: Snapshot, child: Snapshot) -> None:
    """Refuse a foreign rewrite after which a bucket has other rows."""
    before, after = files_of(table, parent), files_of(table, child)
    for place in _places(before, after) | _places(after, before):
        if not np.array_equal(_live_offsets(table, before, place), _live_offsets(table, after, place)):
            bucket = f"bucket {place[1]}" + (f" of partition {place[0]}" if place[0] else "")
            raise _foreign(table, child, f"a foreign replace after which {bucket} has other rows")


def _places(files: HeldFiles, others: HeldFiles) -> set[Place]:
    """Where there are files that the others do not have."""
    data, deletes = paths(others.data), paths(others.deletes)
    found = {item.place for item in files.data if item.path not in data}
    return found | {item.place for item in files.deletes if item.path not in deletes}


def _live_offsets(table: LakeTable, files: HeldFiles, place: Place) -> npt.NDArray[np.int64]:
    parts = [np.empty(0, np.int64)]
    for file in files.data:
        if file.place == place:
            offsets = offsets_in(table.storage, file)
            gone = deleted_rows(table.storage, files.planned(file))
            parts.append(np.delete(offsets, gone))
    return np.sort(np.concatenate(parts))


def offsets_by_place(held: LakeOffsets) -> dict[Place, Tiered]:
    """How far each bucket is held, by the partition's name: the furthest, where a name had several ids."""
    found: dict[Place, Tiered] = defaultdict(lambda: Tiered(0, -1))
    for key, tiered in held.offsets.items():
        place = (held.name_of(key), key.bucket)
        found[place] = max(found[place], tiered)
    return dict(found)
