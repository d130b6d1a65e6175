"""The quick ways of a single lookup give what the general ones give."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given, settings

from strom.client.blanks import blanks
from strom.client.murmur import bucket_of_key
from strom.client.row_values import RowValues
from strom.errors import Corrupt, MalformedBatch
from strom.model.bucketing import bucket_of
from strom.model.keys import encode_keys
from strom.record.encode import encode

KEYS = pa.schema([("a", pa.int64()), ("b", pa.string()), ("c", pa.int32())])
ROW = pa.schema(
    [
        ("tiny", pa.int8()),
        ("small", pa.int16()),
        ("int", pa.int32()),
        ("big", pa.int64()),
        ("float", pa.float32()),
        ("double", pa.float64()),
        ("flag", pa.bool_()),
        ("text", pa.string()),
        ("bytes", pa.binary()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us")),
        ("at_ms", pa.timestamp("ms")),
        ("at_s", pa.timestamp("s")),
    ]
)
VALUES = {
    "tiny": st.integers(-(2**7), 2**7 - 1),
    "small": st.integers(-(2**15), 2**15 - 1),
    "int": st.integers(-(2**31), 2**31 - 1),
    "big": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "flag": st.booleans(),
    "text": st.text(max_size=40),
    "bytes": st.binary(max_size=40),
    "day": st.dates(),
    "at": st.datetimes(),
    "at_ms": st.datetimes().map(lambda at: at.replace(microsecond=at.microsecond // 1000 * 1000)),
    "at_s": st.datetimes().map(lambda at: at.replace(microsecond=0)),
}


@settings(max_examples=100, deadline=None)
@given(st.integers(-(2**63), 2**63 - 1), st.text(), st.integers(-(2**31), 2**31 - 1), st.integers(1, 5000))
def test_a_single_key_lies_in_the_bucket_of_its_column(a: int, b: str, c: int, buckets: int) -> None:
    batch = pa.RecordBatch.from_pylist([{"a": a, "b": b, "c": c}], KEYS)
    for names in (["a"], ["b"], ["c"], ["b", "a", "c"]):
        [key] = encode_keys(batch, names).to_list()
        assert bucket_of_key(key, buckets) == bucket_of(batch, names, buckets)[0]


@settings(max_examples=100, deadline=None)
@given(st.fixed_dictionaries({name: st.none() | value for name, value in VALUES.items()}))
def test_a_row_read_from_its_buffers_is_what_arrow_reads(row: dict[str, Any]) -> None:
    batch = pa.RecordBatch.from_pylist([row], ROW)
    reader = RowValues.of(ROW)
    assert reader is not None
    assert reader.read(encode(batch, schema_id=3), 3) == batch.to_pylist()[0]
    compressed = encode(batch, schema_id=3, compression="ZSTD")
    assert reader.read(compressed, 3) == batch.to_pylist()[0]


def test_a_slice_of_a_batch_is_read_as_its_row() -> None:
    rows = [dict.fromkeys(ROW.names) | {"text": f"t{n}", "flag": n % 2 == 0} for n in range(9)]
    batch = pa.RecordBatch.from_pylist(rows, ROW)
    reader = RowValues.of(ROW)
    assert reader is not None
    for number in range(9):
        assert reader.read(encode(batch.slice(number, 1), schema_id=1), 1) == rows[number]


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_a_damaged_answer_is_refused(data: st.DataObject) -> None:
    row = {"tiny": 1, "text": "some text", "bytes": b"abc", "double": 0.5}
    whole = encode(pa.RecordBatch.from_pylist([row], ROW), schema_id=1)
    position = data.draw(st.integers(25, len(whole) - 1))  # before that lies what no checksum covers
    whole[position] ^= 1 << data.draw(st.integers(0, 7))
    reader = RowValues.of(ROW)
    assert reader is not None
    with pytest.raises(Corrupt):
        reader.read(whole, 1)


def test_more_rows_than_one_are_refused() -> None:
    batch = pa.RecordBatch.from_pylist([{"int": 1}, {"int": 2}], ROW)
    reader = RowValues.of(ROW)
    assert reader is not None
    with pytest.raises(MalformedBatch, match="one row"):
        reader.read(encode(batch, schema_id=1), 1)


def test_other_types_have_no_quick_way() -> None:
    zoned = pa.timestamp("us", "UTC")
    for kind in (pa.time32("s"), pa.list_(pa.int32()), pa.decimal128(10, 2), pa.timestamp("ns"), zoned):
        assert RowValues.of(pa.schema([("x", kind)])) is None


@pytest.mark.parametrize(
    "kind",
    [
        pa.int8(),
        pa.float64(),
        pa.bool_(),
        pa.string(),
        pa.binary(),
        pa.binary(4),
        pa.date32(),
        pa.decimal128(20, 3),
        pa.timestamp("us", "UTC"),
        pa.time32("ms"),
        pa.list_(pa.field("element", pa.string(), nullable=False)),
        pa.map_(pa.string(), pa.int32()),
        pa.struct([pa.field("a", pa.int32(), nullable=False), pa.field("b", pa.list_(pa.int8()))]),
    ],
)
@pytest.mark.parametrize("rows", [0, 1, 9])
def test_blanks_are_valid_columns_without_forbidden_nulls(kind: pa.DataType, rows: int) -> None:
    for nullable in (True, False):
        array = blanks(pa.field("x", kind, nullable=nullable), rows)
        array.validate(full=True)
        assert (len(array), array.null_count, array.type) == (rows, rows if nullable else 0, kind)
