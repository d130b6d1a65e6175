"""Brings the cluster's record of a table's lake back from the lake itself: when it was lost, or is wrong.

The lake is the truth, the record a copy of it; so a rebuild reads the truth and stores it, and doing it twice
changes nothing. It never undoes what a round reports meanwhile: the record is replaced only while it is the one
that was looked at. A lake table that belongs to another table is refused, and so is one that lost what the record
says it has.

A table that somebody else committed to can be *rolled back* first: its head becomes the newest snapshot of Strom's.
What was committed on top is then no longer in the table; its snapshots stay until they expire.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import AssertRefSnapshotId, SetSnapshotRefUpdate

from strom.errors import LakeCorrupt, LakeForeignCommit
from strom.lake.reporting import readable_low, report_of
from strom.lake.table import LakeTable
from strom.lake.truth import ANCESTORS_MAX, read_truth, truth_at
from strom.model.lake_record import LakeRecord, LakeReport
from strom.runtime.clock import SystemClock


@dataclass(frozen=True)
class Found:
    """What a lake table says of itself. ``rolled_back``: the foreign head that was, or would be, taken back."""

    report: LakeReport
    rolled_back: int | None = None


def look(table: LakeTable, record: LakeRecord | None, *, roll_back: bool, dry_run: bool) -> Found:
    """The truth of a lake table, against what the cluster believes; with ``roll_back`` after foreign commits went."""
    rolled_back = None
    try:
        truth = read_truth(table)
    except LakeForeignCommit:
        head = table.snapshot()
        if not roll_back or head is None:
            raise
        own = _last_of_ours(table, head)
        if not dry_run:
            _set_head(table, head, own)
        truth, rolled_back = truth_at(table, own), head.snapshot_id
    if truth.snapshot_id is None and record is not None and record.snapshot_id is not None:
        raise LakeCorrupt(
            f"Lake table {table.path} is empty, and the cluster was told of {record.rows:,} rows in it: restore the "
            f"catalog and the warehouse from a backup, or give its rows up with `strom lake drop {table.path}`",
            table=str(table.path),
        )
    low = readable_low(table, truth, SystemClock().now_ms())
    return Found(report_of(truth, readable_low=low), rolled_back)


def differences(record: LakeRecord | None, report: LakeReport) -> list[str]:
    """What a rebuild changes, for people; nothing when the record says the same."""
    if record is None:
        return [] if report.snapshot_id is None else ["there is no record"]
    found = []
    if record.quarantined:
        found.append(f"it is quarantined: {record.reason}")
    if record.snapshot_id != report.snapshot_id:
        found.append(f"snapshot {record.snapshot_id} → {report.snapshot_id}")
    moved = [
        key
        for key in {*record.offsets, *report.offsets}
        if record.offsets.get(key) != report.offsets.get(key)
    ]
    if moved:
        before = sum(place.offset for place in record.offsets.values())
        after = sum(place.offset for place in report.offsets.values())
        found.append(f"offsets of {len(moved)} buckets ({before:,} → {after:,} in all)")
    for what, old, new in (
        ("partitions", dict(record.partitions), dict(report.partitions)),
        ("bounds of columns", dict(record.bounds), dict(report.bounds)),
        ("first offsets", dict(record.starts), dict(report.starts)),
        ("oldest readable offsets", dict(record.readable_low), dict(report.readable_low)),
        ("files", record.files, report.files),
        ("rows", record.rows, report.rows),
        ("bytes", record.size_bytes, report.size_bytes),
    ):
        if old != new:
            found.append(what if isinstance(old, dict) else f"{what} {old:,} → {new:,}")
    return found


def _last_of_ours(table: LakeTable, head: Snapshot) -> Snapshot:
    """The newest ancestor whose truth can be read."""
    at = head
    for _ in range(ANCESTORS_MAX):
        parent = (
            None if at.parent_snapshot_id is None else table.metadata.snapshot_by_id(at.parent_snapshot_id)
        )
        if parent is None:
            break
        at = parent
        try:
            truth_at(table, at)
        except LakeForeignCommit:
            continue
        return at
    raise LakeForeignCommit(
        f"No snapshot of Strom's is left behind the foreign commits of lake table {table.path}: there is nothing to "
        f"roll back to. Give its rows up with `strom lake drop {table.path}`, and tier the table anew",
        table=str(table.path),
    )


def _set_head(table: LakeTable, head: Snapshot, own: Snapshot) -> None:
    """One commit that lands on the foreign head, or not at all (LakeConflict)."""
    ref = {"ref-name": MAIN_BRANCH, "type": SnapshotRefType.BRANCH, "snapshot-id": own.snapshot_id}
    expected = AssertRefSnapshotId.model_validate({"ref": MAIN_BRANCH, "snapshot-id": head.snapshot_id})
    table.commit(SetSnapshotRefUpdate.model_validate(ref), requirements=(expected,))
