"""The last row wins: index arithmetic. No old image is read and no row is copied."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from strom.kv.changes import Changes, Folded
from strom.kv.engines.engine import DeleteBehavior, effects, own_rows


@dataclass(frozen=True)
class LastRow:
    """The default engine, for whole rows."""

    deletes: DeleteBehavior = "allow"
    old_columns: tuple[int, ...] = ()
    needs_old: bool = False

    def fold(self, changes: Changes, old: pa.RecordBatch | None) -> Folded:
        """Every upsert's image is the row that came."""
        effect = effects(changes, self.deletes)
        return Folded(effect, changes.rows, own_rows(effect))
