"""The unique join keys that a share touched, as bytes and as values.

A change carries the join key (``j0``, ``j1`` …) in its common type or, if that is NULL and rows without a partner
count, the primary key of the row (``l0`` … or ``r0`` …). ``doubtful``: rows of the result may be wrong after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from strom.spark.joins.delta.join_plan import JoinPlan
from strom.spark.joins.key_bytes import (
    LEFT_ALONE,
    ORDINARY,
    RIGHT_ALONE,
    Positions,
    any_null,
    arrow_of,
    encoded,
)
from strom.spark.joins.row_pairs import first_places

DOUBTFUL = "doubtful"


def names(letter: str, count: int) -> list[str]:
    """The columns of a key."""
    return [f"{letter}{number}" for number in range(count)]


@dataclass(frozen=True)
class JoinGroups:
    """Unique join keys."""

    keys: pa.BinaryArray
    kinds: npt.NDArray[np.uint8]
    """ORDINARY, or LEFT_ALONE and RIGHT_ALONE if the join key is NULL."""
    values: Sequence[pa.Array]
    """The columns of the join key."""
    rows: dict[int, Sequence[pa.Array]]
    """By side: the primary keys of rows whose join key is NULL."""
    doubtful: npt.NDArray[np.bool_]
    """Whether rows of the result may be wrong and have to be compared."""

    def __len__(self) -> int:
        return len(self.kinds)

    def slice(self, start: int, length: int) -> JoinGroups:
        """A range of them."""
        return JoinGroups(
            self.keys.slice(start, length),
            self.kinds[start : start + length],
            [one.slice(start, length) for one in self.values],
            {side: [one.slice(start, length) for one in columns] for side, columns in self.rows.items()},
            self.doubtful[start : start + length],
        )

    def ordinary(self) -> tuple[Positions, Sequence[pa.Array]]:
        """Those with a join key: their positions and values."""
        return self._chosen(ORDINARY, self.values)

    def alone(self, side: int) -> tuple[Positions, Sequence[pa.Array]]:
        """Those of a side whose join key is NULL: their positions, and the primary keys of the rows."""
        return self._chosen(side, self.rows[side])

    def _chosen(self, kind: int, columns: Sequence[pa.Array]) -> tuple[Positions, Sequence[pa.Array]]:
        place = np.flatnonzero(self.kinds == kind)
        if len(place) == len(self.kinds):
            return place, columns
        chosen = pa.array(place)
        return place, [one.take(chosen) for one in columns]


def groups_of(batches: Sequence[pa.RecordBatch], plan: JoinPlan) -> JoinGroups:
    """The join keys in these rows."""
    whole = pa.Table.from_batches(batches).combine_chunks()
    columns = {name: _array(whole.column(name)) for name in whole.column_names}
    values = [
        columns[name].cast(arrow_of(kind))
        for name, kind in zip(names("j", len(plan.common)), plan.common, strict=True)
    ]
    rows: dict[int, Sequence[pa.Array]] = {}
    for side, letter, one in ((LEFT_ALONE, "l", plan.left), (RIGHT_ALONE, "r", plan.right)):
        if one.nulls:
            listed = zip(names(letter, len(one.key)), one.key_types, strict=True)
            rows[side] = [columns[name].cast(arrow_of(kind)) for name, kind in listed]
    keys, kinds = _keys(values, rows, whole.num_rows)
    said = columns[DOUBTFUL].to_numpy(zero_copy_only=False)
    codes = keys.dictionary_encode().indices.to_numpy(zero_copy_only=False).astype(np.int64)
    first = first_places(codes)
    if len(first) == whole.num_rows:
        return JoinGroups(keys, kinds, values, rows, said)
    doubtful = np.zeros(len(first), bool)
    doubtful[codes[said]] = True
    chosen = pa.array(first)
    return JoinGroups(
        keys.take(chosen),
        kinds[first],
        [one.take(chosen) for one in values],
        {side: [one.take(chosen) for one in own] for side, own in rows.items()},
        doubtful,
    )


def _keys(
    values: Sequence[pa.Array], rows: dict[int, Sequence[pa.Array]], count: int
) -> tuple[pa.BinaryArray, npt.NDArray[np.uint8]]:
    keys = encoded(values, ORDINARY)
    kinds = np.zeros(count, np.uint8)
    found = any_null(values)
    if found is None:
        return keys, kinds
    null = found.to_numpy(zero_copy_only=False)
    for side, columns in rows.items():
        # A row of this side has its whole key; the other side's columns are NULL.
        here = null & columns[0].is_valid().to_numpy(zero_copy_only=False)
        kinds[here] = side
        keys = pc.if_else(pa.array(here), encoded(columns, side), keys)
    return keys, kinds


def _array(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
