"""Every type there and back: types by types, batches by batches, and a table of all of them through a real Spark."""

from __future__ import annotations

import datetime as dt
import math
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import types as spark_types
from pyspark.sql.pandas.types import to_arrow_schema

import strategies
import strom.spark
from spark.place import drain, table_on
from strom.errors import InvalidTable
from strom.model import types as t
from strom.model.schema import Schema
from strom.spark.connect.types import Fit, arrow_schema, spark_schema, spark_type, strom_type
from strom.testing.process import ServerProcess


@given(kind=strategies.data_types())
@settings(max_examples=100, deadline=None)
def test_a_type_that_went_to_spark_comes_back_as_what_holds_its_values(kind: t.DataType) -> None:
    there = spark_type(kind)
    back = strom_type(there, kind.nullable)
    assert spark_type(back) == there
    assert back.nullable == kind.nullable
    if not any(
        isinstance(one, t.Char | t.Binary | t.Time | t.Timestamp | t.TimestampLtz) for one in _all(kind)
    ):
        assert back.sql() == kind.sql()


def _all(kind: t.DataType) -> list[t.DataType]:
    return [kind, *(one for child in kind.children() for one in _all(child))]


@given(schema=strategies.schemas())
@settings(max_examples=100, deadline=None)
def test_our_idea_of_sparks_arrow_schema_is_sparks(schema: Schema) -> None:
    columns = spark_schema(schema)
    assert arrow_schema(columns).equals(to_arrow_schema(columns, timezone="UTC"))


@given(data=st.data())
@settings(max_examples=100, deadline=None)
def test_a_batch_in_sparks_form_holds_the_same_values(data: st.DataObject) -> None:
    schema = data.draw(strategies.schemas())
    batch = data.draw(strategies.record_batches(schema, max_rows=6))
    target = arrow_schema(spark_schema(schema))
    found = Fit(batch.schema, target)(batch)
    found.validate(full=True)
    assert found.schema.equals(target)
    for name in batch.schema.names:
        have, want = found.column(name), batch.column(name)
        assert _plain(have) == [_cut(value) for value in _plain(want)]


def test_columns_come_in_the_order_that_is_wanted_and_no_others() -> None:
    batch = pa.record_batch({"a": [1, 2], "b": [3, 4], "c": [5, 6]})
    for names in (["b", "a"], ["c", "a", "b"], ["a", "b", "c"]):
        wanted = pa.schema([(name, pa.int64()) for name in names])
        assert Fit(batch.schema, wanted)(batch).equals(batch.select(names)), names


def test_a_time_is_cut_also_where_the_type_is_sparks_own() -> None:
    schema = pa.schema([("at", pa.time64("ns")), ("all", pa.list_(pa.time64("ns")))])
    batch = pa.record_batch(
        [pa.array([1001], pa.time64("ns")), pa.array([[1001, 999]], schema.field(1).type)], schema
    )
    found = Fit(schema, schema)(batch)
    assert _plain(found.column(0)) == [Moment(1000)]
    assert _plain(found.column(1)) == [[Moment(1000), Moment(0)]]


def test_the_earliest_moment_is_rounded_down_too() -> None:
    have = pa.schema([("at", pa.timestamp("ns"))])
    batch = pa.record_batch([pa.array([-(2**63), -1, None, 1999], pa.timestamp("ns"))], have)
    found = Fit(have, pa.schema([("at", pa.timestamp("us"))]))(batch)
    assert found.column(0).view(pa.int64()).to_pylist() == [-(2**63) // 1000, -1, None, 1]


def _plain(array: pa.Array) -> list[Any]:
    """Values that can be compared: moments as whole nanoseconds."""
    return [_value(scalar) for scalar in array]


def _value(scalar: pa.Scalar) -> Any:
    kind = scalar.type
    if not scalar.is_valid:
        return None
    if pa.types.is_timestamp(kind) or pa.types.is_time(kind):
        ticks = scalar.value * {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}[kind.unit]
        return Moment(ticks)
    if pa.types.is_map(kind):
        entries = scalar.values
        return [(_value(entries[at]["key"]), _value(entries[at]["value"])) for at in range(len(entries))]
    if pa.types.is_list(kind):
        return [_value(one) for one in scalar.values]
    if pa.types.is_struct(kind):
        return {name: _value(scalar[name]) for name in (kind.field(at).name for at in range(kind.num_fields))}
    value = scalar.as_py()
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


class Moment(int):
    """Nanoseconds since the beginning."""


def _cut(value: Any) -> Any:
    """What Spark keeps of a value: whole microseconds, rounded down."""
    if isinstance(value, Moment):
        return Moment(value // 1000 * 1000)
    if isinstance(value, list | tuple):
        return type(value)(_cut(one) for one in value)
    return {name: _cut(one) for name, one in value.items()} if isinstance(value, dict) else value


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        (spark_types.NullType(), "give the column a type"),
        (spark_types.VariantType(), "to_json"),
        (spark_types.DayTimeIntervalType(), "cast the column"),
    ],
)
def test_a_type_that_strom_does_not_have_is_refused_with_advice(kind: Any, sentence: str) -> None:
    with pytest.raises(InvalidTable, match=sentence):
        strom_type(kind)


def test_text_of_any_kind_is_text_and_char_keeps_its_length() -> None:
    assert strom_type(spark_types.VarcharType(9)) == t.String()
    assert strom_type(spark_types.CharType(3), False) == t.Char(3, nullable=False)


# --- through Spark -------------------------------------------------------------------------------------------------

UTC = dt.UTC
SPRING = dt.datetime(2026, 3, 8, 6, 30, tzinfo=UTC)
"""An hour after clocks went forward in St. John's."""
COLUMNS: dict[str, tuple[str, list[Any]]] = {
    "b": ("BOOLEAN", [True, False]),
    "i8": ("TINYINT", [-128, 127]),
    "i16": ("SMALLINT", [-(2**15), 2**15 - 1]),
    "i32": ("INT", [-(2**31), 2**31 - 1]),
    "i64": ("BIGINT", [-(2**63), 2**63 - 1]),
    "f32": ("FLOAT", [0.5, -1.25]),
    "f64": ("DOUBLE", [1e300, -5e-324]),
    "dec": (
        "DECIMAL(38, 10)",
        [Decimal("1234567890123456789012345678.0123456789"), Decimal("-0.0000000001")],
    ),
    "small": ("DECIMAL(5, 2)", [Decimal("999.99"), Decimal("-0.01")]),
    "text": ("STRING", ["", "ü€😀", "x" * 300]),
    "fixed": ("CHAR(3)", ["abc", "ü"]),
    "raw": ("BYTES", [b"", b"\x00\xff"]),
    "raw4": ("BINARY(4)", [b"\x00\x01\x02\x03"]),
    "day": ("DATE", [dt.date(1969, 12, 31), dt.date(2026, 3, 8), dt.date(9999, 12, 31)]),
    "tod": ("TIME(6)", [dt.time(0), dt.time(23, 59, 59, 999999)]),
    "tod0": ("TIME(0)", [dt.time(1, 2, 3)]),
    "wall": (
        "TIMESTAMP(6)",
        [dt.datetime(2026, 3, 8, 2, 30, 0, 1), dt.datetime(1969, 12, 31, 23, 59, 59, 999999)],
    ),
    "wall3": ("TIMESTAMP(3)", [dt.datetime(2026, 7, 1, 12, 0, 0, 5000)]),
    "moment": ("TIMESTAMP_LTZ(6)", [SPRING, dt.datetime(2026, 11, 1, 5, 30, tzinfo=UTC)]),
    "moment0": ("TIMESTAMP_LTZ(0)", [dt.datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC)]),
    "list": ("ARRAY<INT>", [[], [1, None, 3]]),
    "strict": ("ARRAY<INT NOT NULL>", [[1, 2]]),
    "map": ("MAP<STRING NOT NULL, INT>", [{}, {"a": 1, "b": None}]),
    "row": (
        "ROW<a INT, b ROW<c STRING, d ARRAY<STRING>>>",
        [{"a": 1, "b": {"c": "x", "d": ["y", None]}}, {"a": None, "b": None}],
    ),
    "deep": (
        "ARRAY<ROW<at TIMESTAMP_LTZ(3), m MAP<INT NOT NULL, ARRAY<DATE>>>>",
        [[None, {"at": SPRING, "m": {1: [dt.date(2026, 3, 8), None]}}]],
    ),
}


def _rows(count: int) -> list[dict[str, Any]]:
    chance = random.Random(7)
    return [
        {"id": number}
        | {
            name: None if chance.random() < 0.2 else chance.choice(found)
            for name, (_, found) in COLUMNS.items()
        }
        for number in range(count)
    ]


def _shown(value: Any) -> Any:
    """A value as Spark's Python shows it: an instant without a zone, in this program's; rows as dicts."""
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        return value.astimezone().replace(tzinfo=None)
    if isinstance(value, dict):
        return {key: _shown(one) for key, one in value.items()}
    return [_shown(one) for one in value] if isinstance(value, list) else value


def _told(value: Any) -> Any:
    if isinstance(value, bytearray):
        return bytes(value)
    if hasattr(value, "asDict"):
        return {key: _told(one) for key, one in value.asDict().items()}
    if isinstance(value, dict):
        return {key: _told(one) for key, one in value.items()}
    return [_told(one) for one in value] if isinstance(value, list) else value


@pytest.mark.slow
@pytest.mark.parametrize("keyed", [False, True], ids=["log", "primary key"])
def test_every_type_is_read_as_what_it_is_by_batches_and_streams(
    spark: SparkSession, server: ServerProcess, tmp_path: Path, keyed: bool
) -> None:
    schema = {"id": "INT NOT NULL"} | {name: sql for name, (sql, _) in COLUMNS.items()}
    rows = _rows(40)
    expected = [{name: _shown(value) for name, value in row.items()} for row in rows]
    options = {"primary_key": "id"} if keyed else {}
    with table_on(server, schema, buckets=2, **options) as table:
        (table.upsert if keyed else table.append)(rows)
        table.flush()
        frame = strom.spark.table(spark, table.name)
        assert strom_schema(frame.schema) == strom_schema(spark_schema(table.info.schema))
        found = [_told(row) for row in frame.orderBy("id").collect()]
        assert found == expected
        moments = frame.selectExpr(
            "id", "unix_micros(moment) AS micros", "date_format(moment, 'HH:mm') AS local"
        )
        for row, local in zip(rows, moments.orderBy("id").collect(), strict=True):
            if row["moment"] is not None:
                assert local.micros == int(row["moment"].timestamp() * 1_000_000)
                assert local.local == ("04:00" if row["moment"].month == 3 else "02:00")
        # Spark 4.3 has no time of day in streams; whoever leaves it out reads the rest.
        names = [name for name in expected[0] if not name.startswith("tod")]
        changes = drain(strom.spark.changes(spark, table.name, start="earliest", columns=names), tmp_path)
        streamed = sorted((_told(row) for row in changes.rows), key=lambda row: row["id"])
        wanted = [{name: row[name] for name in names} for row in expected]
        assert [{name: row[name] for name in names} for row in streamed] == wanted


def strom_schema(schema: spark_types.StructType) -> list[tuple[str, str]]:
    return [(field.name, strom_type(field.dataType, field.nullable).sql()) for field in schema]
