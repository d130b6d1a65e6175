"""Fetched batches become rows with the wanted columns, whichever schema they were written with."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strom.client.read.row_reader import RowReader, count
from strom.errors import InvalidProjection
from strom.model.filters.predicate import Predicate
from strom.model.filters.predicate_text import parse_predicate
from strom.model.schema import Schema
from strom.model.types import Int, String
from strom.record.batch import split, stamp
from strom.record.encode import encode
from strom.record.filter import RowFilter

FIRST = Schema.from_arrow(pa.schema([("id", pa.int64()), ("name", pa.string()), ("n", pa.int32())]))
SECOND = FIRST.add_column("extra", String())
THIRD = SECOND.add_column("more", Int())


def batch_of(rows: list[dict[str, object]], schema: Schema = FIRST, base: int = 100) -> bytearray:
    encoded = encode(pa.RecordBatch.from_pylist(rows, schema.to_arrow()), schema_id=schema.schema_id)
    stamp(encoded, base_offset=base, timestamp_ms=1234)
    return encoded


ROWS: list[dict[str, object]] = [{"id": number, "name": f"n{number}", "n": number} for number in range(10)]


def read(
    reader: RowReader, encoded: bytes, start: int = 0, end: int | None = None
) -> list[dict[str, object]]:
    [one] = split(encoded)
    found = reader.read(one, start=start, end=end)
    if found is None:
        return []
    assert found.data.schema.equals(reader.arrow)
    rows: list[dict[str, object]] = found.data.to_pylist()
    return rows


def test_rows_come_with_their_offsets_and_timestamp() -> None:
    reader = RowReader(FIRST)
    assert reader.projected_ids == ()
    [one] = split(batch_of(ROWS))
    found = reader.read(one, start=0, end=None)
    assert found is not None
    assert found.data.to_pylist() == ROWS
    assert found.offsets.tolist() == list(range(100, 110))
    assert (found.base_offset, found.timestamp_ms) == (100, 1234)


@settings(max_examples=50, deadline=None)
@given(st.integers(90, 120), st.one_of(st.none(), st.integers(90, 120)))
def test_only_rows_between_start_and_end_are_read_and_counted(start: int, end: int | None) -> None:
    expected = [
        row for row in ROWS if start <= 100 + int(str(row["id"])) < (end if end is not None else 10**9)
    ]
    encoded = batch_of(ROWS)
    assert read(RowReader(FIRST), encoded, start, end) == expected
    [one] = split(encoded)
    assert count(one, start=start, end=end) == len(expected)


def test_columns_come_in_the_order_asked_for_and_only_those_are_requested() -> None:
    reader = RowReader(THIRD, ["more", "n", "id"])
    assert reader.projected_ids == (0, 2, 4)
    assert reader.arrow.names == ["more", "n", "id"]
    assert RowReader(FIRST, ["n", "name", "id"]).projected_ids == (), "all of them: nothing to leave out"
    with pytest.raises(InvalidProjection):
        RowReader(FIRST, ["id", "id"])
    with pytest.raises(InvalidProjection):
        RowReader(FIRST, [])


def test_older_and_newer_batches_are_read_by_column_id() -> None:
    reader = RowReader(SECOND)
    assert not reader.knows(1)
    for schema in (FIRST, THIRD):
        reader.learn(schema)
    old = batch_of(ROWS[:1])
    assert read(reader, old) == [ROWS[0] | {"extra": None}]
    new = batch_of([{"id": 1, "name": "x", "n": 2, "extra": "e", "more": 9}], THIRD)
    assert read(reader, new) == [{"id": 1, "name": "x", "n": 2, "extra": "e"}]


def test_projected_batches_of_any_schema_are_read() -> None:
    from strom.record.columns import ColumnLayout
    from strom.record.project import Projection, project_batch

    reader = RowReader(THIRD, ["extra", "id"])
    reader.learn(FIRST)
    old = project_batch(batch_of(ROWS[:2]), Projection(ColumnLayout.of(FIRST.to_arrow()), [0]))
    assert read(reader, b"".join(old)) == [{"extra": None, "id": 0}, {"extra": None, "id": 1}]
    new = batch_of([{"id": 1, "name": "x", "n": 2, "extra": "e", "more": 9}], THIRD)
    both = project_batch(new, Projection(ColumnLayout.of(THIRD.to_arrow()), [0, 3]))
    assert read(reader, b"".join(both)) == [{"extra": "e", "id": 1}]


def test_filtered_batches_keep_the_offsets_of_their_rows() -> None:
    predicate: Predicate = parse_predicate("id in (2, 5, 7)").check(FIRST)
    filtered = RowFilter(predicate, FIRST.to_arrow(), None).apply(memoryview(batch_of(ROWS)))
    assert filtered is not None
    [one] = split(b"".join(filtered))
    reader = RowReader(FIRST)
    found = reader.read(one, start=0, end=None)
    assert found is not None
    assert found.offsets.tolist() == [102, 105, 107]
    assert found.base_offset == 102
    part = reader.read(one, start=103, end=107)
    assert part is not None
    assert part.offsets.tolist() == [105]
    assert part.data.to_pylist() == [ROWS[5]]
    assert (count(one, start=0, end=None), count(one, start=103, end=107)) == (3, 1)
    assert reader.read(one, start=108, end=None) is None


def test_columns_are_aligned_wherever_the_batch_lies_in_memory() -> None:
    encoded = batch_of([{"id": number, "name": "x", "n": 1} for number in range(1000)])
    for shift in range(8):
        buffer = memoryview(bytes(shift) + encoded)[shift:]
        [one] = split(buffer)
        found = RowReader(FIRST).read(one, start=0, end=None)
        assert found is not None
        assert found.data.column(0).buffers()[1].address % 8 == 0
        assert np.array_equal(found.data.column(0).to_numpy(), np.arange(1000))


def test_columns_are_known_by_their_ids_and_not_by_their_names() -> None:
    older = replace(
        SECOND,
        schema_id=1,
        columns=tuple(
            replace(one, name={"name": "n", "n": "name"}.get(one.name, one.name)) for one in FIRST.columns
        ),
    )
    reader = RowReader(SECOND)
    reader.learn(older)
    [one] = split(batch_of([{"id": 1, "n": "text", "name": 7}], older))
    found = reader.read(one, start=0, end=None)
    assert found is not None
    assert found.data.to_pylist() == [{"id": 1, "name": "text", "n": 7, "extra": None}]
