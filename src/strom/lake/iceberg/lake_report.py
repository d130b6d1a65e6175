"""The report of a lake table to the cluster: its head, and the offsets that readers of older snapshots still need."""

from __future__ import annotations

from collections.abc import Mapping

from strom.lake.iceberg.lake_head import LakeHead
from strom.lake.iceberg.summary import read_summary
from strom.lake.iceberg.table import LakeTable
from strom.model import properties
from strom.model.lake.lake import LakeKey
from strom.model.lake.lake_record import LakeReport


def report_of(
    head: LakeHead,
    *,
    readable_low: Mapping[LakeKey, int] | None = None,
    duration_ms: int = 0,
    more: bool = False,
    facts: Mapping[str, int] | None = None,
) -> LakeReport:
    """The report of a lake table."""
    return LakeReport(
        snapshot_id=head.snapshot_id,
        offsets=head.offsets,
        partitions=head.partitions,
        readable_low=readable_low or {},
        starts=head.held.starts,
        bounds=head.bounds,
        files=head.totals.files,
        rows=head.totals.rows,
        size_bytes=head.totals.size_bytes,
        duration_ms=duration_ms,
        more=more,
        facts=facts or {},
    )


def readable_low(table: LakeTable, head: LakeHead, now_ms: int) -> dict[LakeKey, int]:
    """The lowest A of any plan that may still be read, for each bucket where it is below the current A.

    A plan from before a round asks what died since *its* A, so servers keep that from here on. Such a plan is based on
    a snapshot that was the newest within the time a read may take (``table.datalake.removal-delay``). Offsets only rise
    from commit to commit, so the oldest of these decides. A log needs none: its rows do not die.
    """
    if not table.description.has_primary_key:
        return {}
    since_ms = now_ms - properties.lake_upkeep(table.description.properties).removal_ms
    by_time = sorted(table.metadata.snapshots, key=lambda one: (one.timestamp_ms, one.sequence_number or 0))
    first = max(0, sum(one.timestamp_ms < since_ms for one in by_time) - 1)
    for snapshot in by_time[first:]:
        held = read_summary(table.storage, snapshot.summary or {})
        if held is not None:
            return {
                key: tiered.offset
                for key, tiered in held.offsets.items()
                if key in head.offsets and 0 < tiered.offset < head.offsets[key].offset
            }
    return {}
