"""Sparse batches: every row arrives with its own offset."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from strom.record.batch import split
from strom.record.decode import decode, offsets
from strom.record.sparse import SPAN_MAX, dense_batch, sparse_batches

SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string())])


def rows(count: int) -> pa.RecordBatch:
    return pa.record_batch([list(range(count)), [f"row {i}" for i in range(count)]], schema=SCHEMA)


@pytest.mark.parametrize(
    ("given", "batches"),
    [
        ([7], 1),
        ([0, 1, 2, 3], 1),
        ([5, 9, 100, 2**40], 2),
        ([1, 1 + SPAN_MAX, 2 + SPAN_MAX], 2),
        ([], 0),
    ],
)
def test_rows_keep_their_offsets(given: list[int], batches: int) -> None:
    sent = rows(len(given))
    pieces = b"".join(sparse_batches(sent, np.array(given, np.int64), schema_id=3))
    found = list(split(pieces))
    assert len(found) == batches
    assert all(header.schema_id == 3 and header.append_only for header, _ in found)
    assert [int(one) for header, view in found for one in offsets(view, header)] == given
    arrived = [decode(view, SCHEMA, header=header) for header, view in found]
    assert pa.Table.from_batches(arrived, SCHEMA).to_pylist() == sent.to_pylist()


def test_rows_whose_offsets_nobody_wants_are_a_plain_batch_that_stays_aligned() -> None:
    sent = rows(5)
    ((header, view),) = split(b"".join(dense_batch(sent, schema_id=3)))
    assert not header.sparse
    assert (header.record_count, header.message_position % 8, header.size % 8) == (5, 0, 0)
    assert decode(view, SCHEMA, header=header, check_crc=True).equals(sent)
