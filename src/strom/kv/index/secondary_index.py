"""One secondary index: lists of rows by the hash of some of their columns.

A list knows hashes, not values: two tuples may share one, so readers compare the columns. A row is in at most one list,
and only while it has an image. While an index is being built, both publishing and the builder add rows, and lookups are
refused.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from strom.kv.arrays import Bools, Hashes, Int64s
from strom.kv.gather.column_source import ColumnKind, ColumnSource
from strom.kv.index.hashing import Hasher
from strom.kv.index.row_lists import RowLists
from strom.kv.publication import ListUndo


class SecondaryIndex:
    """Rows by a tuple of columns."""

    def __init__(self, name: str, kinds: Sequence[ColumnKind], columns: tuple[int, ...]) -> None:
        self.name = name
        self.columns = columns
        self.links = RowLists()
        self.ready_at: int | None = None
        """Complete for instants from this offset on; None while it is being built."""
        self.kinds = [kinds[position] for position in columns]
        self._hasher = Hasher(self.kinds, tuple(range(len(columns))))

    def hash(self, rows: ColumnSource) -> Hashes:
        """The tuple hashes of rows that have all columns."""
        return self._hasher.hash_at(rows.addresses[list(self.columns)], rows.rows)

    def hash_tuples(self, tuples: pa.RecordBatch) -> Hashes:
        """The hashes of tuples: the index's columns in its order."""
        return self._hasher.hash(tuples)

    def is_ready(self, high_watermark: int) -> bool:
        """Whether lookups at this instant find every row."""
        return self.ready_at is not None and self.ready_at <= high_watermark

    def move(self, row_ids: Int64s, hashes: Hashes, images: Bools) -> ListUndo:
        """Move rows to the lists of these hashes, or out of all lists without an image; returns what they had."""
        before, linked = self.links.hash_of(row_ids)
        moved = images & (~linked | (before != hashes))
        if moved.any():
            self.links.link(row_ids[moved], hashes[moved])
        left = linked & ~images
        if left.any():
            self.links.unlink(row_ids[left])
        return ListUndo(before, linked)

    def restore(self, row_ids: Int64s, undo: ListUndo) -> None:
        """Undo a ``move``."""
        self.move(row_ids, undo.hashes, undo.linked)

    def add(self, row_ids: Int64s, hashes: Hashes) -> None:
        """Link rows that the builder found, unless a writer has linked them since."""
        _, linked = self.links.hash_of(row_ids)
        self.links.link(row_ids[~linked], hashes[~linked])

    def forget(self, row_ids: Int64s) -> None:
        """Remove rows whose ids will be reused for other keys."""
        _, linked = self.links.hash_of(row_ids)
        if linked.any():
            self.links.unlink(row_ids[linked])
