"""How a table's copy in the lake is maintained, according to the table's properties."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LakeUpkeep:
    """Which files are merged, which snapshots stay, how long files outlive the last snapshot that named them."""

    compacts: bool = True
    files: int = 4
    """This many adjacent files of similar size are merged into one."""
    file_bytes: int = 128 << 20
    dead_percent: int = 20
    expires: bool = True
    snapshots: int = 20
    """The number of newest snapshots, which always stay."""
    snapshots_ms: int = 24 * 3_600_000
    """How long the last snapshot of every hour stays among older ones."""
    removal_ms: int = 3_600_000
