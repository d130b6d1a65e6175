"""The size of every row, without a loop over rows."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given, settings

from strategies import record_batches
from strom.record.row_sizes import row_sizes


def test_each_kind_of_column_counts_with_its_bytes() -> None:
    rows = pa.record_batch(
        {
            "number": pa.array([1, None, 3], pa.int64()),
            "text": ["", "abc", None],
            "list": pa.array([["a", "bb"], [], None], pa.list_(pa.string())),
            "map": pa.array([[("k", 1)], [], None], pa.map_(pa.string(), pa.int32())),
            "row": pa.array([{"x": "four"}, {"x": ""}, None], pa.struct([("x", pa.string())])),
        }
    )
    assert row_sizes(rows).tolist() == [
        8 + 4 + (4 + 5 + 6) + (4 + 5 + 4) + 8,
        8 + 7 + 4 + 4 + 4,
        8 + 4 + 4 + 4 + 4,
    ]


@settings(max_examples=50)
@given(rows=record_batches(max_rows=6))
def test_the_sizes_of_a_slice_are_those_of_its_rows(rows: pa.RecordBatch) -> None:
    whole = row_sizes(rows).tolist()
    for start in range(rows.num_rows):
        assert row_sizes(rows.slice(start, 1)).tolist() == whole[start : start + 1]
