"""Every bound of a table's description: the largest that is allowed is taken, one more is refused."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from strom.errors import (
    InvalidConfig,
    InvalidPredicate,
    InvalidTable,
    LakeUnsupported,
    LimitExceeded,
    StromError,
)
from strom.model import properties
from strom.model.filters.predicate import DEPTH_MAX as FILTER_DEPTH_MAX
from strom.model.filters.predicate import NODES_MAX, VALUES_MAX, And, In, Or, Predicate, col
from strom.model.filters.predicate_text import LENGTH_MAX as TEXT_MAX
from strom.model.filters.predicate_text import NESTING_MAX, parse_predicate
from strom.model.key_properties import INDEX_COLUMNS_MAX, INDEXES_MAX, check_index_name, indexes_of
from strom.model.lake.lake_types import check_schema, check_table
from strom.model.names import (
    COLUMN_NAME_LENGTH_MAX,
    COMMENT_LENGTH_MAX,
    NAME_LENGTH_MAX,
    check_column_name,
    check_comment,
    check_name,
)
from strom.model.partitions import value_complaint
from strom.model.schema import COLUMNS_MAX, SCHEMA_ID_MAX, Column, Schema
from strom.model.table import BUCKETS_MAX, PROPERTIES_MAX, PROPERTY_LENGTH_MAX, TableDescription
from strom.model.type_text import parse
from strom.model.types import Int

SCHEMA = Schema.from_arrow(pa.schema([("a", pa.int64())]))
WIDE = Schema.from_arrow(pa.schema([(f"c{number}", pa.int64()) for number in range(20)]), ["c0"])


def _partition_value(size: int) -> None:
    if (complaint := value_complaint("x" * size)) is not None:
        raise InvalidTable(complaint)


def _columns(count: int) -> None:
    Schema(1, tuple(Column(number, f"c{number}", Int()) for number in range(count)))


def _index_columns(count: int) -> None:
    indexes_of({"table.index.i": ",".join(f"c{number}" for number in range(count))}, WIDE)


def _indexes(count: int) -> None:
    indexes_of({f"table.index.i{number}": "c1" for number in range(count)}, WIDE)


def _deep(levels: int) -> None:
    found: Predicate = col("a") == 1
    for level in range(levels - 1):
        other = col("a") == level
        found = And((found, other)) if level % 2 else Or((found, other))
    found.check(SCHEMA)


def _nodes(count: int) -> None:
    Or(tuple(col("a") == number for number in range(count - 1))).check(SCHEMA)


def _lake_partition(digits: int) -> None:
    schema = Schema(1, (Column(0, "a", Int()), Column(1, "t", parse(f"TIME({digits})"))))
    check_table(schema, ["t"])


LIMITS: dict[str, tuple[Callable[[int], object], int, type[StromError]]] = {
    "name": (lambda size: check_name("table", "x" * size), NAME_LENGTH_MAX, InvalidTable),
    "column name": (lambda size: check_column_name("x" * size), COLUMN_NAME_LENGTH_MAX, InvalidTable),
    "comment": (lambda size: check_comment("x" * size), COMMENT_LENGTH_MAX, InvalidTable),
    "comment of a table": (
        lambda size: TableDescription(SCHEMA, comment="x" * size),
        COMMENT_LENGTH_MAX,
        InvalidTable,
    ),
    "partition value": (_partition_value, NAME_LENGTH_MAX, InvalidTable),
    "columns": (_columns, COLUMNS_MAX, InvalidTable),
    "schemas": (lambda number: Schema(number, SCHEMA.columns), SCHEMA_ID_MAX, InvalidTable),
    "buckets": (lambda count: TableDescription(SCHEMA, bucket_count=count), BUCKETS_MAX, InvalidTable),
    "properties": (
        lambda count: TableDescription(SCHEMA, custom_properties={str(n): "" for n in range(count)}),
        PROPERTIES_MAX,
        InvalidTable,
    ),
    "name of a property": (
        lambda size: TableDescription(SCHEMA, custom_properties={"x" * size: ""}),
        PROPERTY_LENGTH_MAX,
        InvalidTable,
    ),
    "value of a property": (
        lambda size: TableDescription(SCHEMA, custom_properties={"x": "y" * size}),
        PROPERTY_LENGTH_MAX,
        InvalidTable,
    ),
    "partitions made ahead": (
        lambda count: properties.validate({"table.auto-partition.num-precreate": str(count)}),
        properties.PRECREATE_MAX,
        InvalidConfig,
    ),
    "indexes": (_indexes, INDEXES_MAX, InvalidConfig),
    "columns of an index": (_index_columns, INDEX_COLUMNS_MAX, InvalidConfig),
    "name of an index": (lambda size: check_index_name("table.index." + "i" * size), 64, InvalidConfig),
    "digits of a decimal": (lambda digits: parse(f"DECIMAL({digits}, 0)"), 38, InvalidTable),
    "scale of a decimal": (lambda scale: parse(f"DECIMAL(7, {scale})"), 7, InvalidTable),
    "digits of a timestamp": (lambda digits: parse(f"TIMESTAMP({digits})"), 9, InvalidTable),
    "length of bytes": (lambda size: parse(f"BINARY({size})"), 2**31 - 1, InvalidTable),
    "depth of a type": (
        lambda depth: parse("ARRAY<" * (depth - 1) + "INT" + ">" * (depth - 1)),
        32,
        InvalidTable,
    ),
    "digits of a time in the lake": (
        lambda digits: check_schema(Schema(1, (Column(0, "t", parse(f"TIMESTAMP({digits})")),))),
        6,
        LakeUnsupported,
    ),
    "digits of a partition's time in the lake": (_lake_partition, 3, LakeUnsupported),
    "values of IN": (lambda count: In("a", tuple(range(count))), VALUES_MAX, LimitExceeded),
    "depth of a filter": (_deep, FILTER_DEPTH_MAX, LimitExceeded),
    "parts of a filter": (_nodes, NODES_MAX, LimitExceeded),
    "text of a filter": (lambda size: parse_predicate("a = 1".ljust(size)), TEXT_MAX, InvalidPredicate),
    "parentheses of a filter": (
        lambda depth: parse_predicate("(" * depth + "a = 1" + ")" * depth),
        NESTING_MAX,
        InvalidPredicate,
    ),
}


@pytest.mark.parametrize("what", LIMITS)
def test_the_largest_is_taken_and_one_more_is_refused(what: str) -> None:
    make, most, error = LIMITS[what]
    make(most)
    with pytest.raises(error):
        make(most + 1)


@pytest.mark.parametrize("what", ["buckets", "digits of a decimal", "length of bytes"])
def test_the_least_is_one(what: str) -> None:
    make, _, error = LIMITS[what]
    make(1) if what != "digits of a decimal" else parse("DECIMAL(1, 0)")
    with pytest.raises(error):
        make(0)


@pytest.mark.parametrize(
    "what", ["name", "column name", "partition value", "name of a property", "name of an index"]
)
def test_a_name_has_a_letter(what: str) -> None:
    make, _, error = LIMITS[what]
    make(1)
    with pytest.raises(error):
        make(0)
