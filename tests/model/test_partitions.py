"""Partitions: names as pyfluss writes them, batches split without losing or moving a row."""

from __future__ import annotations

import json
from datetime import date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strategies import predicates, record_batches, same, scalar_types
from strom.errors import InvalidPartition
from strom.model import types as t
from strom.model.filters.partition_pruning import surviving
from strom.model.filters.predicate import And, Or, Predicate, col
from strom.model.filters.predicate_text import parse_predicate
from strom.model.partitions import (
    check_spec,
    matches,
    partition_name,
    split_by_partition,
    value_complaint,
    value_text,
    value_texts,
    values_of,
)
from strom.model.schema import Schema

PEER = json.loads((Path(__file__).parent / "peer_keys.json").read_text())
"""Values of every partition type with the name that pyfluss 1.0.0 gave their partition."""

KEY_TYPES = scalar_types(nullable=False).filter(lambda kind: not isinstance(kind, t.Decimal))


@pytest.mark.parametrize("sql", [sql for sql in PEER if "partitions" in PEER[sql]])
def test_every_type_is_named_as_pyfluss_names_it(sql: str) -> None:
    data_type = t.parse(sql)
    values = PEER[sql]["values"]
    if isinstance(data_type, t.Bytes | t.Binary):
        values = [bytes.fromhex(value) for value in values]
    found = value_texts(pa.array(values, data_type.to_arrow()))
    pairs = list(zip(found, PEER[sql]["partitions"], strict=True))
    assert [ours for ours, theirs in pairs if theirs is not None] == [theirs for _, theirs in pairs if theirs]


@pytest.mark.parametrize(
    ("value", "sql", "expected"),
    [
        (date(2024, 1, 15), "DATE", "2024-01-15"),
        (datetime(2024, 1, 15, 8, 30), "TIMESTAMP(6)", "2024-01-15-08-30-00_"),
        (-7, "INT", "-7"),
        (0.5, "DOUBLE", "0_5"),
        (True, "BOOLEAN", "true"),
        (b"\x0a\xff", "BYTES", "0aff"),
        ("2024-01-15", "DATE", "2024-01-15"),
        ("EMEA", "STRING", "EMEA"),
        (pa.scalar(3, pa.int8()), "TINYINT", "3"),
    ],
)
def test_one_value_given_by_hand_has_the_same_text(value: Any, sql: str, expected: str) -> None:
    assert value_text(value, t.parse(sql)) == expected


@pytest.mark.parametrize(("value", "sql"), [(None, "INT"), (2**40, "INT"), (b"x", "DATE"), (1.5, "BIGINT")])
def test_a_value_of_another_type_is_refused(value: Any, sql: str) -> None:
    with pytest.raises(InvalidPartition):
        value_text(value, t.parse(sql))


def test_a_name_is_its_values_joined() -> None:
    assert partition_name(("2024-01-15", "EMEA")) == "2024-01-15$EMEA"


def test_a_partition_given_by_key_is_checked_and_put_in_order() -> None:
    keys = ["day", "region"]
    assert values_of({"region": "EMEA", "day": "2024-01-15"}, keys) == ("2024-01-15", "EMEA")
    with pytest.raises(InvalidPartition, match="region"):
        values_of({"day": "2024-01-15"}, keys)
    with pytest.raises(InvalidPartition, match="did you mean 'region'"):
        values_of({"day": "2024-01-15", "regoin": "x"}, keys)
    check_spec({"day": "x"}, keys)
    assert matches({"day": "a"}, keys, ("a", "b"))
    assert not matches({"day": "a"}, keys, ("b", "b"))
    assert matches({}, keys, ("b", "b"))


@pytest.mark.parametrize("value", ["", "a b", "a$b", "a/b", "..", "größe", "__x", "x" * 201, "a\n"])
def test_a_value_that_cannot_name_a_partition_is_refused(value: str) -> None:
    assert value_complaint(value) is not None
    with pytest.raises(InvalidPartition):
        values_of({"k": value}, ["k"])
    with pytest.raises(InvalidPartition):
        split_by_partition(pa.record_batch({"k": [value]}), ["k"])


@pytest.mark.parametrize("value", ["a", "-7", "_x", "2024-01-15", "x" * 200])
def test_a_value_that_can_name_a_partition_is_taken(value: str) -> None:
    assert value_complaint(value) is None


def test_null_in_a_partition_key_is_refused() -> None:
    with pytest.raises(InvalidPartition, match="NULL in 1 row"):
        split_by_partition(pa.record_batch({"k": ["a", None]}), ["k"])


@settings(max_examples=100, deadline=None)
@given(st.lists(KEY_TYPES, min_size=1, max_size=3), st.data())
def test_a_split_batch_is_the_same_rows_in_the_same_order_within_each_partition(
    kinds: list[t.DataType], data: st.DataObject
) -> None:
    keys = [f"k{i}" for i in range(len(kinds))]
    schema = pa.schema([pa.field(n, k.to_arrow(), False) for n, k in zip(keys, kinds, strict=True)])
    keyed = data.draw(record_batches(schema))
    batch = keyed.append_column("row", pa.array(np.arange(keyed.num_rows)))
    rows_by_values: dict[tuple[str, ...], list[int]] = {}
    for row, values in enumerate(zip(*(value_texts(keyed.column(key)) for key in keys), strict=True)):
        rows_by_values.setdefault(values, []).append(row)
    if any(value_complaint(text) for values in rows_by_values for text in values):
        with pytest.raises(InvalidPartition):
            split_by_partition(batch, keys)
        return
    parts = split_by_partition(batch, keys)
    assert {part.values: part.batch.column("row").to_pylist() for part in parts} == rows_by_values
    assert [part.values for part in parts] == list(rows_by_values)
    assert [part.name for part in parts] == ["$".join(values) for values in rows_by_values]
    for part in parts:
        assert same(part.batch, batch.take(part.batch.column("row")))


# --- pruning by name -----------------------------------------------------------------------------------------


def possible(where: str, sql: str, *texts: str) -> list[bool]:
    schema = Schema.from_arrow(pa.schema([("k", t.parse(sql).to_arrow()), ("v", pa.int64())]))
    return surviving(parse_predicate(where).check(schema), schema, ["k"], [(text,) for text in texts])


@pytest.mark.parametrize(
    ("where", "sql", "texts", "expected"),
    [
        ("k = '2024-01-02'", "DATE", ["2024-01-01", "2024-01-02"], [False, True]),
        ("k >= '2024-01-02' and v > 5", "DATE", ["2024-01-01", "2024-01-02"], [False, True]),
        ("k >= '2024-01-02' or v > 5", "DATE", ["2024-01-01", "2024-01-02"], [True, True]),
        ("k in (1, 2)", "INT", ["1", "3", "-2"], [True, False, False]),
        ("k is null", "INT", ["1"], [False]),
        ("k is not null", "INT", ["1"], [True]),
        ("k", "BOOLEAN", ["true", "false"], [True, False]),
        ("starts_with(k, 'e')", "STRING", ["eu", "us"], [True, False]),
        ("k > 1", "DOUBLE", ["0_5", "1_5", "NaN", "-Inf"], [False, True, True, False]),
        ("k = X'0aff'", "BYTES", ["0aff", "00"], [True, False]),
        (
            "k < '2024-01-01 12:00'",
            "TIMESTAMP(3)",
            ["2024-01-01-11-59-59_999", "2024-01-01-12-00-00_"],
            [True, False],
        ),
        ("k = '12:00'", "TIME(3)", ["12-00-00_000", "12-00-00_001"], [True, False]),
        ("k = '12:00'", "TIME(6)", ["12-00-00_000", "12-00-00_001"], [True, True]),
        ("k = 8", "INT", ["007", "x", "7", "8", "99999999999"], [True, True, False, True, True]),
        ("k = 'x'", "STRING", [], []),
        ("k = '2024-01-02'", "DATE", ["20240101", "2024-02-31", "2024-01-02", "2024-1-2"], [True] * 4),
    ],
)
def test_partitions_are_skipped_by_name_only_when_no_row_can_pass(
    where: str, sql: str, texts: list[str], expected: list[bool]
) -> None:
    assert possible(where, sql, *texts) == expected


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_no_partition_with_a_passing_row_is_skipped(data: st.DataObject) -> None:
    schema = Schema.from_arrow(
        pa.schema(
            [
                pa.field("k", data.draw(KEY_TYPES).to_arrow(), False),
                pa.field("v", pa.int8()),
            ]
        )
    )
    predicate: Predicate = data.draw(predicates(schema)).check(schema)
    batch = data.draw(record_batches(schema, min_rows=1))
    values = [(text,) for text in value_texts(batch.column("k"))]
    passes = predicate.mask(batch).to_pylist()
    survives = surviving(predicate, schema, ["k"], values)
    assert [row for row, (p, s) in enumerate(zip(passes, survives, strict=True)) if p and not s] == []


def test_no_partitions_is_no_answer() -> None:
    schema = Schema.from_arrow(pa.schema([("k", pa.int64())]))
    both = (col("k") > 1).check(schema)
    assert surviving(And((both,)), schema, ["k"], []) == []
    assert surviving(Or((both, both)), schema, ["k"], [("2",)]) == [True]
