"""Hashes over columns depend only on the values' bytes, wherever they lie, and are bijections where promised."""

from __future__ import annotations

import datetime as dt
import struct
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strom.errors import InvalidTable
from strom.kv.gather.column_source import ColumnSource, kinds_of, source_of
from strom.kv.index.hashing import Hasher

SMALL = [
    (pa.bool_(), [True, False]),
    (pa.int8(), [0, 1, -1, -128, 127]),
    (pa.int16(), [0, 1, -1, 256]),
    (pa.int32(), [0, 1, -1, 2**31 - 1, -(2**31)]),
    (pa.int64(), [0, 1, -1, 2**63 - 1, -(2**63)]),
    (pa.float32(), [0.0, -0.0, 1.5, float("nan"), float("inf")]),
    (pa.float64(), [0.0, -0.0, 1.5, float("nan"), float("inf")]),
    (pa.date32(), [dt.date(1970, 1, 1), dt.date(2024, 2, 29), dt.date(1900, 1, 1)]),
    (pa.time32("ms"), [dt.time(0), dt.time(23, 59, 59)]),
    (pa.time64("us"), [dt.time(0), dt.time(23, 59, 59)]),
    (pa.timestamp("us"), [dt.datetime(1970, 1, 1), dt.datetime(2030, 1, 1), dt.datetime(1960, 1, 1)]),
    (pa.binary(3), [b"abc", b"abd", b"\0\0\0"]),
]
LARGE = [
    (pa.string(), ["", "a", "\0", "a\0", "abcdefgh", "abcdefghi", "x" * 100]),
    (pa.binary(), [b"", b"\0", b"\0\0", b"\0" * 8, b"\0" * 16]),
    (pa.decimal128(38, 2), [Decimal("0.00"), Decimal("1.00"), Decimal("-1.00"), Decimal(2**90)]),
    (pa.binary(9), [b"\0" * 9, b"\0" * 8 + b"\1"]),
]


def _batch(*columns: pa.Array) -> pa.RecordBatch:
    return pa.record_batch(list(columns), [str(at) for at in range(len(columns))])


def _hash(batch: pa.RecordBatch, seed: int = 0) -> list[int]:
    return Hasher(kinds_of(batch.schema), range(batch.num_columns), seed).hash(batch).tolist()


@pytest.mark.parametrize(
    ("kind", "values"), SMALL + LARGE, ids=lambda v: str(v) if isinstance(v, pa.DataType) else ""
)
def test_different_values_and_null_have_different_hashes(kind: pa.DataType, values: list[object]) -> None:
    batch = _batch(pa.array([*values, None], kind))
    assert len(set(_hash(batch))) == len(values) + 1
    assert Hasher(kinds_of(batch.schema), [0]).bijective == any(kind == small for small, _ in SMALL)
    assert set(_hash(batch)).isdisjoint(_hash(batch, seed=0xFEDCBA9876543210))


@pytest.mark.parametrize(
    ("kind", "values"), SMALL + LARGE, ids=lambda v: str(v) if isinstance(v, pa.DataType) else ""
)
def test_a_hash_does_not_depend_on_where_the_row_stands(kind: pa.DataType, values: list[object]) -> None:
    array = pa.array([*values, None] * 3, kind)
    whole = _hash(_batch(array))
    for start in range(len(array)):
        assert _hash(_batch(array.slice(start))) == whole[start:]
        assert _hash(_batch(array.slice(start, 1).take([0]))) == whole[start : start + 1]


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(
        st.tuples(st.text(max_size=9), st.integers(0, 3), st.binary(max_size=9)), min_size=1, max_size=30
    )
)
def test_composite_keys_are_equal_exactly_when_their_hashes_are(rows: list[tuple[str, int, bytes]]) -> None:
    one, two, three = zip(*rows, strict=True)
    hashes = _hash(_batch(pa.array(one), pa.array(two, pa.int16()), pa.array(three)))
    assert len(set(hashes)) == len(set(rows))
    assert dict(zip(rows, hashes, strict=True)) == dict(zip(reversed(rows), reversed(hashes), strict=True))


def test_where_one_column_ends_and_the_next_begins_is_part_of_the_hash() -> None:
    left, right = pa.array(["ab", "a", "", "abc"]), pa.array(["c", "bc", "abc", ""])
    assert len(set(_hash(_batch(left, right)))) == 4


@given(
    keys=st.lists(st.tuples(st.integers(-(2**31), 2**31 - 1), st.booleans(), st.integers(0, 255)), min_size=1)
)
@settings(max_examples=50, deadline=None)
def test_packed_columns_are_a_bijection(keys: list[tuple[int, bool, int]]) -> None:
    numbers, flags, small = zip(*keys, strict=True)
    batch = _batch(pa.array(numbers, pa.int32()), pa.array(flags), pa.array(small, pa.uint8()))
    assert Hasher(kinds_of(batch.schema), [0, 1, 2]).bijective
    hashes = _hash(batch)
    assert len(set(hashes)) == len(set(keys))
    packed = [n % 2**32 | int(f) << 32 | s << 40 for n, f, s in keys]
    assert hashes == [_mixed(word) for word in packed], "undone by whoever knows the function"


def _mixed(word: int) -> int:
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        word = (word ^ word >> 33) * factor % 2**64
    return word ^ word >> 33


def test_floats_are_their_bit_patterns() -> None:
    patterns = [0x7FF8000000000000, 0x7FF8000000000001, 0xFFF8000000000000, 0, 1 << 63]
    values = pa.Array.from_buffers(pa.float64(), 5, [None, pa.py_buffer(struct.pack("<5Q", *patterns))])
    assert _hash(_batch(values)) == [_mixed(word) for word in patterns]


def test_hashes_of_small_numbers_spread_over_all_bits() -> None:
    for batch in (_batch(pa.array(range(4096))), _batch(pa.array([f"user-{i}" for i in range(4096)]))):
        hashes = np.array(_hash(batch), np.uint64)
        for bits in (
            hashes >> np.uint64(54),
            hashes & np.uint64(1023),
            hashes >> np.uint64(20) & np.uint64(1023),
        ):
            counts = np.bincount(bits.astype(np.int64), minlength=1024)
            assert counts.max() < 20
            assert (counts == 0).sum() < 60


def test_only_the_chosen_columns_count_and_a_nested_one_cannot_be_chosen() -> None:
    batch = _batch(pa.array([1, 2]), pa.array(["a", "a"]), pa.array([[1], [2]]))
    first, second = Hasher(kinds_of(batch.schema), [1]).hash(batch)
    assert first == second
    with pytest.raises(InvalidTable):
        Hasher(kinds_of(batch.schema), [2])


def test_a_column_that_was_not_verified_is_verified_before_it_is_read() -> None:
    batch = _batch(pa.array([1, 2, 3]), pa.array(["a", "b", "c"]))
    source, checked = source_of(batch, kinds_of(batch.schema)), list[int]()
    guarded = ColumnSource(
        source.rows, source.addresses, source.keep, None, np.array([1, 0], np.uint8), checked.append
    )
    hashes = Hasher(kinds_of(batch.schema), [0]).hash(guarded)
    assert checked == []
    assert Hasher(kinds_of(batch.schema), [0]).hash(guarded, 2).tolist() == hashes[:2].tolist()
    Hasher(kinds_of(batch.schema), [1]).hash(guarded)
    assert checked == [1]


def test_no_rows_have_no_hashes() -> None:
    assert _hash(_batch(pa.array([], pa.string()))) == []
