"""What may be tuned about a log."""

from __future__ import annotations

from dataclasses import dataclass

_MIB = 1024 * 1024
_DAY_MS = 24 * 60 * 60 * 1000


@dataclass(frozen=True)
class LogSettings:
    """Values, passed in by whoever opens the log."""

    segment_bytes: int = 1024 * _MIB
    roll_ms: int = 7 * _DAY_MS
    index_interval_bytes: int = 4096
    checkpoint_bytes: int = 64 * _MIB
    """A checkpoint is due after so many bytes: what a restart after a crash has to read, more or less."""
    writer_expiry_ms: int = 7 * _DAY_MS
    sync_on_roll: bool = True
    """Make a segment durable before the next one begins. Where nobody syncs otherwise, this would stall writers."""
