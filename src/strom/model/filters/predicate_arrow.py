"""How Arrow computes each leaf of a predicate: on whole columns, or as an expression that runs elsewhere.

``x`` is an array or a ``pyarrow.compute.Expression``; the same calls serve both. Results are three-valued where Arrow's
are; a filter keeps TRUE and drops FALSE and NULL.

Unlike in Arrow's own comparisons, NaN equals NaN and is greater than every other number, and minus zero equals zero: as
in DuckDB, Spark, PostgreSQL, Polars and the peer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from strom.model.data_type import DataType

_FUNCTIONS = {
    "=": "equal",
    "<>": "not_equal",
    "<": "less",
    "<=": "less_equal",
    ">": "greater",
    ">=": "greater_equal",
}
_PATTERNS = {"starts": "starts_with", "ends": "ends_with", "contains": "match_substring"}


def compare(x: Any, op: str, value: object, data_type: DataType | None) -> Any:
    """``x op value``."""
    import pyarrow.compute as pc

    if isinstance(value, float):
        return _compare_float(x, op, value, data_type)
    return getattr(pc, _FUNCTIONS[op])(x, _scalar(value, data_type))


def is_null(x: Any, negated: bool) -> Any:
    """``x IS [NOT] NULL``."""
    import pyarrow.compute as pc

    return pc.is_valid(x) if negated else pc.is_null(x)


def is_in(x: Any, values: Sequence[object], negated: bool, data_type: DataType | None) -> Any:
    """``x [NOT] IN (values)``. IN an empty list is never true, so NOT IN is true even for NULL."""
    import pyarrow.compute as pc

    if not values:
        everything = pc.or_kleene(pc.is_valid(x), pc.is_null(x))
        return everything if negated else pc.invert(everything)
    found = pc.is_in(x, value_set=_value_set(values, data_type))
    if any(isinstance(value, float) and math.isnan(value) for value in values):
        found = pc.or_kleene(found, pc.is_nan(x))
    return pc.and_kleene(pc.invert(found), pc.is_valid(x)) if negated else found


def like(x: Any, kind: str, text: str, negated: bool) -> Any:
    """Whether text starts with, ends with or contains other text."""
    import pyarrow.compute as pc

    found = getattr(pc, _PATTERNS[kind])(x, pattern=text)
    return pc.invert(found) if negated else found


def all_of(parts: Sequence[Any]) -> Any:
    """AND of three-valued answers."""
    return _tree("and_kleene", parts)


def any_of(parts: Sequence[Any]) -> Any:
    """OR of three-valued answers."""
    return _tree("or_kleene", parts)


def _tree(function: str, parts: Sequence[Any]) -> Any:
    """Balanced, because Arrow walks expressions by recursion."""
    import pyarrow.compute as pc

    assert parts
    if len(parts) == 1:
        return parts[0]
    middle = len(parts) // 2
    return getattr(pc, function)(_tree(function, parts[:middle]), _tree(function, parts[middle:]))


def _compare_float(x: Any, op: str, value: float, data_type: DataType | None) -> Any:
    import pyarrow.compute as pc

    if not math.isnan(value):
        found = getattr(pc, _FUNCTIONS[op])(x, _scalar(value, data_type))
        return pc.or_kleene(found, pc.is_nan(x)) if op in (">", ">=") else found
    if op in ("=", ">="):
        return pc.is_nan(x)
    if op in ("<>", "<"):
        return pc.invert(pc.is_nan(x))
    anything = pc.or_kleene(pc.is_nan(x), pc.invert(pc.is_nan(x)))  # NULL for NULL
    return anything if op == "<=" else pc.invert(anything)


def _scalar(value: object, data_type: DataType | None) -> pa.Scalar:
    return pa.scalar(value) if data_type is None else pa.scalar(value, data_type.to_arrow())


def _value_set(values: Sequence[object], data_type: DataType | None) -> pa.Array:
    found: list[object] = list(values)
    if any(isinstance(value, float) and value == 0 for value in values):
        found += [0.0, -0.0]  # one number to SQL, two to Arrow's hash table
    return pa.array(found, None if data_type is None else data_type.to_arrow())
