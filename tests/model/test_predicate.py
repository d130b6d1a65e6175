"""Filters: three-valued like SQL, whatever the type, the literal and the nesting.

The reference below knows nothing of physical literals, rewriting or Arrow: it compares exact numbers row by row and
applies NOT where it stands.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strategies import literals, predicates, record_batches, same, schemas
from strom.errors import InvalidPredicate, LimitExceeded
from strom.model import types as t
from strom.model.filters.predicate import VALUES_MAX, And, Compare, In, IsNull, Like, Or, Predicate, col, walk
from strom.model.filters.predicate_literals import Nanoseconds, nanoseconds, ns_per_tick
from strom.model.schema import Schema

OPS = ["=", "<>", "<", "<=", ">", ">="]
Answer = bool | None


# --- the reference -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Formula:
    """A filter as people think of it: a leaf, or NOT, AND, OR of formulas."""

    word: str
    parts: tuple[Any, ...]

    def build(self) -> Predicate:
        if self.word == "leaf":
            leaf: Predicate = self.parts[0]
            return leaf
        built: list[Predicate] = [part.build() for part in self.parts]
        if self.word == "not":
            return ~built[0]
        return built[0] & built[1] if self.word == "and" else built[0] | built[1]

    def answer(self, row: dict[str, pa.Scalar], kinds: dict[str, t.DataType]) -> Answer:
        if self.word == "leaf":
            return leaf_answer(self.parts[0], row, kinds)
        answers = [part.answer(row, kinds) for part in self.parts]
        if self.word == "not":
            return None if answers[0] is None else not answers[0]
        deciding = self.word == "or"
        if deciding in answers:
            return deciding
        return None if None in answers else not deciding


def leaf_answer(leaf: Predicate, row: dict[str, pa.Scalar], kinds: dict[str, t.DataType]) -> Answer:
    scalar = row[leaf.column]  # type: ignore[attr-defined]
    kind = kinds[leaf.column]  # type: ignore[attr-defined]
    if isinstance(leaf, IsNull):
        return (not scalar.is_valid) != leaf.negated
    if isinstance(leaf, In) and not leaf.values:
        return leaf.negated
    if not scalar.is_valid:
        return None
    if isinstance(leaf, Like):
        return like_answer(leaf, scalar.as_py()) != leaf.negated
    value = exact(scalar, kind)
    if isinstance(leaf, In):
        return any(compared(value, "=", exact(v, kind)) for v in leaf.values) != leaf.negated
    assert isinstance(leaf, Compare)
    return compared(value, leaf.op, exact(leaf.value, kind))


def like_answer(leaf: Like, text: str) -> bool:
    if leaf.kind == "contains":
        return leaf.text in text
    return text.startswith(leaf.text) if leaf.kind == "starts" else text.endswith(leaf.text)


def compared(left: Any, op: str, right: Any) -> bool:
    answers: dict[str, bool] = {
        "=": left == right,
        "<>": left != right,
        "<": left < right,
        "<=": left <= right,
        ">": left > right,
        ">=": left >= right,
    }
    return answers[op]


def exact(value: Any, kind: t.DataType) -> Any:
    """A value or a literal as something with the order SQL gives it: numbers exact, NaN above all of them."""
    if isinstance(value, pa.Scalar):
        if isinstance(kind, t.Date | t.Time | t.Timestamp | t.TimestampLtz):
            return value.value * ns_per_tick(kind)
        value = value.as_py()
    if isinstance(value, Nanoseconds | str | bytes | bool):
        return value
    if isinstance(kind, t.Float | t.Double):
        return rounded(value, kind)
    if isinstance(value, float):
        if math.isnan(value) or math.isinf(value):
            return (1, 0) if math.isnan(value) or value > 0 else (-1, 0)
        value = Decimal(repr(value))
    return (0, Fraction(value))


def rounded(value: Any, kind: t.DataType) -> Any:
    """Floating point literals take the nearest value; a number beyond all values stays beyond them."""
    try:
        with np.errstate(over="ignore"):
            nearest = float(np.float32(value)) if isinstance(kind, t.Float) else float(value)
    except OverflowError:
        nearest = math.inf if value > 0 else -math.inf
    if math.isnan(nearest):
        return (2, 0.0)
    if math.isinf(nearest) and value not in (math.inf, -math.inf):
        return (0.5, 0.0) if nearest > 0 else (-0.5, 0.0)  # above every finite value, below infinity
    return (1, 0.0) if nearest == math.inf else (-1, 0.0) if nearest == -math.inf else (0, nearest)


@st.composite
def formulas(draw: st.DrawFn, schema: Schema) -> Formula:
    leaves = predicates(schema, max_leaves=1).map(
        lambda one: (
            Formula("leaf", (one,)) if not isinstance(one, And | Or) else Formula("leaf", (one.children[0],))
        )
    )
    trees = st.recursive(
        leaves,
        lambda inner: st.one_of(
            inner.map(lambda one: Formula("not", (one,))),
            st.tuples(st.sampled_from(["and", "or"]), inner, inner).map(lambda f: Formula(f[0], f[1:])),
        ),
        max_leaves=5,
    )
    return draw(trees)


# --- evaluating ----------------------------------------------------------------------------------------------


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_a_filter_keeps_exactly_the_rows_for_which_it_is_true(data: st.DataObject) -> None:
    schema = data.draw(schemas(max_columns=2))
    batch = data.draw(record_batches(schema, min_rows=1))
    formula = data.draw(formulas(schema))
    kinds = {column.name: column.type for column in schema.columns}
    rows = [{name: batch.column(name)[i] for name in schema.names} for i in range(batch.num_rows)]
    expected = [formula.answer(row, kinds) is True for row in rows]

    checked = formula.build().check(schema)
    assert checked.mask(batch).to_pylist() == expected
    assert checked.mask(batch).null_count == 0
    assert same(batch.filter(checked.to_arrow()), batch.filter(pa.array(expected, pa.bool_())))


@pytest.mark.parametrize(
    "sql",
    [
        "BOOLEAN",
        "TINYINT",
        "BIGINT",
        "FLOAT",
        "DOUBLE",
        "DECIMAL(5, 2)",
        "STRING",
        "DATE",
        "BINARY(2)",
        "TIME(3)",
        "TIMESTAMP(0)",
        "TIMESTAMP(6)",
        "TIMESTAMP_LTZ(9)",
    ],
)
@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_every_type_compares_with_every_literal_that_makes_sense(sql: str, data: st.DataObject) -> None:
    kind = t.parse(sql)
    schema = Schema.from_arrow(pa.schema([pa.field("c", kind.to_arrow())]))
    batch = data.draw(record_batches(schema, min_rows=1))
    some = data.draw(st.lists(literals(kind), min_size=1, max_size=3))
    rows = [
        (scalar.is_valid, exact(scalar, kind) if scalar.is_valid else None) for scalar in batch.column("c")
    ]
    wanted = [exact(value, kind) for value in some]
    for op in OPS:
        for literal, value in zip(some, wanted, strict=True):
            expected = [valid and compared(found, op, value) for valid, found in rows]
            assert Compare("c", op, literal).check(schema).mask(batch).to_pylist() == expected
            inverted = [valid and not compared(found, op, value) for valid, found in rows]
            assert (~Compare("c", op, literal)).check(schema).mask(batch).to_pylist() == inverted
    for negated in (False, True):
        expected = [valid and (found in wanted) != negated for valid, found in rows]
        assert In("c", tuple(some), negated).check(schema).mask(batch).to_pylist() == expected


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_not_is_exact_even_after_checking(data: st.DataObject) -> None:
    schema = data.draw(schemas(max_columns=2))
    batch = data.draw(record_batches(schema))
    predicate = data.draw(predicates(schema))
    inverted = (~predicate).check(schema)
    assert (~predicate.check(schema)).mask(batch).equals(inverted.mask(batch))
    assert (~~predicate) == predicate or (~~predicate).check(schema).mask(batch).equals(
        predicate.check(schema).mask(batch)
    )


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_checking_twice_changes_nothing(data: st.DataObject) -> None:
    schema = data.draw(schemas(max_columns=2))
    checked = data.draw(predicates(schema)).check(schema)
    assert repr(checked.check(schema)) == repr(checked)


def column_of(sql: str, values: list[Any]) -> tuple[Schema, pa.RecordBatch]:
    kind = t.parse(sql)
    schema = Schema.from_arrow(pa.schema([pa.field("c", kind.to_arrow())]))
    return schema, pa.RecordBatch.from_arrays([pa.array(values, kind.to_arrow())], schema=schema.to_arrow())


NAN = math.nan


@pytest.mark.parametrize(
    ("predicate", "expected"),
    [
        (col("c") > 5, [7.0, NAN]),
        (col("c") >= 7, [7.0, NAN]),
        (col("c") < 7, [-1.0, 0.0]),
        (col("c") != 7, [-1.0, 0.0, NAN]),
        (col("c") == NAN, [NAN]),
        (col("c") >= NAN, [NAN]),
        (col("c") > NAN, []),
        (col("c") < NAN, [-1.0, 0.0, 7.0]),
        (col("c") <= NAN, [-1.0, 0.0, 7.0, NAN]),
        (col("c") != NAN, [-1.0, 0.0, 7.0]),
        (col("c").is_in([NAN, 7]), [7.0, NAN]),
        (col("c").not_in([NAN, 7]), [-1.0, 0.0]),
        (col("c").not_in([7]), [-1.0, 0.0, NAN]),
        (col("c") == -0.0, [0.0]),
        (col("c").is_in([-0.0]), [0.0]),
        (col("c") <= math.inf, [-1.0, 0.0, 7.0]),
        (col("c") < 10**400, [-1.0, 0.0, 7.0]),
        (col("c") > 10**400, [NAN]),
        (col("c") == 10**400, []),
        (col("c") != -(10**400), [-1.0, 0.0, 7.0, NAN]),
    ],
)
def test_nan_is_equal_to_itself_and_above_every_number(predicate: Predicate, expected: list[float]) -> None:
    schema, batch = column_of("DOUBLE", [-1.0, 0.0, 7.0, NAN, None])
    found = batch.filter(predicate.check(schema).mask(batch)).column("c").to_pylist()
    assert [str(value) for value in found] == [str(value) for value in expected]


@pytest.mark.parametrize(
    ("sql", "before", "after"),
    [
        ("INT", ("=", 5.0), ("=", 5)),
        ("INT", (">", 5.5), (">", 5)),
        ("INT", (">=", 5.5), (">", 5)),
        ("INT", ("<", 5.5), ("<=", 5)),
        ("INT", ("<=", -5.5), ("<=", -6)),
        ("TINYINT", ("=", 1000), (">", 127)),
        ("TINYINT", ("<>", -1000), (">=", -128)),
        ("TINYINT", ("<", 1000), ("<=", 127)),
        ("BIGINT", (">", -math.inf), (">=", -(2**63))),
        ("DECIMAL(5, 2)", ("=", 0.1), ("=", Decimal("0.10"))),
        ("DECIMAL(5, 2)", (">", Decimal("0.105")), (">", Decimal("0.10"))),
        ("DECIMAL(5, 2)", ("<", 10**9), ("<=", Decimal("999.99"))),
        ("FLOAT", ("=", 0.1), ("=", float(np.float32(0.1)))),
        ("DATE", ("=", "2024-01-15"), ("=", 19737)),
        ("DATE", (">", "2024-01-15 12:00"), (">", 19737)),
        ("TIME(0)", ("=", "00:01:01"), ("=", 61)),
        ("TIME(6)", ("=", "00:00:00.5"), ("=", 500_000)),
        ("TIMESTAMP(3)", ("=", "1970-01-01T00:00:01"), ("=", 1000)),
        ("TIMESTAMP(0)", ("<", "1970-01-01 00:00:01.5"), ("<=", 1)),
        ("TIMESTAMP(9)", ("=", "1970-01-01 00:00:00.000000001"), ("=", 1)),
        ("TIMESTAMP_LTZ(3)", ("=", "1970-01-01 01:00:00+01:00"), ("=", 0)),
        ("TIMESTAMP_LTZ(3)", ("=", "1970-01-01 00:00:01Z"), ("=", 1000)),
        ("TIMESTAMP_LTZ(3)", ("=", "1970-01-01"), ("=", 0)),
        ("CHAR(3)", ("=", "ab"), ("=", "ab")),
    ],
)
def test_a_literal_becomes_the_columns_own_value_and_the_meaning_stays(
    sql: str, before: tuple[str, Any], after: tuple[str, Any]
) -> None:
    schema, _ = column_of(sql, [])
    assert Compare("c", *before).check(schema) == Compare("c", *after, schema.column("c").type)


def test_python_numpy_pandas_and_arrow_values_are_taken() -> None:
    import datetime as dt

    import pandas as pd

    schema, _ = column_of("TIMESTAMP(9)", [])
    for value in [
        dt.datetime(2024, 1, 2, 3, 4, 5, 6),
        np.datetime64("2024-01-02T03:04:05.000006"),
        pd.Timestamp("2024-01-02 03:04:05.000006"),
        pa.scalar(dt.datetime(2024, 1, 2, 3, 4, 5, 6)),
    ]:
        assert (col("c") == value).check(schema) == Compare("c", "=", 1704164645000006000, t.Timestamp(9))
    assert (col("c") == pd.Timestamp(1)).check(schema) == Compare("c", "=", 1, t.Timestamp(9))
    assert (col("c") == dt.date(1970, 1, 2)).check(schema).value == 86_400 * 10**9  # type: ignore[attr-defined]
    schema, _ = column_of("INT", [])
    assert (col("c") == np.int64(5)).check(schema) == Compare("c", "=", 5, t.Int())
    schema, _ = column_of("TIMESTAMP_LTZ(0)", [])
    berlin = dt.datetime(1970, 1, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=1)))
    assert (col("c") == berlin).check(schema) == Compare("c", "=", 0, t.TimestampLtz(0))
    schema, _ = column_of("TIME(3)", [])
    assert (col("c") == dt.time(0, 0, 1)).check(schema) == Compare("c", "=", 1000, t.Time(3))
    assert nanoseconds(1000, t.Time(3)) == 10**9


# --- refusing ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sql", "value", "complaint"),
    [
        ("INT", "5", "a number without quotes"),
        ("INT", True, "a number without quotes"),
        ("BOOLEAN", 1, "true or false"),
        ("STRING", 5, "text in quotes"),
        ("STRING", "\ud800", "surrogate"),
        ("BYTES", "ab", "bytes"),
        ("BINARY(4)", b"abc", "exactly 4 bytes"),
        ("DOUBLE", "five", "a number without quotes"),
        ("DATE", 5, "'2024-12-31'"),
        ("DATE", "2024-02-30", "'2024-12-31'"),
        ("DATE", "yesterday", "'2024-12-31'"),
        ("TIME(3)", "25:00", "'23:59:59.5'"),
        ("TIMESTAMP(3)", "2024-01-01 00:00+01:00", "'2024-12-31 23:59:59.5'"),
        ("TIMESTAMP(3)", "2024-01-01 24:00", "'2024-12-31 23:59:59.5'"),
        ("ARRAY<INT>", 5, "IS NULL"),
        ("ROW<a INT>", {"a": 1}, "IS NULL"),
    ],
)
def test_a_literal_that_does_not_fit_is_refused_with_what_to_write(
    sql: str, value: Any, complaint: str
) -> None:
    schema, _ = column_of(sql, [])
    with pytest.raises(InvalidPredicate, match="'c'") as caught:
        Compare("c", "=", value).check(schema)
    assert complaint in caught.value.message


def test_a_wall_clock_is_not_compared_with_an_instant() -> None:
    import datetime as dt

    schema, _ = column_of("TIMESTAMP(3)", [])
    with pytest.raises(InvalidPredicate, match="wall clock"):
        (col("c") == dt.datetime(2024, 1, 1, tzinfo=dt.UTC)).check(schema)


def test_an_unknown_column_is_refused_with_the_nearest_name() -> None:
    schema = Schema.from_arrow(pa.schema([("price", pa.int64())]))
    for predicate in [
        col("prize") > 1,
        col("prize").is_null(),
        col("prize").is_in([1]),
        col("prize").contains("x"),
    ]:
        with pytest.raises(InvalidPredicate, match="did you mean 'price'"):
            predicate.check(schema)


def test_null_is_never_a_literal() -> None:
    column = col("a")
    builds: list[Callable[[], Predicate]] = [
        lambda: Compare(column.name, "=", None),
        lambda: column.is_in([1, None]),
        lambda: column.between(None, 1),
    ]
    for build in builds:
        with pytest.raises(InvalidPredicate, match="NULL"):
            build()


def test_only_text_has_a_beginning() -> None:
    schema, _ = column_of("INT", [])
    with pytest.raises(InvalidPredicate, match="only text"):
        col("c").starts_with("x").check(schema)
    with pytest.raises(InvalidPredicate):
        col("c").starts_with(5)  # type: ignore[arg-type]


def test_columns_are_not_compared_with_columns() -> None:
    with pytest.raises(InvalidPredicate, match="not with columns"):
        _ = col("a") > col("b")


def test_a_filter_for_another_type_is_refused() -> None:
    ints, _ = column_of("INT", [])
    texts, _ = column_of("STRING", [])
    for predicate in [col("c") == 5, col("c").is_in([5])]:
        with pytest.raises(InvalidPredicate, match="was made for"):
            predicate.check(ints).check(texts)


def test_and_and_or_of_python_are_refused() -> None:
    with pytest.raises(TypeError, match="not 'and'"):
        bool(col("a") > 1)
    with pytest.raises(TypeError):
        bool(col("a"))
    with pytest.raises(TypeError):
        _ = 1 < col("a") < 5
    with pytest.raises(TypeError):
        _ = (col("a") > 1) & True


# --- bounds --------------------------------------------------------------------------------------------------


def test_a_filter_is_bounded_in_depth_and_in_parts() -> None:
    schema, _ = column_of("INT", [])
    deep: Predicate = col("c") > 1
    for level in range(10):
        deep = And((deep,)) if level % 2 else Or((deep,))
    assert deep.check(schema, depth_max=11).columns() == {"c"}
    with pytest.raises(LimitExceeded):
        deep.check(schema, depth_max=10)
    wide = Or(tuple(col("c") == i for i in range(1001)))
    with pytest.raises(LimitExceeded):
        wide.check(schema)
    assert wide.check(schema, nodes_max=2000).columns() == {"c"}
    with pytest.raises(LimitExceeded):
        In("c", tuple(range(VALUES_MAX + 1)))


def test_a_very_deep_tree_is_refused_without_recursion() -> None:
    schema, _ = column_of("INT", [])
    deep: Predicate = col("c") > 1
    for _ in range(50_000):
        deep = Or((deep,))
    with pytest.raises(LimitExceeded):
        deep.check(schema)
    assert deep.columns() == {"c"}
    assert sum(1 for _ in walk(deep)) == 50_001
    while isinstance(deep, Or):  # taken apart by hand: a recursive destructor is Python's own affair
        deep = deep.children[0]


def test_a_long_chain_is_one_flat_node() -> None:
    schema, batch = column_of("INT", [1, 2, 3, None])
    chain: Predicate = col("c") > -1
    for i in range(500):
        chain = chain & (col("c") != 100 + i)
    assert isinstance(chain, And)
    assert len(chain.children) == 501
    assert chain.check(schema).mask(batch).to_pylist() == [True, True, True, False]
    assert len(batch.filter(chain.check(schema).to_arrow())) == 3


def test_an_empty_in_matches_nothing_and_its_negation_everything() -> None:
    schema, batch = column_of("INT", [1, None])
    assert col("c").is_in([]).check(schema).mask(batch).to_pylist() == [False, False]
    assert col("c").not_in([]).check(schema).mask(batch).to_pylist() == [True, True]
    assert (~col("c").is_in([])).check(schema).mask(batch).to_pylist() == [True, True]


def test_an_in_of_impossible_values_is_still_null_for_null() -> None:
    schema, batch = column_of("TINYINT", [1, None])
    assert col("c").not_in([5.5, 1000]).check(schema).mask(batch).to_pylist() == [True, False]
    assert col("c").is_in([5.5, 1000]).check(schema).mask(batch).to_pylist() == [False, False]
    assert col("c").is_in([5.5, 1]).check(schema) == In("c", (1,), False, t.TinyInt())


@pytest.mark.parametrize("kind", [t.TinyInt(), t.SmallInt(), t.Int(), t.BigInt(), t.Decimal(3, 0)], ids=str)
@pytest.mark.parametrize("op", ["=", "<>", "<", "<=", ">", ">="])
def test_at_the_edges_of_its_type_a_column_compares_as_numbers_do(op: str, kind: t.DataType) -> None:
    """A literal that the column cannot hold is moved to the nearest that it can; the rows at that edge stay apart."""
    edge = 1000 if isinstance(kind, t.Decimal) else 1 << (kind.to_arrow().bit_width - 1)
    low = 1 - edge if isinstance(kind, t.Decimal) else -edge
    values = [low, low + 1, 0, edge - 2, edge - 1]
    schema = Schema.from_arrow(pa.schema([("x", kind.to_arrow())]))
    batch = pa.RecordBatch.from_pydict({"x": pa.array(values, kind.to_arrow())})
    whole = {
        "=": int.__eq__,
        "<>": int.__ne__,
        "<": int.__lt__,
        "<=": int.__le__,
        ">": int.__gt__,
        ">=": int.__ge__,
    }
    for literal in (low - 2, low - 1, low, low + 1, edge - 2, edge - 1, edge, edge + 1):
        found = Compare("x", op, literal).check(schema).mask(batch).to_pylist()
        assert found == [whole[op](value, literal) for value in values], literal


@pytest.mark.parametrize(
    ("text", "utc"),
    [
        ("2024-01-01 12:00:00Z", "2024-01-01 12:00:00"),
        ("2024-01-01 12:00:00+05:30", "2024-01-01 06:30:00"),
        ("2024-01-01 12:00:00-05:30", "2024-01-01 17:30:00"),
        ("2024-01-01 20:00:00-0800", "2024-01-02 04:00:00"),
    ],
)
def test_an_instant_with_an_offset_is_the_one_in_utc(text: str, utc: str) -> None:
    schema, _ = column_of("TIMESTAMP_LTZ(3)", [])
    assert (col("c") == text).check(schema) == (col("c") == utc).check(schema)


def test_between_includes_both_ends() -> None:
    schema, batch = column_of("INT", [1, 2, 3, 4])
    assert col("c").between(2, 3).check(schema).mask(batch).to_pylist() == [False, True, True, False]


def test_a_huge_exponent_costs_nothing() -> None:
    schema, _ = column_of("BIGINT", [])
    assert (col("c") < Decimal("1e999999")).check(schema) == Compare("c", "<=", 2**63 - 1, t.BigInt())
    assert (col("c") > Decimal("-1e999999")).check(schema) == Compare("c", ">=", -(2**63), t.BigInt())
    assert (col("c") > Decimal("1e-999999")).check(schema) == Compare("c", ">", 0, t.BigInt())
    assert (col("c") >= Decimal("-1e-999999")).check(schema) == Compare("c", ">", -1, t.BigInt())
