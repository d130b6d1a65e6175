"""Settings of a log."""

from __future__ import annotations

from dataclasses import dataclass

_MIB = 1024 * 1024
_DAY_MS = 24 * 60 * 60 * 1000


@dataclass(frozen=True)
class LogSettings:
    """Settings that the opener of a log passes in."""

    segment_bytes: int = 1024 * _MIB
    roll_ms: int = 7 * _DAY_MS
    index_interval_bytes: int = 4096
    checkpoint_bytes: int = 64 * _MIB
    """Bytes between two checkpoints: roughly what a restart after a crash has to read."""
    writer_expiry_ms: int = 7 * _DAY_MS
    sync_on_roll: bool = True
    """Make a segment durable before the next one begins. Off where nothing else syncs: it would stall writers."""
