"""Our own small protobuf: the proto2 wire form, made for large payloads.

Why not the protobuf package: it copies every ``bytes`` field, on both sides
(docs/decisions/0001-own-protobuf-codec.md).

    decode   a ``bytes`` field is a memoryview of the frame, writable when the frame is: a batch can be stamped
             where it lies. Nesting and the number of fields are bounded, unknown fields are skipped, and any
             other invalid bytes raise InvalidRequest.
    encode   returns a list of buffers: small pieces are joined, large payloads stay the caller's memory, which
             must not change until the buffers are sent. A payload declared ``aligned`` begins at a multiple of
             eight bytes in its frame, so that the columns in it can be used where they arrive.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, TypeVar

from strom.errors import InvalidRequest
from strom.protocol.fields import (
    BOOL,
    FIXED32,
    FIXED64,
    FLOAT32,
    INT32,
    INT64,
    LENGTH,
    MESSAGE,
    PACKED,
    RAW,
    TEXT,
    VARINT,
)
from strom.protocol.message import Message, Payload, size_of
from strom.protocol.varint import ONE_BYTE, encode_varint, encode_varint_wide, read_varint
from strom.runtime.files import Bytes

FIELDS_MAX = 100_000
"""Values in one message, including nested ones: bounds time and memory for a frame of tiny fields."""

DEPTH_MAX = 100
"""Nesting of messages."""

LARGE_BYTES = 8192
"""From this size on a payload is a separate buffer; below it, copying is cheaper."""

ALIGNMENT = 8

_WIDTH = 5
"""Bytes of a length that is written before it is known: enough for any frame."""
_PADDING = tuple(
    b"\xf8\x7f" + encode_varint_wide(0, size - 2) if size else b"" for size in (0, 9, 10, 3, 4, 5, 6, 7)
)
"""Padding by the number of missing bytes: the undeclared field 2047 with a wide zero."""

_FLOAT32 = struct.Struct("<f")
_FLOAT64 = struct.Struct("<d")
_INT32_LIMIT = 1 << 31
_INT64_LIMIT = 1 << 63


Some = TypeVar("Some", bound=Message)


def decode(kind: type[Some], body: Bytes, *, start: int = 0, fields_max: int = FIELDS_MAX) -> Some:
    """Read the message that fills ``body`` from ``start`` on. Raises InvalidRequest for any other bytes."""
    source = _Source(body, fields_max)
    try:
        return source.read(kind, start, len(body), 0)
    except IndexError as error:
        raise InvalidRequest(f"a {kind.__name__} ends too early", kind=kind.__name__) from error
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"a text in {kind.__name__} is not UTF-8", kind=kind.__name__) from error


class _Source:
    """The bytes of one message while it is read."""

    __slots__ = ("_buffer", "_fields_left", "_view")

    def __init__(self, body: Bytes, fields_max: int) -> None:
        self._buffer = body
        self._view = memoryview(body)
        self._fields_left = fields_max

    def read(self, kind: type[Some], position: int, end: int, depth: int) -> Some:
        """The message between two positions. The hot loop of the protocol: one turn per field."""
        if depth > DEPTH_MAX:
            raise InvalidRequest(f"messages are nested more than {DEPTH_MAX} deep", limit=DEPTH_MAX)
        buffer = self._buffer
        by_tag = kind._by_tag
        values = kind._defaults.copy()
        self._fields_left -= kind.cost
        value: Any
        while position < end:
            self._fields_left -= 1
            if self._fields_left < 0:
                raise InvalidRequest("the message has too many fields")
            tag = buffer[position]
            position += 1
            if tag > 127:
                tag, position = read_varint(buffer, position - 1)
            rule = by_tag.get(tag)
            if rule is None:
                position = self._skip(tag, position)
                continue
            what, name, many, field = rule
            if what > PACKED:
                value, position = self._fixed(what, position)
            else:
                # Everything else begins with a number: the value or its length.
                number = buffer[position]
                position += 1
                if number > 127:
                    number, position = read_varint(buffer, position - 1)
                value = number
                if what > BOOL:
                    start, position = position, position + number
                    if position > end:
                        raise InvalidRequest(f"{kind.__name__}.{name} is longer than its message")
                    if what == RAW:
                        value = self._view[start:position]
                    elif what == TEXT:
                        value = str(self._view[start:position], "utf-8")
                    elif what == MESSAGE:
                        value = self.read(field.message(), start, position, depth + 1)  # type: ignore[misc]
                    else:
                        value = self._packed(field.element, start, position)
                elif what == BOOL:
                    value = number != 0
                elif number >= _INT32_LIMIT:
                    value = _signed(what, number)
            if not many:
                values[name] = value
            else:
                value = value if what == PACKED else [value]
                if values[name]:
                    values[name] += value
                else:
                    values[name] = value
        if position != end:
            raise InvalidRequest(f"{kind.__name__}: a value is longer than its message")
        if len(values) != len(kind.fields):
            missing = sorted(kind.fields.keys() - values.keys())
            raise InvalidRequest(f"{kind.__name__} lacks {', '.join(missing)}", missing=missing)
        message = kind.__new__(kind)
        message.__dict__ = values
        return message

    def _packed(self, element: int, start: int, stop: int) -> list[int]:
        self._fields_left -= stop - start
        if self._fields_left < 0:
            raise InvalidRequest("the message has too many fields")
        numbers = []
        while start < stop:
            number, start = read_varint(self._buffer, start)
            numbers.append(_signed(element, number))
        if start != stop:
            raise InvalidRequest("a packed number is longer than its field")
        return numbers

    def _fixed(self, what: int, position: int) -> tuple[float, int]:
        form = _FLOAT32 if what == FLOAT32 else _FLOAT64
        stop = position + form.size
        if stop > len(self._view):
            raise InvalidRequest("a number is longer than its message")
        return form.unpack_from(self._view, position)[0], stop

    def _skip(self, tag: int, position: int) -> int:
        """Skip an undeclared field; the caller notices if that leaves the message."""
        wire_type = tag & 7
        if tag >> 3 == 0:
            raise InvalidRequest("field number 0 does not exist", tag=tag)
        if wire_type == VARINT:
            return read_varint(self._buffer, position)[1]
        if wire_type == LENGTH:
            length, position = read_varint(self._buffer, position)
            return position + length
        if wire_type == FIXED64:
            return position + 8
        if wire_type == FIXED32:
            return position + 4
        raise InvalidRequest(f"wire type {wire_type} is not known", tag=tag)


def _signed(kind: int, number: int) -> int | bool:
    if kind == INT32:
        return ((number & 0xFFFF_FFFF) ^ _INT32_LIMIT) - _INT32_LIMIT
    if kind == INT64:
        return (number ^ _INT64_LIMIT) - _INT64_LIMIT
    return number != 0


def encode(message: Message) -> list[Bytes]:
    """The message as buffers: small pieces joined, each large payload separate."""
    pieces: list[Bytes] = []
    return gather(pieces, encode_onto(pieces, message, 0))


def encode_onto(pieces: list[Bytes], message: Message, position: int) -> int:
    """Append the pieces of the message; return their bytes. The message begins at ``position`` in its frame."""
    size = 0
    values = message.__dict__
    for name, kind, tag, many, element, aligned in message._plan:
        value = values[name]
        if value is None:
            continue
        if aligned:
            for one in value if many else (value,):
                size += _encode_aligned(pieces, kind, tag, one, position + size)
        elif not many:
            size += _encode_value(pieces, kind, tag, value)
        elif kind == PACKED:
            if value:
                size += _encode_packed(pieces, tag, element, value)
        else:
            for one in value:
                size += _encode_value(pieces, kind, tag, one)
    return size


def _encode_value(pieces: list[Bytes], kind: int, tag: bytes, value: Any) -> int:
    if kind <= BOOL:
        encoded = tag + (ONE_BYTE[value] if 0 <= value < 128 else _encode_number(kind, value))
        pieces.append(encoded)
        return len(encoded)
    if kind == RAW:
        return _encode_raw(pieces, tag, value)
    if kind == MESSAGE:
        place = len(pieces)
        pieces.append(tag)
        size = encode_onto(pieces, value, 0)
        pieces[place] = head = tag + encode_varint(size)
        return len(head) + size
    if kind == TEXT:
        value = value.encode()
        encoded = tag + encode_varint(len(value)) + value
    else:
        encoded = tag + (_FLOAT32 if kind == FLOAT32 else _FLOAT64).pack(value)
    pieces.append(encoded)
    return len(encoded)


def _encode_number(kind: int, value: int) -> bytes:
    limit = _INT32_LIMIT if kind == INT32 else _INT64_LIMIT
    assert -limit <= value < limit, f"{value} does not fit its field"
    return encode_varint(value)


def _encode_packed(pieces: list[Bytes], tag: bytes, element: int, numbers: Sequence[int]) -> int:
    encoded = b"".join([_encode_number(element, number) for number in numbers])
    head = tag + encode_varint(len(encoded))
    pieces.append(head)
    pieces.append(encoded)
    return len(head) + len(encoded)


def _encode_raw(pieces: list[Bytes], tag: bytes, value: Payload) -> int:
    buffers = [value] if isinstance(value, bytes | bytearray | memoryview) else value
    size = sum([size_of(one) for one in buffers])
    head = tag + encode_varint(size)
    pieces.append(head)
    pieces.extend(buffers)
    return len(head) + size


def _encode_aligned(pieces: list[Bytes], kind: int, tag: bytes, value: Any, position: int) -> int:
    """An aligned payload, or a message that has one, which begins at ``position`` in its frame.

    The lengths of such messages have a fixed width, so that positions are known before sizes; an undeclared field pads
    the rest. Every protobuf implementation reads it.
    """
    place = len(pieces)
    pieces.append(tag)
    if kind == MESSAGE:
        size = encode_onto(pieces, value, position + len(tag) + _WIDTH)
        head = tag + encode_varint_wide(size, _WIDTH)
    else:
        pieces.extend([value] if isinstance(value, bytes | bytearray | memoryview) else value)
        size = sum([size_of(one) for one in pieces[place + 1 :]])
        head = tag + encode_varint(size)
        head = _PADDING[-(position + len(head)) % ALIGNMENT] + head
    pieces[place] = head
    return len(head) + size


def aligned_head(tag: bytes, before: bytes, payload: bytes, size: int, position: int) -> bytes:
    """The bytes before an aligned payload of ``size`` bytes that ends a hand-built message.

    ``tag`` begins the message, at ``position`` in its frame; ``before`` are its fields before the payload, whose tag is
    ``payload``. The bytes are those of ``encode``.
    """
    head = payload + encode_varint(size)
    start = position + len(tag) + _WIDTH + len(before)
    head = before + _PADDING[-(start + len(head)) % ALIGNMENT] + head
    return tag + encode_varint_wide(len(head) + size, _WIDTH) + head


def gather(pieces: Sequence[Bytes], size: int) -> list[Bytes]:
    """The same bytes, roughly ``size`` of them, in as few buffers as possible without copying large ones."""
    if size < LARGE_BYTES:
        return [b"".join(pieces)]
    gathered: list[Bytes] = []
    first = 0
    for index, piece in enumerate(pieces):
        if len(piece) >= LARGE_BYTES:
            if first < index:
                gathered.append(b"".join(pieces[first:index]))
            gathered.append(piece)
            first = index + 1
    if first < len(pieces):
        gathered.append(b"".join(pieces[first:]))
    return gathered
