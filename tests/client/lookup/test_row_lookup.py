"""The shortcut for one key returns what the general way returns."""

from __future__ import annotations

import struct
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given, settings

from kv.plain_rows import plain
from model.each_key import each_key
from strom.client.input.filler_columns import filler
from strom.client.lookup.murmur import bucket_of_key
from strom.client.lookup.plain_row import PlainRow
from strom.errors import MalformedBatch
from strom.model.bucketing import bucket_of
from strom.model.keys import encode_keys

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
        [key] = each_key(encode_keys(batch, names))
        assert bucket_of_key(key, buckets) == bucket_of(batch, names, buckets)[0]


@settings(max_examples=100, deadline=None)
@given(st.fixed_dictionaries({name: st.none() | value for name, value in VALUES.items()}))
def test_a_plain_row_is_read_as_arrow_reads_its_values(row: dict[str, Any]) -> None:
    batch = pa.RecordBatch.from_pylist([row], ROW)
    reader = PlainRow.of(ROW)
    assert reader is not None
    content = plain(ROW, row)
    assert reader.read(content, 0) == batch.to_pylist()[0]
    assert reader.read(memoryview(b"head" + content), 4) == batch.to_pylist()[0]


@settings(max_examples=100, deadline=None)
@given(st.integers(-(2**63), 2**63 - 1), st.text(), st.integers(-(2**31), 2**31 - 1))
def test_a_key_is_written_as_the_page_says(a: int, b: str, c: int) -> None:
    assert PlainRow(KEYS).write([a, b.encode(), c]) == plain(KEYS, {"a": a, "b": b, "c": c})
    numbers = pa.schema([KEYS.field("a"), KEYS.field("c")])
    assert PlainRow(numbers).write([a, c]) == plain(numbers, {"a": a, "c": c})
    with pytest.raises(struct.error):
        PlainRow(numbers).write([2**63, c])


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=30))
def test_bytes_that_are_no_row_are_refused(content: bytes) -> None:
    schema = pa.schema([("number", pa.int16()), ("text", pa.string()), ("bytes", pa.binary())])
    reader = PlainRow.of(schema)
    assert reader is not None
    try:
        row = reader.read(content, 0)
    except MalformedBatch:
        return
    sizes = [int.from_bytes(content[at : at + 4], "little") for at in (3, 7)]
    assert len(content) == 11 + sum(sizes)
    assert set(row) == {"number", "text", "bytes"}


def test_days_that_python_does_not_know_are_left_to_arrow() -> None:
    reader = PlainRow.of(pa.schema([("day", pa.date32())]))
    assert reader is not None
    with pytest.raises((OverflowError, ValueError)):
        reader.read(b"\0" + struct.pack("<i", 2**30), 0)


def test_other_types_have_no_quick_way() -> None:
    zoned = pa.timestamp("us", "UTC")
    for kind in (pa.time32("s"), pa.list_(pa.int32()), pa.decimal128(10, 2), pa.timestamp("ns"), zoned):
        assert PlainRow.of(pa.schema([("x", kind)])) is None


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
def test_fillers_are_valid_columns_without_forbidden_nulls(kind: pa.DataType, rows: int) -> None:
    for nullable in (True, False):
        array = filler(pa.field("x", kind, nullable=nullable), rows)
        array.validate(full=True)
        assert (len(array), array.null_count, array.type) == (rows, rows if nullable else 0, kind)
