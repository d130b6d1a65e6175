"""A batch sent from where its columns lie is, byte for byte, the batch that a copy would be."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from record.batches import scalar_batches, sizes
from strom.errors import ChecksumMismatch
from strom.record import gathered
from strom.record.batch import check
from strom.record.columns import ColumnLayout
from strom.record.encode import columns_of, encode
from strom.record.gathered import Gathered


def gather(batch: pa.RecordBatch, statistics: list[int] | None) -> Gathered | None:
    with sizes(small=False), mock.patch.object(gathered, "SMALL_BYTES", 0):
        return gathered.gather(batch, schema_id=3, statistics=statistics, writer_id=7, batch_sequence=5)


@settings(max_examples=100, deadline=None)
@given(scalar_batches(), st.booleans(), st.integers(0, 9))
def test_the_pieces_are_the_bytes_of_the_same_batch(
    batch: pa.RecordBatch, described: bool, start: int
) -> None:
    rows = batch.slice(start)
    statistics = list(range(rows.num_columns)) if described else None
    found = gather(rows, statistics)
    if found is None:
        assert not rows.num_rows or columns_of(rows) is None
        return
    with sizes(small=False):
        expected = encode(rows, schema_id=3, statistics=statistics, writer_id=7, batch_sequence=5)
    assert found.joined() == found.owned() == expected
    header, _ = check(found.owned(), layout=ColumnLayout.of(rows.schema))
    assert (header.writer_id, header.batch_sequence, header.record_count) == (7, 5, rows.num_rows)


def test_columns_stay_where_they_are() -> None:
    values = np.arange(10_000, dtype=np.int64)
    found = gather(pa.record_batch({"id": pa.array(values)}), [0])
    assert found is not None
    assert pa.py_buffer(found.pieces[1]).address == values.ctypes.data


def test_rows_that_changed_since_are_refused_and_not_sent() -> None:
    values = np.arange(10_000, dtype=np.int64)
    found = gather(pa.record_batch({"id": pa.array(values)}), [0])
    assert found is not None
    values[77] = -1
    with pytest.raises(ChecksumMismatch, match="changed in memory"):
        found.owned()


def test_nested_columns_and_small_batches_are_written_anew() -> None:
    nested = pa.record_batch({"l": pa.array([[1], [2, 3]] * 9_000)})
    small = pa.record_batch({"id": pa.array([1, 2])})
    assert gather(nested, None) is None
    assert gathered.gather(small, schema_id=1, statistics=None, writer_id=-1, batch_sequence=-1) is None
