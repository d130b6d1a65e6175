"""What an engine is: the rule that makes the new row from a change and the row before it.

An engine is a left fold over the changes of one key, for all keys of a batch at once; a delete restarts it. It sees
only the columns of the old image that it lists in ``old_columns``.
"""

from __future__ import annotations

from typing import Literal, Protocol

import numpy as np
import pyarrow as pa

from strom.errors import DeletionDisabled
from strom.kv.arrays import Bools, Int64s, Octets
from strom.kv.changes import DELETE, INSERT, NOTHING, UPDATE, Changes, Folded
from strom.kv.kernels.compile import boolean, int64, kernel, ro, rw, uint8, void

DeleteBehavior = Literal["allow", "ignore", "disable"]


class Engine(Protocol):
    """A rule, made for one schema and one set of target columns."""

    @property
    def old_columns(self) -> tuple[int, ...]:
        """Positions of the columns whose old values the fold reads; ``old`` holds exactly these, in this order."""

    @property
    def needs_old(self) -> bool:
        """Whether the fold reads old images at all."""

    def fold(self, changes: Changes, old: pa.RecordBatch | None) -> Folded:
        """What each change does, and the resulting images. ``old`` has a row per group, NULL where none exists."""


def heeded_deletes(changes: Changes, behavior: DeleteBehavior) -> tuple[Bools, bool]:
    """The deletes, and whether they are heeded; :class:`DeletionDisabled` where the table refuses them."""
    if behavior == "disable" and changes.deletes.any():
        first = int(np.argmax(changes.deletes))
        raise DeletionDisabled(
            "This table refuses deletes (table.delete.behavior = disable)", row=first, behavior=behavior
        )
    return changes.deletes, behavior == "allow"


def effects(changes: Changes, behavior: DeleteBehavior) -> Octets:
    """The effect of each change where every upsert makes an image and a delete removes the row."""
    deletes, heeded = heeded_deletes(changes, behavior)
    effect = np.empty(len(deletes), np.uint8)
    _effects(deletes, changes.order, changes.starts, changes.exists, heeded, effect)
    return effect


def own_rows(effect: Octets) -> Int64s:
    """Image rows where each upsert's image is at the change's own position."""
    rows = np.arange(len(effect), dtype=np.int64)
    rows[(effect == NOTHING) | (effect == DELETE)] = -1
    return rows


@kernel(void(ro(boolean), ro(int64), ro(int64), ro(boolean), boolean, rw(uint8)))
def _effects(
    deletes: Bools, order: Int64s, starts: Int64s, exists: Bools, heeded: bool, effect: Octets
) -> None:
    for j in range(len(starts) - 1):
        there = exists[j]
        for k in range(starts[j], starts[j + 1]):
            a = order[k]
            if not deletes[a]:
                effect[a] = UPDATE if there else INSERT
                there = True
            elif heeded and there:
                effect[a] = DELETE
                there = False
            else:
                effect[a] = NOTHING
