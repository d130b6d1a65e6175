"""docs/formats/protocol.md and protocol/ say the same."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from pathlib import Path

from strom import errors
from strom.protocol import fields as kinds
from strom.protocol.api_keys import APIS, OWN_KEYS_FROM, Role
from strom.protocol.codec import DEPTH_MAX, FIELDS_MAX
from strom.protocol.error_codes import CODES
from strom.protocol.fields import Field, Required
from strom.protocol.frame import LENGTH, REQUEST_HEAD, RESPONSE_HEAD
from strom.protocol.message import Message
from strom.protocol.messages.own_keys import LookupRowQuestion
from strom.protocol.predicate_wire import LIKES, NEGATED_LIKE

PAGE = (Path(__file__).parents[2] / "docs" / "formats" / "protocol.md").read_text()

OWN_MODULES = (
    "strom.protocol.messages.cut",
    "strom.protocol.messages.damage",
    "strom.protocol.messages.copies",
    "strom.protocol.messages.inner",
    "strom.protocol.messages.operations",
    "strom.protocol.messages.own",
    "strom.protocol.messages.own_keys",
    "strom.protocol.messages.stages",
    "strom.protocol.messages.lake",
    "strom.protocol.messages.replication",
)

ROLES = {
    Role.CONNECTION: "the listener",
    Role.ANY: "any server",
    Role.COORDINATOR: "coordinator",
    Role.LEADER: "the bucket's leader",
    Role.TABLET_SERVER: "a tablet server",
}
TYPES = {
    kinds.INT32: "int32",
    kinds.INT64: "int64",
    kinds.BOOL: "bool",
    kinds.RAW: "bytes",
    kinds.TEXT: "string",
    kinds.FLOAT32: "float",
    kinds.FLOAT64: "double",
}


def table(header: str) -> list[list[str]]:
    """The rows of the table whose header begins so."""
    lines = PAGE.splitlines()
    start = next(index for index, line in enumerate(lines) if line.startswith(f"| {header} |"))
    rows = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


def test_the_page_lists_the_calls() -> None:
    def versions(low: int, high: int) -> str:
        return str(low) if low == high else f"{low}\N{EN DASH}{high}"

    expected = [
        [str(key), api.name, versions(api.min_version, api.max_version), ROLES[api.role]]
        for key, api in sorted(APIS.items())
    ]
    assert table("key") == expected


def test_the_page_lists_the_errors() -> None:
    groups = (errors.Retry, errors.Refused, errors.Fenced, errors.Corrupt, errors.Closed)

    def group(kind: type[errors.StromError]) -> str:
        return next((one.__name__ for one in groups if issubclass(kind, one)), "\N{EN DASH}")

    expected = [
        [str(code), kind.__name__, group(kind)]
        for kind, code in sorted(CODES.items(), key=lambda row: row[1])
    ]
    rows = table("code")
    assert [row[:3] for row in rows] == expected
    assert all(row[3] for row in rows)


def own_messages() -> Iterator[type[Message]]:
    seen: list[type[Message]] = []

    def visit(message: type[Message]) -> None:
        if message.__module__ in OWN_MODULES and message not in seen:
            seen.append(message)
            for field in message.fields.values():
                if field.message is not None:
                    visit(field.message())

    for key, api in sorted(APIS.items()):
        if key >= OWN_KEYS_FROM:
            visit(api.request)
            visit(api.response)
    visit(LookupRowQuestion)  # travels encoded, within bytes
    return iter(seen)


def type_of(field: Field) -> str:
    if field.message is not None:
        return str(field.message().__name__)
    return TYPES[field.element if field.kind == kinds.PACKED else field.kind]


def presence_of(field: Field) -> str:
    if field.repeated:
        return "packed" if field.kind == kinds.PACKED else "repeated"
    return "required" if field.default is Required else "optional"


def test_the_page_lists_the_fields_of_our_own_messages() -> None:
    expected = {
        (message.__name__, str(field.number), name, type_of(field), presence_of(field))
        for message in own_messages()
        for name, field in message.fields.items()
    }
    rows = [tuple(row) for row in table("message | number")]
    assert set(rows) == expected
    assert len(rows) == len(expected)


def test_a_frame_begins_as_the_page_says() -> None:
    codes = {"i32": "i", "i16": "h", "i8": "b"}
    for header, head in (("request field", REQUEST_HEAD), ("response field", RESPONSE_HEAD)):
        types = [row[1] for row in table(header) if row[1]]
        assert ">" + codes[types[0]] == LENGTH.format
        assert struct.Struct(">" + "".join(codes[one] for one in types[1:])).format == head.format


def test_the_bounds_on_the_page_are_those_of_the_code() -> None:
    assert f"At most {DEPTH_MAX} messages" in PAGE
    assert f"at most {FIELDS_MAX:,} values" in PAGE
    for function in LIKES.values():
        assert re.search(rf"\b{function + NEGATED_LIKE}\b", PAGE)
