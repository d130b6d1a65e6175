"""What one batch of a delta join did."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class BatchProgress:
    """What one batch did."""

    batch: int
    began: float
    """Seconds since 1970."""
    seconds: float
    changes: int
    """Rows read from the changelogs: an update has two."""
    keys: int
    """Join keys that were recomputed."""
    left_rows: int
    right_rows: int
    result_rows: int
    """Rows that were found there."""
    written: int
    deleted: int
    read_s: float
    lookup_s: float
    stage_s: float
    """Seconds of all tasks together."""
    warnings: tuple[str, ...] = ()
