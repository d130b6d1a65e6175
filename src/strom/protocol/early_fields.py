"""Reads numbers of a message while its large payload is still arriving.

An aligned payload is written last in its message, so the other fields arrive first. Nothing is validated here as in
``decode``: the number is a hint, to be compared with the whole message once it has arrived.
"""

from __future__ import annotations

from strom.errors import InvalidRequest
from strom.protocol.fields import BOOL, MESSAGE, VARINT
from strom.protocol.message import Message
from strom.protocol.varint import read_varint
from strom.runtime.files import Bytes


def number_ahead(
    kind: type[Message], begun: Bytes, name: str, *, start: int = 0, absent: int | None = None
) -> int | None:
    """The number ``name`` of the first message in ``kind`` that has one; None if it has not arrived.

    ``absent`` if it will not arrive: the aligned payload, which comes last, has begun.
    """
    position = start
    try:
        while True:
            tag, position = read_varint(begun, position)
            rule = kind._by_tag.get(tag)
            if rule is None:
                if tag & 7 != VARINT:
                    return None
                _, position = read_varint(begun, position)  # padding before the payload
                continue
            what, found, _, field = rule
            number, position = read_varint(begun, position)
            if what == MESSAGE:
                kind = field.message()  # type: ignore[misc]  # and go on inside it
            elif what > BOOL:
                if field.aligned:
                    return absent
                position += number
            elif found == name:
                return number
    except (IndexError, InvalidRequest):
        return None
