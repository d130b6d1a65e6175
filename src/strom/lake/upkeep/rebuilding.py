"""Rebuilds the cluster's record of a table's lake from the lake itself, when it was lost or is wrong.

The lake is the truth, the record a copy of it; a rebuild copies it again, and doing it twice changes nothing. It never
undoes what a round reports meanwhile: the record is replaced only if it is still the one that was read. A lake table
that belongs to another table is refused, and so is one that lost what the record says it has.

A table that another engine committed to can be *rolled back* first: its head becomes Strom's newest snapshot. What was
committed on top is then no longer in the table; its snapshots stay until they expire. Where no such snapshot is left,
the buckets are repaired one by one (``restoring.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import AssertRefSnapshotId, SetSnapshotRefUpdate

from strom.errors import LakeCorrupt, LakeForeignCommit
from strom.lake.iceberg.lake_head import ANCESTORS_MAX, LakeHead, head_at, last_words, read_head, totals_of
from strom.lake.iceberg.lake_report import readable_low, report_of
from strom.lake.iceberg.summary import LakeOffsets
from strom.lake.iceberg.table import LakeTable
from strom.lake.upkeep.restoring import commit_restoration, plan_restoration
from strom.model.lake.lake import Place
from strom.model.lake.lake_record import LakeRecord, LakeReport
from strom.runtime.clock import SystemClock
from strom.runtime.units import counted


@dataclass(frozen=True)
class LakeFindings:
    """The state of a lake table. ``rolled_back``: the foreign head that was, or would be, rolled back."""

    report: LakeReport
    rolled_back: int | None = None
    told: tuple[str, ...] = ()
    """If there was no snapshot to roll back to: what happened to the buckets, and what is lost."""


def look(
    table: LakeTable,
    record: LakeRecord | None,
    *,
    roll_back: bool,
    dry_run: bool,
    servers: Mapping[Place, int] | None = None,
) -> LakeFindings:
    """Read the state of a lake table, checked against the record; with ``roll_back``, roll back foreign commits first.

    ``servers``: the first offset that they hold of each of their buckets.
    """
    rolled_back = None
    told: tuple[str, ...] = ()
    try:
        lake_head = read_head(table)
    except LakeForeignCommit:
        head = table.snapshot()
        if not roll_back or head is None:
            raise
        own = _last_of_ours(table, head)
        rolled_back = head.snapshot_id
        if own is None:
            lake_head, told = _restored(table, head, record, servers or {}, dry_run=dry_run)
        else:
            if not dry_run:
                _set_head(table, head, own)
            lake_head = head_at(table, own)
    if lake_head.snapshot_id is None and record is not None and record.snapshot_id is not None:
        raise LakeCorrupt(
            f"Lake table {table.path} is empty, and the cluster was told of {record.rows:,} rows in it: restore the "
            f"catalog and the warehouse from a backup, or give its rows up with `strom lake drop {table.path}`",
            table=str(table.path),
        )
    low = readable_low(table, lake_head, SystemClock().now_ms())
    return LakeFindings(report_of(lake_head, readable_low=low), rolled_back, told)


def differences(record: LakeRecord | None, report: LakeReport) -> list[str]:
    """What a rebuild changes, for people; empty when the record is right."""
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
        found.append(f"offsets of {counted(len(moved), 'bucket')} ({before:,} → {after:,} in all)")
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


def _restored(
    table: LakeTable,
    head: Snapshot,
    record: LakeRecord | None,
    servers: Mapping[Place, int],
    *,
    dry_run: bool,
) -> tuple[LakeHead, tuple[str, ...]]:
    """Repair the buckets; the new head, and what happened to them."""
    words = last_words(table, head)
    held = words.held
    if held is None and record is not None and record.offsets:
        held = LakeOffsets(
            table.table_id, "", record.offsets, record.partitions, record.bounds, record.starts
        )
    if held is None:
        raise LakeForeignCommit(
            f"Nothing says any more how far lake table {table.path} holds its buckets: neither a snapshot of Strom's, "
            f"nor the property strom.held, nor the cluster's record. Give its rows up with `strom lake drop "
            f"{table.path}`, and tier the table again",
            table=str(table.path),
        )
    made = plan_restoration(table, head, words._replace(held=held), servers)
    if dry_run:
        return LakeHead(
            head.snapshot_id, made.held, replace(totals_of(table, head), live=made.held.rows)
        ), made.told
    return commit_restoration(table, head, made), made.told


def _last_of_ours(table: LakeTable, head: Snapshot) -> Snapshot | None:
    """The newest ancestor whose state can be read; None when there is none."""
    at = head
    for _ in range(ANCESTORS_MAX):
        parent = (
            None if at.parent_snapshot_id is None else table.metadata.snapshot_by_id(at.parent_snapshot_id)
        )
        if parent is None:
            break
        at = parent
        try:
            head_at(table, at)
        except LakeForeignCommit:
            continue
        return at
    return None


def _set_head(table: LakeTable, head: Snapshot, own: Snapshot) -> None:
    """Commit on the foreign head, or not at all (LakeConflict)."""
    ref = {"ref-name": MAIN_BRANCH, "type": SnapshotRefType.BRANCH, "snapshot-id": own.snapshot_id}
    expected = AssertRefSnapshotId.model_validate({"ref": MAIN_BRANCH, "snapshot-id": head.snapshot_id})
    table.commit(SetSnapshotRefUpdate.model_validate(ref), requirements=(expected,))
