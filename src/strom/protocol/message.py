"""The base of all messages: declared fields, keyword arguments to build one, equality by what would be on the wire.

Work per class is done once, when the class is created: ``_by_tag`` tells the codec how to decode a tag, and ``_plan``
what to write. ``fields.py`` shows how fields are declared.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, dataclass_transform

from strom.protocol.fields import (
    PACKED,
    VARINT,
    Field,
    Required,
    boolean,
    float32,
    float64,
    int32,
    int64,
    nested,
    packed,
    raw,
    repeated,
    text,
)
from strom.protocol.varint import encode_varint
from strom.runtime.files import Bytes

Payload = Bytes | Sequence[Bytes]
"""The value of a ``raw`` field: one buffer, or several that are concatenated on the wire."""


@dataclass_transform(
    kw_only_default=True,
    field_specifiers=(int32, int64, boolean, float32, float64, text, raw, nested, repeated, packed),
)
class Message:
    """The base of every message: a subclass declares fields, see ``fields.py``."""

    fields: ClassVar[dict[str, Field]] = {}
    """Name -> declaration."""
    _by_tag: ClassVar[dict[int, tuple[int, str, bool, Field]]] = {}
    """Tag -> (kind, name, repeated, declaration)."""
    _plan: ClassVar[tuple[tuple[str, int, bytes, bool, int, bool], ...]] = ()
    """What to write, in order: (name, kind, encoded tag, repeated, kind of a packed element, aligned)."""
    _defaults: ClassVar[dict[str, Any]] = {}
    cost: ClassVar[int] = 0
    """How many extra fields one of these counts for: more for messages that should be few."""

    def __init_subclass__(cls) -> None:
        cls.fields = {name: value for name, value in cls.__dict__.items() if isinstance(value, Field)}
        for name in cls.fields:
            delattr(cls, name)
        cls._defaults = {name: one.default for name, one in cls.fields.items() if one.default is not Required}
        cls._plan = tuple(
            (name, one.kind, encode_varint(one.tag), one.repeated, one.element, one.aligned)
            # A large payload goes last, so that the other fields are known while it arrives (``early_fields.py``).
            for name, one in sorted(cls.fields.items(), key=lambda item: (item[1].aligned, item[1].number))
        )
        cls._by_tag = {}
        for name, one in cls.fields.items():
            cls._by_tag[one.tag] = (one.kind, name, one.repeated, one)
            if one.kind == PACKED:
                # Writers may also send each number with its own tag; readers accept both.
                cls._by_tag[one.number << 3 | VARINT] = (one.element, name, True, one)
        assert len({one.number for one in cls.fields.values()}) == len(cls.fields)

    def __init__(self, **values: object) -> None:
        complete = self._defaults | values
        if complete.keys() != self.fields.keys():
            missing = sorted(self.fields.keys() - complete.keys())
            unknown = sorted(complete.keys() - self.fields.keys())
            raise TypeError(f"{type(self).__name__}: missing fields {missing}, unknown fields {unknown}")
        self.__dict__ = complete

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(_same(mine, other.__dict__[name]) for name, mine in self.__dict__.items())

    __hash__ = None  # type: ignore[assignment]  # a message is mutable

    def __repr__(self) -> str:
        values = ((name, self.__dict__[name]) for name in self.fields)
        shown = [f"{name}={_short(value)}" for name, value in values if value is not None and value != ()]
        return f"{type(self).__name__}({', '.join(shown)})"


def size_of(buffer: Bytes) -> int:
    """Bytes in a buffer (``len`` of a memoryview counts its items)."""
    return buffer.nbytes if isinstance(buffer, memoryview) else len(buffer)


def whole(payload: Payload) -> Bytes:
    """A payload as one buffer. A decoded one already is; several buffers are copied into one."""
    if isinstance(payload, bytes | bytearray | memoryview):
        return payload
    return b"".join(payload)


def _same(one: object, other: object) -> bool:
    """Equal on the wire: a payload equals its parts, a list equals a tuple."""
    if isinstance(one, bytes | bytearray | memoryview) or isinstance(other, bytes | bytearray | memoryview):
        return one is not None and other is not None and whole(one) == whole(other)  # type: ignore[arg-type]
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    return one == other


def _short(value: object) -> str:
    if isinstance(value, bytes | bytearray | memoryview):
        return f"<{size_of(value)} bytes>"
    if isinstance(value, list | tuple):
        shown = [_short(one) for one in value[:3]]
        return f"[{', '.join(shown)}{f', … {len(value)} in all' if len(value) > 3 else ''}]"
    return repr(value)
