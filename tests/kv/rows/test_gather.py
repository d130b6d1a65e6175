"""Gathered rows are the requested rows, whatever source they lie in."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kv.stored_rows import batches, joined, key_schemas
from strategies import same
from strom.errors import InvalidTable
from strom.kv.gather.column_source import ABSENT, kinds_of, source_of
from strom.kv.gather.gather import Directory, gather, gather_message, rows_equal
from strom.kv.gather.memory_needed import MemoryNeeded

PICKS = st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)), max_size=40)


def picked(picks: list[tuple[int, int]], found: list[pa.RecordBatch]) -> list[tuple[int, int]]:
    """Random numbers as places of rows; now and then a row of NULLs (not where pyarrow could not compare it)."""
    nested = any(pa.types.is_nested(item.type) for item in found[0].schema)
    full = [number for number, batch in enumerate(found) if batch.num_rows]
    places = []
    for one, two in picks:
        if not full or one % 7 == 0:
            places.extend([] if nested else [(-1, 0)])
        else:
            number = full[one % len(full)]
            places.append((number, two % found[number].num_rows))
    return places


def arrays(places: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([p[0] for p in places], np.int32), np.array([p[1] for p in places], np.int32)


def nulls(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.nulls(1, item.type) for item in schema], schema=schema)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_a_gather_gives_the_rows_asked_for_in_the_order_asked(data: st.DataObject) -> None:
    schema = data.draw(key_schemas())
    arrow = schema.to_arrow()
    found = data.draw(st.lists(batches(schema), min_size=1, max_size=4))
    places = picked(data.draw(PICKS), found)
    kinds = kinds_of(arrow)
    half = len(found) // 2
    directory = Directory(arrow, [source_of(batch, kinds) for batch in found[:half]])
    directory = directory.with_sources(*[source_of(batch, kinds) for batch in found[half:]])
    columns = data.draw(st.none() | st.permutations(range(len(arrow))).map(lambda p: p[: 1 + len(p) // 2]))
    gathered = gather(directory, *arrays(places), columns)
    gathered.validate(full=True)
    rows = [nulls(arrow) if number < 0 else found[number].slice(row, 1) for number, row in places]
    expected = joined(rows, arrow)
    assert same(gathered, expected if columns is None else expected.select(columns))


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_rows_are_equal_when_every_column_is(data: st.DataObject) -> None:
    schema = data.draw(key_schemas(max_columns=3))
    arrow = schema.to_arrow()
    found = data.draw(st.lists(batches(schema), min_size=1, max_size=3))
    directory = Directory(arrow, [source_of(batch, kinds_of(arrow)) for batch in found])
    left = picked(data.draw(PICKS), found)
    right = picked(data.draw(PICKS), found)
    count = min(len(left), len(right))
    left, right = left[:count], right[:count]
    columns = [at for at, item in enumerate(arrow) if not pa.types.is_nested(item.type)]
    equal = rows_equal(directory, *arrays(left), directory, *arrays(right), columns, columns)

    def row(place: tuple[int, int]) -> pa.RecordBatch:
        return (nulls(arrow) if place[0] < 0 else found[place[0]].slice(place[1], 1)).select(columns)

    assert equal.tolist() == [same(row(a), row(b)) for a, b in zip(left, right, strict=True)]


def test_nested_rows_are_compared_too() -> None:
    batch = pa.RecordBatch.from_pydict({"a": [[1, 2], [1, 2], [2], None, None]})
    directory = Directory(batch.schema, [source_of(batch, kinds_of(batch.schema))])
    zeros = np.zeros(4, np.int32)
    left, right = np.array([0, 1, 2, 3], np.int32), np.array([1, 2, 3, 4], np.int32)
    assert rows_equal(directory, zeros, left, directory, zeros, right, [0], [0]).tolist() == [
        True,
        False,
        False,
        True,
    ]


def test_a_column_that_a_source_lacks_is_null() -> None:
    schema = pa.schema([("a", pa.int32()), ("b", pa.string()), ("c", pa.list_(pa.int8())), ("d", pa.bool_())])
    old = pa.RecordBatch.from_pydict({"a": pa.array([1, 2], pa.int32())})
    source = source_of(old, kinds_of(schema), [0, ABSENT, ABSENT, ABSENT])
    gathered = gather(Directory(schema, [source]), np.zeros(2, np.int32), np.array([1, 0], np.int32))
    none = [None, None]
    assert gathered.to_pydict() == {"a": [2, 1], "b": none, "c": none, "d": none}


@pytest.mark.parametrize(("source", "row"), [(1, 0), (-2, 0), (0, 2), (0, -1)])
def test_a_row_that_is_not_there_is_refused(source: int, row: int) -> None:
    batch = pa.RecordBatch.from_pydict({"a": [1, 2]})
    directory = Directory(batch.schema, [source_of(batch, kinds_of(batch.schema))])
    with pytest.raises(IndexError):
        gather(directory, np.array([0, source], np.int32), np.array([0, row], np.int32))


def test_whole_numbers_are_copied_bit_by_bit() -> None:
    numbers = [2**63 - 1, -(2**63), 2**53 + 1, -1]
    batch = pa.RecordBatch.from_pydict({"a": numbers})
    directory = Directory(batch.schema, [source_of(batch, kinds_of(batch.schema))])
    gathered = gather(directory, np.zeros(4, np.int32), np.arange(4, dtype=np.int32))
    assert gathered.column(0).to_pylist() == numbers


def test_a_type_that_no_table_has_is_refused() -> None:
    with pytest.raises(InvalidTable, match="column a"):
        kinds_of(pa.schema([("a", pa.large_string())]))


@pytest.mark.parametrize("start", [1, 8, 13])
def test_a_batch_that_is_a_part_of_another_has_its_own_rows(start: int) -> None:
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("flag", pa.bool_()),
            ("text", pa.string()),
            ("data", pa.binary()),
            ("day", pa.date32()),
        ]
    )
    numbers = range(40)
    columns = [
        list(numbers),
        [number % 3 == 0 for number in numbers],
        [None if number % 5 == 0 else "x" * number for number in numbers],
        [b"%d" % number for number in numbers],
        [None if number % 4 == 0 else number for number in numbers],
    ]
    part = pa.record_batch(columns, schema=schema).slice(start, 20)
    directory = Directory(schema, [source_of(part, kinds_of(schema))])
    gathered = gather(directory, *arrays([(0, number) for number in range(20)]))
    assert gathered.to_pylist() == part.to_pylist()


@pytest.mark.parametrize("nullable", [False, True])
def test_rows_that_take_exactly_what_they_may_are_gathered_and_lie_aligned(nullable: bool) -> None:
    schema = pa.schema([("id", pa.int64()), ("flag", pa.bool_()), ("text", pa.string())])
    texts = [None if nullable and number % 3 == 0 else "x" * number for number in range(50)]
    found = pa.record_batch([list(range(50)), [True, False] * 25, texts], schema=schema)
    directory = Directory(schema, [source_of(found, kinds_of(schema))])
    places = arrays([(0, number) for number in range(0, 50, 2)])
    with pytest.raises(MemoryNeeded) as needed:
        gather(directory, *places, bytes_max=0)
    size = needed.value.size
    assert size > 25 * 8
    with pytest.raises(MemoryNeeded):
        gather(directory, *places, bytes_max=size - 1)
    gathered = gather(directory, *places, bytes_max=size)
    assert same(gathered, found.take(pa.array(range(0, 50, 2))))
    buffers = [one for column in gathered.columns for one in column.buffers() if one is not None]
    assert [one.address % 8 for one in buffers] == [0] * len(buffers)
    message = gather_message(directory, *places, bytes_max=size)
    assert pa.ipc.read_record_batch(message, schema).equals(gathered)
    assert (message.address + message.size - size) % 64 == 0, "its body"


def test_bytes_that_lie_below_a_null_are_no_part_of_a_message() -> None:
    """As many as the values have, and all of them written: a message may leave the process."""
    places = arrays([(0, 0), (0, 1), (0, 2)])
    offsets, data = np.array([0, 2, 102, 104], np.int32), b"ab" + b"h" * 100 + b"cd"
    hidden = pa.Array.from_buffers(
        pa.string(), 3, [pa.py_buffer(b"\x05"), pa.py_buffer(offsets), pa.py_buffer(data)]
    )
    messages = []
    for texts in (hidden, pa.array(["ab", None, "cd"])):
        batch = pa.record_batch({"text": texts})
        directory = Directory(batch.schema, [source_of(batch, kinds_of(batch.schema))])
        messages.append(gather_message(directory, *places).to_pybytes())
    assert messages[0] == messages[1]
