"""How a message declares its fields: a number and a kind of value, and a default unless the field is required.

    class Example(Message):
        table_id: int = int64(1)                               # required
        partition_id: int | None = int64(2, default=None)      # optional
        keys: Sequence[Bytes] = repeated(3, RAW, default=())   # repeated
        path: TablePath = nested(4, TablePath)                 # a message inside the message

A field that is None (or an empty sequence) is not on the wire.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

# Kinds of values. The order matters to the decoder: numbers, then what has a length, then what has a fixed size.
INT32, INT64, BOOL, RAW, MESSAGE, TEXT, PACKED, FLOAT32, FLOAT64 = range(9)

# Wire types: what the lowest three bits of a tag say about the bytes that follow.
VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5

WIRE_TYPE = {
    INT32: VARINT,
    INT64: VARINT,
    BOOL: VARINT,
    RAW: LENGTH,
    MESSAGE: LENGTH,
    TEXT: LENGTH,
    PACKED: LENGTH,
    FLOAT32: FIXED32,
    FLOAT64: FIXED64,
}


class Required:
    """The default of a field that has none."""


@dataclass(frozen=True, kw_only=True)
class Field:
    """One declared field."""

    number: int
    kind: int
    default: object = Required
    repeated: bool = False
    element: int = INT32
    """The kind of a packed field's numbers."""
    message: Callable[[], type[Any]] | None = None
    """The class of a nested message; a function, since a message may contain itself."""
    aligned: bool = False
    """Whether it is a payload that begins at a multiple of eight bytes in its frame, or a message that has one."""

    def __post_init__(self) -> None:
        assert 0 < self.number < 1 << 16
        assert (self.kind == MESSAGE) == (self.message is not None)
        assert self.default is Required or self.default == (() if self.repeated else None)

    @property
    def tag(self) -> int:
        """The tag before each value on the wire."""
        return self.number << 3 | WIRE_TYPE[self.kind]


def int32(number: int, *, default: object = Required) -> Any:
    """A number of 32 bits."""
    return Field(number=number, kind=INT32, default=default)


def int64(number: int, *, default: object = Required) -> Any:
    """A number of 64 bits."""
    return Field(number=number, kind=INT64, default=default)


def boolean(number: int, *, default: object = Required) -> Any:
    """True or false."""
    return Field(number=number, kind=BOOL, default=default)


def float32(number: int, *, default: object = Required) -> Any:
    """A floating-point number of four bytes."""
    return Field(number=number, kind=FLOAT32, default=default)


def float64(number: int, *, default: object = Required) -> Any:
    """A floating-point number of eight bytes."""
    return Field(number=number, kind=FLOAT64, default=default)


def text(number: int, *, default: object = Required) -> Any:
    """A string, UTF-8 on the wire."""
    return Field(number=number, kind=TEXT, default=default)


def raw(number: int, *, default: object = Required, aligned: bool = False) -> Any:
    """Bytes: a view of the frame when decoded, never copied when large."""
    return Field(number=number, kind=RAW, default=default, aligned=aligned)


def nested(number: int, message: type[Any] | Callable[[], type[Any]], *, default: object = Required) -> Any:
    """A message inside the message."""
    late, aligned = _late(message)
    return Field(number=number, kind=MESSAGE, default=default, message=late, aligned=aligned)


def repeated(number: int, of: int | type[Any] | Callable[[], type[Any]], *, default: object) -> Any:
    """Any number of values of a kind, or of a message class."""
    if isinstance(of, int):
        return Field(number=number, kind=of, default=default, repeated=True)
    late, aligned = _late(of)
    return Field(number=number, kind=MESSAGE, default=default, repeated=True, message=late, aligned=aligned)


def packed(number: int, element: int, *, default: object) -> Any:
    """Any number of numbers behind one tag."""
    return Field(number=number, kind=PACKED, default=default, repeated=True, element=element)


def _late(message: type[Any] | Callable[[], type[Any]]) -> tuple[Callable[[], type[Any]], bool]:
    """A function that returns the class, and whether the class has an aligned payload."""
    if not isinstance(message, type):
        return message, False
    kind: Any = message
    return (lambda: kind), any(field.aligned for field in kind.fields.values())
