"""Lookups in a primary-key bucket: what they request and what they return."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa


class AtLeast(NamedTuple):
    """A lookup that must see everything below ``offset``, written in ``epoch`` (that of the record at offset - 1)."""

    offset: int
    epoch: int


class MatchedRows(NamedTuple):
    """The rows found, and which requested key (or tuple) each of them matches."""

    positions: npt.NDArray[np.int64]
    """Per row, the position of its key in the request; rising. By an index, a tuple may have many rows."""
    rows: pa.RecordBatch
    high_watermark: int
    epoch: int
    """The epoch of the record before the high watermark."""
    more_after: int | None = None
    """If this is a page and not the last: the offset of its last row."""


class MatchedMessage(NamedTuple):
    """As ``MatchedRows``, with the rows as one uncompressed Arrow message, ready to be sent."""

    positions: npt.NDArray[np.int64]
    message: pa.Buffer
    high_watermark: int
    epoch: int
