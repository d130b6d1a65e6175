"""The row with the highest version wins, or the later of equal versions. NULL is below every version."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from strom.kv.arrays import Bools, Int64s, Octets
from strom.kv.changes import DELETE, INSERT, NOTHING, UPDATE, Changes, Folded
from strom.kv.engines.change_modes import valid_rows
from strom.kv.engines.engine import DeleteBehavior, heeded_deletes, own_rows
from strom.kv.kernels.compile import boolean, int64, kernel, ro, rw, uint8, void


class Versioned:
    """``column`` holds versions: INT, BIGINT, TIMESTAMP or TIMESTAMP_LTZ."""

    needs_old = True

    def __init__(self, column: int, deletes: DeleteBehavior = "ignore") -> None:
        self.old_columns = (column,)
        self._column = column
        self._deletes = deletes

    def fold(self, changes: Changes, old: pa.RecordBatch | None) -> Folded:
        """A row whose version is lower, or NULL, has no effect on an existing row."""
        assert old is not None
        deletes, heeded = heeded_deletes(changes, self._deletes)
        effect = np.empty(len(deletes), np.uint8)
        came, was = changes.rows.column(self._column), old.column(0)
        _follow(
            deletes, changes.order, changes.starts, changes.exists, heeded, whole_numbers(came), valid_rows(came),
            whole_numbers(was), valid_rows(was), effect,
        )  # fmt: skip
        return Folded(effect, changes.rows, own_rows(effect))


def whole_numbers(array: pa.Array) -> Int64s:
    """The physical values of integers, dates, times and timestamps, as 64 bits."""
    kind = np.dtype(f"i{array.type.bit_width // 8}")
    if not len(array):
        return np.empty(0, np.int64)
    whole = np.frombuffer(array.buffers()[1], kind)
    return whole[array.offset : array.offset + len(array)].astype(np.int64, copy=False)


@kernel(
    void(
        ro(boolean), ro(int64), ro(int64), ro(boolean), boolean, ro(int64), ro(boolean), ro(int64), ro(boolean),
        rw(uint8),
    )
)  # fmt: skip
def _follow(
    deletes: Bools,
    order: Int64s,
    starts: Int64s,
    exists: Bools,
    heeded: bool,
    came: Int64s,
    came_valid: Bools,
    was: Int64s,
    was_valid: Bools,
    effect: Octets,
) -> None:
    for j in range(len(starts) - 1):
        there = exists[j]
        version = was[j]
        valid = was_valid[j]
        for k in range(starts[j], starts[j + 1]):
            a = order[k]
            if deletes[a]:
                effect[a] = DELETE if heeded and there else NOTHING
                there = there and not heeded
            elif there and (not came_valid[a] or (valid and came[a] < version)):
                effect[a] = NOTHING
            else:
                effect[a] = UPDATE if there else INSERT
                there = True
                version = came[a]
                valid = came_valid[a]
