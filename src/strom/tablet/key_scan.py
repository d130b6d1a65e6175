"""A scan of a primary-key bucket: a pure function of offsets, answered slice by slice.

A scan names the instant B it looks at (``at``) and the offset A it begins from (``start``). It gives the images in [A, B) that
are live at B, in the order of their offsets, and, when asked, the *dead* offsets: those of images below A that died in
[A, B). Now, after a retry, a restart or a change of leader the answer is the same, or an error:

    Expired         B lies below the horizon, or A below the start of the series: plan again
    NotYetVisible   B lies above the high watermark
    StaleEpoch      the log has another record before B than the caller knew
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from strom.model.predicate import Predicate

NOW = -1
SLICE_BYTES_MAX = 8 * 1024 * 1024


@dataclass(frozen=True)
class ScanRequest:
    """One slice of a scan. The first has no cursor; the next ones repeat B (``ScanSlice.at``) and give the cursor."""

    at: int = NOW
    """B, or NOW for the high watermark."""
    at_epoch: int | None = None
    """The epoch of B - 1 as the caller knows it; None when it does not care."""
    start: int = 0
    """A: images from here on."""
    cursor: int | None = None
    columns: tuple[int, ...] | None = None
    """Positions in the newest schema; None for all. Must not be empty."""
    predicate: Predicate | None = None
    limit: int | None = None
    """Rows this slice may give at most."""
    max_bytes: int = SLICE_BYTES_MAX
    """About how many bytes of rows to give; at least one block is looked at."""
    dead: bool = False
    """Whether the dead offsets are wanted (they come with the first slice)."""


class OffsetBatch(NamedTuple):
    """Rows and the offset of each, rising."""

    offsets: npt.NDArray[np.int64]
    rows: pa.RecordBatch


class ScanSlice(NamedTuple):
    """What one slice found."""

    at: int
    at_epoch: int
    batches: list[OffsetBatch]
    next_cursor: int | None
    """Where the next slice begins; None when the scan is done."""
    dead: npt.NDArray[np.int64] | None
    horizon: int
    series_start: int

    @property
    def done(self) -> bool:
        """Whether there is no more."""
        return self.next_cursor is None
