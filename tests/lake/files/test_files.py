"""Data files: every type there and back, statistics, sidecars, columns by id."""

from __future__ import annotations

import zlib
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lake.lake_places import EVENTS, events, planned, storage_in, written
from strategies import data_types, predicates, record_batches, same, schemas
from strom.errors import LakeCorrupt, LakeUnsupported
from strom.lake.files import sidecar
from strom.lake.files.arrow_types import lake_schema, leaves
from strom.lake.files.bounds import may_match, widened
from strom.lake.files.file_description import DataFileDescription
from strom.lake.files.file_reader import read_file, read_offsets
from strom.lake.files.file_writer import FilePartition, FileWriter
from strom.model import types as t
from strom.model.filters.predicate import col
from strom.model.lake.lake import UNKNOWN
from strom.model.lake.lake_types import check_schema, check_table
from strom.model.schema import Schema


def _fits(data_type: t.DataType) -> bool:
    if getattr(data_type, "precision", 0) > 6 and not isinstance(data_type, t.Decimal):
        return False
    return all(_fits(child) for child in data_type.children())


LAKE_TYPES = data_types().filter(_fits)
_YEAR_US = 365 * 86_400 * 10**6


def _storable(column: pa.Array, kind: pa.DataType) -> bool:
    """Timestamps of seconds and milliseconds reach further than microseconds do."""
    if pa.types.is_nested(kind):
        return "timestamp" not in str(kind)
    if not pa.types.is_timestamp(kind) or kind.unit == "us":
        return True
    ticks = column.cast(pa.int64()).drop_null().to_numpy()
    return bool(np.all(np.abs(ticks // {"s": 1, "ms": 1000}[kind.unit]) < 9 * 10**12))


@given(st.data())
@settings(max_examples=30, deadline=None)
def test_every_type_comes_back_as_it_was(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    schema = data.draw(schemas(types=LAKE_TYPES))
    batch = data.draw(record_batches(schema.to_arrow()))
    if not batch.num_rows or not all(
        _storable(batch.column(i), batch.schema.field(i).type) for i in range(batch.num_columns)
    ):
        return
    storage = storage_in(tmp_path_factory.mktemp("lake"))
    file = written(FileWriter(storage, storage.warehouse, schema, name="a", bucket=0), (batch, 7, 5))
    assert DataFileDescription.from_json(file.to_json()) == file
    (found,) = read_file(storage, planned(file), schema)
    assert same(found, pa.RecordBatch.from_arrays(batch.columns, schema=schema.to_arrow()))


@given(st.data())
@settings(max_examples=30, deadline=None)
def test_bounds_never_hide_a_row_that_passes(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    schema = data.draw(schemas(types=LAKE_TYPES.filter(lambda kind: not kind.nested)))
    batch = data.draw(record_batches(schema.to_arrow()))
    if not batch.num_rows or not all(
        _storable(batch.column(i), batch.schema.field(i).type) for i in range(batch.num_columns)
    ):
        return
    predicate = data.draw(predicates(schema)).check(schema)
    storage = storage_in(tmp_path_factory.mktemp("lake"))
    file = written(FileWriter(storage, storage.warehouse, schema, name="a", bucket=0), (batch, 0))
    expected = batch.filter(predicate.mask(batch))
    found = list(read_file(storage, planned(file), schema, None, predicate))
    assert sum(part.num_rows for part in found) == expected.num_rows
    if expected.num_rows:
        assert may_match(predicate, schema, widened({}, schema, [file]))


def test_a_file_says_what_it_holds(tmp_path: Path) -> None:
    storage = storage_in(tmp_path)
    writer = FileWriter(storage, storage.warehouse + "/db/t-1", EVENTS, name="r1-0-0-0", bucket=3)
    file = written(writer, (events(5, 9), 100, 1_000), (events(7), 102, np.array([2_000])))
    assert (file.rows, file.bucket, file.first_offset, file.last_offset) == (3, 3, 100, 102)
    assert file.path == storage.warehouse + "/db/t-1/data/strom-r1-0-0-0.parquet"
    assert file.size == Path(storage.path(file.path)).stat().st_size
    assert file.sidecar is None
    ids = file.columns[1]
    assert (ids.values, ids.nulls, ids.lower, ids.upper) == (
        3,
        0,
        (5).to_bytes(8, "little"),
        (9).to_bytes(8, "little"),
    )
    assert file.columns[2].upper == b"n9"
    (batch,) = read_file(storage, planned(file), EVENTS, ["__timestamp", "__offset", "id", "__bucket"])
    assert batch.column("__offset").to_pylist() == [100, 101, 102]
    assert [moment.timestamp() for moment in batch.column("__timestamp").to_pylist()] == [1, 1, 2]
    assert batch.column("__bucket").to_pylist() == [3, 3, 3]


def test_parquet_columns_carry_field_ids(tmp_path: Path) -> None:
    schema = Schema.from_arrow(
        pa.schema([("a", pa.struct([("x", pa.int8())])), ("b", pa.list_(pa.map_(pa.string(), pa.int16())))])
    )
    storage = storage_in(tmp_path)
    batch = pa.RecordBatch.from_pydict({"a": [{"x": 1}], "b": [[[("k", 2)]]]}, schema=schema.to_arrow())
    file = written(FileWriter(storage, storage.warehouse, schema, name="a", bucket=0), (batch, 0))
    arrow = pq.ParquetFile(storage.path(file.path)).schema_arrow
    number = b"PARQUET:field_id"
    assert arrow.field("a").metadata[number] == b"1"
    assert arrow.field("a").type.field(0).metadata[number] == b"2"
    assert arrow.field("b").metadata[number] == b"3"
    element = arrow.field("b").type.value_field
    assert element.metadata[number] == b"10002000"
    assert element.type.key_field.metadata[number] == b"10002001"
    assert element.type.item_field.metadata[number] == b"10002002"
    assert arrow.field("__offset").metadata[number] == b"2000002"


def test_no_row_makes_no_file(tmp_path: Path) -> None:
    storage = storage_in(tmp_path)
    writer = FileWriter(storage, storage.warehouse, EVENTS, name="a", bucket=0)
    writer.write(events(), 0)
    assert writer.finish() is None
    assert not list(tmp_path.iterdir())


def test_rows_out_of_order_are_refused(tmp_path: Path) -> None:
    storage = storage_in(tmp_path)
    writer = FileWriter(storage, storage.warehouse, EVENTS, name="a", bucket=0)
    writer.write(events(1, 2), 10)
    with pytest.raises(LakeCorrupt):
        writer.write(events(3), 11)
    with pytest.raises(LakeCorrupt):
        writer.write(events(3, 4), np.array([20, 20]))


def test_a_column_that_a_file_is_too_old_to_have_is_null(tmp_path: Path) -> None:
    storage = storage_in(tmp_path)
    file = written(FileWriter(storage, storage.warehouse, EVENTS, name="a", bucket=0), (events(1), 0))
    newer = EVENTS.add_column("price", t.Decimal(10, 2))
    (batch,) = read_file(storage, planned(file), newer)
    assert batch.to_pylist() == [{"id": 1, "name": "n1", "price": None}]
    assert not list(read_file(storage, planned(file), newer, ["id"], (col("price") > 1).check(newer)))


def test_more_digits_than_the_lake_has_are_refused() -> None:
    schema = Schema.from_arrow(pa.schema([("a", pa.list_(pa.timestamp("ns")))]))
    with pytest.raises(LakeUnsupported, match=r"TIMESTAMP\(6\)"):
        check_schema(schema)
    with pytest.raises(LakeUnsupported, match="rename"):
        check_schema(Schema.from_arrow(pa.schema([("__Offset", pa.int64())])))
    with pytest.raises(LakeUnsupported, match="partition"):
        check_table(Schema.from_arrow(pa.schema([("x", pa.float64())])), ["x"])


def test_a_moment_beyond_microseconds_is_refused_by_name(tmp_path: Path) -> None:
    schema = Schema.from_arrow(pa.schema([("at", pa.timestamp("s"))]))
    batch = pa.RecordBatch.from_arrays([pa.array([2**60]).cast(pa.timestamp("s"))], schema=schema.to_arrow())
    storage = storage_in(tmp_path)
    with pytest.raises(LakeUnsupported, match="'at'"):
        FileWriter(storage, storage.warehouse, schema, name="a", bucket=0).write(batch, 0)


def test_a_partition_has_one_value_of_each_key(tmp_path: Path) -> None:
    schema = Schema.from_arrow(pa.schema([("day", pa.date32()), ("id", pa.int64())]))
    storage = storage_in(tmp_path)

    def writer() -> FileWriter:
        return FileWriter(
            storage, storage.warehouse, schema, name="a", bucket=0,
            partition=FilePartition(7, "1970-01-03"), partition_keys=["day"],
        )  # fmt: skip

    rows = pa.RecordBatch.from_pydict({"day": [2, 2], "id": [1, 2]}, schema=schema.to_arrow())
    assert written(writer(), (rows, 0), (rows, 2)).partition_values == (2,)
    mixed = pa.RecordBatch.from_pydict({"day": [2, 3], "id": [1, 2]}, schema=schema.to_arrow())
    with pytest.raises(LakeCorrupt):
        writer().write(mixed, 0)


# --- statistics ------------------------------------------------------------------------------------------------


def _stats(tmp_path: Path, column: pa.Array) -> tuple[Schema, DataFileDescription]:
    schema = Schema.from_arrow(pa.schema([("x", column.type)]))
    storage = storage_in(tmp_path)
    batch = pa.RecordBatch.from_arrays([column], schema=schema.to_arrow())
    return schema, written(FileWriter(storage, storage.warehouse, schema, name="a", bucket=0), (batch, 0))


def test_long_text_has_bounds_that_enclose_it(tmp_path: Path) -> None:
    schema, file = _stats(tmp_path, pa.array(["ä" * 100, "z" * 63 + "\U0010ffff" * 3]))
    stats = file.columns[1]
    assert stats.lower is not None
    assert stats.upper is not None
    assert len(stats.lower) <= 64
    assert stats.lower <= ("z" * 63).encode()
    assert stats.upper > ("ä" * 100).encode()
    assert not may_match((col("x") < "a").check(schema), schema, widened({}, schema, [file]))


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()], ids=str)
def test_a_nan_takes_the_bounds_away(tmp_path: Path, kind: pa.DataType) -> None:
    schema, file = _stats(tmp_path, pa.array([1.0, float("nan")], kind))
    assert file.columns[1].nans == 1
    assert file.columns[1].lower is None
    assert widened({}, schema, [file]) == {0: UNKNOWN}


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()], ids=str)
def test_floats_have_their_exact_bounds_also_within_rows(tmp_path: Path, kind: pa.DataType) -> None:
    inner = pa.struct([("n", pa.int32()), ("f", kind)])
    _, plain = _stats(tmp_path, pa.array([2.5, None, -1.5], kind))
    one = plain.columns[1]
    assert (one.nulls, one.nans) == (1, 0)
    assert one.lower is not None
    rows = [{"n": 1, "f": 2.5}, None, {"n": None, "f": -1.5}]
    _, nested = _stats(tmp_path, pa.array(rows, inner))
    assert (one.lower, one.upper) in [(found.lower, found.upper) for found in nested.columns.values()]
    _, strange = _stats(tmp_path, pa.array([*rows, {"n": 1, "f": float("nan")}], inner))
    assert [found.nans for found in strange.columns.values() if found.nans] == [1]


POINT = pa.struct([("n", pa.int32()), ("f", pa.float64())])


@pytest.mark.parametrize(
    ("column", "nested"),
    [
        (pa.array([[{"n": 1, "f": 2.0}, {"n": 7, "f": 9.0}], []], pa.list_(POINT)), 2),
        (pa.array([[3, 1], None], pa.list_(pa.int32())), 1),
        (pa.array([[[{"n": 1, "f": 2.0}]]], pa.list_(pa.list_(POINT))), 2),
        (pa.array([[("a", {"n": 1, "f": 2.0})]], pa.map_(pa.string(), POINT)), 3),
        (pa.array([{"inner": [{"n": 5, "f": 1.0}]}], pa.struct([("inner", pa.list_(POINT))])), 2),
    ],
    ids=["rows", "numbers", "lists of rows", "map to rows", "rows in a row"],
)
def test_what_comes_many_times_in_a_row_has_no_bounds(tmp_path: Path, column: pa.Array, nested: int) -> None:
    """Iceberg gives bounds of values that a row has once."""
    schema, file = _stats(tmp_path, column)
    own = lake_schema(schema).field("x")
    found = leaves(pa.schema([own]))
    assert [one.repeated for one in found] == [True] * nested
    for one in found:
        assert (file.columns[one.field_id].lower, file.columns[one.field_id].upper) == (None, None)


def test_decimals_have_exact_bounds(tmp_path: Path) -> None:
    column = pa.array([Decimal("-5.25"), None, Decimal("130.00")], pa.decimal128(30, 2))
    schema, file = _stats(tmp_path, column)
    assert file.columns[1].lower == (-525).to_bytes(2, "big", signed=True)
    bounds = widened({}, schema, [file])
    assert bounds == {0: ("-5.25", "130.00")}
    assert widened({0: ("-9.00", "1.00")}, schema, [file]) == {0: ("-9.00", "130.00")}
    assert widened({0: UNKNOWN}, schema, [file]) == {0: UNKNOWN}


def test_a_column_of_nulls_passes_no_comparison(tmp_path: Path) -> None:
    schema, file = _stats(tmp_path, pa.array([None], pa.int8()))
    bounds = widened({}, schema, [file])
    assert bounds == {0: None}
    assert not may_match((col("x") > -100).check(schema), schema, bounds)
    assert may_match(col("x").is_null().check(schema), schema, bounds)


# --- sidecars --------------------------------------------------------------------------------------------------


SPARSE = st.lists(st.integers(0, 50_000_000), min_size=1, max_size=60, unique=True).map(sorted)
DENSE = st.lists(st.booleans(), min_size=1, max_size=400).map(
    lambda bits: [0, *(place for place, bit in enumerate(bits, 1) if bit)]
)


@pytest.mark.parametrize("numbers", [DENSE, SPARSE], ids=["bits", "list"])
@given(st.data())
@settings(max_examples=50, deadline=None)
def test_a_sidecar_finds_the_row_of_every_offset(
    numbers: st.SearchStrategy[list[int]], data: st.DataObject
) -> None:
    offsets = np.array(data.draw(numbers), np.int64) + 3
    held = sidecar.held_offsets(offsets)
    if held.words is not None or held.listed is not None:
        held = sidecar.decode(sidecar.encode(held), "a")
    assert held.all().tolist() == offsets.tolist()
    assert held.positions(offsets).tolist() == list(range(len(offsets)))
    others = np.setdiff1d(np.concatenate([offsets - 1, offsets + 1, [0]]), offsets)
    assert (held.positions(others) == -1).all()


def test_a_key_file_has_a_sidecar(tmp_path: Path) -> None:
    storage = storage_in(tmp_path)
    writer = FileWriter(storage, storage.warehouse, EVENTS, name="a", bucket=0)
    file = written(writer, (events(1, 2), np.array([5, 9])), (events(3), np.array([200])))
    assert file.sidecar == file.path + ".offsets"
    assert sidecar.decode(storage.read(file.sidecar), "a").all().tolist() == [5, 9, 200]
    assert read_offsets(storage, file.path).tolist() == [5, 9, 200]


@pytest.mark.parametrize("place", [0, 8, 9, 16, 17, 24, 25, 32, 33, 40, 44, -1])
def test_a_damaged_sidecar_is_found_out(place: int) -> None:
    content = bytearray(sidecar.encode(sidecar.held_offsets(np.array([1, 3, 9], np.int64))))
    content[place] ^= 0x40
    with pytest.raises(LakeCorrupt):
        sidecar.decode(bytes(content), "a")
    with pytest.raises(LakeCorrupt):
        sidecar.decode(bytes(content[:20]), "a")


def test_a_sidecar_of_the_first_version_is_read() -> None:
    content = bytearray(sidecar.encode(sidecar.held_offsets(np.array([1, 3, 9], np.int64))))
    content[8] = 1
    content[40:44] = zlib.crc32(content[52:]).to_bytes(4, "little")
    assert sidecar.decode(bytes(content), "a").all().tolist() == [1, 3, 9]


@pytest.mark.parametrize("finished", [True, False])
def test_a_file_that_is_given_up_is_gone(tmp_path: Path, finished: bool) -> None:
    storage = storage_in(tmp_path)
    writer = FileWriter(storage, storage.warehouse, EVENTS, name="a", bucket=0)
    writer.write(events(1, 2), np.array([5, 9]))
    writer._write_row_group()
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["strom-a.parquet"]
    if finished:
        writer.finish()
    writer.abort()
    assert list((tmp_path / "data").iterdir()) == []


def test_a_file_that_cannot_be_closed_is_gone_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = storage_in(tmp_path)

    class Full:
        def close(self) -> None:
            raise OSError("no space left on device")

    writer = FileWriter(storage, storage.warehouse, EVENTS, name="a", bucket=0)
    writer.write(events(1, 2), np.array([5, 9]))
    writer._write_row_group()
    file, writer._file = writer._file, Full()
    writer.abort()
    assert list((tmp_path / "data").iterdir()) == []
    assert file is not None
    file.close()


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"path":"a","columns":{"1":[1]},"size":1}', '{"path":1,"columns":{}}']
)
def test_a_description_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(LakeCorrupt):
        DataFileDescription.from_json(text)
