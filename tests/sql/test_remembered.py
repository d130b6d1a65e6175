"""What is remembered of a query between two runs of it: only what is still true."""

from __future__ import annotations

import decimal
import gc
import threading
from collections.abc import Iterator

import duckdb
import pyarrow as pa
import pytest

import strom
from api.place import new_name
from strom.errors import InvalidQuery
from strom.sql import read_ahead
from strom.sql.deterministic import FUNCTIONS
from strom.sql.duck import give_back, open_duck
from strom.sql.statement import parse
from strom.testing.process import ServerProcess


@pytest.fixture(scope="module")
def db(server: ServerProcess) -> Iterator[strom.Database]:
    with strom.connect(server.address) as found:
        yield found


@pytest.fixture
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with open_duck() as found:
        yield found


@pytest.mark.parametrize(
    "text",
    [
        "SELECT sum(price), count(*) FROM t",
        "SELECT shop, max(quantity) + 1 FROM t WHERE quantity BETWEEN 1 AND 2 GROUP BY shop ORDER BY shop",
        "WITH a AS (SELECT * FROM t WHERE name LIKE 'b%') SELECT * FROM a JOIN u USING (id)",
        "SELECT date_trunc('day', made), row_number() OVER (ORDER BY id) FROM t WHERE made > '2026-01-01'::TIMESTAMP",
        "SELECT CASE WHEN a > 1 THEN b ELSE c END FROM t WHERE d IN (SELECT e FROM u) LIMIT 5",
    ],
)
def test_a_query_on_rows_alone_means_the_same_at_any_time(
    connection: duckdb.DuckDBPyConnection, text: str
) -> None:
    assert parse(connection, text).deterministic


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM t WHERE made > now() - INTERVAL 5 SECOND",
        "SELECT * FROM t WHERE made > current_timestamp",
        "SELECT * FROM t WHERE day = CURRENT_DATE",
        "SELECT * FROM t WHERE day = today()",
        "SELECT * FROM t WHERE local > localtimestamp",
        "SELECT * FROM t WHERE price < random()",
        "SELECT * FROM t WHERE name = user",
        "SELECT * FROM t WHERE name = current_setting('TimeZone')",
        "SELECT * FROM t WHERE name = getvariable('x')",
        "SELECT * FROM t, range(3)",
        "SELECT * FROM t USING SAMPLE 10 ROWS",
        "SELECT * FROM (SELECT * FROM t WHERE id IN (SELECT id FROM u WHERE made > now())) s",
        "WITH a AS (SELECT now() AS x) SELECT * FROM t, a WHERE made > x",
        "SELECT a_function_of_tomorrow(id) FROM t",
        "SELECT other.sum(id) FROM t",
    ],
)
def test_a_query_on_the_time_or_on_chance_does_not(connection: duckdb.DuckDBPyConnection, text: str) -> None:
    assert not parse(connection, text).deterministic


def test_duckdb_calls_every_function_of_ours_consistent(connection: duckdb.DuckDBPyConnection) -> None:
    found = connection.execute(
        "SELECT function_name, function_type, stability FROM duckdb_functions()"
    ).fetchall()
    known = {name for name, *_ in found}
    other = {(name, kind) for name, kind, stability in found if stability != "CONSISTENT" and kind != "table"}
    assert known >= FUNCTIONS
    assert not {one for one in other if one[0] in FUNCTIONS}


def test_a_query_sees_a_column_that_was_added_since_it_ran(db: strom.Database) -> None:
    table = db.create_table(new_name("sql"), {"id": "BIGINT"})
    table.append({"id": [1]})
    text = f"SELECT * FROM {table.name}"
    assert db.sql(text).to_pylist() == [{"id": 1}]
    table.add_column("name", "STRING")
    db.table(table.name).append({"id": [2], "name": ["b"]})
    assert sorted(db.sql(text).to_pylist(), key=lambda row: row["id"]) == [
        {"id": 1, "name": None},
        {"id": 2, "name": "b"},
    ]


def test_a_query_on_a_table_made_anew_is_one_on_the_new_columns(db: strom.Database) -> None:
    name = new_name("sql")
    text = f"SELECT count(*) AS n FROM {name} WHERE place < 5"
    for kind, values in (("INT", [1, 9]), ("DOUBLE", [4.5, 5.5]), ("BIGINT", [2**40, 3])):
        table = db.create_table(
            name, {"other": "BIGINT", "place": kind} if kind == "INT" else {"place": kind}
        )
        rows: dict[str, list[object]] = {"place": list(values)}
        if kind == "INT":
            rows["other"] = [0, 0]
        table.append(pa.table(rows, schema=table.schema))
        table.flush()
        assert db.sql(text).to_pylist() == [{"n": 1}]
        db.drop_table(name)


def test_a_query_that_fitted_is_refused_once_its_column_is_gone(db: strom.Database) -> None:
    name = new_name("sql")
    text = f"SELECT sum(price) AS total FROM {name}"
    db.create_table(name, {"price": "DOUBLE"}).append({"price": [1.5]})
    assert db.sql(text).to_pylist() == [{"total": 1.5}]
    db.drop_table(name)
    db.create_table(name, {"prize": "DOUBLE"})
    with pytest.raises(InvalidQuery, match="price"):
        db.sql(text)


def test_the_same_text_in_another_database_reads_its_table(db: strom.Database, server: ServerProcess) -> None:
    other, name = new_name("sql").rpartition(".")[2] + "_db", new_name("sql").rpartition(".")[2]
    db.create_table(name, {"id": "BIGINT"}).append({"id": [1, 2]})
    text = f"SELECT count(*) AS n FROM {name}"
    assert db.sql(text).to_pylist() == [{"n": 2}]
    db.create_database(other)
    with strom.connect(server.address, database=other) as there:
        there.create_table(name, {"id": "BIGINT"}).append({"id": [1, 2, 3]})
        assert there.sql(text).to_pylist() == [{"n": 3}]
        assert db.sql(text).to_pylist() == [{"n": 2}]


def test_nothing_of_a_query_is_there_for_the_next_one(db: strom.Database) -> None:
    table = db.create_table(new_name("sql"), {"id": "BIGINT"})
    table.append({"id": [1]})
    for _ in range(2):
        with db.sql(f"SELECT * FROM {table.name} WHERE id = 1") as result:
            assert result.to_pylist() == [{"id": 1}]
        given_back = open_duck()
        assert given_back.execute("SELECT table_name FROM information_schema.tables").fetchall() == []
        give_back(given_back.begin(), [])
    short = table.name.rpartition(".")[2]
    with pytest.raises(InvalidQuery, match=f"{short} does not exist"):
        db.sql(f"SELECT * FROM query_table('{short}')")


def test_a_table_of_any_types_has_a_stand_in(db: strom.Database) -> None:
    inner = pa.struct([pa.field('a "b', pa.int32()), pa.field("select", pa.list_(pa.decimal128(38, 10)))])
    schema = pa.schema(
        [
            ("flag", pa.bool_()),
            ("tiny", pa.int8()),
            ("real", pa.float32()),
            ("exact", pa.decimal128(20, 0)),
            ("raw", pa.binary()),
            ("day", pa.date32()),
            ("clock", pa.time32("ms")),
            ("local", pa.timestamp("ns")),
            ("stamp", pa.timestamp("s", "UTC")),
            ("row", inner),
            ("from", pa.map_(pa.string(), pa.list_(inner))),
        ]
    )
    table = db.create_table(new_name("sql"), schema)
    value = {'a "b': 1, "select": [decimal.Decimal("1.5")]}
    row = {"flag": True, "tiny": 1, "raw": b"a", "row": value, "from": [("k", [value])]}
    table.append(pa.Table.from_pylist([row, {}], schema=schema))
    where = 'flag AND "row"."a ""b" = 1 AND "from" IS NOT NULL AND local IS NULL'
    (found,) = db.sql(f"SELECT * FROM {table.name} WHERE {where}").to_pylist()
    assert found["row"] == value
    assert dict(found["from"]) == {"k": [value]}
    assert db.sql(f"SELECT count(*) AS n FROM {table.name} WHERE clock IS NULL").to_pylist() == [{"n": 2}]


def test_a_query_that_is_forgotten_leaves_no_thread_behind(
    db: strom.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_ahead, "BYTES_MAX", 1)
    table = db.create_table(new_name("sql"), {"id": "BIGINT"})
    for start in range(0, 40, 10):
        table.append({"id": list(range(start, start + 10))})
        table.flush()
    result = db.sql(f"SELECT id FROM {table.name}")
    assert result.query.plan()
    threads = [one for one in threading.enumerate() if one.name == "strom-ahead"]
    assert threads
    del result
    gc.collect()
    for one in threads:
        one.join(60)
        assert not one.is_alive()
