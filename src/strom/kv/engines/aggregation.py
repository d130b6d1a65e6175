"""Aggregation: every column outside the key has a function that combines the old value with the incoming one.

A new row is the row that came (``count`` and ``avg`` begin at one). Columns without a function use
``last_value_ignore_nulls``. Columns that were not sent stay. ``avg`` keeps its sum and its count in two other columns
of the table (docs/decisions/0005-aggregates.md), which only it writes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from strom.kv.changes import Changes, Folded
from strom.kv.engines.arithmetic import SUM, array_of, column_of, compute, fold_count, fold_numbers
from strom.kv.engines.bitmaps import unite
from strom.kv.engines.change_modes import (
    ChangeModes,
    bare_rows,
    check_targets,
    follow_changes,
    holding_places,
    valid_rows,
)
from strom.kv.engines.decimals import average_decimals, compute_decimal
from strom.kv.engines.engine import DeleteBehavior, own_rows
from strom.kv.engines.listing import join_texts
from strom.kv.engines.partial_update import old_rows
from strom.kv.engines.selection import CHOICES, choose
from strom.model.aggregation import DELIMITER, Aggregate, aggregate_of
from strom.model.schema import Schema

DEFAULT_DELIMITER: Final = ","


@dataclass(frozen=True)
class _Average:
    column: int
    sum: int
    count: int


class Aggregation:
    """One function per column."""

    needs_old = True

    def __init__(
        self, schema: Schema, targets: tuple[int, ...] | None = None, deletes: DeleteBehavior = "ignore"
    ) -> None:
        if targets is not None:
            check_targets(schema, targets)
        self._deletes = deletes
        self._averages = tuple(_averages(schema))
        self._states = {position for average in self._averages for position in (average.sum, average.count)}
        keys = {schema.position(name) for name in schema.primary_key}
        sent = set(range(len(schema.columns))) if targets is None else set(targets)
        self._active = tuple(average for average in self._averages if average.column in sent)
        computed = {p for average in self._active for p in (average.column, average.sum, average.count)}
        self._functions: dict[int, Aggregate] = {
            position: aggregate_of(schema.columns[position])
            for position in sorted(sent - keys - computed - self._states)
        }
        written = keys | computed | self._functions.keys()
        self._kept = tuple(p for p in range(len(schema.columns)) if p not in written)
        """Columns that stay as they are. They come first in ``old``, because they tell which rows are bare."""
        self.old_columns = (*self._kept, *(p for p in range(len(schema.columns)) if p in written - keys))
        self._holding = holding_places(schema, self._kept)
        self._old_place = {position: number for number, position in enumerate(self.old_columns)}

    def fold(self, changes: Changes, old: pa.RecordBatch | None) -> Folded:
        """Each image has the aggregates so far."""
        assert old is not None or not self.old_columns
        bare = bare_rows(old, self._holding, changes.groups)
        found = follow_changes(changes, self._deletes, bare)
        arrays = list(changes.rows.columns)
        if old is not None:
            for position, aggregate in self._functions.items():
                was = old.column(self._old_place[position])
                arrays[position] = _aggregated(aggregate, changes, found, arrays[position], was)
            for average in self._active:
                self._average(average, arrays, changes, found, old)
            if self._kept:
                pick = old_rows(changes, found)
                for position in self._kept:
                    arrays[position] = old.column(self._old_place[position]).take(pick)
        images = pa.RecordBatch.from_arrays(arrays, schema=changes.rows.schema)
        return Folded(found.effect, images, own_rows(found.effect))

    def _average(
        self,
        average: _Average,
        arrays: list[pa.Array],
        changes: Changes,
        found: ChangeModes,
        old: pa.RecordBatch,
    ) -> None:
        came = arrays[average.column]
        old_sum = old.column(self._old_place[average.sum])
        old_count = old.column(self._old_place[average.count])
        count = fold_count(changes, found, valid_rows(came), column_of(old_count, np.int64))
        arrays[average.count] = array_of(count, old_count.type)
        if pa.types.is_decimal(came.type):
            sums = compute_decimal("sum", changes, found, came, old_sum)
            arrays[average.sum] = sums
            arrays[average.column] = average_decimals(sums, count.values, came.type)
            return
        total = fold_numbers(SUM, changes, found, column_of(came, np.float64), column_of(old_sum, np.float64))
        arrays[average.sum] = array_of(total, old_sum.type)
        known = total.valid & (count.values > 0)
        values = np.divide(total.values, count.values, out=np.zeros(len(known)), where=known)
        kind = came.type.to_pandas_dtype()
        arrays[average.column] = pa.array(values.astype(kind, copy=False), came.type, mask=~known)


def _averages(schema: Schema) -> list[_Average]:
    found = []
    for position, column in enumerate(schema.columns):
        if column.aggregation is None or column.name in schema.primary_key:
            continue
        aggregate = aggregate_of(column)
        if aggregate.function == "avg":
            parameters = aggregate.parameters
            found.append(
                _Average(position, schema.position(parameters["sum"]), schema.position(parameters["count"]))
            )
    return found


def _aggregated(
    aggregate: Aggregate, changes: Changes, found: ChangeModes, came: pa.Array, was: pa.Array
) -> pa.Array:
    function = aggregate.function
    if function in CHOICES:
        return choose(function, changes, found, came, was)
    if function in ("listagg", "string_agg"):
        delimiter = aggregate.parameters.get(DELIMITER, DEFAULT_DELIMITER)
        return join_texts(delimiter, changes, found, came, was)
    if function in ("rbm32", "rbm64"):
        return unite(function, changes, found, came, was)
    if pa.types.is_decimal(came.type):
        return compute_decimal(function, changes, found, came, was)
    return compute(function, changes, found, came, was)
