"""Expiry: drops old snapshots, and lists the files that only they name for later removal.

Kept: the newest ``snapshots``; of older ones the last of every hour for ``snapshots_ms``; those that a branch or tag
names; those the caller needs (the snapshot of the cluster's record); and our newest summary with everything after it,
from which the head is read.

A scan may still read files of an expired snapshot. So the list of files is written first, and the commit that drops the
snapshots names the list and its own time, in a property of the table. The files are removed when ``removal_ms`` have
passed since then and still no snapshot names them (``removal.py``). A list that no commit names (its writer crashed or
lost the race) removes nothing.

Snapshots that a branch or tag names when the commit lands stay, even if it was created after this looked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Literal, NamedTuple

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import (
    AssertRefSnapshotId,
    RemovePropertiesUpdate,
    RemoveSnapshotsUpdate,
    SetPropertiesUpdate,
)

from strom.errors import LakeConflict
from strom.lake.iceberg.catalogs import LocalRequirement
from strom.lake.iceberg.summary import is_told
from strom.lake.iceberg.table import LakeTable
from strom.lake.upkeep.reachable import reachable, reachable_once
from strom.model.lake.lake_upkeep import LakeUpkeep
from strom.runtime.clock import Clock
from strom.runtime.random import Randomness

HOUR_MS = 3_600_000
REMOVED_PREFIX = "strom-removed-"
COMMITTED_PREFIX = "strom.removed."
"""Prefix of the property that says when the snapshots of a list expired."""
TRIES = 5

_LIST = re.compile(re.escape(REMOVED_PREFIX) + r"(\d{1,15}-[0-9a-f]+)\.json")


class Aged(NamedTuple):
    """A snapshot, its commit time, and its number."""

    snapshot_id: int
    committed_ms: int
    sequence: int


def expire_snapshots(
    table: LakeTable,
    upkeep: LakeUpkeep,
    needed: Collection[int],
    clock: Clock,
    randomness: Randomness,
    *,
    at_least: int = 1,
) -> int:
    """Expire old snapshots, if there are ``at_least`` this many; the number expired."""
    for _ in range(TRIES):
        table.refresh().check_owner()
        head = table.snapshot()
        if head is None:
            return 0
        now_ms = clock.now_ms()
        old = set(expendable(_aged(table.metadata.snapshots), upkeep, now_ms)) - _held_up(table, head)
        old -= set(needed)
        if len(old) < at_least:
            return 0
        listed = _note(table, old, now_ms, randomness)
        try:
            _commit(table, head, old, listed, clock)
        except LakeConflict:
            if listed is not None:
                table.storage.delete(listed)  # no commit will ever name it
            continue
        return len(old)
    return 0


def expendable(snapshots: Iterable[Aged], upkeep: LakeUpkeep, now_ms: int) -> list[int]:
    """The snapshots that age alone does not keep."""
    ordered = sorted(snapshots, key=lambda one: (one.sequence, one.committed_ms), reverse=True)
    kept: set[int] = {one.snapshot_id for one in ordered[: upkeep.snapshots]}
    hours: set[int] = set()
    for one in ordered:
        hour = one.committed_ms // HOUR_MS
        if hour not in hours and one.committed_ms > now_ms - upkeep.snapshots_ms:
            kept.add(one.snapshot_id)
        hours.add(hour)
    return [one.snapshot_id for one in ordered if one.snapshot_id not in kept]


def _aged(snapshots: Iterable[Snapshot]) -> list[Aged]:
    return [Aged(one.snapshot_id, one.timestamp_ms, one.sequence_number or 0) for one in snapshots]


def _held_up(table: LakeTable, head: Snapshot) -> set[int]:
    """Snapshots that refs name, and from the newest back to the first of ours, from which the head is read."""
    found = {ref.snapshot_id for ref in table.metadata.refs.values()}
    at: Snapshot | None = head
    while at is not None:
        found.add(at.snapshot_id)
        if is_told(at.summary) or at.parent_snapshot_id is None:
            return found
        at = table.metadata.snapshot_by_id(at.parent_snapshot_id)
    return found


def _note(table: LakeTable, old: set[int], now_ms: int, randomness: Randomness) -> str | None:
    """List the files that only the old snapshots name; the list's URI, if there are any."""
    snapshots = table.metadata.snapshots
    kept = reachable(table, [one for one in snapshots if one.snapshot_id not in old])
    gone = reachable_once(table, [one for one in snapshots if one.snapshot_id in old]) - kept
    if not gone:
        return None
    uri = f"{table.location}/metadata/{REMOVED_PREFIX}{now_ms}-{randomness.token(6).hex()}.json"
    table.storage.write(uri, json.dumps({"files": sorted(gone)}).encode())
    return uri


class AssertUnnamed(LocalRequirement):
    """Requires that no branch or tag names one of these snapshots."""

    type: Literal["strom-assert-unnamed"] = "strom-assert-unnamed"
    snapshot_ids: frozenset[int]

    def validate(self, base_metadata: TableMetadata | None) -> None:  # type: ignore[override]
        """CommitFailedException when one does."""
        refs = {} if base_metadata is None else base_metadata.refs
        for name, ref in refs.items():
            if ref.snapshot_id in self.snapshot_ids:
                raise CommitFailedException(
                    f"Requirement failed: {name} names snapshot {ref.snapshot_id} now"
                )


def _commit(table: LakeTable, head: Snapshot, old: set[int], listed: str | None, clock: Clock) -> None:
    expected = AssertRefSnapshotId.model_validate({"ref": MAIN_BRANCH, "snapshot-id": head.snapshot_id})
    unnamed: Any = AssertUnnamed(snapshot_ids=frozenset(old))
    updates: list[Any] = [RemoveSnapshotsUpdate.model_validate({"snapshot-ids": sorted(old)})]
    if listed is not None:
        named = {COMMITTED_PREFIX + name_of(listed): str(clock.now_ms())}
        updates.append(SetPropertiesUpdate(updates=named))
    done = _done(table)
    if done:
        updates.append(RemovePropertiesUpdate(removals=done))
    try:
        table.commit(*updates, requirements=(expected, unnamed))
    except (ValueError, KeyError) as problem:
        # PyIceberg's errors for a snapshot or property that another process has just removed.
        raise LakeConflict(f"Snapshots of lake table {table.path} are gone already: {problem}") from problem


# --- which lists count ----------------------------------------------------------------------------------------


def name_of(listed: str) -> str:
    """The name of a list in the table's properties; empty when it is not a list."""
    found = _LIST.fullmatch(listed.rpartition("/")[2])
    return "" if found is None else found[1]


def committed(properties: Mapping[str, str]) -> dict[str, int]:
    """The lists whose snapshots expired, and when."""
    return {
        key.removeprefix(COMMITTED_PREFIX): int(since)
        for key, since in properties.items()
        if key.startswith(COMMITTED_PREFIX) and since.isdecimal() and len(since) <= 15
    }


def _done(table: LakeTable) -> list[str]:
    """Properties of lists that are gone, with their files."""
    known = [key for key in table.iceberg.properties if key.startswith(COMMITTED_PREFIX)]
    if not known:
        return []
    there = {name_of(one.uri) for one in table.storage.list(f"{table.location}/metadata")}
    return [key for key in known if key.removeprefix(COMMITTED_PREFIX) not in there]
