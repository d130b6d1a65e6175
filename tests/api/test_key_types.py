"""Keys of every type that may be one, alone and together: written, found, scanned and deleted as what they are."""

from __future__ import annotations

import datetime as dt
import itertools
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from api.place import table_on
from strom.errors import InvalidTable, SchemaMismatch
from strom.testing.process import ServerProcess

TYPES: dict[str, tuple[str, list[Any]]] = {
    "boolean": ("BOOLEAN", [True, False]),
    "tinyint": ("TINYINT", [-128, 0, 127]),
    "smallint": ("SMALLINT", [-(2**15), 0, 2**15 - 1]),
    "int": ("INT", [-(2**31), -1, 0, 2**31 - 1]),
    "bigint": ("BIGINT", [-(2**63), -1, 0, 127, 128, 2**63 - 1]),
    "float": ("FLOAT", [-1.5, 0.25, 3.0]),
    "double": ("DOUBLE", [-1e300, 0.1, 5e-324]),
    "decimal": ("DECIMAL(10, 2)", [Decimal("-99999999.99"), Decimal("0.00"), Decimal("12.34")]),
    "large_decimal": ("DECIMAL(38, 10)", [Decimal("-1e20"), Decimal("0.0000000001")]),
    "char": ("CHAR(3)", ["abc", "xyz"]),
    "string": ("STRING", ["", "a", "ü€😀", "long " * 100]),
    "binary": ("BINARY(4)", [b"\0\1\2\3", b"\xff" * 4]),
    "bytes": ("BYTES", [b"", b"\0", b"\xff" * 300]),
    "date": ("DATE", [dt.date(1969, 12, 31), dt.date(1970, 1, 1), dt.date(9999, 12, 31)]),
    "time": ("TIME(3)", [dt.time(0), dt.time(23, 59, 59, 999000)]),
    "timestamp_ms": ("TIMESTAMP(3)", [dt.datetime(1969, 1, 1), dt.datetime(2026, 11, 15, 1, 2, 3, 4000)]),
    "timestamp_us": (
        "TIMESTAMP(6)",
        [dt.datetime(1969, 1, 1, 0, 0, 0, 1), dt.datetime(2026, 11, 15, 1, 2, 3, 456789)],
    ),
    "timestamp_ltz": ("TIMESTAMP_LTZ(6)", [dt.datetime(2026, 11, 15, 1, 2, 3, 456789, dt.UTC)]),
}


@pytest.mark.parametrize("name", TYPES)
def test_a_key_of_any_type(server: ServerProcess, name: str) -> None:
    sql, values = TYPES[name]
    with table_on(server, {"k": sql, "v": "INT"}, primary_key="k", buckets=3) as table:
        table.upsert({"k": values, "v": list(range(len(values)))})
        for number, value in enumerate(values):
            assert table.lookup({"k": value}) == {"k": value, "v": number}
        assert (
            table.lookup_many({"k": values[::-1]}).column("v").to_pylist() == list(range(len(values)))[::-1]
        )
        found = table.scan().to_arrow().to_pylist()
        assert sorted(row["v"] for row in found) == list(range(len(values)))
        table.delete({"k": values[:1]})
        assert table.lookup({"k": values[0]}) is None
        assert table.count() == len(values) - 1


@pytest.mark.parametrize(
    "names",
    [["string", "bigint"], ["int", "date", "bytes"], ["decimal", "timestamp_us", "boolean", "string"]],
)
def test_keys_of_several_columns(server: ServerProcess, names: list[str]) -> None:
    schema = {f"k{at}": TYPES[name][0] for at, name in enumerate(names)} | {"v": "INT"}
    keys = list(schema)[:-1]
    tuples = list(itertools.product(*(TYPES[name][1][:3] for name in names)))
    rows = [dict(zip(keys, one, strict=True)) | {"v": number} for number, one in enumerate(tuples)]
    with table_on(server, schema, primary_key=keys, buckets=4) as table:
        table.upsert(rows)
        for row in rows:
            assert table.lookup({key: row[key] for key in keys}) == row
        wanted = [{key: row[key] for key in keys} for row in reversed(rows)]
        assert table.lookup_many(wanted).to_pylist() == rows[::-1]
        table.delete(wanted[:2])
        assert table.lookup_many(wanted).column("v").null_count == 2


def test_the_key_need_not_come_first_and_its_order_is_its_own(server: ServerProcess) -> None:
    schema = {"v": "INT", "b": "STRING", "w": "DOUBLE", "a": "BIGINT"}
    with table_on(server, schema, primary_key=["a", "b"], buckets=3) as table:
        rows = [{"v": n, "b": f"b{n % 3}", "w": n / 2, "a": n // 3} for n in range(30)]
        table.upsert(rows)
        assert table.lookup_many([{"b": row["b"], "a": row["a"]} for row in rows]).to_pylist() == rows
        assert table.lookup({"a": 1, "b": "b2"}, columns=["w", "v"]) == {"w": 2.5, "v": 5}
        assert table.scan(["w"], where="a = 1 and b = 'b2'").to_arrow().to_pylist() == [{"w": 2.5}]


def test_a_key_column_is_never_null(server: ServerProcess) -> None:
    with table_on(server, {"a": "BIGINT", "b": "STRING", "v": "INT"}, primary_key=["a", "b"]) as table:
        assert [column.type.nullable for column in table.columns] == [False, False, True]
        for row in ({"a": 1, "b": None, "v": 1}, {"a": 1, "v": 1}, {"b": "x", "v": 1}):
            with pytest.raises(SchemaMismatch):
                table.upsert(row)
        table.upsert({"a": 1, "b": "x", "v": None})
        assert table.lookup({"a": 1, "b": "x"}) == {"a": 1, "b": "x", "v": None}


@pytest.mark.parametrize("kind", ["ARRAY<INT>", "MAP<STRING, INT>", "ROW<a INT>"])
def test_nested_columns_are_values_but_no_keys(server: ServerProcess, kind: str) -> None:
    with pytest.raises(InvalidTable), table_on(server, {"k": kind}, primary_key="k"):
        pytest.fail("a nested column became a key")
    values = {"ARRAY<INT>": [1, None, 3], "MAP<STRING, INT>": [("a", 1)], "ROW<a INT>": {"a": 5}}
    with table_on(server, {"k": "INT", "v": kind, "n": f"{kind} NOT NULL"}, primary_key="k") as table:
        table.upsert([{"k": 1, "v": values[kind], "n": values[kind]}, {"k": 2, "v": None, "n": values[kind]}])
        assert table.lookup(1) == {"k": 1, "v": values[kind], "n": values[kind]}
        table.delete(1)
        assert table.lookup(1) is None
        assert table.scan().to_arrow().to_pylist() == [{"k": 2, "v": None, "n": values[kind]}]


def test_equal_looking_keys_of_one_bucket_stay_apart(server: ServerProcess) -> None:
    with table_on(server, {"a": "STRING", "b": "STRING", "v": "INT"}, primary_key=["a", "b"]) as table:
        pairs = [("ab", "c"), ("a", "bc"), ("", "abc"), ("abc", ""), ("a", "b"), ("ab", "")]
        table.upsert([{"a": a, "b": b, "v": n} for n, (a, b) in enumerate(pairs)])
        found = table.lookup_many([{"a": a, "b": b} for a, b in pairs])
        assert found.column("v").to_pylist() == list(range(len(pairs)))


def test_a_key_of_another_arrow_type_is_cast_where_nothing_is_lost(server: ServerProcess) -> None:
    with table_on(server, {"k": "BIGINT", "v": "INT"}, primary_key="k", buckets=2) as table:
        table.upsert(pa.table({"k": pa.array([1, 2], pa.int32()), "v": [1, 2]}))
        assert table.lookup_many(pa.table({"k": pa.array([2, 1], pa.int16())})).column("v").to_pylist() == [
            2,
            1,
        ]
        assert table.lookup_many(pa.array([2])).column("v").to_pylist() == [2]
