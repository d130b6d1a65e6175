"""Strom's types as Spark's and back, and batches in exactly the Arrow form that Spark expects.

Spark checks the first batch of a task against the schema it knows, to the letter, and reads the rest by its
layout. So a reader's batches go through a ``Fit`` that is computed once; columns that already fit pass unchanged.

Strom            Spark                       going to Spark
CHAR(n)          STRING                      the length is a note in Strom
BINARY(n)        BINARY
TIME(p)          TIME(min(p, 6))             digits after the microsecond are cut (Spark has none)
TIMESTAMP(p)     TIMESTAMP_NTZ               the same
TIMESTAMP_LTZ(p) TIMESTAMP                   the same; an instant, whatever the session's time zone
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as spark

from strom.errors import InvalidTable, SchemaMismatch
from strom.model import types as strom
from strom.model.schema import Schema

DIGITS_MAX = 6
"""After the second: Spark keeps microseconds."""

_TIME = getattr(spark, "TimeType", None)
"""Exists since Spark 4.1."""

_TO_SPARK: dict[type[strom.DataType], spark.DataType] = {
    strom.Boolean: spark.BooleanType(),
    strom.TinyInt: spark.ByteType(),
    strom.SmallInt: spark.ShortType(),
    strom.Int: spark.IntegerType(),
    strom.BigInt: spark.LongType(),
    strom.Float: spark.FloatType(),
    strom.Double: spark.DoubleType(),
    strom.String: spark.StringType(),
    strom.Char: spark.StringType(),
    strom.Bytes: spark.BinaryType(),
    strom.Binary: spark.BinaryType(),
    strom.Date: spark.DateType(),
    strom.Timestamp: spark.TimestampNTZType(),
    strom.TimestampLtz: spark.TimestampType(),
}

_TO_STROM: dict[type[spark.DataType], strom.DataType] = {
    spark.BooleanType: strom.Boolean(),
    spark.ByteType: strom.TinyInt(),
    spark.ShortType: strom.SmallInt(),
    spark.IntegerType: strom.Int(),
    spark.LongType: strom.BigInt(),
    spark.FloatType: strom.Float(),
    spark.DoubleType: strom.Double(),
    spark.BinaryType: strom.Bytes(),
    spark.DateType: strom.Date(),
    spark.TimestampNTZType: strom.Timestamp(DIGITS_MAX),
    spark.TimestampType: strom.TimestampLtz(DIGITS_MAX),
}

_HINTS = {
    "void": "give the column a type: cast(NULL as STRING)",
    "variant": "store it as text: to_json(column)",
}

# --- Strom to Spark ------------------------------------------------------------------------------------------------


def spark_type(kind: strom.DataType) -> spark.DataType:
    """The Spark type that holds every value of a Strom type (to the microsecond)."""
    found = _TO_SPARK.get(type(kind))
    if found is not None:
        return found
    match kind:
        case strom.Decimal():
            return spark.DecimalType(kind.precision, kind.scale)
        case strom.Time():
            if _TIME is None:
                raise InvalidTable(
                    f"This Spark has no type for {kind}: use Spark 4.1 or newer, or leave it out"
                )
            made: spark.DataType = _TIME(min(kind.precision, DIGITS_MAX))
            return made
        case strom.Array():
            return spark.ArrayType(spark_type(kind.element), kind.element.nullable)
        case strom.Map():
            return spark.MapType(spark_type(kind.key), spark_type(kind.value), kind.value.nullable)
    assert isinstance(kind, strom.Row)
    return spark.StructType(
        [_field(one.name, one.type, one.description) for one in kind.fields],
    )


def spark_schema(schema: Schema, columns: tuple[str, ...] | None = None) -> spark.StructType:
    """The columns of a table, or some of them, with their comments."""
    positions = range(len(schema.columns)) if columns is None else schema.projected(columns)
    chosen = [schema.columns[position] for position in positions]
    return spark.StructType([_field(one.name, one.type, one.comment) for one in chosen])


def _field(name: str, kind: strom.DataType, comment: str | None) -> spark.StructField:
    metadata = {"comment": comment} if comment else None
    return spark.StructField(name, spark_type(kind), kind.nullable, metadata)


def exact_in_spark(kind: strom.DataType) -> bool:
    """Whether Spark sees the exact values: only then may its filters go to the server."""
    if isinstance(kind, strom.Time | strom.Timestamp | strom.TimestampLtz):
        return kind.precision <= DIGITS_MAX
    return not kind.nested


# --- Spark to Strom ------------------------------------------------------------------------------------------------


def strom_type(kind: spark.DataType, nullable: bool = True) -> strom.DataType:
    """The Strom type that holds every value of a Spark type; InvalidTable with a suggestion where there is none."""
    return _strom_type(kind).as_nullable(nullable)


def _strom_type(kind: spark.DataType) -> strom.DataType:
    found = _TO_STROM.get(type(kind))
    if found is not None:
        return found
    if _TIME is not None and isinstance(kind, _TIME):
        return strom.Time(kind.precision)
    match kind:
        case spark.DecimalType():
            return strom.Decimal(kind.precision, kind.scale)
        case spark.CharType():
            return strom.Char(kind.length)
        case spark.StringType() | spark.VarcharType():
            return strom.String()
        case spark.ArrayType():
            return strom.Array(strom_type(kind.elementType, kind.containsNull))
        case spark.MapType():
            return strom.Map(
                strom_type(kind.keyType, False), strom_type(kind.valueType, kind.valueContainsNull)
            )
        case spark.StructType():
            fields = [
                strom.RowField(one.name, strom_type(one.dataType, one.nullable), description=comment_of(one))
                for one in kind.fields
            ]
            return strom.Row(tuple(fields))
        case spark.UserDefinedType():
            return _strom_type(kind.sqlType())
    name = kind.simpleString()
    hint = _HINTS.get(name, "cast the column to a type that Strom has (docs/types.md)")
    raise InvalidTable(f"There is no column type for Spark's {name.upper()}: {hint}", spark_type=name)


def comment_of(field: spark.StructField) -> str | None:
    """The comment of a column."""
    comment = (field.metadata or {}).get("comment")
    return str(comment) if comment else None


# --- Arrow as Spark has it -----------------------------------------------------------------------------------------


def arrow_schema(schema: spark.StructType) -> pa.Schema:
    """The Arrow schema that Spark derives: what the first batch of a task must equal."""
    return pa.schema([_arrow_field(one.name, one.dataType, one.nullable) for one in schema.fields])


_ARROW: dict[type[spark.DataType], pa.DataType] = {
    spark.BooleanType: pa.bool_(),
    spark.ByteType: pa.int8(),
    spark.ShortType: pa.int16(),
    spark.IntegerType: pa.int32(),
    spark.LongType: pa.int64(),
    spark.FloatType: pa.float32(),
    spark.DoubleType: pa.float64(),
    spark.BinaryType: pa.binary(),
    spark.DateType: pa.date32(),
    spark.TimestampNTZType: pa.timestamp("us"),
    spark.TimestampType: pa.timestamp("us", "UTC"),
}


def _arrow_field(name: str, kind: spark.DataType, nullable: bool) -> pa.Field:
    return pa.field(name, _arrow_type(kind), nullable)


def _arrow_type(kind: spark.DataType) -> pa.DataType:
    found = _ARROW.get(type(kind))
    if found is not None:
        return found
    if _TIME is not None and isinstance(kind, _TIME):
        return pa.time64("ns")
    match kind:
        case spark.DecimalType():
            return pa.decimal128(kind.precision, kind.scale)
        case spark.ArrayType():
            return pa.list_(_arrow_field("element", kind.elementType, kind.containsNull))
        case spark.MapType():
            key = _arrow_field("key", kind.keyType, False)
            return pa.map_(key, _arrow_field("value", kind.valueType, kind.valueContainsNull))
        case spark.StructType():
            return pa.struct([_arrow_field(one.name, one.dataType, one.nullable) for one in kind.fields])
        case spark.StringType() | spark.CharType() | spark.VarcharType():
            return pa.string()
    raise SchemaMismatch(f"a table of Strom holds nothing that Spark could read as {kind.simpleString()}")


Change = Callable[[pa.Array], pa.Array]


class Fit:
    """Brings batches of one schema into the form of another: columns by name, layout by type."""

    def __init__(self, have: pa.Schema, want: pa.Schema) -> None:
        self.schema = want
        self._positions = [have.get_field_index(name) for name in want.names]
        assert -1 not in self._positions
        self._changes = [
            _change(have.field(position).type, field.type)
            for position, field in zip(self._positions, want, strict=True)
        ]
        self._same = have.equals(want) and self._changes == [None] * len(self._changes)

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The same rows."""
        if self._same:
            return batch
        columns = [
            batch.column(position) if change is None else change(batch.column(position))
            for position, change in zip(self._positions, self._changes, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def _change(have: pa.DataType, want: pa.DataType) -> Change | None:
    """How to convert an array to another type; None if it already has it."""
    if pa.types.is_nested(have) or pa.types.is_nested(want):
        return _nested_change(have, want)
    if pa.types.is_timestamp(have) and have.unit == "ns" and pa.types.is_timestamp(want):
        return lambda array: _floored(array, have.tz).cast(want)
    if pa.types.is_time64(have) and have.unit == "ns" and have.equals(want):
        return _to_microseconds
    return None if have.equals(want) else lambda array: array.cast(want)


def _floored(array: pa.Array, zone: str | None) -> pa.Array:
    """Whole microseconds, rounded down. As integers: pyarrow's own rounding overflows at the earliest instant."""
    ticks = array.view(pa.int64())
    whole = pc.divide(ticks, 1000)
    behind = pc.less(pc.subtract(ticks, pc.multiply(whole, 1000)), 0)
    return pc.subtract(whole, behind.cast(pa.int64())).view(pa.timestamp("us", zone))


def _to_microseconds(array: pa.Array) -> pa.Array:
    whole = pc.multiply(pc.divide(array.view(pa.int64()), 1000), 1000)
    return whole.view(array.type)


def _nested_change(have: pa.DataType, want: pa.DataType) -> Change | None:
    if pa.types.is_list(have) and pa.types.is_list(want):
        inner = _change(have.value_type, want.value_type)
        return None if inner is None else lambda array: _relisted(array, want, inner(array.values))
    if pa.types.is_map(have) and pa.types.is_map(want):
        changes = _change(have.key_type, want.key_type), _change(have.item_type, want.item_type)
        return None if changes == (None, None) else lambda array: _remapped(array, want, changes)
    if pa.types.is_struct(have) and pa.types.is_struct(want):
        return _struct_change(have, want)
    raise SchemaMismatch(f"a column that is {have} cannot be read as {want}")


def _relisted(array: pa.Array, want: pa.DataType, values: pa.Array) -> pa.Array:
    """The same lists over other values, nothing copied."""
    return pa.Array.from_buffers(
        want, len(array), array.buffers()[:2], array.null_count, array.offset, children=[values]
    )


def _remapped(array: pa.Array, want: pa.DataType, changes: tuple[Change | None, Change | None]) -> pa.Array:
    parts = [
        part if change is None else change(part)
        for part, change in zip((array.keys, array.items), changes, strict=True)
    ]
    entries = pa.StructArray.from_arrays(parts, fields=[want.key_field, want.item_field])
    return _relisted(array, want, entries)


def _struct_change(have: pa.DataType, want: pa.DataType) -> Change | None:
    positions = [have.get_field_index(want.field(at).name) for at in range(want.num_fields)]
    if -1 in positions:
        raise SchemaMismatch(f"a column that is {have} cannot be read as {want}")
    fields: list[Any] = [want.field(at) for at in range(want.num_fields)]
    changes = [
        _change(have.field(position).type, field.type)
        for position, field in zip(positions, fields, strict=True)
    ]
    if have.equals(want) and not any(changes):
        return None

    def change(array: pa.Array) -> pa.Array:
        children = [
            array.field(position) if inner is None else inner(array.field(position))
            for position, inner in zip(positions, changes, strict=True)
        ]
        return pa.StructArray.from_arrays(children, fields=fields, mask=array.is_null())

    return change
