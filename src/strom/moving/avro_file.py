"""Reading and writing Avro files without losing anything: every field of the schema is kept, known to us or not.

Iceberg's manifests and manifest lists are Avro files. PyIceberg reads only the fields it knows; changing a path in a
file that another engine wrote must keep the rest. Supports only what manifests can hold: no enums.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from strom.errors import LakeCorrupt, LakeUnsupported

MAGIC = b"Obj\x01"
BLOCK_MAX = 1 << 30
_CODEC, _SCHEMA = "avro.codec", "avro.schema"
_SYNC = 16

Decode = Callable[["_Input"], Any]
Encode = Callable[[Any, bytearray], None]


@dataclass
class AvroFile:
    """A file: its header's entries, and its records as dictionaries."""

    header: dict[str, bytes]
    sync: bytes
    records: list[dict[str, Any]]

    @property
    def schema(self) -> Any:
        """The records' schema, as JSON has it."""
        return json.loads(self.header[_SCHEMA])

    @classmethod
    def decode(cls, content: bytes, uri: str) -> AvroFile:
        """Read a file; LakeCorrupt when it is not an Avro file."""
        try:
            return _decoded(content)
        except (
            ValueError,
            KeyError,
            TypeError,
            IndexError,
            struct.error,
            zlib.error,
            pa.ArrowException,
        ) as problem:
            raise LakeCorrupt(f"{uri} is not a complete Avro file: {problem}", uri=uri) from problem

    def encode(self) -> bytes:
        """The file, with all records in one block."""
        write = _writer(self.schema, {})
        block = bytearray()
        for record in self.records:
            write(record, block)
        packed = _compressed(self.header.get(_CODEC, b"null").decode(), bytes(block))
        out = bytearray(MAGIC)
        _write_long(len(self.header), out)
        for name, value in self.header.items():
            _write_bytes(name.encode(), out)
            _write_bytes(value, out)
        _write_long(0, out)
        out += self.sync
        if self.records:
            _write_long(len(self.records), out)
            _write_bytes(packed, out)
            out += self.sync
        return bytes(out)


class _Input:
    """Bytes, and how far they were read."""

    __slots__ = ("at", "content")

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.at = 0

    def take(self, count: int) -> bytes:
        end = self.at + count
        if count < 0 or end > len(self.content):
            raise ValueError("it ends too early")
        found = self.content[self.at : end]
        self.at = end
        return found

    def long(self) -> int:
        content, at = self.content, self.at
        value = shift = 0
        while True:
            byte = content[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift > 63:
                raise ValueError("a number is too long")
        self.at = at
        return (value >> 1) ^ -(value & 1)

    def bytes(self) -> bytes:
        return self.take(self.long())

    def blocks(self) -> int:
        """How many items follow in an array or a map; 0 at its end."""
        count = self.long()
        if count < 0:
            self.long()  # their size, for readers that skip
            count = -count
        return count


def _decoded(content: bytes) -> AvroFile:
    source = _Input(content)
    if source.take(4) != MAGIC:
        raise ValueError("its first bytes are not those of an Avro file")
    header: dict[str, bytes] = {}
    while count := source.blocks():
        for _ in range(count):
            name = source.bytes().decode()
            header[name] = source.bytes()
    sync = source.take(_SYNC)
    read = _reader(json.loads(header[_SCHEMA]), {})
    codec = header.get(_CODEC, b"null").decode()
    records: list[dict[str, Any]] = []
    while source.at < len(content):
        count = source.long()
        block = _Input(_decompressed(codec, source.bytes()))
        records += [read(block) for _ in range(count)]
        if source.take(_SYNC) != sync:
            raise ValueError("a block does not end where it should")
    return AvroFile(header, sync, records)


# --- blocks ---------------------------------------------------------------------------------------------------


def _decompressed(codec: str, block: bytes) -> bytes:
    if codec == "null":
        return block
    if codec == "deflate":
        unpacker = zlib.decompressobj(-15)
        found = unpacker.decompress(block, BLOCK_MAX)
        if unpacker.unconsumed_tail:
            raise ValueError(f"a block has more than {BLOCK_MAX} bytes")
        return found
    if codec == "zstandard":
        with pa.CompressedInputStream(pa.BufferReader(block), "zstd") as stream:
            return bytes(stream.read(BLOCK_MAX))
    raise LakeUnsupported(
        f"a manifest is compressed with {codec!r}: rewrite the table's manifests first", codec=codec
    )


def _compressed(codec: str, block: bytes) -> bytes:
    if codec == "null":
        return block
    if codec == "deflate":
        packer = zlib.compressobj(6, zlib.DEFLATED, -15)
        return packer.compress(block) + packer.flush()
    return bytes(pa.Codec("zstd").compress(block, asbytes=True))


# --- readers, by schema ---------------------------------------------------------------------------------------


def _kind(schema: Any) -> str:
    if isinstance(schema, list):
        return "union"
    return (
        str(schema["type"])
        if isinstance(schema, Mapping) and isinstance(schema["type"], str)
        else str(schema)
    )


def _inner(schema: Any, names: dict[str, Any]) -> Any:
    """Unwrap a schema, {"type": {"type": …}}, or resolve a name that was defined before."""
    while isinstance(schema, Mapping) and not isinstance(schema["type"], str):
        schema = schema["type"]
    if isinstance(schema, Mapping) and "name" in schema:
        names[str(schema["name"])] = schema
    return names.get(schema, schema) if isinstance(schema, str) else schema


def _reader(schema: Any, names: dict[str, Any]) -> Decode:
    schema = _inner(schema, names)
    match _kind(schema):
        case "null":
            return lambda source: None
        case "boolean":
            return lambda source: source.take(1) == b"\x01"
        case "int" | "long":
            return _Input.long
        case "float":
            return lambda source: source.take(4)
        case "double":
            return lambda source: source.take(8)
        case "bytes":
            return _Input.bytes
        case "string":
            return lambda source: source.bytes().decode()
        case "fixed":
            size = int(schema["size"])
            return lambda source: source.take(size)
        case "record":
            return _record_reader(schema, names)
        case "array":
            return _array_reader(_reader(schema["items"], names))
        case "map":
            return _map_reader(_reader(schema["values"], names))
        case "union":
            return _union_reader([_reader(one, names) for one in schema])
        case other:
            raise ValueError(f"a manifest cannot hold a {other[:100]}")


def _record_reader(schema: Any, names: dict[str, Any]) -> Decode:
    fields = [(str(one["name"]), _reader(one["type"], names)) for one in schema["fields"]]
    return lambda source: {name: read(source) for name, read in fields}


def _array_reader(read: Decode) -> Decode:
    def items(source: _Input) -> list[Any]:
        found: list[Any] = []
        while count := source.blocks():
            found += [read(source) for _ in range(count)]
        return found

    return items


def _map_reader(read: Decode) -> Decode:
    def items(source: _Input) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while count := source.blocks():
            for _ in range(count):
                name = source.bytes().decode()
                found[name] = read(source)
        return found

    return items


def _union_reader(branches: list[Decode]) -> Decode:
    def chosen(source: _Input) -> tuple[int, Any]:
        number = source.long()
        if not 0 <= number < len(branches):
            raise ValueError("a value has none of its union's types")
        return number, branches[number](source)

    return chosen


# --- writers, by schema ---------------------------------------------------------------------------------------


def _write_long(value: int, out: bytearray) -> None:
    left = (value << 1) ^ (value >> 63)
    while left > 0x7F:
        out.append((left & 0x7F) | 0x80)
        left >>= 7
    out.append(left)


def _write_bytes(value: bytes, out: bytearray) -> None:
    _write_long(len(value), out)
    out += value


def _writer(schema: Any, names: dict[str, Any]) -> Encode:
    schema = _inner(schema, names)
    match _kind(schema):
        case "null":
            return lambda value, out: None
        case "boolean":
            return lambda value, out: out.append(1 if value else 0)
        case "int" | "long":
            return _write_long
        case "float" | "double" | "fixed":
            return lambda value, out: out.extend(value)
        case "bytes":
            return _write_bytes
        case "string":
            return lambda value, out: _write_bytes(value.encode(), out)
        case "record":
            return _record_writer(schema, names)
        case "array":
            return _array_writer(_writer(schema["items"], names))
        case "map":
            return _map_writer(_writer(schema["values"], names))
        case _:
            return _union_writer([_writer(one, names) for one in schema])


def _record_writer(schema: Any, names: dict[str, Any]) -> Encode:
    fields = [(str(one["name"]), _writer(one["type"], names)) for one in schema["fields"]]

    def record(value: Mapping[str, Any], out: bytearray) -> None:
        for name, write in fields:
            write(value[name], out)

    return record


def _array_writer(write: Encode) -> Encode:
    def items(value: list[Any], out: bytearray) -> None:
        if value:
            _write_long(len(value), out)
            for one in value:
                write(one, out)
        out.append(0)

    return items


def _map_writer(write: Encode) -> Encode:
    def items(value: Mapping[str, Any], out: bytearray) -> None:
        if value:
            _write_long(len(value), out)
            for name, one in value.items():
                _write_bytes(name.encode(), out)
                write(one, out)
        out.append(0)

    return items


def _union_writer(branches: list[Encode]) -> Encode:
    def chosen(value: tuple[int, Any], out: bytearray) -> None:
        number, inner = value
        _write_long(number, out)
        branches[number](inner, out)

    return chosen
