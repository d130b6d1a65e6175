"""The fast reader of a lookup's rows returns what ``decode`` returns, and rejects what it rejects."""

from __future__ import annotations

import struct
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given, settings

from strom.client.lookup import answered_rows
from strom.client.lookup.answered_rows import AnsweredRows
from strom.errors import ChecksumMismatch, StromError
from strom.record import layout as at
from strom.record.batch import write_crc
from strom.record.decode import decode
from strom.record.encode import assemble_message, columns_of, encode, encode_message
from strom.record.message import CODEC_NONE, message_template

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("text", pa.string()),
        ("flag", pa.bool_()),
        ("small", pa.int16()),
        ("bytes", pa.binary()),
        ("day", pa.date32()),
    ]
)
NULLABLE = pa.schema([field.with_nullable(True) for field in SCHEMA])
ROW = st.fixed_dictionaries(
    {
        "id": st.integers(-(2**63), 2**63 - 1),
        "text": st.none() | st.text(max_size=10),
        "flag": st.none() | st.booleans(),
        "small": st.none() | st.integers(-(2**15), 2**15 - 1),
        "bytes": st.none() | st.binary(max_size=10),
        "day": st.none() | st.dates(),
    }
)
NODES, BUFFERS = len(SCHEMA), 2 * len(SCHEMA) + 2
TEMPLATE = message_template(NODES, BUFFERS, CODEC_NONE)
HEAD = at.HEADER_SIZE[at.MAGIC_PLAIN]


def as_servers_write(batch: pa.RecordBatch) -> bytearray:
    found = columns_of(batch)
    assert found is not None
    message = b"".join(assemble_message(batch.num_rows, *found, CODEC_NONE))
    return bytearray().join(encode_message(message, batch.num_rows, schema_id=1))


def outcome(read: Any, content: bytes) -> Any:
    try:
        return read(content)
    except StromError:
        return "refused"


def by_decode(content: bytes) -> pa.RecordBatch:
    rows = decode(content, SCHEMA, aligned=True)
    return pa.RecordBatch.from_arrays(rows.columns, schema=NULLABLE)


@settings(max_examples=100, deadline=None)
@given(st.lists(ROW, min_size=1, max_size=20))
def test_rows_are_those_that_were_sent(rows: list[dict[str, Any]]) -> None:
    batch = pa.RecordBatch.from_pylist(rows, SCHEMA)
    reader = AnsweredRows(SCHEMA, NULLABLE)
    for content in (as_servers_write(batch), encode(batch, schema_id=1)):
        found = reader.read(content)
        assert found.schema.equals(NULLABLE)
        assert found.to_pylist() == rows
        found.validate(full=True)


def test_a_message_as_servers_write_it_is_not_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = pa.RecordBatch.from_pylist([{"id": 1, "text": "a"}, {"id": 2, "flag": True}], SCHEMA)
    content = as_servers_write(batch)

    def fail(*_: object, **__: object) -> None:
        raise AssertionError("this message has the usual form")

    monkeypatch.setattr(answered_rows, "decode", fail)
    # Where values may lie, as a frame's payload does: the message begins behind the head, which is not a multiple of 8.
    room = memoryview(pa.allocate_buffer(len(content) + 8)).cast("B")
    shift = -(HEAD + TEMPLATE.size) % 8
    room[shift : shift + len(content)] = content
    assert (
        AnsweredRows(SCHEMA, NULLABLE)
        .read(room[shift : shift + len(content)])
        .equals(pa.RecordBatch.from_arrays(batch.columns, schema=NULLABLE))
    )


@settings(max_examples=100, deadline=None)
@given(
    st.lists(ROW, min_size=1, max_size=9),
    st.integers(0, 2 * (NODES + BUFFERS) + 1),
    st.sampled_from([-(2**63), -1, 0, 1, 7, 8, 9, 64, 2**31, 2**62, 2**63 - 1]),
)
def test_numbers_that_cannot_be_are_refused_as_decode_refuses_them(
    rows: list[dict[str, Any]], which: int, value: int
) -> None:
    content = as_servers_write(pa.RecordBatch.from_pylist(rows, SCHEMA))
    positions = [
        TEMPLATE.body_size_position,
        TEMPLATE.record_count_position,
        *range(TEMPLATE.nodes_position, TEMPLATE.nodes_position + 16 * NODES, 8),
        *range(TEMPLATE.buffers_position, TEMPLATE.buffers_position + 16 * BUFFERS, 8),
    ]
    struct.pack_into("<q", content, HEAD + positions[which], value)
    write_crc(content, at.MAGIC_PLAIN)
    expected = outcome(by_decode, bytes(content))
    found = outcome(AnsweredRows(SCHEMA, NULLABLE).read, bytes(content))
    assert (found == "refused") == (expected == "refused") if isinstance(expected, str) else found == expected


@settings(max_examples=100, deadline=None)
@given(st.lists(ROW, min_size=1, max_size=9), st.integers(0), st.integers(0, 255))
def test_any_byte_may_be_another(rows: list[dict[str, Any]], where: int, octet: int) -> None:
    content = as_servers_write(pa.RecordBatch.from_pylist(rows, SCHEMA))
    where = HEAD + where % (len(content) - HEAD)
    same = content[where] == octet
    content[where] = octet
    if not same:
        with pytest.raises(ChecksumMismatch):
            AnsweredRows(SCHEMA, NULLABLE).read(bytes(content))
    write_crc(content, at.MAGIC_PLAIN)
    expected = outcome(by_decode, bytes(content))
    found = outcome(AnsweredRows(SCHEMA, NULLABLE).read, bytes(content))
    if isinstance(expected, str):
        assert found == "refused"
    else:
        assert [found.column(at) for at in range(NODES)] == [expected.column(at) for at in range(NODES)]


def test_rows_with_nested_columns_are_read_too() -> None:
    schema = pa.schema([("id", pa.int64()), ("parts", pa.list_(pa.int32()))])
    batch = pa.RecordBatch.from_pylist([{"id": 1, "parts": [1, 2]}, {"id": 2, "parts": None}], schema)
    assert AnsweredRows(schema, schema).read(encode(batch, schema_id=1)).equals(batch)
