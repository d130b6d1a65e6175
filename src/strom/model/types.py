"""Reading types: from the peer's JSON, from Arrow, from SQL text. Re-exports the types themselves.

from_json({"type": "INTEGER", "nullable": false})  ->  Int(nullable=False)
from_arrow(pa.large_string(), nullable=True)        ->  String()
parse("ARRAY<INT NOT NULL>")                        ->  Array(Int(nullable=False))
"""

from __future__ import annotations

import pyarrow as pa

from strom.errors import InvalidTable
from strom.model.data_type import (
    DECIMAL_PRECISION_MAX,
    DEPTH_MAX,
    LENGTH_MAX,
    NO_ID,
    SCALARS,
    Array,
    BigInt,
    Binary,
    Boolean,
    Bytes,
    Char,
    DataType,
    Date,
    Decimal,
    Double,
    Float,
    Int,
    Map,
    Row,
    RowField,
    SmallInt,
    String,
    Time,
    Timestamp,
    TimestampLtz,
    TinyInt,
    row_fields,
    with_field_ids,
)
from strom.model.document import Document
from strom.model.type_text import parse

__all__ = [
    "NO_ID",
    "SCALARS",
    "Array",
    "BigInt",
    "Binary",
    "Boolean",
    "Bytes",
    "Char",
    "DataType",
    "Date",
    "Decimal",
    "Double",
    "Float",
    "Int",
    "Map",
    "Row",
    "RowField",
    "SmallInt",
    "String",
    "Time",
    "Timestamp",
    "TimestampLtz",
    "TinyInt",
    "from_arrow",
    "from_json",
    "parse",
    "row_fields",
    "with_field_ids",
]

_BY_ROOT = {kind.root: kind for kind in SCALARS}


def from_json(json: object, path: str = "type") -> DataType:
    """The type in the peer's JSON; :class:`InvalidTable` names the place that is wrong."""
    return _read(Document(json, path, InvalidTable), 1)


def _read(doc: Document, depth: int) -> DataType:
    if depth > DEPTH_MAX:
        doc.refuse("", f"is nested more than {DEPTH_MAX} deep", depth_max=DEPTH_MAX)
    root = doc.text("type")
    nullable = doc.flag("nullable", default=True)
    kind = _BY_ROOT.get(root)
    if kind is not None:
        return _read_scalar(kind, doc, nullable)
    if root == Array.root:
        return Array(_read(doc.document("element_type"), depth + 1), nullable=nullable)
    if root == Map.root:
        key = _read(doc.document("key_type"), depth + 1)
        return Map(key, _read(doc.document("value_type"), depth + 1), nullable=nullable)
    if root != Row.root:
        known = sorted([*_BY_ROOT, Array.root, Map.root, Row.root])
        doc.refuse("type", f"is {root!r}, which is not one of {', '.join(known)}", found=root)
    fields = tuple(_read_field(item, depth + 1) for item in doc.documents("fields"))
    return Row(fields, nullable=nullable)


def _read_scalar(kind: type[DataType], doc: Document, nullable: bool) -> DataType:
    if kind is Decimal:
        precision = doc.integer("precision", low=1, high=DECIMAL_PRECISION_MAX, default=10)
        scale = doc.integer("scale", low=0, high=precision, default=0)
        return Decimal(precision, scale, nullable=nullable)
    if kind is Char or kind is Binary:
        return kind(doc.integer("length", low=1, high=LENGTH_MAX, default=1), nullable=nullable)
    if kind is Time or kind is Timestamp or kind is TimestampLtz:
        default = 0 if kind is Time else 6
        return kind(doc.integer("precision", low=0, high=9, default=default), nullable=nullable)
    return kind(nullable=nullable)


def _read_field(doc: Document, depth: int) -> RowField:
    return RowField(
        name=doc.text("name"),
        type=_read(doc.document("field_type"), depth),
        id=doc.integer("field_id", low=0, default=NO_ID),
        description=doc.text_or_none("description"),
    )


def from_arrow(arrow: pa.DataType, nullable: bool = True) -> DataType:
    """The type that holds every value of an Arrow type.

    Layout variants (large, view, dictionary, run-end, fixed-size list, extension) become the plain type; unsigned and
    half-width numbers become the next wider type. Other types are refused with a suggestion.
    """
    kind = _SIMPLE.get(str(arrow))
    if kind is None:
        kind = _from_parametric(arrow)
    if kind is None:
        kind = _from_nested(arrow)
    if kind is None:
        hint = _HINTS.get(str(arrow), "cast the column to a type that Strom has (docs/types.md)")
        raise InvalidTable(f"There is no column type for Arrow's {arrow}: {hint}", arrow_type=str(arrow))
    return kind.as_nullable(nullable)


_SIMPLE: dict[str, DataType] = {
    "bool": Boolean(),
    "int8": TinyInt(),
    "uint8": SmallInt(),
    "int16": SmallInt(),
    "uint16": Int(),
    "int32": Int(),
    "uint32": BigInt(),
    "int64": BigInt(),
    "halffloat": Float(),
    "float": Float(),
    "double": Double(),
    "string": String(),
    "large_string": String(),
    "string_view": String(),
    "binary": Bytes(),
    "large_binary": Bytes(),
    "binary_view": Bytes(),
    "date32[day]": Date(),
    "date64[ms]": Date(),
    "time32[s]": Time(0),
    "time32[ms]": Time(3),
    "time64[us]": Time(6),
    "time64[ns]": Time(9),
}

_HINTS = {
    "uint64": "cast it to int64, or to decimal128(20, 0) when values pass 2^63",
    "null": "give the column a type, for example pa.string()",
    "month_day_nano_interval": "store the interval as a number of its smallest unit",
    **{
        f"duration[{unit}]": "cast it to int64 and say the unit in the name"
        for unit in ("s", "ms", "us", "ns")
    },
}

_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}


def _from_parametric(arrow: pa.DataType) -> DataType | None:
    if pa.types.is_timestamp(arrow):
        digits = _DIGITS[arrow.unit]
        return Timestamp(digits) if arrow.tz is None else TimestampLtz(digits)
    if pa.types.is_decimal(arrow):
        if arrow.precision > DECIMAL_PRECISION_MAX or not 0 <= arrow.scale <= arrow.precision:
            return None
        return Decimal(arrow.precision, arrow.scale)
    if pa.types.is_fixed_size_binary(arrow):
        return Binary(arrow.byte_width)
    if pa.types.is_dictionary(arrow) or pa.types.is_run_end_encoded(arrow):
        return from_arrow(arrow.value_type)
    if isinstance(arrow, pa.BaseExtensionType):
        return from_arrow(arrow.storage_type)
    return None


def _from_nested(arrow: pa.DataType) -> DataType | None:
    if pa.types.is_map(arrow):
        return Map(from_arrow(arrow.key_type), from_arrow(arrow.item_type, arrow.item_field.nullable))
    if _is_list(arrow):
        return Array(from_arrow(arrow.value_type, arrow.value_field.nullable))
    if pa.types.is_struct(arrow):
        fields = [arrow.field(i) for i in range(arrow.num_fields)]
        return Row(tuple(RowField(item.name, from_arrow(item.type, item.nullable)) for item in fields))
    return None


def _is_list(arrow: pa.DataType) -> bool:
    return bool(
        pa.types.is_list(arrow)
        or pa.types.is_large_list(arrow)
        or pa.types.is_fixed_size_list(arrow)
        or pa.types.is_list_view(arrow)
        or pa.types.is_large_list_view(arrow)
    )
