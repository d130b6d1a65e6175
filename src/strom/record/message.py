"""The Arrow message inside a batch: its metadata read and written by hand.

Metadata is a flatbuffer. Reading it here instead of through pyarrow gives three things: every offset is checked
against the bytes that are really there, columns can be found without touching the body, and new metadata for some
of the columns costs a few packed integers (:class:`MessageTemplate`).

What a message may be: one RecordBatch, metadata version 4 or 5, no dictionaries, no variadic buffers, body
compression none, LZ4 frame or ZSTD, buffers in ascending order that do not overlap, body exactly to the batch's end.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from operator import gt
from typing import NamedTuple

import pyarrow as pa

from strom.errors import MalformedBatch
from strom.record import layout as at
from strom.record.columns import BatchColumns as BatchColumns
from strom.record.columns import ColumnLayout as ColumnLayout
from strom.runtime.files import Bytes

CODEC_NONE = at.NOT_COMPRESSED
CODEC_LZ4_FRAME = 0
CODEC_ZSTD = 1

_VERSION_MIN, _VERSION_MAX = 3, 4  # the enum counts from 0: V4 and V5
_HEADER_RECORD_BATCH = 3
_STRUCT_SIZE = 16  # both FieldNode and Buffer are two 64-bit integers
_VTABLE_FIELDS_MAX = 32
#: The metadata of batches up to this size is remembered: a stream of single rows repeats itself.
_SMALL_BYTES_MAX = 4096
_SMALL_KEPT = 256
#: Of larger batches only the latest, and only up to this size: batches of one writer are often cut alike.
_LATELY_KEPT = 8
_LATELY_BYTES_MAX = 16 * 1024

_I16 = struct.Struct("<h")
_U32 = struct.Struct("<I")
_I32 = struct.Struct("<i")
_I64 = struct.Struct("<q")
_PREFIX = struct.Struct("<Ii")
_VTABLE_HEAD = struct.Struct("<HH")
_VTABLE_FIELDS = tuple(struct.Struct(f"<{n}H") for n in range(_VTABLE_FIELDS_MAX + 1))
_NO_FIELDS = (0,) * 8


def _malformed(problem: str) -> MalformedBatch:
    return MalformedBatch(f"Arrow metadata: {problem}")


class Vectors(NamedTuple):
    """What metadata says, unchecked."""

    nodes: tuple[int, ...]
    """length, null count, length, null count, …"""
    buffers: tuple[int, ...]
    """position in the body, length, position, length, …"""
    codec: int


# --- reading --------------------------------------------------------------------------------------------------


def read_metadata(view: memoryview, *, position: int, batch_size: int, record_count: int) -> BatchColumns:
    """Read the metadata of the message at ``position``; the body need not be in ``view``."""
    metadata, body = split_message(view, position, batch_size)
    read = _read_message
    if batch_size <= _SMALL_BYTES_MAX:
        read = _read_again
    elif len(metadata) <= _LATELY_BYTES_MAX:
        read = _read_lately
    try:
        return read(metadata, body, batch_size, record_count)
    except (struct.error, IndexError):
        raise _malformed("a field reaches past the end") from None


def read_vectors(metadata: bytes, *, body: int, batch_size: int, record_count: int) -> Vectors:
    """What the metadata (from ``split_message``) says, without checks.

    For a head that was checked before it was stored and is unchanged since: the caller checks the nodes and buffers
    that it uses against the body, the others are not looked at.
    """
    try:
        return _read_vectors(metadata, body, batch_size, record_count)
    except (struct.error, IndexError):
        raise _malformed("a field reaches past the end") from None


def split_message(view: memoryview, position: int, batch_size: int) -> tuple[bytes, int]:
    """The flatbuffer of the message at ``position``, and where the body starts."""
    if position + at.MESSAGE_PREFIX_SIZE > min(batch_size, len(view)):
        raise _malformed("the batch ends before its message")
    continuation, metadata_size = _PREFIX.unpack_from(view, position)
    start = position + at.MESSAGE_PREFIX_SIZE
    body = start + metadata_size
    if continuation != at.CONTINUATION or metadata_size < 4:
        raise _malformed("this is not an Arrow message")
    if body > min(batch_size, len(view)):
        raise _malformed("the batch ends before its metadata")
    return bytes(view[start:body]), body


def message_head(metadata: bytes) -> bytes:
    """The beginning of a message with this flatbuffer, up to its body: what ``split_message`` splits."""
    return _PREFIX.pack(at.CONTINUATION, len(metadata)) + metadata


def _read_message(metadata: bytes, body: int, batch_size: int, record_count: int) -> BatchColumns:
    nodes, flat, codec = _read_vectors(metadata, body, batch_size, record_count)
    if nodes and (min(nodes) < 0 or any(map(gt, nodes[1::2], nodes[0::2]))):
        raise _malformed("a node holds more nulls than values, or fewer than none")
    return BatchColumns(body, batch_size, nodes, _place(flat, body, batch_size - body), codec)


def _read_vectors(metadata: bytes, body: int, batch_size: int, record_count: int) -> Vectors:
    table, fields = _table(metadata, _U32.unpack_from(metadata, 0)[0])
    version, header_type, header, body_length = fields[:4]
    if not version or not _VERSION_MIN <= _I16.unpack_from(metadata, table + version)[0] <= _VERSION_MAX:
        raise _malformed("unknown version")
    if not header or not header_type or metadata[table + header_type] != _HEADER_RECORD_BATCH:
        raise _malformed("the message is not a record batch")
    body_size = _I64.unpack_from(metadata, table + body_length)[0] if body_length else 0
    if body + body_size != batch_size:
        raise _malformed(f"a body of {body_size} bytes does not end where the batch ends")

    table, fields = _table(metadata, _reference(metadata, table + header))
    length, nodes_field, buffers_field, compression, variadic = fields[:5]
    rows = _I64.unpack_from(metadata, table + length)[0] if length else 0
    if rows != record_count:
        raise _malformed(f"the message has {rows} rows, the header {record_count}")
    if variadic and _U32.unpack_from(metadata, _reference(metadata, table + variadic))[0]:
        raise _malformed("variadic buffers are not allowed")
    return Vectors(
        _pairs(metadata, table + nodes_field) if nodes_field else (),
        _pairs(metadata, table + buffers_field) if buffers_field else (),
        _codec(metadata, table + compression) if compression else CODEC_NONE,
    )


_read_again = lru_cache(maxsize=_SMALL_KEPT)(_read_message)
"""Small batches of one writer mostly have the very same metadata."""
_read_lately = lru_cache(maxsize=_LATELY_KEPT)(_read_message)
"""Large ones too, if no column has values of varying length."""


def _table(metadata: bytes, position: int) -> tuple[int, tuple[int, ...]]:
    """Position and field offsets (0 = absent) of the table at ``position``, all of them inside the metadata."""
    vtable = position - _I32.unpack_from(metadata, position)[0]
    if vtable < 0:
        raise _malformed("a table points before the start")
    vtable_size, table_size = _VTABLE_HEAD.unpack_from(metadata, vtable)
    count = (vtable_size - 4) >> 1
    if vtable_size & 1 or not 0 <= count <= _VTABLE_FIELDS_MAX:
        raise _malformed("a table's shape is impossible")
    fields = _VTABLE_FIELDS[count].unpack_from(metadata, vtable + 4)
    if count and max(fields) >= table_size:
        raise _malformed("a field lies outside its table")
    return position, fields + _NO_FIELDS


def _reference(metadata: bytes, position: int) -> int:
    return position + int(_U32.unpack_from(metadata, position)[0])


def _pairs(metadata: bytes, position: int) -> tuple[int, ...]:
    """A vector of two-integer structs, flat. Its length is checked against the bytes before it is read."""
    start = _reference(metadata, position)
    count = _U32.unpack_from(metadata, start)[0]
    start += 4
    if start + count * _STRUCT_SIZE > len(metadata):
        raise _malformed("a vector reaches past the end")
    return struct.unpack_from(f"<{2 * count}q", metadata, start)


def _codec(metadata: bytes, position: int) -> int:
    table, fields = _table(metadata, _reference(metadata, position))
    codec = metadata[table + fields[0]] if fields[0] else CODEC_LZ4_FRAME
    method = metadata[table + fields[1]] if fields[1] else 0
    if codec not in (CODEC_LZ4_FRAME, CODEC_ZSTD) or method != 0:
        raise _malformed(f"unknown compression {codec}, method {method}")
    return codec


def _place(flat: tuple[int, ...], body: int, body_size: int) -> list[tuple[int, int]]:
    """The buffers by position in the batch. In order and apart, so that their sum is at most the body.

    An empty buffer may claim any offset (writers differ); it is placed where the one before it ended.
    """
    buffers = []
    end = body
    for offset, length in zip(flat[0::2], flat[1::2], strict=True):
        if length:
            position = body + offset
            if position < end or length < 0:
                raise _malformed("a buffer lies on another one, or before the body")
            end = position + length
            buffers.append((position, length))
        else:
            buffers.append((end, 0))
    if end > body + body_size:
        raise _malformed("a buffer reaches past the body")
    return buffers


def verify_message(view: memoryview, position: int) -> None:
    """Let pyarrow verify the flatbuffer too: what is stored must be readable by every Arrow library.

    The view ends with the message, whose metadata ``read_metadata`` has read.
    """
    if len(view) > _SMALL_BYTES_MAX:
        _verify(view[position:])
        return
    body = position + at.MESSAGE_PREFIX_SIZE + _PREFIX.unpack_from(view, position)[1]
    _verify_again(bytes(view[position:body]), len(view) - body)


def _verify(message: Bytes) -> None:
    try:
        found = pa.ipc.read_message(message)
    except (pa.ArrowException, OSError, ValueError) as problem:
        raise _malformed(str(problem)) from None
    if found.type != "record batch":
        raise _malformed("the message is not a record batch")


@lru_cache(maxsize=_SMALL_KEPT)
def _verify_again(head: bytes, body_size: int) -> None:
    """Whether a message's head is sound; this depends on the body only through its size."""
    _verify(head + bytes(body_size))


# --- writing --------------------------------------------------------------------------------------------------


class MessageTemplate:
    """Metadata for a number of nodes and buffers; only the numbers are missing.

    The flatbuffer's shape depends on the counts and the codec alone, so it is laid out once:

        root offset, Message vtable and table, RecordBatch vtable and table, [BodyCompression], nodes, buffers
    """

    def __init__(self, node_count: int, buffer_count: int, codec: int) -> None:
        compression = struct.pack("<HHHHiBBxx", 8, 8, 4, 5, 8, codec, 0) if codec != CODEC_NONE else b""
        prefix = at.MESSAGE_PREFIX_SIZE
        nodes = 84 + len(compression)  # the vector's length field; its elements follow, aligned to 8
        buffers = nodes + 4 + _STRUCT_SIZE * node_count + 4
        metadata_size = buffers + 4 + _STRUCT_SIZE * buffer_count
        content = bytearray(prefix + metadata_size)
        _PREFIX.pack_into(content, 0, at.CONTINUATION, metadata_size)
        # root at 0; Message vtable at 4, table at 16: header +4, body length +8, version +16, header type +18
        struct.pack_into("<I6H", content, prefix, 16, 12, 20, 16, 18, 4, 8)
        struct.pack_into("<iIqhB", content, prefix + 16, 12, 56 - 20, 0, _VERSION_MAX, _HEADER_RECORD_BATCH)
        # RecordBatch vtable at 40, table at 56: nodes +4, length +8, buffers +16, compression +20
        struct.pack_into("<6H", content, prefix + 40, 12, 24, 8, 4, 16, 20 if compression else 0)
        reference = (80 - 76 + 8) if compression else 0
        struct.pack_into("<iIqII", content, prefix + 56, 16, nodes - 60, 0, buffers - 72, reference)
        content[prefix + 80 : prefix + 80 + len(compression)] = compression
        _U32.pack_into(content, prefix + nodes, node_count)
        _U32.pack_into(content, prefix + buffers, buffer_count)
        self.content = bytes(content)
        self._nodes = struct.Struct(f"<{2 * node_count}q")
        self._buffers = struct.Struct(f"<{2 * buffer_count}q")
        self.body_size_position = prefix + 24
        self.record_count_position = prefix + 64
        self.nodes_position = prefix + nodes + 4
        self.buffers_position = prefix + buffers + 4
        self.size = len(content)

    def fill(
        self,
        target: bytearray,
        position: int,
        *,
        record_count: int,
        nodes: Sequence[int],
        buffers: Sequence[int],
        body_size: int,
    ) -> None:
        """Write the message (all but its body) into ``target``. ``buffers`` is flat, counted from the body."""
        target[position : position + self.size] = self.content
        _I64.pack_into(target, position + self.body_size_position, body_size)
        _I64.pack_into(target, position + self.record_count_position, record_count)
        self._nodes.pack_into(target, position + self.nodes_position, *nodes)
        self._buffers.pack_into(target, position + self.buffers_position, *buffers)


@lru_cache(maxsize=512)
def message_template(node_count: int, buffer_count: int, codec: int) -> MessageTemplate:
    """The template for these counts, remembered."""
    return MessageTemplate(node_count, buffer_count, codec)
