"""Lookups of a primary-key bucket: what they ask for and what they find."""

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
    """The rows found, and which of the keys (or tuples) asked for each of them answers."""

    positions: npt.NDArray[np.int64]
    """Per row, the position of its key in the request; rising. By an index, a tuple may have many rows."""
    rows: pa.RecordBatch
    high_watermark: int
    epoch: int
    """The epoch of the record before the high watermark."""
    more_after: int | None = None
    """Of a page that is not the last: the offset of its last row."""


class MatchedMessage(NamedTuple):
    """As ``MatchedRows``, the rows as one Arrow message without compression: ready to be sent."""

    positions: npt.NDArray[np.int64]
    message: pa.Buffer
    high_watermark: int
    epoch: int
