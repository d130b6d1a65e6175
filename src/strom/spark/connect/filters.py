"""Spark's filters as Strom's: those with exactly the same meaning go to the server, the others stay with Spark.

Both follow SQL's three-valued logic, NaN equals NaN and is the greatest number in both. Left to Spark:
fields of structs, columns that Spark truncates (more than six digits after the second), and the extra columns of a
changelog.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import datasource as spark

from strom.client.plan.filters import filter_of
from strom.errors import StromError
from strom.model.filters.predicate import And, Compare, In, IsNull, Like, Or, Predicate
from strom.model.filters.predicate_text import parse_predicate
from strom.model.schema import Schema
from strom.spark.connect.types import exact_in_spark

_COMPARISONS: dict[type[Any], str] = {
    spark.EqualTo: "=",
    spark.GreaterThan: ">",
    spark.GreaterThanOrEqual: ">=",
    spark.LessThan: "<",
    spark.LessThanOrEqual: "<=",
}
_PIECES: dict[type[Any], str] = {
    spark.StringStartsWith: "starts",
    spark.StringEndsWith: "ends",
    spark.StringContains: "contains",
}


def predicate_of(wanted: Any, schema: Schema) -> Predicate | None:
    """The same filter for the server; None if Spark has to apply it."""
    found = _predicate(wanted, schema)
    if found is None:
        return None
    try:
        filter_of(found, schema)
    except StromError:
        return None  # Spark compares more kinds of values than the server, and reports what is wrong, if anything is
    return found


def _predicate(wanted: Any, schema: Schema) -> Predicate | None:
    if isinstance(wanted, spark.Not):
        return _negated(wanted.child, schema)
    if len(wanted.attribute) != 1:
        return None
    name = wanted.attribute[0]
    column = schema.find(name)
    if column is None:
        return None
    if isinstance(wanted, spark.IsNull | spark.IsNotNull):
        return IsNull(name, negated=isinstance(wanted, spark.IsNotNull))
    if not exact_in_spark(column.type):
        return None
    if isinstance(wanted, spark.EqualNullSafe):
        return IsNull(name) if wanted.value is None else Compare(name, "=", wanted.value)
    if isinstance(wanted, spark.In):
        values = tuple(value for value in wanted.value if value is not None)
        return In(name, values) if values else None
    if type(wanted) in _PIECES:
        return Like(name, _PIECES[type(wanted)], wanted.value)  # type: ignore[arg-type]
    operator = _COMPARISONS.get(type(wanted))
    return None if operator is None or wanted.value is None else Compare(name, operator, wanted.value)


def _negated(wanted: Any, schema: Schema) -> Predicate | None:
    if isinstance(wanted, spark.In) and None in wanted.value:
        return None  # NOT IN with a NULL is never true; Spark handles that
    found = _predicate(wanted, schema)
    if found is None:
        return None
    if isinstance(wanted, spark.EqualNullSafe) and wanted.value is not None:
        return Or.of(~found, IsNull(wanted.attribute[0]))
    return ~found


def combined(text: str | None, pushed: Sequence[Predicate]) -> Predicate | None:
    """The filter of an option and those of the query, as one."""
    parts = [*([] if text is None else [parse_predicate(text)]), *pushed]
    if len(parts) < 2:
        return parts[0] if parts else None
    return And.of(*parts)
