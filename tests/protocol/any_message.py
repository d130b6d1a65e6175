"""Any message of any class: as a Hypothesis strategy, and as the protobuf package's own message."""

from __future__ import annotations

from functools import cache
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import strategies as st

from strom.protocol import fields as kinds
from strom.protocol.api_keys import APIS
from strom.protocol.fields import Field, Required
from strom.protocol.message import Message
from strom.protocol.messages.connection import ErrorResponse

MESSAGES: list[type[Message]] = [
    ErrorResponse,
    *(kind for api in APIS.values() for kind in (api.request, api.response)),
]
"""Everything that is the body of a frame."""

SCALARS: dict[int, st.SearchStrategy[Any]] = {
    kinds.INT32: st.integers(-(2**31), 2**31 - 1),
    kinds.INT64: st.integers(-(2**63), 2**63 - 1),
    kinds.BOOL: st.booleans(),
    kinds.FLOAT32: st.floats(width=32, allow_nan=False),
    kinds.FLOAT64: st.floats(allow_nan=False),
    kinds.TEXT: st.text(max_size=20),
    kinds.RAW: st.binary(max_size=200),
}


@cache  # a strategy looks at itself once, which takes longer than to draw from it
def any_message(kind: type[Message], depth: int = 0) -> st.SearchStrategy[Any]:
    """A message of this class with any values; a message that contains itself ends after a few levels."""
    return st.builds(kind, **{name: _any_field(field, depth) for name, field in kind.fields.items()})


def _any_field(field: Field, depth: int) -> st.SearchStrategy[Any]:
    if field.kind == kinds.MESSAGE:
        if depth > 4 and field.default is not Required:
            return st.just(field.default)
        assert field.message is not None
        one = any_message(field.message(), depth + 1)
    else:
        one = SCALARS[field.element if field.kind == kinds.PACKED else field.kind]
    if field.repeated:
        return st.lists(one, max_size=3)
    return one if field.default is Required else st.none() | one


PROTOBUF_TYPES = {
    kinds.INT32: descriptor_pb2.FieldDescriptorProto.TYPE_INT32,
    kinds.INT64: descriptor_pb2.FieldDescriptorProto.TYPE_INT64,
    kinds.BOOL: descriptor_pb2.FieldDescriptorProto.TYPE_BOOL,
    kinds.FLOAT32: descriptor_pb2.FieldDescriptorProto.TYPE_FLOAT,
    kinds.FLOAT64: descriptor_pb2.FieldDescriptorProto.TYPE_DOUBLE,
    kinds.TEXT: descriptor_pb2.FieldDescriptorProto.TYPE_STRING,
    kinds.RAW: descriptor_pb2.FieldDescriptorProto.TYPE_BYTES,
    kinds.MESSAGE: descriptor_pb2.FieldDescriptorProto.TYPE_MESSAGE,
}


@cache
def protobuf_class(kind: type[Message]) -> type[Any]:
    """The same message as a class of the protobuf package."""
    file = descriptor_pb2.FileDescriptorProto(name=f"{kind.__name__}.proto", package="t", syntax="proto2")
    _declare(file, kind, set())
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"t.{kind.__name__}"))


def _declare(file: descriptor_pb2.FileDescriptorProto, kind: type[Message], done: set[type[Message]]) -> None:
    if kind in done:
        return
    done.add(kind)
    declared = file.message_type.add(name=kind.__name__)
    for name, field in kind.fields.items():
        proto = declared.field.add(name=name, number=field.number)
        proto.type = PROTOBUF_TYPES[field.element if field.kind == kinds.PACKED else field.kind]
        if field.repeated:
            proto.label = proto.LABEL_REPEATED
            proto.options.packed = field.kind == kinds.PACKED
        else:
            proto.label = proto.LABEL_REQUIRED if field.default is Required else proto.LABEL_OPTIONAL
        if field.message is not None:
            proto.type_name = f".t.{field.message().__name__}"
            _declare(file, field.message(), done)


def to_protobuf(message: Message) -> Any:
    """The same values in a message of the protobuf package."""
    target = protobuf_class(type(message))()
    _fill(target, message)
    return target


def _fill(target: Any, message: Message) -> None:
    for name, field in message.fields.items():
        value = getattr(message, name)
        if field.kind == kinds.MESSAGE:
            for one in value if field.repeated else [value] if value is not None else []:
                inner = getattr(target, name).add() if field.repeated else getattr(target, name)
                inner.SetInParent()
                _fill(inner, one)
        elif field.repeated:
            getattr(target, name).extend(value)
        elif value is not None:
            setattr(target, name, value)
