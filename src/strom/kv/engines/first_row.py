"""The first row of a key stays; later ones have no effect. Of the old image only its existence matters."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from strom.kv.changes import INSERT, NOTHING, UPDATE, Changes, Folded
from strom.kv.engines.engine import DeleteBehavior, effects, own_rows


@dataclass(frozen=True)
class FirstRow:
    """Inserts only, so the changelog has only +I (unless deletes are allowed, then -D too)."""

    deletes: DeleteBehavior = "ignore"
    old_columns: tuple[int, ...] = ()
    needs_old: bool = False

    def fold(self, changes: Changes, old: pa.RecordBatch | None) -> Folded:
        """An upsert for a key that has a row does nothing."""
        effect = effects(changes, self.deletes)
        effect = np.where(effect == UPDATE, NOTHING, effect).astype(np.uint8)
        assert not (effect[changes.deletes] == INSERT).any()
        return Folded(effect, changes.rows, own_rows(effect))
