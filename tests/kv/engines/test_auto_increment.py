"""Auto-increment columns: a new row gets a number, an existing row keeps its own, whatever else the batch does."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from strom.kv.changes import DELETE, INSERT, NOTHING, UPDATE, Changes, Folded
from strom.kv.engines.auto_increment import AutoIncrement

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("number", pa.int32())])


class Parts:
    """An engine that takes parts of rows: the column that is not sent stays as it is, row by row."""

    old_columns = (1,)
    needs_old = True

    def fold(self, changes: Changes, old: pa.RecordBatch | None) -> Folded:
        assert old is not None
        count = changes.rows.num_rows
        effect = np.zeros(count, np.uint8)
        image_row = np.full(count, -1, np.int64)
        numbers: list[int | None] = [None] * count
        for group in range(changes.groups):
            there = bool(changes.exists[group])
            number = old.column(0)[group].as_py()
            for arrival in changes.order[changes.starts[group] : changes.starts[group + 1]]:
                if changes.deletes[arrival]:
                    effect[arrival] = DELETE if there else NOTHING
                    there, number = False, None
                else:
                    effect[arrival] = UPDATE if there else INSERT
                    image_row[arrival], numbers[arrival] = arrival, number
                    there = True
        images = pa.record_batch([changes.rows.column(0), pa.array(numbers, pa.int32())], schema=SCHEMA)
        return Folded(effect, images, image_row)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=1, max_size=20),
    st.sets(st.integers(0, 4)),
)
def test_every_new_row_has_its_own_number_and_keeps_it(
    steps: list[tuple[int, bool]], there: set[int]
) -> None:
    keys = sorted({key for key, _ in steps})
    arrivals = {key: [i for i, (other, _) in enumerate(steps) if other == key] for key in keys}
    starts = np.cumsum([0, *(len(arrivals[key]) for key in keys)])
    changes = Changes(
        rows=pa.record_batch([[key for key, _ in steps], [None] * len(steps)], schema=SCHEMA),
        deletes=np.array([delete for _, delete in steps]),
        order=np.array([i for key in keys for i in arrivals[key]], np.int64),
        starts=starts.astype(np.int64),
        exists=np.array([key in there for key in keys]),
        targets=(0,),
    )
    old = pa.record_batch(
        [pa.array([-1 - key if key in there else None for key in keys], pa.int32())], names=["number"]
    )
    asked: list[int] = []

    def take(count: int) -> np.ndarray:
        asked.append(count)
        return np.arange(100, 100 + count, dtype=np.int64)

    folded = AutoIncrement(Parts(), 1, take).fold(changes, old)
    now = {key: -1 - key for key in there}
    fresh = iter(range(100, 200))
    for arrival, (key, delete) in enumerate(steps):
        if delete:
            now.pop(key, None)
            continue
        if key not in now:
            now[key] = next(fresh)
        assert folded.images.column(1)[int(folded.image_row[arrival])].as_py() == now[key]
    assert sum(asked) == next(fresh) - 100
