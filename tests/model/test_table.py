"""Table descriptions: the peer's JSON to the byte, and nothing that contradicts itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strategies import schemas
from strom.errors import InvalidTable, SchemaNotFound
from strom.model import types as t
from strom.model.schema import Schema
from strom.model.table import PROPERTIES_MAX, TableDescription, TableEntry, TablePath

PEER_TABLES = (Path(__file__).parent / "peer_tables.jsonl").read_bytes().splitlines()
"""What pyfluss 1.0.0 sent for CreateTable, byte for byte."""


def described(**changes: Any) -> TableDescription:
    columns = [("a", pa.int32()), ("b", pa.string()), ("day", pa.date32()), ("l", pa.list_(pa.int8()))]
    primary_key = changes.pop("primary_key", ())
    return TableDescription(Schema.from_arrow(pa.schema(columns), primary_key), **changes)


@pytest.mark.parametrize(
    "sent", PEER_TABLES, ids=["every type", "primary key", "auto increment", "partitioned"]
)
def test_what_the_peer_sends_comes_back_byte_for_byte(sent: bytes) -> None:
    assert TableDescription.from_json(sent).to_json_bytes() == sent
    assert TableDescription.from_json(memoryview(sent)).to_json() == json.loads(sent)


def test_the_peers_types_are_ours() -> None:
    schema = TableDescription.from_json(PEER_TABLES[0]).schema
    assert schema.column("i64").type == t.BigInt(nullable=False)
    assert schema.column("t6").type == t.Time(6)
    assert schema.column("tz").type == t.TimestampLtz(6)
    assert schema.column("ln").type == t.Array(t.Int(nullable=False))
    assert Schema.from_arrow(schema.to_arrow()).to_json() == schema.to_json()


@settings(max_examples=40, deadline=None)
@given(
    schemas(), st.dictionaries(st.text(min_size=1).filter(str.isprintable), st.text().filter(str.isprintable))
)
def test_a_description_reads_back_from_its_bytes(schema: Schema, custom: dict[str, str]) -> None:
    before = TableDescription(schema, custom_properties=custom, comment="über", bucket_count=3)
    assert TableDescription.from_json(before.to_json_bytes()) == before


def test_a_primary_key_table_is_bucketed_by_its_key_within_the_partition() -> None:
    table = described(primary_key=("a", "b", "day"), partition_keys=("day",))
    assert table.bucket_key == ("a", "b")
    assert table.partitioned
    assert table.has_primary_key


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"partition_keys": ("x",)}, "is not a column"),
        ({"partition_keys": ("l",)}, "cannot be a partition key"),
        ({"partition_keys": ("a", "a")}, "twice"),
        ({"bucket_key": ("l",)}, "cannot be a bucket key"),
        ({"bucket_key": ("dayy",)}, "did you mean 'day'"),
        ({"bucket_key": ("day",), "partition_keys": ("day",)}, "partition key already"),
        ({"primary_key": ("a",), "partition_keys": ("day",)}, "part of the primary key"),
        ({"primary_key": ("a",), "bucket_key": ("b",)}, "part of the primary key"),
        ({"primary_key": ("day",), "partition_keys": ("day",)}, "besides the partition keys"),
        ({"bucket_count": 0}, "at least 1 bucket"),
        ({"comment": "x" * 70_000}, "comment"),
        ({"comment": "\udfff"}, "surrogate"),
        ({"properties": {"x": "\udfff"}}, "surrogate"),
        ({"properties": {"x": 5}}, "must be text"),
        ({"custom_properties": {str(i): "" for i in range(PROPERTIES_MAX + 1)}}, "at most"),
    ],
)
def test_a_description_that_contradicts_itself_is_refused(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InvalidTable, match=complaint):
        described(**changes)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"null",
        b"\xff",
        b'{"version":2}',
        b"{}",
        b'{"schema":[]}',
        b'{"schema":{"columns":[]}}',
        b'{"schema":{"columns":[{"name":"a","data_type":{"type":"INTEGER"},"id":NaN}]}}',
        b'{"schema":{"columns":[{"name":"a","data_type":{"type":"INTEGER"},"id":0}]},"bucket_count":"4"}',
        b'{"schema":{"columns":[{"name":"a","data_type":{"type":"INTEGER"},"id":0}]},"properties":{"a":1}}',
        b'{"schema":{"columns":[{"name":"a","data_type":{"type":"INTEGER"},"id":0}]},"partition_key":"a"}',
        b'{"schema":' + b'{"a":' * 100_000,
        b'{"schema":' + b"9" * 10_000 + b"}",
    ],
)
def test_bytes_that_describe_no_table_are_refused(text: bytes) -> None:
    with pytest.raises(InvalidTable):
        TableDescription.from_json(text)


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(PEER_TABLES), st.data())
def test_a_damaged_description_is_refused_or_still_makes_sense(sent: bytes, data: st.DataObject) -> None:
    damaged = bytearray(sent)
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(damaged) - 1))
        damaged[place : place + data.draw(st.integers(0, 4))] = data.draw(st.binary(max_size=4))
    try:
        read = TableDescription.from_json(bytes(damaged))
    except InvalidTable:
        return
    assert TableDescription.from_json(read.to_json_bytes()) == read


def test_a_table_knows_all_its_schemas() -> None:
    description = described(bucket_count=2)
    later = description.schema.add_column("c", t.Int())
    table = TableEntry(
        table_id=7,
        path=TablePath("fluss", "t"),
        description=TableDescription(later, bucket_count=2),
        schemas=(description.schema, later),
        created_ms=1,
        modified_ms=2,
        leaders=(0, 0),
    )
    assert table.schema_by_id(1) == description.schema
    assert table.schema_by_id(2) == table.schema == later
    assert table.bucket_count == 2
    with pytest.raises(SchemaNotFound):
        table.schema_by_id(3)
