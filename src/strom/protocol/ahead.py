"""What can be known of a message while its large payload is still arriving.

An aligned payload is written last in its message, so the numbers beside it arrive first. Nothing here is checked as
``decode`` does it: what is found is a hint, to be held against the whole message when that is there.
"""

from __future__ import annotations

from strom.errors import InvalidRequest
from strom.protocol.fields import BOOL, MESSAGE
from strom.protocol.message import Message
from strom.protocol.varint import read_varint
from strom.runtime.files import Bytes


def number_ahead(kind: type[Message], begun: Bytes, name: str, *, start: int = 0) -> int | None:
    """The number ``name`` of the first message in ``kind`` that has one; None when it has not arrived."""
    position = start
    try:
        while True:
            tag, position = read_varint(begun, position)
            rule = kind._by_tag.get(tag)
            if rule is None:
                return None
            what, found, _, field = rule
            number, position = read_varint(begun, position)
            if what == MESSAGE:
                kind = field.message()  # type: ignore[misc]  # and go on inside it
            elif what > BOOL:
                position += number
            elif found == name:
                return number
    except (IndexError, InvalidRequest):
        return None
