"""Small batches are put together on their way to Spark, and rows stay in their order."""

from __future__ import annotations

import pyarrow as pa
import pytest

from strom.lake.files.joined_batches import ROWS_AT_ONCE, ROWS_TOGETHER, joined


@pytest.mark.parametrize(
    "sizes",
    [
        [304, ROWS_TOGETHER + 100, 5],
        [10, 20, 30],
        [ROWS_TOGETHER, 1, ROWS_TOGETHER, 1],
        [5000, 5000, 20_000, 7],
    ],
)
def test_rows_stay_in_their_order(sizes: list[int]) -> None:
    numbers = pa.array(range(sum(sizes)))
    batches, start = [], 0
    for size in sizes:
        batches.append(pa.record_batch({"id": numbers.slice(start, size)}))
        start += size
    found = list(joined(iter(batches)))
    assert len(found) <= len(batches)
    assert [row for batch in found for row in batch.column("id").to_pylist()] == numbers.to_pylist()


def test_a_batch_that_is_too_large_is_cut() -> None:
    rows = 2 * ROWS_AT_ONCE + 3
    found = list(joined(iter([pa.record_batch({"id": pa.array(range(rows))})])))
    assert [batch.num_rows for batch in found] == [ROWS_AT_ONCE, ROWS_AT_ONCE, 3]
    assert [batch.column("id")[0].as_py() for batch in found] == [0, ROWS_AT_ONCE, 2 * ROWS_AT_ONCE]
