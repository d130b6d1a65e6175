"""Keys as bytes: different keys differ, none is empty, and values of a wider type find their way back."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strom.errors import InvalidRequest
from strom.model import data_type as types
from strom.spark.joins.key_bytes import arrow_of, common_type, decoded, encoded, fitting

texts = st.text(max_size=4)
keys = st.lists(st.tuples(texts, st.integers(-(2**63), 2**63 - 1), st.binary(max_size=3)), max_size=20)


def columns(rows: list[tuple[str, int, bytes]]) -> list[pa.Array]:
    kinds = (pa.string(), pa.int64(), pa.binary())
    return [pa.array([row[at] for row in rows], kind) for at, kind in enumerate(kinds)]


@settings(max_examples=100, deadline=None)
@given(rows=keys)
def test_two_keys_have_the_same_bytes_only_when_they_are_the_same(rows: list[tuple[str, int, bytes]]) -> None:
    found = encoded(columns(rows)).to_pylist()
    assert all(found)
    for one, name in zip(rows, found, strict=True):
        for other, other_name in zip(rows, found, strict=True):
            assert (one == other) == (name == other_name)


@settings(max_examples=100, deadline=None)
@given(rows=keys, first=st.sampled_from([None, 0, 2]), skipped=st.integers(0, 3))
def test_keys_are_read_back(rows: list[tuple[str, int, bytes]], first: int | None, skipped: int) -> None:
    given_columns = columns(rows)
    names = encoded(given_columns, first).slice(skipped)
    found = decoded(names, [one.type for one in given_columns], skip=0 if first is None else 1)
    assert [one.to_pylist() for one in found] == [one.slice(skipped).to_pylist() for one in given_columns]


def test_keys_of_every_fixed_width_are_read_back() -> None:
    day, time = dt.date(2026, 11, 16), dt.datetime(2026, 11, 16, 9, tzinfo=dt.UTC)
    given_columns = [
        pa.array([True, False]),
        pa.array([day, day]),
        pa.array([time, time], pa.timestamp("us", "UTC")),
        pa.array([Decimal("1.50"), Decimal("-2.25")], pa.decimal128(10, 2)),
    ]
    found = decoded(encoded(given_columns), [one.type for one in given_columns])
    assert found == given_columns


@pytest.mark.parametrize(
    ("kind", "value", "arrow"),
    [
        (types.TinyInt(), -1, pa.int8()),
        (types.BigInt(), -1, pa.int64()),
        (types.Char(2), "ab", pa.string()),
        (types.Binary(2), b"ab", pa.binary()),
        (types.Time(0), dt.time(9, 30), pa.time64("ns")),
        (types.Timestamp(3), dt.datetime(2026, 11, 16, 9), pa.timestamp("us")),
        (types.String(), "ä", pa.string()),
        (types.Bytes(), b"\0", pa.binary()),
        (types.Boolean(), True, pa.bool_()),
        (types.Date(), dt.date(2026, 11, 16), pa.date32()),
        (types.Decimal(12, 2), Decimal("-1.25"), pa.decimal128(12, 2)),
        (types.Timestamp(6), dt.datetime(2026, 11, 16, 9), pa.timestamp("us")),
        (types.TimestampLtz(6), dt.datetime(2026, 11, 16, 9, tzinfo=dt.UTC), pa.timestamp("us", "UTC")),
    ],
)
def test_a_key_is_read_back_as_spark_passes_a_column_of_its_type(
    kind: types.DataType, value: Any, arrow: pa.DataType
) -> None:
    assert arrow_of(kind) == arrow
    (found,) = decoded(encoded([pa.array([value], arrow)]), [arrow_of(kind)])
    assert found.to_pylist() == [value]


@pytest.mark.parametrize("name", [b"", b"\x01", b"\xff\xff\xff\xffabcd", b"\x05\0\0\0abcd"])
def test_bytes_that_are_no_key_are_told(name: bytes) -> None:
    with pytest.raises(InvalidRequest, match="rebuild=True"):
        decoded(pa.array([name], pa.binary()), [pa.string()])
    whole = b"\x04\0\0\0abcd"
    with pytest.raises(InvalidRequest, match="rebuild=True"):
        decoded(pa.array([whole, name, whole], pa.binary()), [pa.string()])


def test_an_empty_text_is_a_key_and_not_an_empty_one() -> None:
    assert encoded([pa.array([""])]).to_pylist() == [b"\0\0\0\0"]
    assert encoded([pa.array(["", "a"])], 0).to_pylist() == [b"\0\0\0\0\0", b"\0\1\0\0\0a"]


def test_a_slice_has_the_keys_of_its_own_rows() -> None:
    whole = pa.array([1, 2, 3, 4])
    assert encoded([whole.slice(2)]).to_pylist() == encoded([whole]).to_pylist()[2:]
    flags = pa.array([True, False, True])
    assert encoded([flags.slice(1)]).to_pylist() == [b"\0", b"\1"]


@pytest.mark.parametrize(
    ("left", "right", "common"),
    [
        (types.Int(), types.BigInt(), types.BigInt()),
        (types.TinyInt(), types.SmallInt(), types.BigInt()),
        (types.Char(3), types.String(), types.String()),
        (types.Binary(3), types.Bytes(), types.Bytes()),
        (types.Decimal(10, 2), types.Decimal(12, 4), types.Decimal(12, 4)),
        (types.Int(), types.Decimal(5, 2), types.Decimal(12, 2)),
        (types.Timestamp(3), types.Timestamp(6), types.Timestamp(6)),
        (types.Date(), types.Date(), types.Date()),
    ],
)
def test_types_that_can_be_compared_have_a_common_one(
    left: types.DataType, right: types.DataType, common: types.DataType
) -> None:
    assert common_type(left, right) == common
    assert common_type(right, left) == common


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (types.String(), types.BigInt()),
        (types.Double(), types.Double()),
        (types.Timestamp(6), types.TimestampLtz(6)),
        (types.Timestamp(9), types.Timestamp(9)),
        (types.Decimal(38, 0), types.Decimal(38, 20)),
        (types.Bytes(), types.String()),
    ],
)
def test_types_that_cannot_be_compared_are_refused(left: types.DataType, right: types.DataType) -> None:
    with pytest.raises(InvalidRequest, match="cannot be a join key"):
        common_type(left, right)


@pytest.mark.parametrize(
    ("values", "wide", "own", "held"),
    [
        ([1, 2**40, -(2**31)], pa.int64(), pa.int32(), [1, None, -(2**31)]),
        (
            [Decimal("1.2300"), Decimal("1.2345"), Decimal("999.0000"), Decimal("-1000.0000")],
            pa.decimal128(14, 4),
            pa.decimal128(5, 2),
            [Decimal("1.23"), None, Decimal("999.00"), None],
        ),
        ([Decimal("7.00"), Decimal("7.10")], pa.decimal128(12, 2), pa.int32(), [7, None]),
        # Three digits, and still no TINYINT: it must not become -56.
        (
            [Decimal(200), Decimal(-56), Decimal(127), Decimal(-129)],
            pa.decimal128(10, 0),
            pa.int8(),
            [None, -56, 127, None],
        ),
        ([Decimal(2**63), Decimal(2**63 - 1)], pa.decimal128(20, 0), pa.int64(), [None, 2**63 - 1]),
        # Rounded up it would have more digits than the column.
        (
            [Decimal("999.99"), Decimal("999.00")],
            pa.decimal128(5, 2),
            pa.decimal128(3, 0),
            [None, Decimal(999)],
        ),
        ([b"abc", b"abcd", b"", b"abcde"], pa.binary(), pa.binary(4), [None, b"abcd", None, None]),
        (
            [dt.datetime(2026, 1, 1, 0, 0, 0, 1000), dt.datetime(2026, 1, 1, 0, 0, 0, 1)],
            pa.timestamp("us"),
            pa.timestamp("ms"),
            [dt.datetime(2026, 1, 1, 0, 0, 0, 1000), None],
        ),
    ],
)
def test_a_value_that_a_side_cannot_hold_has_no_row_there(
    values: list[Any], wide: pa.DataType, own: pa.DataType, held: list[Any]
) -> None:
    column, kept = fitting(pa.array(values, wide), own)
    assert column.type == own
    assert kept is not None
    assert [value if keep else None for value, keep in zip(column.to_pylist(), kept, strict=True)] == held
