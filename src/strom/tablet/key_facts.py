"""Facts about a primary-key bucket: the offsets that bound reads, and the state of its indexes."""

from __future__ import annotations

from typing import NamedTuple


class IndexState(NamedTuple):
    """A secondary index, as shown to people."""

    name: str
    columns: tuple[int, ...]
    state: str
    """``ready`` or ``building``."""
    rows: int
    """Rows linked so far."""


class Horizons(NamedTuple):
    """The offsets that bound reads (see keys: H, R, S, L, C)."""

    high_watermark: int
    epoch: int
    """Of the record before the high watermark."""
    horizon: int
    series_start: int
    snapshot_offset: int
    carried: int
