"""Minimum, maximum and nulls of a batch's columns."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings

from record.batches import encoded, resealed, scalar_batches
from strom.model.filters.predicate_literals import order_key
from strom.record import layout as at
from strom.record.aligned_row import slot_of
from strom.record.batch import check, read_header
from strom.record.columns import ColumnLayout
from strom.record.statistics import ColumnStatistics, compute, holds, read


def physical(column: pa.Array) -> list[object]:
    """The values as statistics have them: numbers for times, bytes for text."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        column = column.view(pa.int64())
    elif pa.types.is_date(kind) or pa.types.is_time32(kind):
        column = column.view(pa.int32())
    elif pa.types.is_string(kind):
        column = column.view(pa.binary())
    return [value for value in column.to_pylist() if value is not None]


def known(batch: pa.RecordBatch, wanted: object = None) -> dict[int, ColumnStatistics]:
    view = encoded(batch, statistics=range(batch.num_columns))
    return read(view, batch.schema, range(batch.num_columns) if wanted is None else wanted)


def one(values: list[object], kind: pa.DataType) -> ColumnStatistics | None:
    return known(pa.record_batch({"c": pa.array(values, kind)})).get(0)


@settings(max_examples=60, deadline=None)
@given(scalar_batches())
def test_statistics_are_the_minimum_maximum_and_nulls_of_every_column(batch: pa.RecordBatch) -> None:
    found = known(batch)
    for position, column in enumerate(batch.columns):
        values = sorted(physical(column), key=order_key)
        if position not in found:
            too_long = any(isinstance(value, bytes) and len(value) > 64 for value in (values or [0]))
            seconds = pa.types.is_timestamp(column.type) and column.type.unit == "s"
            assert pa.types.is_time64(column.type) or too_long or seconds
            continue
        minimum, maximum, nulls = found[position]
        assert nulls == column.null_count
        if not values:
            assert (minimum, maximum) == (None, None)
            continue
        assert order_key(minimum) == order_key(values[0])
        assert order_key(maximum) == order_key(values[-1])


@pytest.mark.parametrize("rows", [1, 2, 1000])
@pytest.mark.parametrize("nulls", [False, True])
@pytest.mark.parametrize("text", ["même", "wider and wider"])
def test_texts_of_one_length_and_of_many_are_compared_by_their_bytes(
    rows: int, nulls: bool, text: str
) -> None:
    values: list[object] = [f"{chr(0x61 + i * 7919 % 200)}{text[: 1 + i % len(text)]}" for i in range(rows)]
    if nulls:
        values.append(None)
    found = one(values, pa.string())
    real = sorted(value.encode() for value in values if value is not None)
    assert found == ColumnStatistics(real[0], real[-1], int(nulls))


def test_records_of_one_width_are_compared_as_unsigned_bytes() -> None:
    found = one([b"\x80\x00", b"\x7f\xff", b"\x00\x00", b"\x00\x01"], pa.binary(2))
    assert found == ColumnStatistics(b"\x00\x00", b"\x80\x00", 0)
    assert one(["b\0", "a\0", "a\0"], pa.string()) == ColumnStatistics(b"a\0", b"b\0", 0)


@pytest.mark.parametrize("width", range(1, 18))
def test_records_of_every_width_are_compared_by_their_bytes(width: int) -> None:
    noise = np.random.default_rng(width).bytes(width * 500)
    records = [noise[i : i + width] for i in range(0, len(noise), width)]
    for kind in (pa.binary(width), pa.binary()):
        assert one(records, kind) == ColumnStatistics(min(records), max(records), 0)
        sliced = pa.record_batch({"c": pa.array(records, kind)}).slice(3, 400)
        assert known(sliced)[0] == ColumnStatistics(min(records[3:403]), max(records[3:403]), 0)


def test_nan_is_the_largest_number() -> None:
    for kind in (pa.float32(), pa.float64()):
        found = one([1.5, math.nan, -2.0], kind)
        assert found is not None
        assert found.minimum == -2.0
        assert math.isnan(found.maximum)
        alone = one([math.nan, math.nan, None], kind)
        assert alone is not None
        assert math.isnan(alone.minimum)
        assert math.isnan(alone.maximum)


def test_a_column_of_nulls_has_no_bounds() -> None:
    assert one([None, None], pa.int32()) == ColumnStatistics(None, None, 2)


@pytest.mark.parametrize(
    ("kind", "value", "comparable"),
    [
        (pa.bool_(), True, True),
        (pa.int8(), -128, -128),
        (pa.int64(), -(2**63), -(2**63)),
        (pa.date32(), dt.date(1969, 12, 31), -1),
        (pa.time32("s"), dt.time(1, 0, 1), 3601),
        (pa.time32("ms"), dt.time(0, 0, 1, 5000), 1005),
        (pa.timestamp("s"), dt.datetime(1969, 12, 31, 23, 59, 59), -1),
        (pa.timestamp("ms", "UTC"), dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=dt.UTC), 1000),
        (pa.timestamp("us"), dt.datetime(1969, 12, 31, 23, 59, 59, 999_999), -1),
        (pa.timestamp("ns"), dt.datetime(2024, 1, 1), 1_704_067_200_000_000_000),
        (pa.decimal128(18, 2), Decimal("-0.01"), Decimal("-0.01")),
        (pa.decimal128(38, 10), Decimal("9999999999999999999999999999.9999999999"), None),
        (pa.decimal128(38, 0), Decimal("-170141183460469231731687303715884105"), None),
        (pa.string(), "seven b", b"seven b"),
        (pa.string(), "eight by", b"eight by"),
        (pa.string(), "", b""),
        (pa.binary(), b"\xff" * 64, b"\xff" * 64),
    ],
    ids=str,
)
def test_a_value_survives_its_slot(kind: pa.DataType, value: object, comparable: object) -> None:
    expected = value if comparable is None else comparable
    assert one([value], kind) == ColumnStatistics(expected, expected, 0)


def test_bounds_that_would_mislead_are_left_out() -> None:
    assert one(["x" * 65, "a"], pa.string()) is None
    assert one([dt.time(1)], pa.time64("us")) is None
    assert one([2**62], pa.timestamp("s")) is None
    assert one([[1]], pa.list_(pa.int8())) is None


def test_only_wanted_columns_are_read() -> None:
    batch = pa.record_batch({f"c{i}": pa.array([i]) for i in range(100)})
    assert known(batch, {3, 77, 1000}) == {3: ColumnStatistics(3, 3, 0), 77: ColumnStatistics(77, 77, 0)}


def test_a_batch_without_statistics_says_nothing() -> None:
    batch = pa.record_batch({"a": pa.array([1])})
    assert read(encoded(batch), batch.schema, [0]) == {}
    assert compute(pa.record_batch({"a": pa.array([[1]])}), [0]) == b""
    nested = pa.record_batch({"a": pa.array([[1]])})
    assert read_header(encoded(nested, statistics=[0])).magic == at.MAGIC_PLAIN


def test_only_the_head_of_a_batch_is_needed() -> None:
    batch = pa.record_batch({"a": pa.array([1, 2])})
    view = encoded(batch, statistics=[0])
    head = view[: read_header(view).records_position]
    assert read(head, batch.schema, [0]) == {0: ColumnStatistics(1, 2, 0)}


def test_statistics_in_the_peers_bytes_are_read() -> None:
    """Written out by hand from the format: INT 1..9 without nulls, STRING 'a' .. 'longer than seven' with one."""
    row = lambda number, slot, tail=b"": (  # noqa: E731
        bytes(8) + number.to_bytes(4, "little") + bytes(4) + slot + tail
    )
    low = row(1, b"a" + bytes(6) + b"\x81")
    high = row(9, (17).to_bytes(4, "little") + (24).to_bytes(4, "little"), b"longer than seven" + bytes(7))
    block = b"\x01" + b"\x02\x00" + b"\x00\x00\x01\x00" + bytes(4) + b"\x01\x00\x00\x00"
    block += len(low).to_bytes(4, "little") + low + len(high).to_bytes(4, "little") + high
    batch = pa.record_batch({"n": pa.array([1, 9, 3], pa.int32()), "s": ["a", "longer than seven", None]})
    assert compute(batch, [0, 1]) == block


@pytest.mark.parametrize("damage", range(60))
def test_damaged_statistics_say_less_but_never_fail(damage: int) -> None:
    batch = pa.record_batch({"n": pa.array([1, 9]), "s": ["a", "longer than seven"], "d": [1.0, 2.0]})
    view = encoded(batch, statistics=[0, 1, 2])
    rng = np.random.default_rng(damage)
    header = read_header(view)
    for _ in range(3):
        position = int(rng.integers(at.HEADER_SIZE[1], header.records_position))
        view[position] = int(rng.choice([0, 1, 0x7F, 0x80, 0xFF]))
    check(resealed(view), layout=ColumnLayout(batch.schema))
    assert read(view, batch.schema, [0, 1, 2]).keys() <= {0, 1, 2}
    cut = view[: header.records_position - damage]
    assert read(cut, batch.schema, [0, 1, 2], header=header).keys() <= {0, 1, 2}


def test_bounds_in_disorder_are_ignored() -> None:
    batch = pa.record_batch({"n": pa.array([1, 9])})
    view = encoded(batch, statistics=[0])
    at_low = at.HEADER_SIZE[1] + 3 + 2 + 4 + 4 + 8
    assert view[at_low] == 1
    view[at_low] = 10
    assert read(resealed(view), batch.schema, [0]) == {}


def test_types_without_order_have_no_slot() -> None:
    for kind in (pa.list_(pa.int8()), pa.struct([("a", pa.int8())]), pa.null(), pa.time64("us")):
        assert slot_of(kind) is None


def test_texts_whose_lengths_only_look_equal_are_compared_as_they_are() -> None:
    assert one(["bb", "a", "ccc"], pa.string()) == ColumnStatistics(b"a", b"ccc", 0)
    assert one(["bb", "bbx", "a"], pa.string()) == ColumnStatistics(b"a", b"bbx", 0)


@pytest.mark.parametrize(
    ("claim", "true"),
    [
        (ColumnStatistics(1, 3, 1), True),
        (ColumnStatistics(0, 9, 1), True),
        (ColumnStatistics(None, None, 1), True),
        (ColumnStatistics(2, 3, 1), False),
        (ColumnStatistics(1, 2, 1), False),
        (ColumnStatistics(1, 3, 0), False),
        (ColumnStatistics(1, 3, 2), False),
        (ColumnStatistics(None, None, 0), False),
    ],
)
def test_what_is_said_of_a_column_holds_when_nobody_who_goes_by_it_leaves_out_a_row(
    claim: ColumnStatistics, true: bool
) -> None:
    """A wrong number of NULLs hides rows as a wrong bound does: IS NULL, IS NOT NULL and whatever is never NULL."""
    assert holds(claim, pa.array([1, None, 3], pa.int64())) == true
