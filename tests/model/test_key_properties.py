"""Properties of primary-key tables: what fits together, and what is refused with a way out."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from strom.errors import InvalidConfig
from strom.model import properties as p
from strom.model.aggregation import Aggregate, aggregate_of, refusing_column, with_aggregates
from strom.model.key_properties import delete_behavior, indexes_of
from strom.model.schema import Schema
from strom.model.table import TableDescription

ARROW = pa.schema(
    [
        ("id", pa.int64()),
        ("v", pa.int32()),
        ("s", pa.string()),
        ("tags", pa.list_(pa.string())),
        ("n", pa.int64()),
    ]
)
SCHEMA = Schema.from_arrow(ARROW, ["id"])
ENGINE, DELETES, VERSION = (
    "table.merge-engine",
    "table.delete.behavior",
    "table.merge-engine.versioned.ver-column",
)


def check(properties: dict[str, str], schema: Schema = SCHEMA) -> None:
    p.validate_table(TableDescription(schema, properties=properties))


@pytest.mark.parametrize(
    "properties",
    [
        {},
        {ENGINE: "first_row"},
        {ENGINE: "first_row", DELETES: "disable", "table.changelog.image": "WAL"},
        {ENGINE: "versioned", VERSION: "v", DELETES: "ignore"},
        {ENGINE: "aggregation", DELETES: "allow"},
        {DELETES: "DISABLE", "table.changelog.image": "wal"},
        {"table.index.by_s": "s", "table.index.by-both": "s, v"},
        {f"table.index.i{number}": "s" for number in range(16)},
    ],
)
def test_what_fits_together_is_taken(properties: dict[str, str]) -> None:
    check(properties)
    assert indexes_of(properties, SCHEMA).keys() == {
        name.removeprefix("table.index.") for name in properties if "index" in name
    }


@pytest.mark.parametrize(
    ("properties", "hint"),
    [
        ({ENGINE: "versioned"}, "ver-column"),
        ({ENGINE: "versioned", VERSION: "s"}, "INT, BIGINT"),
        ({ENGINE: "versioned", VERSION: "id"}, "part of the primary key"),
        ({VERSION: "v"}, "is for table.merge-engine = versioned, not last row"),
        ({ENGINE: "first_row", VERSION: "v"}, "is for table.merge-engine = versioned, not first_row"),
        ({ENGINE: "aggregation", VERSION: "v"}, "is for table.merge-engine = versioned, not aggregation"),
        ({ENGINE: "first_row", DELETES: "allow"}, "ignore or disable"),
        ({ENGINE: "versioned", VERSION: "v", DELETES: "Allow"}, "ignore or disable"),
        ({ENGINE: "aggregation", "table.changelog.image": "wal"}, "FULL"),
        ({"table.index.by_s": "z"}, "is not a column"),
        ({"table.index.by_s": "s,s"}, "different columns"),
        ({"table.index.by_s": "s,"}, "different columns"),
        ({"table.index.by_tags": "tags"}, "cannot be in an index"),
        ({"table.index.$prefix": "s"}, "name of an index"),
        ({"table.index.": "s"}, "name of an index"),
        ({f"table.index.i{number}": "s" for number in range(17)}, "at most 16 indexes"),
    ],
)
def test_what_does_not_is_refused_with_the_reason(properties: dict[str, str], hint: str) -> None:
    with pytest.raises(InvalidConfig, match=hint):
        check(properties)


@pytest.mark.parametrize("name", [ENGINE, DELETES, "table.index.by_s"])
def test_a_log_table_has_no_properties_of_keys(name: str) -> None:
    value = {ENGINE: "first_row", DELETES: "allow"}.get(name, "s")
    with pytest.raises(InvalidConfig, match="needs a table with a primary key"):
        p.validate_table(TableDescription(Schema.from_arrow(ARROW), properties={name: value}))


def test_indexes_can_come_and_go_later() -> None:
    p.validate({"table.index.by_s": "s"}, altering=True)
    p.check_alterable(["table.index.by_s"])
    with pytest.raises(InvalidConfig, match="cannot be changed"):
        p.check_alterable(["table.index.by_s", ENGINE])


def test_deletes_are_ignored_where_the_engine_keeps_none() -> None:
    assert delete_behavior({}) == "allow"
    assert delete_behavior({ENGINE: "first_row"}) == "ignore"
    assert delete_behavior({ENGINE: "aggregation", DELETES: "allow"}) == "allow"


@pytest.mark.parametrize("engine", [None, "first_row", "versioned", "aggregation"])
def test_numbers_are_given_where_rows_may_be_partial(engine: str | None) -> None:
    schema = replace(SCHEMA, auto_increment=("n",))
    said = {} if engine is None else {ENGINE: engine}
    said |= {VERSION: "v"} if engine == "versioned" else {}
    if engine in ("first_row", "versioned"):
        with pytest.raises(InvalidConfig, match="takes whole rows"):
            check(said, schema)
    else:
        check(said, schema)


def test_functions_come_from_properties_as_in_sql() -> None:
    schema = with_aggregates(
        SCHEMA, {"fields.v.agg": "sum", "fields.s.agg": "listagg", "fields.s.listagg.delimiter": ";"}
    )
    assert aggregate_of(schema.column("v")) == Aggregate("sum")
    assert aggregate_of(schema.column("s")) == Aggregate("listagg", {"delimiter": ";"})
    assert aggregate_of(schema.column("n")) == Aggregate("last_value_ignore_nulls")
    check({ENGINE: "aggregation"}, schema)
    with pytest.raises(InvalidConfig, match=r"need table\.merge-engine = aggregation"):
        check({}, schema)


@pytest.mark.parametrize(
    ("properties", "hint"),
    [
        ({"fields.s.agg": "sum"}, "needs one of: BIGINT"),
        ({"fields.v.agg": "summ"}, "did you mean 'sum'"),
        ({"fields.id.agg": "max"}, "never aggregated"),
        ({"fields.v.agg": "sum", "fields.v.sum.delimiter": ";"}, "has no parameter"),
    ],
)
def test_a_function_that_does_not_fit_its_column_is_refused(properties: dict[str, str], hint: str) -> None:
    with pytest.raises(InvalidConfig, match=hint):
        check({ENGINE: "aggregation"}, with_aggregates(SCHEMA, properties))


def test_a_function_of_no_column_is_refused() -> None:
    with pytest.raises(InvalidConfig, match=r"fields\.<column>\.agg"):
        with_aggregates(SCHEMA, {"fields.z.agg": "sum"})


def test_an_auto_increment_column_needs_an_engine_that_takes_parts_of_rows() -> None:
    numbered = replace(SCHEMA, auto_increment=("n",))
    check({}, numbered)
    with pytest.raises(InvalidConfig, match="whole rows"):
        check({ENGINE: "first_row"}, numbered)


@pytest.mark.parametrize(
    ("kind", "function", "may_refuse"),
    [
        (pa.decimal128(10, 2), "sum", True),
        (pa.decimal128(10, 2), "product", True),
        (pa.decimal128(10, 2), "max", False),
        (pa.int64(), "sum", False),
        (pa.float64(), "product", False),
        (pa.string(), "listagg", True),
        (pa.string(), "string_agg", True),
        (pa.string(), "last_value", False),
        (pa.binary(), "rbm32", True),
        (pa.binary(), "rbm64", True),
    ],
    ids=str,
)
def test_a_column_that_may_refuse_a_change_for_what_is_there_is_known(
    kind: pa.DataType, function: str, may_refuse: bool
) -> None:
    arrow = pa.schema([("id", pa.int64()), ("a", pa.int64()), ("x", kind)])
    schema = with_aggregates(Schema.from_arrow(arrow, ["id"]), {"fields.x.agg": function})
    assert refusing_column(schema) == ("x" if may_refuse else None)


@pytest.mark.parametrize(
    "words",
    [
        '"listagg"',
        '{"type": 5}',
        '{"parameters": {}}',
        '{"type": "listagg", "parameters": ["delimiter"]}',
        '{"type": "listagg", "parameters": {"delimiter": 5}}',
        '{"type": "listagg", "parameters": {"delimiter": ";", "other": "x"}}',
        '{"type": "last_value", "parameters": {"delimiter": ";"}}',
        '{"type": "sum"}',
        '{"type": "nowhere"}',
    ],
)
def test_an_aggregate_function_that_makes_no_sense_is_refused(words: str) -> None:
    columns = tuple(
        replace(column, aggregation=words) if column.name == "s" else column for column in SCHEMA.columns
    )
    with pytest.raises(InvalidConfig, match="'s'"):
        check({ENGINE: "aggregation"}, replace(SCHEMA, columns=columns))


def _averages(**columns: str) -> Schema:
    arrow = pa.schema(
        [
            ("id", pa.int64()),
            *((name, pa.float64()) for name in ("x", "y", "s", "t")),
            *((name, pa.int64()) for name in "nm"),
        ]
    )
    functions = {}
    for name, states in columns.items():
        total, count = states.split()
        functions |= {
            f"fields.{name}.agg": "avg",
            f"fields.{name}.avg.sum": total,
            f"fields.{name}.avg.count": count,
        }
    return with_aggregates(Schema.from_arrow(arrow, ["id"]), functions)


def test_averages_have_columns_of_their_own_for_their_sums_and_counts() -> None:
    check({ENGINE: "aggregation"}, _averages(x="s n", y="t m"))
    for shared in ({"x": "s n", "y": "s m"}, {"x": "s n", "y": "t n"}):
        with pytest.raises(InvalidConfig, match="cannot share"):
            check({ENGINE: "aggregation"}, _averages(**shared))
