"""The chunks of a scan: what one request returned, still encoded, or rows that are already decoded."""

from __future__ import annotations

from typing import NamedTuple, Protocol, TypeAlias

import pyarrow as pa

from strom.client.read.row_reader import Encoded


class Chunk(NamedTuple):
    """What one request returned of one bucket: rows with offsets in [start, end), still encoded."""

    range_number: int
    """The bucket's place in the plan."""
    start: int
    end: int
    batches: list[Encoded]


class LookedUpChunk(NamedTuple):
    """Rows that are already decoded."""

    range_number: int
    rows: pa.RecordBatch


class OtherChunk(Protocol):
    """A chunk of another kind of scan, which only that scan can read."""

    @property
    def range_number(self) -> int:
        """Its place in the plan."""


AnyChunk: TypeAlias = Chunk | LookedUpChunk | OtherChunk
