"""Protobuf's variable-length integers: seven bits per byte, lowest first, negative numbers as 64-bit patterns."""

from __future__ import annotations

from strom.errors import InvalidRequest
from strom.runtime.files import Bytes

UINT64_MASK = (1 << 64) - 1
VARINT_BYTES_MAX = 10

ONE_BYTE = tuple(bytes([value]) for value in range(128))
"""The encodings of 0..127: most numbers on the wire."""

_MINUS_ONE = b"\xff" * 9 + b"\x01"
"""The only common negative number ("all", "none"), and the slowest to encode."""


def encode_varint(value: int) -> bytes:
    """The shortest encoding of ``value``; a negative one takes ten bytes, as in every protobuf."""
    if 0 <= value < 128:
        return ONE_BYTE[value]
    if value == -1:
        return _MINUS_ONE
    value &= UINT64_MASK
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def encode_varint_wide(value: int, width: int) -> bytes:
    """An encoding of exactly ``width`` bytes: longer than needed, but valid."""
    shortest = encode_varint(value)
    missing = width - len(shortest)
    assert 0 <= missing <= VARINT_BYTES_MAX - len(shortest)
    if missing == 0:
        return shortest
    return shortest[:-1] + bytes([shortest[-1] | 128]) + b"\x80" * (missing - 1) + b"\x00"


def read_varint(buffer: Bytes, position: int) -> tuple[int, int]:
    """The unsigned number at ``position``, and the position after it.

    Raises IndexError at the end of the buffer; a reader of a part of the buffer checks the returned position.
    """
    result = buffer[position]
    if result < 128:
        return result, position + 1
    if result == 255 and buffer[position : position + VARINT_BYTES_MAX] == _MINUS_ONE:
        return UINT64_MASK, position + VARINT_BYTES_MAX
    result &= 127
    shift = 7
    for index in range(position + 1, position + VARINT_BYTES_MAX):
        byte = buffer[index]
        if byte < 128:
            return (result | byte << shift) & UINT64_MASK, index + 1
        result |= (byte & 127) << shift
        shift += 7
    raise InvalidRequest("a varint is longer than ten bytes", position=position)
