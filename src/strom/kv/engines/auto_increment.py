"""Auto-increment: a new row gets a number of its own, and keeps it until it is deleted.

It wraps another engine, which sees the column as not sent: an existing row keeps its number like any other value. So it
is for engines that take partial rows (last row, aggregation).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pyarrow as pa

from strom.kv.arrays import Int64s
from strom.kv.changes import DELETE, INSERT, NOTHING, Changes, Folded
from strom.kv.engines.engine import Engine


class AutoIncrement:
    """An engine that fills one column of every row that ``inner`` inserts. ``take`` gives fresh numbers."""

    def __init__(self, inner: Engine, position: int, take: Callable[[int], Int64s]) -> None:
        self._inner = inner
        self._position = position
        self._take = take

    @property
    def old_columns(self) -> tuple[int, ...]:
        """The columns that the inner engine reads."""
        return self._inner.old_columns

    @property
    def needs_old(self) -> bool:
        """Whether the inner engine reads old images."""
        return self._inner.needs_old

    def fold(self, changes: Changes, old: pa.RecordBatch | None) -> Folded:
        """The inner engine's result, with numbers in the new rows."""
        folded = self._inner.fold(changes, old)
        inserts = int(np.count_nonzero(folded.effect == INSERT))
        if not inserts:
            return folded
        arrivals, numbers = _numbered(changes, folded, self._take(inserts))
        return replace(folded, images=_filled(folded, self._position, arrivals, numbers))


def _numbered(changes: Changes, folded: Folded, fresh: Int64s) -> tuple[Int64s, Int64s]:
    """The changes (by arrival) whose images descend from a row inserted in this batch, and the number of each."""
    order = changes.order
    effect = folded.effect[order]
    inserted = effect == INSERT
    # Numbers follow the order of arrival, although changes are visited by key.
    rank = np.cumsum(folded.effect == INSERT) - 1
    group = np.repeat(np.arange(changes.groups), np.diff(changes.starts))
    place = np.arange(len(order))
    last_insert = np.maximum.accumulate(np.where(inserted, place, -1))
    last_delete = np.maximum.accumulate(np.where(effect == DELETE, place, -1))
    of_this_batch = (last_insert >= 0) & (last_insert > last_delete)
    of_this_batch[of_this_batch] = group[last_insert[of_this_batch]] == group[of_this_batch]
    of_this_batch &= (effect != NOTHING) & (effect != DELETE)
    arrivals = order[of_this_batch]
    return arrivals, fresh[rank[order[last_insert[of_this_batch]]]]


def _filled(folded: Folded, position: int, arrivals: Int64s, numbers: Int64s) -> pa.RecordBatch:
    images = folded.images
    column = images.column(position)
    kind = column.type.to_pandas_dtype()
    values = column.fill_null(0).to_numpy(zero_copy_only=False).astype(kind, copy=True)
    missing = column.is_null().to_numpy(zero_copy_only=False).copy()
    rows = folded.image_row[arrivals]
    values[rows] = numbers.astype(kind)
    missing[rows] = False
    filled = pa.array(values, column.type, mask=missing if missing.any() else None)
    return images.set_column(position, images.schema.field(position), filled)
