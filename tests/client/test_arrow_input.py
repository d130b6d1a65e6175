"""Anything that holds rows becomes batches of the table's schema, or a complaint that helps."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from strom.client.input.arrow_input import ArrowInput
from strom.errors import SchemaMismatch
from strom.model.schema import Schema

FIELDS = pa.schema(
    [pa.field("id", pa.int64(), nullable=False), ("name", pa.string()), ("price", pa.float64())]
)
ROWS = [{"id": 1, "name": "a", "price": 1.5}, {"id": 2, "name": None, "price": None}]


def input_of(*fields: pa.Field, batch_bytes_max: int = 2**21) -> ArrowInput:
    schema = Schema.from_arrow(pa.schema(list(fields)) if fields else FIELDS)
    return ArrowInput(schema, table="events", batch_bytes_max=batch_bytes_max)


def rows_of(data: object, *fields: pa.Field) -> list[dict[str, object]]:
    source = input_of(*fields)
    rows: list[dict[str, object]] = []
    for batch in source.batches(data):
        assert batch.schema.equals(source.schema.to_arrow())
        batch.validate(full=True)
        rows += batch.to_pylist()
    return rows


def test_every_kind_of_input_gives_the_same_rows() -> None:
    table = pa.Table.from_pylist(ROWS, FIELDS)
    batch = table.to_batches()[0]
    inputs = [
        table,
        batch,
        pa.RecordBatchReader.from_batches(FIELDS, [batch]),
        ROWS,
        {"id": [1, 2], "name": ["a", None], "price": [1.5, None]},
        {"id": np.array([1, 2]), "name": pa.array(["a", None]), "price": pa.chunked_array([[1.5], [None]])},
        pl.DataFrame(ROWS),
        pd.DataFrame(ROWS, index=["x", "y"]).astype({"id": "int64"}),
        [batch],
        [batch.slice(0, 1), table.slice(1)],
    ]
    for data in inputs:
        assert rows_of(data) == ROWS, type(data)


def test_anything_that_speaks_the_arrow_stream_or_array_interface_is_taken() -> None:
    batch = pa.RecordBatch.from_pylist(ROWS, FIELDS)

    class Stream:
        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            return pa.table(batch).__arrow_c_stream__(requested_schema)

    class Array:
        def __arrow_c_array__(self, requested_schema: object = None) -> object:
            return batch.__arrow_c_array__(requested_schema)

    assert rows_of(Stream()) == ROWS
    assert rows_of(Array()) == ROWS


def test_one_dict_is_one_row() -> None:
    assert rows_of({"id": 7, "name": "x"}) == [{"id": 7, "name": "x", "price": None}]


def test_a_row_with_a_list_in_it_is_still_one_row() -> None:
    fields = [pa.field("id", pa.int64()), pa.field("tags", pa.list_(pa.string()))]
    assert rows_of({"id": 1, "tags": ["a", "b"]}, *fields) == [{"id": 1, "tags": ["a", "b"]}]


def test_no_rows_give_no_batches() -> None:
    for data in ([], pa.table(FIELDS.empty_table()), pd.DataFrame(), {"id": []}):
        assert list(input_of(pa.field("id", pa.int64())).batches(_only_id(data))) == []


def _only_id(data: object) -> object:
    return data.select(["id"]) if isinstance(data, pa.Table) else data


def test_columns_are_matched_by_name_and_missing_ones_are_null() -> None:
    table = pa.table({"price": [1.0], "id": pa.array([5], pa.int32())})
    assert rows_of(table) == [{"id": 5, "name": None, "price": 1.0}]


def test_a_missing_column_that_is_not_null_is_refused_by_name() -> None:
    for data in (pa.table({"name": ["a"]}), [{"name": "a"}], {"name": ["a"]}):
        with pytest.raises(SchemaMismatch, match="'id' is BIGINT NOT NULL") as caught:
            rows_of(data)
        assert caught.value.facts["column"] == "id"


def test_a_null_in_a_not_null_column_is_refused_with_the_count() -> None:
    for data in (pa.table({"id": pa.array([1, None, None], pa.int64())}), [{"id": 1}, {"id": None}, {}]):
        with pytest.raises(SchemaMismatch, match="2 of 3 values are missing"):
            rows_of(data)


def test_an_unknown_column_is_refused_and_the_known_ones_are_listed() -> None:
    for data in (pa.table({"id": [1], "nam": ["x"]}), [{"id": 1, "nam": "x"}], {"id": [1], "nam": ["x"]}):
        with pytest.raises(SchemaMismatch, match=r"'nam'.*id, name, price.*add_column"):
            rows_of(data)


def test_two_columns_of_one_name_are_refused() -> None:
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["id", "id"])
    with pytest.raises(SchemaMismatch, match="two columns named 'id'"):
        rows_of(twice)


def test_columns_of_different_lengths_are_refused() -> None:
    with pytest.raises(SchemaMismatch, match="id: 1, name: 2"):
        rows_of({"id": [1], "name": ["a", "b"]})


def test_an_integer_that_does_not_fit_is_refused() -> None:
    small = pa.field("n", pa.int8())
    for data in (pa.table({"n": [1, 300]}), [{"n": 300}], {"n": np.array([300])}):
        with pytest.raises(SchemaMismatch, match=r"'n'.*TINYINT.*300"):
            rows_of(data, small)
    assert rows_of(pa.table({"n": [1, -128]}), small) == [{"n": 1}, {"n": -128}]


def test_nothing_is_cut_off_silently() -> None:
    cases = [
        (pa.int64(), 1.5),
        (pa.timestamp("ms"), dt.datetime(2026, 1, 1, microsecond=1)),
        (pa.decimal128(10, 2), Decimal("1.234")),
        (pa.date32(), dt.datetime(2026, 1, 1, 5)),
        (pa.float32(), 1e300),
        (pa.list_(pa.int32()), [1.5]),
    ]
    for arrow, value in cases:
        for data in ([{"v": value}], pa.table({"v": [value]})):
            with pytest.raises(SchemaMismatch, match="'v'"):
                rows_of(data, pa.field("v", arrow))


def test_what_fits_exactly_is_cast() -> None:
    when = dt.datetime(2026, 1, 1, 5, 30)
    cases = [
        (pa.int32(), pa.array([3.0]), 3),
        (pa.float64(), pa.array([3]), 3.0),
        (pa.decimal128(10, 2), pa.array([3]), Decimal("3.00")),
        (pa.timestamp("ms"), pa.array([when], pa.timestamp("ns")), when),
        (
            pa.timestamp("us", "UTC"),
            pa.array([when], pa.timestamp("ms", "Europe/Berlin")),
            when.replace(tzinfo=dt.UTC),
        ),
        (pa.string(), pa.array(["x"]).dictionary_encode(), "x"),
        (pa.string(), pa.array(["x"], pa.string_view()), "x"),
        (pa.binary(2), pa.array([b"ab"], pa.binary()), b"ab"),
        (pa.list_(pa.int64()), pa.array([[1, 2]], pa.large_list(pa.int32())), [1, 2]),
        (pa.list_(pa.int64()), pa.array([[1, 2], [3]], pa.list_view(pa.int32())), [1, 2]),
        (pa.date32(), pa.array([dt.date(2026, 1, 1)], pa.date64()), dt.date(2026, 1, 1)),
        (pa.string(), pa.nulls(1), None),
    ]
    for arrow, column, expected in cases:
        assert rows_of(pa.table({"v": column}), pa.field("v", arrow))[0] == {"v": expected}, arrow


def test_a_type_that_does_not_fit_is_refused_with_advice() -> None:
    utc = pa.timestamp("us", "UTC")
    naive = pa.array([dt.datetime(2026, 1, 1)], pa.timestamp("us"))
    cases = [
        (pa.int64(), pa.array(["1"]), r"BIGINT.*cast\(pa.int64\(\)\)"),
        (pa.string(), pa.array([1]), r"STRING.*cast\(pa.string\(\)\)"),
        (utc, naive, "assume_timezone"),
        (pa.timestamp("us"), naive.cast(utc), "local_timestamp"),
        (pa.decimal128(10, 2), pa.array([1.5]), r"cast\(pa.decimal128\(10, 2\)\)"),
        (pa.bool_(), pa.array([1]), r"cast\(pa.bool_\(\)\)"),
        (pa.binary(3), pa.array([1]), r"cast\(pa.binary\(3\)\)"),
        (pa.timestamp("ms"), pa.array([1]), r"cast\(pa.timestamp\('ms'\)\)"),
    ]
    for arrow, column, text in cases:
        with pytest.raises(SchemaMismatch, match=f"Column 'v' is .*{text}") as caught:
            rows_of(pa.table({"v": column}), pa.field("v", arrow))
        assert caught.value.facts["column"] == "v"


def test_python_rows_may_spell_dates_times_and_decimals_as_text() -> None:
    fields = [
        pa.field("d", pa.date32()),
        pa.field("t", pa.timestamp("us")),
        pa.field("p", pa.decimal128(10, 2)),
    ]
    row = {"d": "2026-01-02", "t": "2026-01-02T03:04:05", "p": "1.25"}
    expected = {"d": dt.date(2026, 1, 2), "t": dt.datetime(2026, 1, 2, 3, 4, 5), "p": Decimal("1.25")}
    assert rows_of([row], *fields) == [expected]
    with pytest.raises(SchemaMismatch, match="'d'"):
        rows_of([{"d": "tomorrow"}], *fields)


def test_nested_python_values_are_taken_apart_and_put_together() -> None:
    inside = pa.struct([("a", pa.int16()), ("m", pa.map_(pa.string(), pa.list_(pa.int32())))])
    field = pa.field("v", pa.list_(inside))
    values = [[{"a": 1, "m": [("x", [1, 2]), ("y", None)]}, None], None, []]
    assert [row["v"] for row in rows_of([{"v": value} for value in values], field)] == values
    assert rows_of([{"v": [{"a": 2, "m": {"x": []}}]}], field) == [{"v": [{"a": 2, "m": [("x", [])]}]}]
    for wrong in ([{"b": 1}], [{"a": 70000}], "text", [1], [{"m": 5}]):
        with pytest.raises(SchemaMismatch, match="'v'"):
            rows_of([{"v": wrong}], field)


def test_struct_fields_are_matched_by_name() -> None:
    want = pa.field("v", pa.struct([pa.field("a", pa.int64()), pa.field("b", pa.string())]))
    given = pa.array([{"b": "x", "a": 1}], pa.struct([("b", pa.large_string()), ("a", pa.int8())]))
    assert rows_of(pa.table({"v": given}), want) == [{"v": {"a": 1, "b": "x"}}]
    extra = pa.array([{"z": 1}], pa.struct([("z", pa.int8())]))
    with pytest.raises(SchemaMismatch, match="take out its field 'z'"):
        rows_of(pa.table({"v": extra}), want)


def test_null_inside_a_nested_value_that_may_not_be_null_is_refused() -> None:
    strict = pa.field("item", pa.int64(), nullable=False)
    cases = [
        (pa.list_(strict), [[1], [None]]),
        (pa.struct([pa.field("a", pa.int64(), nullable=False)]), [{"a": None}]),
        (pa.map_(pa.string(), pa.field("value", pa.int64(), nullable=False)), [[("k", None)]]),
    ]
    for arrow, values in cases:
        field = pa.field("v", arrow)
        for data in ([{"v": value} for value in values], pa.table({"v": pa.array(values, arrow)})):
            with pytest.raises(SchemaMismatch, match=r"'v.*NOT NULL"):
                rows_of(data, field)
        assert rows_of([{"v": None}], field) == [{"v": None}]


def test_what_lies_outside_of_a_slice_counts_neither_for_nor_against_it() -> None:
    strict = pa.field("x", pa.int32(), nullable=False)
    loose = pa.field("x", pa.int32())
    kinds: list[tuple[pa.DataType, pa.DataType, list[object]]] = [
        (pa.list_(strict), pa.list_(loose), [[1], [None], [3, 4]]),
        (
            pa.map_(pa.string(), strict.with_name("value")),
            pa.map_(pa.string(), loose.with_name("value")),
            [[("a", 1)], [("b", None)], [("c", 3), ("d", 4)]],
        ),
        (pa.struct([strict]), pa.struct([loose]), [{"x": 1}, {"x": None}, {"x": 3}]),
    ]
    for wanted, given, values in kinds:
        batch = pa.record_batch([pa.array(values, given)], names=["v"])
        for start in (0, 2):
            assert rows_of(batch.slice(start, 1), pa.field("v", wanted)) == [{"v": values[start]}]
        for start, count in ((0, 2), (1, 1), (1, 2)):
            with pytest.raises(SchemaMismatch, match=r"'v.*NOT NULL"):
                rows_of(batch.slice(start, count), pa.field("v", wanted))


def test_pandas_missing_values_become_null_and_its_index_is_left_out() -> None:
    frame = pd.DataFrame({"id": [1.0, 2.0], "name": ["a", None], "price": [np.nan, 2.0]}, index=[10, 20])
    assert rows_of(frame) == [{"id": 1, "name": "a", "price": None}, {"id": 2, "name": None, "price": 2.0}]


def test_small_chunks_of_a_table_are_joined_up_to_the_batch_size() -> None:
    chunk = pa.RecordBatch.from_pydict({"id": list(range(100))})
    table = pa.Table.from_batches([chunk] * 100)
    source = input_of(pa.field("id", pa.int64()), batch_bytes_max=8_000)
    sizes = [batch.num_rows for batch in source.batches(table)]
    assert sizes == [1000] * 10


def test_a_reader_is_streamed_batch_by_batch() -> None:
    taken = 0

    def endless() -> object:
        nonlocal taken
        while True:
            taken += 1
            yield pa.RecordBatch.from_pydict({"id": [taken]})

    reader = pa.RecordBatchReader.from_batches(pa.schema([("id", pa.int64())]), endless())
    batches = input_of(pa.field("id", pa.int64())).batches(reader)
    assert next(batches).to_pylist() == [{"id": 1}]
    assert next(batches).to_pylist() == [{"id": 2}]
    assert taken <= 3


def test_what_holds_no_rows_is_a_type_error_that_says_what_is_taken() -> None:
    for data in (5, [1, 2], object()):
        with pytest.raises(TypeError, match=r"pyarrow Table.*list of dicts"):
            rows_of(data)
    with pytest.raises(SchemaMismatch, match=r"list of dicts.*'rows' is not a file of rows"):
        rows_of("rows")
    with pytest.raises(SchemaMismatch, match="Series does not hold a table"):
        rows_of(pl.Series([1, 2]))
