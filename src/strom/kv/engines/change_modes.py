"""For engines that read old images: what each change of a batch does, and which value it continues from.

    SKIP    makes no image (no effect, or the row is removed)
    FRESH   the first value of a row: there was no row, or it was deleted before
    OLD     continues from the image before the batch
    NEXT    continues from the previous change to the same key
    CLEAR   a delete of the target columns only: they become NULL, and the next change continues from NULL, as it would
            in another batch

A delete with targets removes a row that has nothing but key and targets (a *bare* row); otherwise it clears.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from strom.errors import InvalidTargets
from strom.kv.arrays import Bools, Int64s, Octets
from strom.kv.changes import DELETE, INSERT, NOTHING, UPDATE, Changes
from strom.kv.engines.engine import DeleteBehavior, heeded_deletes
from strom.kv.kernels.compile import boolean, int64, kernel, ro, rw, uint8, void
from strom.model.schema import Schema

SKIP: Final = 0
FRESH: Final = 1
OLD: Final = 2
NEXT: Final = 3
CLEAR: Final = 4


@dataclass(frozen=True)
class ChangeModes:
    """Per change in arrival order."""

    effect: Octets
    mode: Octets
    """How a target column's value is made."""
    kept: Bools
    """Whether the other columns are those of the old image; if not, they are NULL."""
    clears: bool
    """Whether any mode is CLEAR."""


def follow_changes(changes: Changes, behavior: DeleteBehavior, bare: Bools) -> ChangeModes:
    """Follow every key through the batch. ``bare``: for each old image, whether a delete removes it."""
    deletes, heeded = heeded_deletes(changes, behavior)
    effect, mode = np.empty(len(deletes), np.uint8), np.empty(len(deletes), np.uint8)
    kept = np.zeros(len(deletes), np.bool_)
    _follow(deletes, changes.order, changes.starts, changes.exists, heeded, bare, effect, mode, kept)
    return ChangeModes(effect, mode, kept, heeded and bool((mode == CLEAR).any()))


@kernel(
    void(
        ro(boolean), ro(int64), ro(int64), ro(boolean), boolean, ro(boolean), rw(uint8), rw(uint8), rw(boolean)
    )
)  # fmt: skip
def _follow(
    deletes: Bools,
    order: Int64s,
    starts: Int64s,
    exists: Bools,
    heeded: bool,
    bare: Bools,
    effect: Octets,
    mode: Octets,
    kept: Bools,
) -> None:
    for j in range(len(starts) - 1):
        there = exists[j]
        from_old = exists[j]
        state = OLD if there else FRESH
        for k in range(starts[j], starts[j + 1]):
            a = order[k]
            if not deletes[a]:
                effect[a] = UPDATE if there else INSERT
                mode[a] = state
                kept[a] = from_old
                there = True
                state = NEXT
            elif not heeded or not there:
                effect[a] = NOTHING
                mode[a] = SKIP
            elif from_old and not bare[j]:
                effect[a] = UPDATE
                mode[a] = CLEAR
                kept[a] = True
                state = NEXT
            else:
                effect[a] = DELETE
                mode[a] = SKIP
                there = False
                from_old = False
                state = FRESH


def holding_places(schema: Schema, columns: Sequence[int]) -> tuple[int, ...]:
    """Which of these columns keep a row from being bare: all but its generated number, which goes with the row."""
    return tuple(
        place for place, column in enumerate(columns) if schema.names[column] not in schema.auto_increment
    )


def bare_rows(old: pa.RecordBatch | None, places: Sequence[int], groups: int) -> Bools:
    """Which old images are NULL in these columns of ``old``."""
    bare = np.ones(groups, np.bool_)
    for number in places:
        assert old is not None
        bare &= ~valid_rows(old.column(number))
    return bare


def valid_rows(array: pa.Array) -> Bools:
    """Which values are not NULL."""
    if not array.null_count:
        return np.ones(len(array), np.bool_)
    bits = np.frombuffer(array.buffers()[0], np.uint8)
    return np.unpackbits(bits, count=array.offset + len(array), bitorder="little")[array.offset :].view(
        np.bool_
    )


def check_targets(schema: Schema, targets: tuple[int, ...]) -> None:
    """Refuse targets that lack a key column, or that leave out a column that cannot be NULL."""
    names = {schema.columns[position].name for position in targets}
    missing = [name for name in schema.primary_key if name not in names]
    if missing:
        raise InvalidTargets(
            f"A partial update names every key column, and {missing[0]!r} is missing", column=missing[0]
        )
    for column in schema.columns:
        if not column.type.nullable and column.name not in schema.primary_key:
            raise InvalidTargets(
                f"A partial update needs nullable columns besides the key, and {column.name!r} is NOT NULL",
                column=column.name,
            )
