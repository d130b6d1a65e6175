"""What may be tuned about a primary-key bucket."""

from __future__ import annotations

from dataclasses import dataclass

_MIB = 1024 * 1024


@dataclass(frozen=True)
class KeySettings:
    """Values, passed in by whoever opens the tablet."""

    segment_bytes: int = 64 * _MIB
    """A sealed segment is carried, and the rows above are in memory: so segments are small."""
    snapshot_bytes: int = 64 * _MIB
    """A snapshot is due after so many bytes of changelog; with a large index after more, see ``KeyTablet.next_job``."""
    snapshot_ms: int = 600_000
    """A bucket that was written to has a snapshot no older than this."""
    lease_ms: int = 60_000
    """How long a scan's instant is kept after its last slice, and any instant after it was the newest."""
    merge_dead_share: float = 0.5
    merge_files: int = 8
    """So many neighbouring base files of about one size are merged into one."""
    memory_rows_max: int = 1 << 22
    """With more rows above the carried part, they are carried although their segment is not sealed."""
