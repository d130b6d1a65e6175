"""What one request of a scan brought: rows as they came from the wire, or rows that are decoded already."""

from __future__ import annotations

from typing import NamedTuple, Protocol, TypeAlias

import pyarrow as pa

from strom.client.read.row_reader import Encoded


class Chunk(NamedTuple):
    """What one request brought of one range."""

    range_number: int
    """Which range of the plan."""
    start: int
    end: int
    batches: list[Encoded]


class LookedUpChunk(NamedTuple):
    """Rows that are decoded already."""

    range_number: int
    rows: pa.RecordBatch


class OtherChunk(Protocol):
    """What a scan of another kind takes for an answer of its own."""

    @property
    def range_number(self) -> int:
        """Which part of the plan."""


AnyChunk: TypeAlias = Chunk | LookedUpChunk | OtherChunk
