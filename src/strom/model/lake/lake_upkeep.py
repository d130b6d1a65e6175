"""How a table's copy in the lake is kept in order: what the properties of a table say about it, as plain data."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LakeUpkeep:
    """Which files are merged, which snapshots stay, how long files outlive the last snapshot that named them."""

    compacts: bool = True
    files: int = 4
    """So many files of one size, side by side, become one."""
    file_bytes: int = 128 << 20
    dead_percent: int = 20
    expires: bool = True
    snapshots: int = 20
    """The newest, which always stay."""
    snapshots_ms: int = 24 * 3_600_000
    """Of older ones the last of every hour stays so long."""
    removal_ms: int = 3_600_000
