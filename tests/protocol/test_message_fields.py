"""What is on the wire stays as it is: clients that we do not build read and write it by these numbers.

``message_fields.txt`` has a line per field. A field may be added there; one that is there never changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from protocol.any_message import MESSAGES
from strom.protocol import fields as kinds
from strom.protocol.fields import Field, Required
from strom.protocol.message import Message

FILE = Path(__file__).parent / "message_fields.txt"
WORDS = {
    kinds.INT32: "int32",
    kinds.INT64: "int64",
    kinds.BOOL: "bool",
    kinds.FLOAT32: "float",
    kinds.FLOAT64: "double",
    kinds.TEXT: "string",
    kinds.RAW: "bytes",
}


def _word(field: Field) -> str:
    if field.kind == kinds.MESSAGE:
        assert field.message is not None
        word = field.message().__name__
    elif field.kind == kinds.PACKED:
        word = f"packed {WORDS[field.element]}"
    else:
        word = WORDS[field.kind]
    if field.repeated:
        return f"repeated {word}"
    return word if field.default is Required else f"optional {word}"


def _every(kind: type[Message], found: dict[str, type[Message]]) -> None:
    name = f"{kind.__module__.rsplit('.', 1)[1]}.{kind.__name__}"
    if name in found:
        return
    found[name] = kind
    for field in kind.fields.values():
        if field.kind == kinds.MESSAGE:
            assert field.message is not None
            _every(field.message(), found)


def _lines() -> Iterator[str]:
    found: dict[str, type[Message]] = {}
    for kind in MESSAGES:
        _every(kind, found)
    for name in sorted(found):
        for field_name, field in sorted(found[name].fields.items(), key=lambda one: one[1].number):
            yield f"{name} {field.number} {field_name} {_word(field)}"


def test_every_field_has_the_number_and_the_type_that_it_always_had() -> None:
    assert list(_lines()) == FILE.read_text().splitlines()
