"""A limit may be lowered: a row larger than the new one can still be made smaller, and deleted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from kv.snapshot.test_opening import SCHEMA, SETTINGS, opened, rows_of
from strom.errors import RecordTooLarge
from strom.record.batch import BatchLimits
from strom.tablet.key_tablet import KeyTablet

LARGE = "x" * 150_000
LOWER = BatchLimits(batch_bytes_max=100_000)


def change(tablet: KeyTablet, rows: dict[int, str], *deleted: int) -> None:
    ids = [*rows, *deleted]
    batch = pa.record_batch([ids, [*rows.values(), *(None for _ in deleted)]], schema=SCHEMA.to_arrow())
    deletes = np.array([False] * len(rows) + [True] * len(deleted)) if deleted else None
    tablet.upsert(batch, deletes, targets=None, schema_id=1, writer_id=-1, batch_sequence=-1, now_ms=5)


def test_a_row_that_is_too_large_by_now_can_go_and_can_become_smaller(tmp_path: Path) -> None:
    tablet = opened(tmp_path)
    change(tablet, {1: LARGE, 2: LARGE, 3: "small"})
    tablet.close()
    tablet = opened(tmp_path, SETTINGS, LOWER)
    with pytest.raises(RecordTooLarge, match="could not be read back"):
        change(tablet, {3: LARGE})
    change(tablet, {1: "smaller"})
    change(tablet, {}, 2)
    assert rows_of(tablet) == {1: "smaller", 3: "small"}
    change(tablet, {4: "x" * 40_000, 5: "x" * 40_000, 6: "x" * 40_000})
    assert len(rows_of(tablet)) == 5, "many that are not too large are together no row that is"
    tablet.close()
