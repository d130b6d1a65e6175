"""Filters that a server could not read are left to Spark; those that mean the same there go to it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import datasource as spark

from strom.model.schema import Schema
from strom.spark.connect.filters import predicate_of

SCHEMA = Schema.from_arrow(
    pa.schema(
        [
            ("a", pa.int32()),
            ("tags", pa.list_(pa.string())),
            ("d", pa.date32()),
            ("b", pa.bool_()),
            ("s", pa.string()),
        ]
    )
)


@pytest.mark.parametrize(
    "wanted",
    [
        spark.EqualTo(("a",), "x"),
        spark.EqualTo(("s",), 5),
        spark.EqualTo(("d",), "no date"),
        spark.EqualTo(("tags",), ["x"]),
        spark.In(("a",), (1, "x")),
        spark.EqualTo(("a", "field"), 1),
        spark.EqualTo(("other",), 1),
        spark.Not(spark.EqualTo(("a",), "x")),
        spark.Not(spark.In(("a",), (1, None))),
    ],
    ids=str,
)
def test_what_does_not_fit_its_column_stays_with_spark(wanted: Any) -> None:
    assert predicate_of(wanted, SCHEMA) is None


@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        (spark.EqualTo(("a",), 1), "a = 1"),
        (spark.GreaterThan(("a",), 1.5), "a > 1.5"),
        (spark.EqualTo(("a",), 2**40), f"a = {2**40}"),
        (spark.GreaterThan(("b",), False), "b > false"),
        (spark.In(("a",), (1, None, 2)), "a in (1, 2)"),
        (spark.IsNotNull(("tags",)), "tags is not null"),
        (spark.EqualNullSafe(("a",), None), "a is null"),
    ],
    ids=str,
)
def test_what_means_the_same_goes_to_the_server(wanted: Any, text: str) -> None:
    assert str(predicate_of(wanted, SCHEMA)) == text
