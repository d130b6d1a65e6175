"""The peer's rows: what pyfluss sent is read and written back byte for byte; malformed bytes raise typed errors."""

from __future__ import annotations

import struct

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kv.peer_case import Case
from kv.peer_rows import CASES
from model.each_key import each_key
from strategies import data_types, record_batches, same, scalar_types, schemas
from strom.errors import ChecksumMismatch, Corrupt, MalformedBatch, RecordTooLarge, SchemaMismatch, TornBatch
from strom.kv.peer_rows.kv_batch import HEADER_SIZE, KvBatch, parse
from strom.kv.peer_rows.row_decoder import KeyDecoder, RowDecoder
from strom.kv.peer_rows.row_encoder import RowEncoder
from strom.model.keys import encode_keys
from strom.model.types import DataType
from strom.model.types import parse as parse_type
from strom.record.checksum import crc32c

WRITER = 1
"""The id that the fake server gave."""


def schema_of(case: Case) -> pa.Schema:
    kinds = {name: parse_type(text) for name, text in case.columns.items()}
    return pa.schema([pa.field(name, kind.to_arrow(), kind.nullable) for name, kind in kinds.items()])


def sealed(body: bytes, count: int, schema_id: int = 1) -> bytes:
    rest = struct.pack("<hbqii", schema_id, 0, 7, 3, count) + body
    return struct.pack("<ibI", len(rest) + 5, 0, crc32c(rest)) + rest


def record(key: bytes, value: bytes) -> bytes:
    assert len(key) < 128
    return struct.pack("<ib", 1 + len(key) + len(value), len(key)) + key + value


def decoded(schema: pa.Schema, data: bytes, **options: bool) -> pa.RecordBatch:
    bounds = np.array([0, len(data)])
    found = RowDecoder(schema, **options).decode(np.frombuffer(data, np.uint8), bounds[:1], bounds[1:])
    found.validate(full=True)
    return found


def puts(batch: KvBatch, schema: pa.Schema) -> pa.RecordBatch:
    kept = ~batch.deletes
    return RowDecoder(schema).decode(batch.data, batch.key_ends[kept], batch.value_ends[kept])


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_the_peer_sent_is_read_as_it_was_meant(case: Case) -> None:
    batch = parse(bytes.fromhex(case.hex))
    assert (batch.schema_id, batch.writer_id, batch.batch_sequence) == (1, WRITER, 0)
    schema = schema_of(case)
    expected = pa.RecordBatch.from_pylist(case.rows, schema=schema)
    assert puts(batch, schema).equals(expected)
    assert int(batch.deletes.sum()) == len(case.deleted)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_same_bytes_come_back(case: Case) -> None:
    batch = parse(bytes.fromhex(case.hex))
    schema = schema_of(case)
    data, starts = RowEncoder(schema).encode(puts(batch, schema))
    kept = np.flatnonzero(~batch.deletes)
    sent = [batch.data[batch.key_ends[i] : batch.value_ends[i]].tobytes() for i in kept]
    assert [data[starts[i] : starts[i + 1]].tobytes() for i in range(len(kept))] == sent


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_keys_are_read_and_are_those_of_the_key_encoder(case: Case) -> None:
    batch = parse(bytes.fromhex(case.hex))
    schema = schema_of(case)
    keys = KeyDecoder(schema, case.key).decode(batch.data, batch.key_starts, batch.key_ends)
    wanted = [{name: row[name] for name in case.key} for row in (*case.rows, *case.deleted)]
    assert keys.equals(pa.RecordBatch.from_pylist(wanted, schema=keys.schema))
    sent = [batch.data[a:b].tobytes() for a, b in zip(batch.key_starts, batch.key_ends, strict=True)]
    assert each_key(encode_keys(keys, case.key)) == sent


def finer_than_the_peer(batch: pa.RecordBatch) -> bool:
    """Whether a batch has times finer than the peer's milliseconds, which its rows cannot carry."""
    return "time64" in str(batch.schema)


@settings(max_examples=100, deadline=None)
@given(schemas(data_types()).flatmap(lambda schema: record_batches(schema.to_arrow())), st.booleans())
def test_every_batch_comes_back_as_it_was(batch: pa.RecordBatch, prefixed: bool) -> None:
    if finer_than_the_peer(batch):
        return
    data, starts = RowEncoder(batch.schema).encode(batch, schema_id=5 if prefixed else None)
    skipped = 2 if prefixed else 0
    found = RowDecoder(batch.schema).decode(data, starts[:-1] + skipped, starts[1:])
    found.validate(full=True)
    assert same(found, batch)
    assert not prefixed or all(data[start : start + 2].tobytes() == b"\x05\x00" for start in starts[:-1])


@settings(max_examples=100, deadline=None)
@given(
    schemas(data_types()).flatmap(lambda schema: record_batches(schema.to_arrow())),
    st.data(),
)
def test_a_damaged_row_is_refused_or_read_as_something_valid(
    batch: pa.RecordBatch, draw: st.DataObject
) -> None:
    encoded = RowEncoder(batch.schema).encode(batch)
    data, starts = encoded.data.copy(), encoded.starts
    for _ in range(draw.draw(st.integers(1, 4))):
        if len(data):
            data[draw.draw(st.integers(0, len(data) - 1))] = draw.draw(st.integers(0, 255))
    cut = draw.draw(st.integers(0, 3))
    try:
        found = RowDecoder(batch.schema).decode(data, starts[:-1], np.maximum(starts[1:] - cut, starts[:-1]))
    except (MalformedBatch, RecordTooLarge, SchemaMismatch):
        assert batch.num_rows
        return
    found.validate(full=True)
    assert found.num_rows == batch.num_rows


@settings(max_examples=100, deadline=None)
@given(schemas(data_types()).map(lambda schema: schema.to_arrow()), st.binary(max_size=200), st.booleans())
def test_random_bytes_are_refused_or_read_as_something_valid(
    schema: pa.Schema, data: bytes, null_bits: bool
) -> None:
    try:
        found = decoded(schema, data, null_bits=null_bits)
    except (MalformedBatch, RecordTooLarge, SchemaMismatch):
        return
    assert found.num_rows == 1
    assert found.nbytes <= 1000 * (len(data) + 20)


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(CASES), st.data())
def test_a_damaged_batch_is_refused_or_holds_positions_within_it(case: Case, draw: st.DataObject) -> None:
    body = bytearray(bytes.fromhex(case.hex))
    for _ in range(draw.draw(st.integers(1, 4))):
        body[draw.draw(st.integers(9, len(body) - 1))] = draw.draw(st.integers(0, 255))
    struct.pack_into("<I", body, 5, crc32c(body[9:]))
    try:
        batch = parse(bytes(body))
    except Corrupt:
        return
    assert 0 <= batch.count <= len(body)
    if batch.count:
        assert batch.key_starts.min() > HEADER_SIZE
        assert batch.value_ends.max() <= len(body)
        assert (batch.key_starts <= batch.key_ends).all()
        assert (batch.key_ends <= batch.value_ends).all()


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=120), st.integers(-3, 30))
def test_random_records_are_refused_or_add_up(body: bytes, count: int) -> None:
    try:
        batch = parse(sealed(body, count))
    except Corrupt:
        return
    assert batch.count == count
    assert count == 0 or batch.value_ends[-1] == HEADER_SIZE + len(body)


def test_a_batch_that_lies_about_itself_is_refused() -> None:
    good = sealed(record(b"k", b"v") + record(b"l", b""), 2)
    batch = parse(good)
    assert batch.deletes.tolist() == [False, True]
    assert (batch.schema_id, batch.writer_id, batch.batch_sequence) == (1, 7, 3)
    with pytest.raises(TornBatch):
        parse(good[:20])
    with pytest.raises(MalformedBatch, match="came in"):
        parse(good + b"\0")
    with pytest.raises(MalformedBatch, match="magic"):
        parse(good[:4] + b"\x01" + good[5:])
    with pytest.raises(ChecksumMismatch):
        parse(good[:-1] + b"\x07")
    with pytest.raises(MalformedBatch, match="cannot hold"):
        parse(sealed(b"", 2**31 - 1))
    with pytest.raises(MalformedBatch, match="record 2"):
        parse(sealed(good[HEADER_SIZE:] + b"\0", 2))


WRONG_ROWS = [
    (pa.int32(), "00ffffffff1f", "33 bits"),
    (pa.int32(), "00ffffffffff01", "six bytes"),
    (pa.int64(), "00ffffffffffffffffff02", "65 bits"),
    (pa.int64(), "0001ff", "bytes after the last column"),
    (pa.string(), "0003c3a9", "shorter than it says"),
    (pa.string(), "0002c328", "no UTF-8"),
    (pa.string(), "0003eda080", "a surrogate"),
    (pa.string(), "00ffffffff0f", "a negative length"),
    (pa.binary(4), "0003616263", "three bytes for four"),
    (pa.decimal128(3, 0), "00e807", "1000 has four digits"),
    (pa.decimal128(20, 0), "0000", "no bytes"),
    (pa.decimal128(20, 0), "0011" + "00" * 17, "seventeen bytes"),
    (pa.decimal128(20, 0), "00107fffffffffffffffffffffffffffffff", "39 digits"),
    (pa.time32("ms"), "0080b89929", "the day's end"),
    (pa.timestamp("us"), "0000c0843d", "a million nanoseconds"),
    (pa.timestamp("ns"), "00ffffffffffffffff7f00", "out of range"),
    (pa.list_(pa.int32()), "0004ffffff7f", "a count without elements"),
    (pa.list_(pa.string()), "0018020000000000000010000000000000001000000000000000", "two values longer than the array"),
    (pa.map_(pa.int32(), pa.int32()), "0004ffffff7f", "keys past the end"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "row", "why"), WRONG_ROWS, ids=[why for _, _, why in WRONG_ROWS])
def test_a_row_that_is_wrong_is_refused(kind: pa.DataType, row: str, why: str) -> None:
    with pytest.raises(MalformedBatch):
        decoded(pa.schema([("c", kind)]), bytes.fromhex(row))


def test_the_last_nanosecond_of_a_millisecond_is_read() -> None:
    found = decoded(pa.schema([("c", pa.timestamp("ns"))]), bytes.fromhex("0000bf843d"))
    assert found.column("c").cast(pa.int64()).to_pylist() == [999_999]


def test_null_is_refused_where_the_schema_or_the_caller_says_so() -> None:
    schema = pa.schema([pa.field("a", pa.int32(), False), pa.field("b", pa.int32())])
    with pytest.raises(SchemaMismatch, match="column 'a' is NOT NULL, and row 0"):
        decoded(schema, b"\x01\x05")
    bounds = np.array([0, 2])
    data = np.frombuffer(b"\x01\x05", np.uint8)
    found = RowDecoder(schema, required=()).decode(data, bounds[:1], bounds[1:])
    assert found.to_pylist() == [{"a": None, "b": 5}]
    inside = pa.schema([("c", pa.struct([pa.field("x", pa.int32(), False)]))])
    with pytest.raises(SchemaMismatch, match="'x' is NOT NULL"):
        decoded(inside, b"\x00\x01\x01")


def test_positions_outside_the_data_are_refused() -> None:
    decoder = RowDecoder(pa.schema([("a", pa.int8())]))
    data = np.zeros(4, np.uint8)
    for start, end in ((-1, 1), (3, 5), (3, 2), (2**62, 2**62 + 2)):
        with pytest.raises(MalformedBatch):
            decoder.decode(data, np.array([start]), np.array([end]))
    assert decoder.decode(data, np.array([2]), np.array([4])).to_pylist() == [{"a": 0}]


def test_many_nulls_in_few_bytes_do_not_take_the_memory() -> None:
    decoder = RowDecoder(pa.schema([(f"c{i}", pa.binary(1 << 20)) for i in range(64)]))
    data = np.full(8 * 100, 0xFF, np.uint8)
    starts = np.arange(100) * 8
    with pytest.raises(RecordTooLarge):
        decoder.decode(data, starts, starts + 8)


def test_rows_of_another_schema_are_not_encoded() -> None:
    with pytest.raises(SchemaMismatch):
        RowEncoder(pa.schema([("a", pa.int32())])).encode(pa.record_batch({"a": pa.array([1], pa.int64())}))


@settings(max_examples=50, deadline=None)
@given(schemas(scalar_types(False)).flatmap(lambda schema: record_batches(schema.to_arrow())))
def test_key_bytes_agree_with_the_key_encoder(batch: pa.RecordBatch) -> None:
    data, starts = RowEncoder(batch.schema, null_bits=False).encode(batch)
    theirs = encode_keys(batch, batch.schema.names)
    assert data.tobytes() == theirs.data.tobytes()
    assert starts.tolist() == theirs.starts.tolist()


BELOW_NULL = [parse_type(text) for text in CASES[0].columns.values()]


@pytest.mark.parametrize("kind", BELOW_NULL, ids=str)
def test_a_null_row_may_have_fields_that_cannot_be_null(kind: DataType) -> None:
    inner = pa.field("x", kind.to_arrow(), False)
    schema = pa.schema([("r", pa.struct([inner, pa.field("l", pa.list_(pa.int32()), False)]))])
    found = decoded(schema, b"\x01")
    assert found.to_pylist() == [{"r": None}]
    assert found.column("r").field("x").null_count == 0


def test_no_rows_are_no_rows() -> None:
    schema = pa.schema([("a", pa.string()), ("b", pa.list_(pa.int32())), ("c", pa.decimal128(30, 2))])
    data, starts = RowEncoder(schema).encode(pa.RecordBatch.from_pylist([], schema=schema))
    assert (len(data), starts.tolist()) == (0, [0])
    assert RowDecoder(schema).decode(data, starts[:-1], starts[1:]).num_rows == 0
