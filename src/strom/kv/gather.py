"""Rows from many places into one batch, and rows compared where they lie."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from strom.kv.columns import Bools, Int32s, Int64s, Source


class Directory:
    """Sources side by side, all of one schema. Immutable; it keeps their memory alive."""

    def __init__(self, schema: pa.Schema, sources: Sequence[Source] = ()) -> None:
        self.schema = schema
        self.sources = tuple(sources)
        self.addresses: Int64s

    def with_sources(self, *more: Source) -> Directory:
        """The same and these behind: their numbers follow the last one's."""
        raise NotImplementedError


def gather(
    directory: Directory, source: Int32s, row: Int32s, columns: Sequence[int] | None = None
) -> pa.RecordBatch:
    """Row ``row[i]`` of source ``source[i]``, in this order; source -1 is a row of NULLs."""
    raise NotImplementedError


def rows_equal(
    left: Directory,
    left_source: Int32s,
    left_row: Int32s,
    right: Directory,
    right_source: Int32s,
    right_row: Int32s,
    left_columns: Sequence[int],
    right_columns: Sequence[int],
) -> Bools:
    """Whether each pair of rows is the same in these columns, bit by bit; NULL is the same as NULL."""
    raise NotImplementedError
