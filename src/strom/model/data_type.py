"""The types a column can have.

A type is immutable, compares by value and has three spellings: the peer's JSON (``to_json``), Arrow (``to_arrow``) and
SQL (``sql``). ``types.py`` reads those spellings. Limits are checked when a type is created, so every type that exists
can be stored.

    Boolean TinyInt SmallInt Int BigInt Float Double    fixed width
    Decimal(precision, scale)                           up to 38 digits
    Char(length) String Binary(length) Bytes            CHAR is UTF-8 like STRING, its length not enforced
    Date Time(p) Timestamp(p) TimestampLtz(p)           p digits after the second; LTZ is an instant, in UTC
    Array(element) Map(key, value) Row(fields)          nested, at most 32 deep
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import pyarrow as pa

from strom.errors import InvalidTable

DEPTH_MAX = 32
LENGTH_MAX = 2**31 - 1
DECIMAL_PRECISION_MAX = 38
NO_ID = -1

Json = dict[str, Any]


@dataclass(frozen=True)
class DataType:
    """The root of all types. ``nullable`` says whether NULL is a value of it."""

    nullable: bool = field(default=True, kw_only=True)

    root: ClassVar[str]
    """The type's name in the peer's JSON."""
    word: ClassVar[str]
    """The type's name in SQL."""

    def to_json(self) -> Json:
        """The peer's JSON form. ``nullable`` is only written when it is false."""
        json: Json = {"type": self.root, **self._parameters()}
        if not self.nullable:
            json["nullable"] = False
        return json

    def to_arrow(self) -> pa.DataType:
        """The Arrow type of a column of this type."""
        raise NotImplementedError

    def sql(self) -> str:
        """As in CREATE TABLE: ``BIGINT NOT NULL``. ``types.parse`` reads it back."""
        return self.sql_name() + ("" if self.nullable else " NOT NULL")

    def sql_name(self) -> str:
        """The SQL spelling without nullability."""
        return self.word

    def as_nullable(self, nullable: bool) -> Self:
        """The same type with this nullability."""
        return self if nullable == self.nullable else replace(self, nullable=nullable)

    def children(self) -> tuple[DataType, ...]:
        """The types directly inside this one."""
        return ()

    def depth(self) -> int:
        """Levels of nesting: 1 for a scalar."""
        return 1 + max((child.depth() for child in self.children()), default=0)

    @property
    def nested(self) -> bool:
        """Whether this is an array, a map or a row."""
        return False

    def __str__(self) -> str:
        return self.sql()

    def _parameters(self) -> Json:
        return {}


@dataclass(frozen=True)
class Boolean(DataType):
    root = word = "BOOLEAN"

    def to_arrow(self) -> pa.DataType:
        return pa.bool_()


@dataclass(frozen=True)
class TinyInt(DataType):
    root = word = "TINYINT"

    def to_arrow(self) -> pa.DataType:
        return pa.int8()


@dataclass(frozen=True)
class SmallInt(DataType):
    root = word = "SMALLINT"

    def to_arrow(self) -> pa.DataType:
        return pa.int16()


@dataclass(frozen=True)
class Int(DataType):
    root = "INTEGER"
    word = "INT"

    def to_arrow(self) -> pa.DataType:
        return pa.int32()


@dataclass(frozen=True)
class BigInt(DataType):
    root = word = "BIGINT"

    def to_arrow(self) -> pa.DataType:
        return pa.int64()


@dataclass(frozen=True)
class Float(DataType):
    root = word = "FLOAT"

    def to_arrow(self) -> pa.DataType:
        return pa.float32()


@dataclass(frozen=True)
class Double(DataType):
    root = word = "DOUBLE"

    def to_arrow(self) -> pa.DataType:
        return pa.float64()


@dataclass(frozen=True)
class String(DataType):
    root = word = "STRING"

    def to_arrow(self) -> pa.DataType:
        return pa.string()


@dataclass(frozen=True)
class Bytes(DataType):
    root = word = "BYTES"

    def to_arrow(self) -> pa.DataType:
        return pa.binary()


@dataclass(frozen=True)
class Date(DataType):
    root = word = "DATE"

    def to_arrow(self) -> pa.DataType:
        return pa.date32()


@dataclass(frozen=True)
class _WithLength(DataType):
    length: int

    def __post_init__(self) -> None:
        _limit(self.word, "length", self.length, 1, LENGTH_MAX)

    def sql_name(self) -> str:
        return f"{self.word}({self.length})"

    def _parameters(self) -> Json:
        return {"length": self.length}


@dataclass(frozen=True)
class Char(_WithLength):
    root = word = "CHAR"

    def to_arrow(self) -> pa.DataType:
        return pa.string()


@dataclass(frozen=True)
class Binary(_WithLength):
    root = word = "BINARY"

    def to_arrow(self) -> pa.DataType:
        return pa.binary(self.length)


@dataclass(frozen=True)
class Decimal(DataType):
    precision: int = 10
    scale: int = 0

    root = word = "DECIMAL"

    def __post_init__(self) -> None:
        _limit(self.word, "precision", self.precision, 1, DECIMAL_PRECISION_MAX)
        _limit(self.word, "scale", self.scale, 0, self.precision)

    def to_arrow(self) -> pa.DataType:
        return pa.decimal128(self.precision, self.scale)

    def sql_name(self) -> str:
        return f"DECIMAL({self.precision}, {self.scale})"

    def _parameters(self) -> Json:
        return {"precision": self.precision, "scale": self.scale}


@dataclass(frozen=True)
class _WithPrecision(DataType):
    precision: int = 6

    def __post_init__(self) -> None:
        _limit(self.word, "precision", self.precision, 0, 9)

    @property
    def unit(self) -> str:
        """The Arrow unit that holds this many digits: s, ms, us or ns."""
        return ("s", "ms", "us", "ns")[(self.precision + 2) // 3]

    def sql_name(self) -> str:
        return f"{self.word}({self.precision})"

    def _parameters(self) -> Json:
        return {"precision": self.precision}


@dataclass(frozen=True)
class Time(_WithPrecision):
    precision: int = 0

    root = "TIME_WITHOUT_TIME_ZONE"
    word = "TIME"

    def to_arrow(self) -> pa.DataType:
        return pa.time32(self.unit) if self.precision <= 3 else pa.time64(self.unit)


@dataclass(frozen=True)
class Timestamp(_WithPrecision):
    root = "TIMESTAMP_WITHOUT_TIME_ZONE"
    word = "TIMESTAMP"

    def to_arrow(self) -> pa.DataType:
        return pa.timestamp(self.unit)


@dataclass(frozen=True)
class TimestampLtz(_WithPrecision):
    root = "TIMESTAMP_WITH_LOCAL_TIME_ZONE"
    word = "TIMESTAMP_LTZ"

    def to_arrow(self) -> pa.DataType:
        return pa.timestamp(self.unit, tz="UTC")


@dataclass(frozen=True)
class _Nested(DataType):
    @property
    def nested(self) -> bool:
        return True

    def _check_depth(self) -> None:
        if self.depth() > DEPTH_MAX:
            raise InvalidTable(f"A type can be nested at most {DEPTH_MAX} levels deep", depth_max=DEPTH_MAX)


@dataclass(frozen=True)
class Array(_Nested):
    element: DataType

    root = word = "ARRAY"

    def __post_init__(self) -> None:
        self._check_depth()

    def to_arrow(self) -> pa.DataType:
        return pa.list_(pa.field("item", self.element.to_arrow(), nullable=self.element.nullable))

    def sql_name(self) -> str:
        return f"ARRAY<{self.element.sql()}>"

    def children(self) -> tuple[DataType, ...]:
        return (self.element,)

    def _parameters(self) -> Json:
        return {"element_type": self.element.to_json()}


@dataclass(frozen=True)
class Map(_Nested):
    """Keys are never NULL: Arrow does not allow it, and a lookup by NULL finds nothing."""

    key: DataType
    value: DataType

    root = word = "MAP"

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", self.key.as_nullable(False))
        self._check_depth()

    def to_arrow(self) -> pa.DataType:
        key = pa.field("key", self.key.to_arrow(), nullable=False)
        return pa.map_(key, pa.field("value", self.value.to_arrow(), nullable=self.value.nullable))

    def sql_name(self) -> str:
        return f"MAP<{self.key.sql()}, {self.value.sql()}>"

    def children(self) -> tuple[DataType, ...]:
        return (self.key, self.value)

    def _parameters(self) -> Json:
        return {"key_type": self.key.to_json(), "value_type": self.value.to_json()}


@dataclass(frozen=True)
class RowField:
    """One field of a row. The schema assigns its id, which is never reused; ``NO_ID`` until then."""

    name: str
    type: DataType
    id: int = NO_ID
    description: str | None = None

    def to_json(self) -> Json:
        json: Json = {"name": self.name, "field_type": self.type.to_json()}
        if self.description is not None:
            json["description"] = self.description
        if self.id != NO_ID:
            json["field_id"] = self.id
        return json


@dataclass(frozen=True)
class Row(_Nested):
    fields: tuple[RowField, ...]

    root = word = "ROW"

    def __post_init__(self) -> None:
        if not self.fields:
            raise InvalidTable("A ROW needs at least one field")
        names = [item.name for item in self.fields]
        if len(set(names)) < len(names) or "" in names:
            raise InvalidTable(f"The fields of a ROW need distinct names, not {names}", names=names)
        self._check_depth()

    def to_arrow(self) -> pa.DataType:
        return pa.struct(
            [pa.field(item.name, item.type.to_arrow(), nullable=item.type.nullable) for item in self.fields]
        )

    def sql_name(self) -> str:
        inside = ", ".join(f"{quoted(item.name)} {item.type.sql()}" for item in self.fields)
        return f"ROW<{inside}>"

    def children(self) -> tuple[DataType, ...]:
        return tuple(item.type for item in self.fields)

    def _parameters(self) -> Json:
        return {"fields": [item.to_json() for item in self.fields]}


SCALARS: tuple[type[DataType], ...] = (
    Boolean,
    TinyInt,
    SmallInt,
    Int,
    BigInt,
    Float,
    Double,
    String,
    Bytes,
    Date,
    Char,
    Binary,
    Decimal,
    Time,
    Timestamp,
    TimestampLtz,
)


def row_fields(data_type: DataType) -> Iterator[RowField]:
    """Every row field inside a type, parents first: the order in which ids are assigned."""
    if isinstance(data_type, Row):
        for item in data_type.fields:
            yield item
            yield from row_fields(item.type)
    else:
        for child in data_type.children():
            yield from row_fields(child)


def with_field_ids(data_type: DataType, next_id: int) -> tuple[DataType, int]:
    """The type with new ids for all row fields, from ``next_id`` up; and the first unused id."""
    match data_type:
        case Row():
            fields = []
            for item in data_type.fields:
                inner, after = with_field_ids(item.type, next_id + 1)
                fields.append(replace(item, type=inner, id=next_id))
                next_id = after
            return replace(data_type, fields=tuple(fields)), next_id
        case Array():
            element, next_id = with_field_ids(data_type.element, next_id)
            return replace(data_type, element=element), next_id
        case Map():
            key, next_id = with_field_ids(data_type.key, next_id)
            value, next_id = with_field_ids(data_type.value, next_id)
            return replace(data_type, key=key, value=value), next_id
        case _:
            return data_type, next_id


def quoted(name: str) -> str:
    """A name in SQL text: in backticks unless it is a plain word."""
    if name.isascii() and name.isidentifier():
        return name
    return "`" + name.replace("`", "``") + "`"


def _limit(word: str, what: str, value: int, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise InvalidTable(
            f"The {what} of {word} must be between {low} and {high}, not {value!r}", type=word, found=value
        )
