"""Buckets: the vectorised rule equals the plain one, and both equal what pyfluss does."""

from __future__ import annotations

import json
import struct
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model.each_key import each_key
from strategies import record_batches, scalar_types
from strom.errors import SchemaMismatch
from strom.model import bucketing
from strom.model import types as t
from strom.model.bucketing import bucket_of, hash_keys
from strom.model.keys import EncodedKeys, encode_keys

PEER = json.loads((Path(__file__).parent / "peer_keys.json").read_text())
"""Values of every key type with the bucket (of 16) that pyfluss 1.0.0 wrote them to."""

NOT_NULL = scalar_types(nullable=False)
MASK = 0xFFFFFFFF


# --- the plain rule, row by row ------------------------------------------------------------------------------


def leb128(value: int) -> bytes:
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def int_bytes(value: int) -> bytes:
    return leb128(value & MASK)


def bigint_bytes(value: int) -> bytes:
    return leb128(value & (2**64 - 1))


def two_complement(value: int) -> bytes:
    size = (value.bit_length() if value >= 0 else (value + 1).bit_length()) // 8 + 1
    return value.to_bytes(size, "big", signed=True)


def field_bytes(scalar: pa.Scalar, data_type: t.DataType) -> bytes:
    """One value of a key, as the peer's page says; ``scalar`` is of the column's Arrow type."""
    match data_type:
        case t.Boolean():
            return bytes([scalar.as_py()])
        case t.TinyInt():
            return struct.pack("<b", scalar.as_py())
        case t.SmallInt():
            return struct.pack("<h", scalar.as_py())
        case t.Float():
            return struct.pack("<f", scalar.as_py())
        case t.Double():
            return struct.pack("<d", scalar.as_py())
        case t.Int():
            return int_bytes(scalar.as_py())
        case t.BigInt():
            return bigint_bytes(scalar.as_py())
        case t.Date():
            return int_bytes(scalar.value)
        case t.Time():
            return int_bytes(scalar.value * 1000 // per_second(data_type))
        case t.Timestamp() | t.TimestampLtz():
            nanos = scalar.value * (10**9 // per_second(data_type))
            millis, finer = divmod(nanos, 10**6)
            return bigint_bytes(millis) + (int_bytes(finer) if data_type.precision > 3 else b"")
        case t.Decimal():
            sign, digits, _ = scalar.as_py().as_tuple()
            unscaled = int("".join(map(str, digits))) * (-1 if sign else 1)
            if data_type.precision <= 18:
                return bigint_bytes(unscaled)
            return with_length(two_complement(unscaled))
        case t.String() | t.Char():
            return with_length(scalar.as_py().encode())
        case _:
            return with_length(scalar.as_py())


def per_second(data_type: Any) -> int:
    return {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[data_type.unit]


def with_length(value: bytes) -> bytes:
    return leb128(len(value)) + value


def rotated(value: int, bits: int) -> int:
    return (value << bits | value >> (32 - bits)) & MASK


def mixed(found: int, word: int) -> int:
    word = rotated(word * 0xCC9E2D51 & MASK, 15) * 0x1B873593 & MASK
    return (rotated(found ^ word, 13) * 5 + 0xE6546B64) & MASK


def finished(value: int) -> int:
    value = (value ^ value >> 16) * 0x85EBCA6B & MASK
    value = (value ^ value >> 13) * 0xC2B2AE35 & MASK
    return value ^ value >> 16


def hashed(key: bytes) -> int:
    found = 42
    whole = len(key) // 4 * 4
    for i in range(0, whole, 4):
        found = mixed(found, int.from_bytes(key[i : i + 4], "little"))
    for byte in key[whole:]:
        found = mixed(found, byte)
    return finished(found ^ len(key))


def bucket(key: bytes, buckets: int) -> int:
    value = finished(mixed(0, hashed(key)) ^ 4)
    signed = value - 2**32 if value >= 2**31 else value
    return (0 if signed == -(2**31) else abs(signed)) % buckets


# --- what holds ----------------------------------------------------------------------------------------------


@settings(max_examples=100, deadline=None)
@given(st.lists(NOT_NULL, min_size=1, max_size=3), st.integers(2, 4096), st.data())
def test_whole_columns_are_encoded_and_bucketed_as_row_by_row(
    kinds: list[t.DataType], buckets: int, data: st.DataObject
) -> None:
    names = [f"k{i}" for i in range(len(kinds))]
    schema = pa.schema([pa.field(n, k.to_arrow(), False) for n, k in zip(names, kinds, strict=True)])
    batch = data.draw(record_batches(schema))
    expected = [
        b"".join(field_bytes(batch.column(i)[row], kind) for i, kind in enumerate(kinds))
        for row in range(batch.num_rows)
    ]
    assert each_key(encode_keys(batch, names)) == expected
    assert bucket_of(batch, names, buckets).tolist() == [bucket(key, buckets) for key in expected]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.binary(min_size=1, max_size=40), max_size=20))
def test_keys_of_any_lengths_hash_as_one_by_one(keys: list[bytes]) -> None:
    starts = np.cumsum([0, *map(len, keys)], dtype=np.int64)
    encoded = EncodedKeys(np.frombuffer(b"".join(keys), np.uint8), starts)
    assert hash_keys(encoded).tolist() == [hashed(key) for key in keys]


@pytest.mark.parametrize("sql", PEER)
def test_every_key_type_goes_to_the_bucket_that_pyfluss_chooses(sql: str) -> None:
    data_type = t.parse(sql)
    batch = pa.record_batch([peer_column(data_type, PEER[sql]["values"])], names=["k"])
    assert bucket_of(batch, ["k"], 16).tolist() == PEER[sql]["buckets"]
    expected = [bucket(field_bytes(value, data_type), 16) for value in batch.column("k")]
    assert expected == PEER[sql]["buckets"]


def test_every_type_that_can_be_a_key_is_among_the_peers_values() -> None:
    assert {type(t.parse(sql)) for sql in PEER} == {*t.SCALARS} - {t.Char}


def peer_column(data_type: t.DataType, values: list[Any]) -> pa.Array:
    if isinstance(data_type, t.Bytes | t.Binary):
        values = [bytes.fromhex(value) for value in values]
    elif isinstance(data_type, t.Decimal):
        values = [Decimal(value) for value in values]
    return pa.array(values, data_type.to_arrow())


@pytest.mark.parametrize(
    ("sql", "value", "expected"),
    [
        ("INT", 128, "8001"),
        ("INT", -1, "ffffffff0f"),
        ("STRING", "hello", "0568656c6c6f"),
        ("DECIMAL(10, 2)", Decimal("123.45"), "b960"),
        ("SMALLINT", -2, "feff"),
    ],
)
def test_the_examples_of_the_format_are_encoded_to_the_letter(sql: str, value: Any, expected: str) -> None:
    batch = pa.record_batch([pa.array([value], t.parse(sql).to_arrow())], names=["k"])
    assert each_key(encode_keys(batch, ["k"])) == [bytes.fromhex(expected)]


def test_many_rows_are_bucketed_in_chunks_without_seams() -> None:
    count = bucketing.CHUNK_ROWS * 2 + 7
    batch = pa.record_batch({"k": pa.array([f"key {i}" * (i % 5) for i in range(count)])})
    found = bucket_of(batch, ["k"], 7)
    for row in [0, bucketing.CHUNK_ROWS - 1, bucketing.CHUNK_ROWS, count - 1]:
        assert found[row] == bucket(with_length(batch["k"][row].as_py().encode()), 7)
    assert set(found.tolist()) == set(range(7))


def test_one_long_key_among_short_ones_costs_no_more_than_its_bytes() -> None:
    keys = ["a"] * 1000 + ["b" * 100_000]
    found = bucket_of(pa.record_batch({"k": pa.array(keys)}), ["k"], 16)
    assert found[-1] == bucket(with_length(keys[-1].encode()), 16)


def test_the_one_number_without_an_absolute_value_counts_as_zero() -> None:
    values = np.array([0, 5, 0x7FFFFFFF, 0x80000000, 0x80000001, 0xFFFFFFFF], np.uint32)
    assert bucketing._positive(values).tolist() == [0, 5, 0x7FFFFFFF, 0, 0x7FFFFFFF, 1]


def test_one_bucket_needs_no_key() -> None:
    batch = pa.record_batch({"k": pa.array([1, None])})
    assert bucket_of(batch, ["k"], 1).tolist() == [0, 0]


def test_null_in_a_key_and_a_nested_key_are_refused() -> None:
    with pytest.raises(SchemaMismatch, match="NULL"):
        bucket_of(pa.record_batch({"k": pa.array([1, None])}), ["k"], 2)
    with pytest.raises(SchemaMismatch, match="part of a key"):
        bucket_of(pa.record_batch({"k": pa.array([[1]])}), ["k"], 2)
