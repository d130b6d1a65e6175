"""The report that quarantines a table: everything that was known before, and the reason."""

from __future__ import annotations

from strom.model.lake.lake_record import LakeRecord, LakeReport


def quarantined(record: LakeRecord | None, reason: str) -> LakeReport:
    """The same record, quarantined: readers see why, and no round is assigned until an operator acts."""
    if record is None:
        return LakeReport(snapshot_id=None, offsets={}, state="quarantined", reason=reason)
    return LakeReport(
        snapshot_id=record.snapshot_id,
        offsets=record.offsets,
        partitions=record.partitions,
        readable_low=record.readable_low,
        starts=record.starts,
        bounds=record.bounds,
        files=record.files,
        rows=record.rows,
        size_bytes=record.size_bytes,
        state="quarantined",
        reason=reason,
    )
