"""Filters that name whole keys are recognized, and no others."""

from __future__ import annotations

import pyarrow as pa
import pytest

from strom.client.cluster.metadata import TableInfo
from strom.client.plan.filters import filter_of
from strom.client.plan.key_filter import KEYS_MAX, keys_named
from strom.model.schema import Schema
from strom.model.table import TableDescription, TablePath

ARROW = pa.schema([("a", pa.int64()), ("b", pa.string()), ("v", pa.int32()), ("f", pa.float64())])


def table(*key: str) -> TableInfo:
    description = TableDescription(Schema.from_arrow(ARROW, key), bucket_count=1)
    return TableInfo(1, TablePath("d", "t"), description, 0, 0)


def keys(where: str, *key: str) -> list[tuple[object, ...]] | None:
    info = table(*key)
    found = keys_named(info, filter_of(where, info.schema))
    return None if found is None else [tuple(row.values()) for row in found.keys.to_pylist()]


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("a = 1", [(1,)]),
        ("a = 1 and v > 3", [(1,)]),
        ("a in (3, 1, 3)", [(3,), (1,)]),
        ("a in (1, 2) and a = 2", [(2,)]),
        ("a > 1", None),
        ("a = 1 or v = 2", None),
        ("a not in (1)", None),
        ("v = 1", None),
    ],
)
def test_filters_on_a_key_of_one_column(where: str, expected: list[tuple[int]] | None) -> None:
    assert keys(where, "a") == expected


def test_all_columns_of_a_key_must_be_named() -> None:
    assert keys("a = 1", "b", "a") is None
    assert keys("a = 1 and b = 'x'", "b", "a") == [("x", 1)]
    assert keys("a in (1, 2) and b in ('x', 'y')", "b", "a") == [("x", 1), ("x", 2), ("y", 1), ("y", 2)]


def test_floats_are_not_looked_up_because_two_zeros_are_equal() -> None:
    assert keys("f = 0.0", "f") is None


def test_too_many_keys_are_scanned_for() -> None:
    many = ", ".join(map(str, range(KEYS_MAX // 2)))
    assert keys(f"a in ({many})", "a") is not None
    assert keys(f"a in ({many}) and b in ('x', 'y', 'z')", "a", "b") is None


def test_the_rest_of_the_filter_is_asked_of_the_rows() -> None:
    info = table("a")
    found = keys_named(info, filter_of("a in (1, 2) and v > 3", info.schema))
    assert found is not None
    rows = pa.RecordBatch.from_pylist([{"a": 1, "b": None, "v": 3}, {"a": 2, "b": None, "v": 4}], ARROW)
    assert found.filtered(rows).column("a").to_pylist() == [2]
    assert found.columns == {"a", "v"}
