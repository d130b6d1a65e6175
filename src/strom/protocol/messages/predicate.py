"""A filter on the wire: a tree over field ids. ``protocol/predicate_wire.py`` turns it into the model's."""

from __future__ import annotations

from collections.abc import Sequence

from strom.protocol.fields import boolean, float32, float64, int32, int64, nested, raw, repeated, text
from strom.protocol.message import Message
from strom.runtime.files import Bytes


class Literal(Message):
    """One value; ``literal_type`` says which field holds it."""

    literal_type: int = int32(1)
    is_null: bool = boolean(2)
    boolean_value: bool | None = boolean(3, default=None)
    int_value: int | None = int32(4, default=None)
    bigint_value: int | None = int64(5, default=None)
    float_value: float | None = float32(6, default=None)
    double_value: float | None = float64(7, default=None)
    string_value: str | None = text(8, default=None)
    binary_value: Bytes | None = raw(9, default=None)
    decimal_value: int | None = int64(10, default=None)
    timestamp_millis_value: int | None = int64(11, default=None)
    timestamp_nano_of_millis_value: int | None = int32(12, default=None)
    decimal_bytes: Bytes | None = raw(13, default=None)


class LeafPredicate(Message):
    """One comparison of one column."""

    function: int = int32(1)
    field_id: int = int32(2)
    literals: Sequence[Literal] = repeated(3, Literal, default=())


class CompoundPredicate(Message):
    """Several predicates that must all hold (function 0), or of which one must (1)."""

    function: int = int32(1)
    children: Sequence[WirePredicate] = repeated(2, lambda: WirePredicate, default=())


class WirePredicate(Message):
    """A leaf (type 0) or a compound (type 1)."""

    cost = 70  # a filter of more than a thousand parts is refused soon, not after all of them were read

    type: int = int32(1)
    leaf: LeafPredicate | None = nested(2, LeafPredicate, default=None)
    compound: CompoundPredicate | None = nested(3, CompoundPredicate, default=None)
