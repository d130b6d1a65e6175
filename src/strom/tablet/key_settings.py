"""Settings of a primary-key bucket."""

from __future__ import annotations

from dataclasses import dataclass

from strom.kv.index.index_budget import IndexBudget

_MIB = 1024 * 1024


@dataclass(frozen=True)
class KeySettings:
    """Settings that the opener of a tablet passes in."""

    segment_bytes: int = 64 * _MIB
    """Small, because only sealed segments are carried and the rows above are in memory."""
    snapshot_bytes: int = 64 * _MIB
    """Bytes of changelog after which a snapshot is due; more with a large index, see ``KeyTablet.next_job``."""
    snapshot_ms: int = 600_000
    """A bucket that was written to has a snapshot no older than this."""
    lease_ms: int = 60_000
    """How long a scan's instant is kept after its last slice, and any instant after it was the newest."""
    merge_dead_share: float = 0.5
    merge_files: int = 8
    """How many neighboring base files of similar size are merged into one."""
    index_budget: IndexBudget | None = None
    """The memory for the indexes of all buckets together; None for no limit."""
    memory_rows_max: int = 1 << 22
    """With more rows above the carried part, they are carried although their segment is not sealed."""
