"""Partial update: the columns sent replace the old ones, the others stay. All changes of a batch send the same columns.

Columns that were not sent come from the old image, by one ``take``, or are NULL without one. The columns sent are used
without a copy, unless a delete clears some of them.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from strom.kv.arrays import Bools, Int64s
from strom.kv.changes import Changes, Folded
from strom.kv.engines.change_modes import (
    CLEAR,
    ChangeModes,
    bare_rows,
    check_targets,
    follow_changes,
    holding_places,
)
from strom.kv.engines.engine import DeleteBehavior, own_rows
from strom.model.schema import Schema


class PartialUpdate:
    """The default engine, for some of the columns."""

    needs_old: bool

    def __init__(self, schema: Schema, targets: tuple[int, ...], deletes: DeleteBehavior = "allow") -> None:
        check_targets(schema, targets)
        self._keys = {schema.position(name) for name in schema.primary_key}
        self._targets = set(targets)
        self._deletes = deletes
        self.old_columns = tuple(p for p in range(len(schema.columns)) if p not in self._targets)
        self._holding = holding_places(schema, self.old_columns)
        self.needs_old = bool(self.old_columns)

    def fold(self, changes: Changes, old: pa.RecordBatch | None) -> Folded:
        """Each image combines the columns sent with those of the old image."""
        bare = bare_rows(old, self._holding, changes.groups)
        found = follow_changes(changes, self._deletes, bare)
        rows = changes.rows
        arrays = list(rows.columns)
        if found.clears:
            cleared = found.mode == CLEAR
            for position in self._targets - self._keys:
                arrays[position] = without(arrays[position], cleared)
        if old is not None and self.old_columns:
            pick = old_rows(changes, found)
            for number, position in enumerate(self.old_columns):
                arrays[position] = old.column(number).take(pick)
        images = pa.RecordBatch.from_arrays(arrays, schema=rows.schema)
        return Folded(found.effect, images, own_rows(found.effect))


def old_rows(changes: Changes, found: ChangeModes) -> pa.Array:
    """For each change, the group whose old image provides its other columns; NULL without one."""
    groups: Int64s = np.empty(len(found.effect), np.int64)
    groups[changes.order] = np.repeat(np.arange(changes.groups), np.diff(changes.starts))
    return pa.array(groups, mask=~found.kept)


def without(array: pa.Array, cleared: Bools) -> pa.Array:
    """The array with NULL at some rows."""
    return array.take(pa.array(np.arange(len(array)), mask=cleared))
