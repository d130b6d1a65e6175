"""Avro files are read and written without losing anything, whoever wrote them."""

from __future__ import annotations

import json
import struct
import zlib
from typing import Any

import pyarrow as pa
import pytest

from strom.errors import LakeCorrupt, LakeUnsupported
from strom.moving.avro_file import AvroFile

SYNC = bytes(range(16))
SCHEMA = {
    "type": "record",
    "name": "entry",
    "fields": [
        {"name": "path", "type": "string"},
        {"name": "count", "type": "long"},
        {"name": "flag", "type": "boolean"},
        {"name": "more", "type": ["null", {"type": "fixed", "name": "four", "size": 4}]},
        {"name": "same", "type": ["null", "four"]},
        {"name": "list", "type": {"type": "array", "items": "int"}},
        {"name": "map", "type": {"type": "map", "values": "bytes"}},
        {"name": "half", "type": "float"},
        {"name": "whole", "type": "double"},
    ],
}
RECORDS: list[dict[str, Any]] = [
    {
        "path": "ünï",
        "count": -(1 << 62),
        "flag": True,
        "more": (1, b"abcd"),
        "same": (1, b"efgh"),
        "list": [1, -1, 300],
        "map": {"a": b"", "b": b"xyz"},
        "half": struct.pack("<f", 0.5),
        "whole": struct.pack("<d", -0.25),
    },
    {
        "path": "",
        "count": 0,
        "flag": False,
        "more": (0, None),
        "same": (0, None),
        "list": [],
        "map": {},
        "half": bytes(4),
        "whole": bytes(8),
    },
]


def long(value: int) -> bytes:
    left, out = (value << 1) ^ (value >> 63), bytearray()
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*out, left])


def text(value: bytes) -> bytes:
    return long(len(value)) + value


def file(header: dict[str, bytes], *blocks: tuple[int, bytes], sync: bytes = SYNC) -> bytes:
    entries = b"".join(text(name.encode()) + text(value) for name, value in header.items())
    body = b"".join(long(count) + text(block) + sync for count, block in blocks)
    return b"Obj\x01" + long(len(header)) + entries + b"\0" + SYNC + body


def header(schema: object = "long", codec: str | None = None) -> dict[str, bytes]:
    more = {} if codec is None else {"avro.codec": codec.encode()}
    return {"avro.schema": json.dumps(schema).encode(), **more}


@pytest.mark.parametrize("codec", [None, "null", "deflate", "zstandard"])
def test_what_is_written_reads_back_with_every_field_and_entry(codec: str | None) -> None:
    entries = {**header(SCHEMA, codec), "format-version": b"2", "somebody's own": b"\0\1"}
    content = AvroFile(entries, SYNC, RECORDS).encode()
    found = AvroFile.decode(content, "x")
    assert (found.header, found.sync, found.records) == (entries, SYNC, RECORDS)
    assert found.schema == SCHEMA
    assert found.encode() == content


@pytest.mark.parametrize("number", [-(1 << 63), (1 << 63) - 1, 1 << 62, 63, 64, -64, -65])
def test_a_number_may_be_as_large_as_its_type(number: int) -> None:
    content = file(header(), (1, long(number)))
    assert AvroFile.decode(content, "x").records == [number]
    assert AvroFile(header(), SYNC, [number]).encode() == content


def test_a_file_without_records_has_no_block() -> None:
    content = AvroFile(header(SCHEMA), SYNC, []).encode()
    assert content == file(header(SCHEMA))
    assert AvroFile.decode(content, "x").records == []


def _deflated(block: bytes) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    return packer.compress(block) + packer.flush()


@pytest.mark.parametrize(
    ("codec", "pack"),
    [
        (None, bytes),
        ("null", bytes),
        ("deflate", _deflated),
        ("zstandard", lambda block: pa.Codec("zstd").compress(block, asbytes=True)),
    ],
)
def test_blocks_of_other_writers_are_read_one_after_the_other(codec: str | None, pack: Any) -> None:
    record = {"type": "record", "name": "r", "fields": [{"name": "n", "type": "long"}]}
    blocks = [(2, pack(long(7) + long(-8))), (0, pack(b"")), (1, pack(long(9)))]
    found = AvroFile.decode(file(header(record, codec), *blocks), "x")
    assert found.records == [{"n": 7}, {"n": -8}, {"n": 9}]


def test_arrays_and_maps_come_in_blocks_with_and_without_their_size() -> None:
    schema = {"type": "array", "items": "long"}
    sized = long(-2) + long(2) + long(1) + long(2)
    content = file(header(schema), (1, sized + long(1) + long(3) + long(0)))
    assert AvroFile.decode(content, "x").records == [[1, 2, 3]]
    schema = {"type": "map", "values": "long"}
    sized = long(-1) + long(3) + text(b"a") + long(1)
    content = file(header(schema), (1, sized + long(1) + text(b"b") + long(2) + long(0)))
    assert AvroFile.decode(content, "x").records == [{"a": 1, "b": 2}]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"Obj\x02" + file(header())[4:],
        file({"avro.codec": b"null"}),
        file(header())[:-1],
        file(header(), (1, long(5)))[:-1],
        file(header(), (1, long(5)), sync=bytes(16)),
        file(header(), (2, long(5))),
        file(header(), (1, b"\xff" * 10 + b"\1")),
        file(header(["null", "long"]), (1, long(2))),
        file(header(["null", "long"]), (1, long(-1))),
        file(header("string"), (1, long(-1))),
        file(header({"type": "enum", "name": "e", "symbols": ["A"]}), (1, long(0))),
        file(header(codec="deflate"), (1, b"\xff\xff\xff")),
        file({"avro.schema": b"{"}),
    ],
)
def test_what_is_no_whole_avro_file_is_refused(content: bytes) -> None:
    with pytest.raises(LakeCorrupt, match="x is not a complete Avro file"):
        AvroFile.decode(content, "x")


def test_a_codec_that_is_not_known_is_named() -> None:
    with pytest.raises(LakeUnsupported, match="'snappy'"):
        AvroFile.decode(file(header(codec="snappy"), (1, long(5))), "x")
