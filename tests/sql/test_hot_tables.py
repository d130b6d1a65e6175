"""SQL on tables that are not in the lake: what DuckDB answers on the same rows, with little moved for it."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Iterator

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import strom
from api.place import new_name
from strom import aio
from strom.errors import DatabaseNotFound, InvalidQuery, ReadOnlyQuery, TableNotFound
from strom.sql.query import Query
from strom.testing.process import ServerProcess

EVENTS = pa.schema(
    [
        ("id", pa.int64()),
        ("small", pa.int16()),
        ("name", pa.string()),
        ("price", pa.float64()),
        ("exact", pa.decimal128(12, 2)),
        ("stamp", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("ms")),
        ("date", pa.date32()),
        ("day", pa.string()),
    ]
)


def rows(count: int) -> pa.Table:
    numbers = list(range(count))
    start = dt.datetime(2026, 11, 1, tzinfo=dt.UTC)
    return pa.table(
        {
            "id": numbers,
            "small": [None if n % 11 == 0 else n % 300 - 100 for n in numbers],
            "name": [None if n % 13 == 0 else f"n{n % 17}" for n in numbers],
            "price": [float("nan") if n % 97 == 0 else n / 4 for n in numbers],
            "exact": pa.array([n / 4 for n in numbers]).cast(pa.decimal128(12, 2)),
            "stamp": [start + dt.timedelta(seconds=n) for n in numbers],
            "local": pa.array([n * 500 for n in numbers], pa.timestamp("ms")),
            "date": [dt.date(2026, 11, 1) + dt.timedelta(days=n % 40) for n in numbers],
            "day": [f"2026-11-{n % 3 + 1:02d}" for n in numbers],
        },
        schema=EVENTS,
    )


@pytest.fixture(scope="module")
def db(server: ServerProcess) -> Iterator[strom.Database]:
    with strom.connect(server.address) as found:
        yield found


@pytest.fixture(scope="module")
def events(db: strom.Database) -> strom.Table:
    table = db.create_table(new_name("sql"), EVENTS, partition_by="day", buckets=2)
    table.append(rows(2_000))
    table.flush()
    return table


@pytest.fixture(scope="module")
def users(db: strom.Database) -> strom.Table:
    table = db.create_table(new_name("sql"), {"id": "BIGINT", "city": "STRING"}, primary_key="id")
    table.upsert({"id": list(range(50)), "city": [f"c{n % 4}" for n in range(50)]})
    table.delete({"id": [7]})
    table.flush()
    return table


def plain(query: str, **tables: pa.Table) -> list[tuple[object, ...]]:
    """What DuckDB says of the same rows."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for name, data in tables.items():
            connection.register(name, data)
        found = connection.sql(query).to_arrow_table()
    return sorted(map(repr, found.to_pylist()))


def ours(db: strom.Database, query: str) -> list[str]:
    with db.sql(query) as result:
        return sorted(map(repr, result.to_arrow().to_pylist()))


def test_a_query_joins_groups_and_orders_tables(
    db: strom.Database, events: strom.Table, users: strom.Table
) -> None:
    query = (
        "WITH dear AS (SELECT * FROM {e} WHERE price >= 2) "
        "SELECT city, count(*) AS n, sum(exact) AS total FROM dear JOIN {u} USING (id) "
        "WHERE id IN (SELECT id FROM {u} WHERE city <> 'c3') GROUP BY city ORDER BY city"
    )
    found = ours(db, query.format(e=events.name, u=users.name))
    city = pa.table(
        {"id": [n for n in range(50) if n != 7], "city": [f"c{n % 4}" for n in range(50) if n != 7]}
    )
    assert found == plain(query.format(e="e", u="u"), e=rows(2_000), u=city)


def test_names_may_leave_the_database_out_and_be_quoted(db: strom.Database, users: strom.Table) -> None:
    short = users.name.partition(".")[2]
    for name in (short, users.name, f'"{short}"', f'fluss."{short}"', short.upper()):
        assert db.sql(f"SELECT count(*) AS n FROM {name}").to_pylist() == [{"n": 49}], name


def test_only_the_columns_and_rows_that_matter_leave_the_server(
    db: strom.Database, events: strom.Table
) -> None:
    with db.sql(f"SELECT * FROM {events.name}") as everything:
        everything.to_arrow()
        whole = everything.statistics.bytes_fetched
    query = f"SELECT sum(small) FROM {events.name} WHERE day = '2026-11-02' AND stamp < '2026-11-01 00:01:00'"
    with db.sql(query) as some:
        assert len(some.to_pylist()) == 1
        (plan,) = some.query.plan().values()
        assert {one.partition for one in plan.hot.ranges} == {"2026-11-02"}  # type: ignore[union-attr]
        assert 0 < some.statistics.bytes_fetched < whole / 20


def test_a_filter_that_nothing_can_pass_fetches_nothing(db: strom.Database, events: strom.Table) -> None:
    with db.sql(f"SELECT * FROM {events.name} WHERE day = '1999-01-01'") as result:
        assert result.to_arrow().num_rows == 0
        assert result.statistics.bytes_fetched == 0


def test_all_mentions_of_a_table_see_the_same_instant(db: strom.Database) -> None:
    table = db.create_table(new_name("sql"), {"id": "BIGINT"})
    table.append({"id": [1, 2, 3]})
    with db.sql(
        f"SELECT (SELECT count(*) FROM {table.name}) AS a, (SELECT max(id) FROM {table.name}) AS b"
    ) as result:
        assert result.to_pylist() == [{"a": 3, "b": 3}]
        table.append({"id": [4]})
        table.flush()
        assert result.to_pylist() == [{"a": 3, "b": 3}]
    assert db.sql(f"SELECT count(*) AS n FROM {table.name}").to_pylist() == [{"n": 4}]


def test_now_is_one_moment_in_the_filter_and_in_the_rows(db: strom.Database) -> None:
    table = db.create_table(new_name("sql"), {"id": "BIGINT", "stamp": "TIMESTAMP_LTZ(6)"})
    base = dt.datetime.now(dt.UTC)
    moments = [base + dt.timedelta(milliseconds=n) for n in range(-500, 3000)]
    table.append({"id": list(range(len(moments))), "stamp": moments})
    with db.sql(f"SELECT stamp, now() AS moment FROM {table.name} WHERE stamp <= now()") as result:
        found = result.to_arrow()
    (moment,) = set(found["moment"].to_pylist())
    assert found.num_rows == sum(1 for one in moments if one <= moment)


def test_an_unknown_table_is_refused_with_the_nearest_name(db: strom.Database, users: strom.Table) -> None:
    with pytest.raises(TableNotFound, match=f"did you mean '{users.name.partition('.')[2]}'"):
        db.sql(f"SELECT * FROM {users.name}x")
    with pytest.raises(DatabaseNotFound, match="did you mean 'fluss'"):
        db.sql("SELECT * FROM flus.t")
    with pytest.raises(TableNotFound, match=r"did you mean 'offsets'.*\$lake, \$snapshots, \$offsets"):
        db.sql(f"SELECT * FROM {users.name}$offset")


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO {t} VALUES (1, 'x')",
        "DELETE FROM {t}",
        "CREATE TABLE x AS SELECT 1",
        "COPY {t} TO '/tmp/never'",
        "ATTACH '/tmp/never'",
        "SET threads = 1",
        "DROP TABLE {t}",
    ],
)
def test_a_statement_that_would_write_is_refused(
    db: strom.Database, users: strom.Table, statement: str
) -> None:
    with pytest.raises(ReadOnlyQuery, match="changes nothing"):
        db.sql(statement.format(t=users.name))


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("SELEC 1", "syntax error"),
        ("SELECT nope FROM {t}", "nope"),
        ("SELECT 1; SELECT 2", "one statement"),
        ("", "one statement"),
        ("SELECT * FROM a.b.c", "database.table"),
        ("SELECT city + 1 FROM {t}", "Could not|No function|Conversion"),
    ],
)
def test_a_query_that_does_not_fit_says_what_is_wrong(
    db: strom.Database, users: strom.Table, query: str, says: str
) -> None:
    with pytest.raises(InvalidQuery, match=says):
        db.sql(query.format(t=users.name)).to_arrow()


def test_a_value_that_does_not_fit_is_said_of_the_query_when_it_runs(
    db: strom.Database, users: strom.Table
) -> None:
    result = db.sql(f"SELECT city::INT AS number FROM {users.name}")
    with pytest.raises(InvalidQuery, match=r"'c[0-3]'"):
        result.to_arrow()


def test_a_read_that_the_servers_refuse_ends_the_query_with_what_they_said(db: strom.Database) -> None:
    table = db.create_table(new_name("sql"), {"id": "BIGINT"})
    table.append({"id": [1, 2, 3]})
    with db.sql(f"SELECT id FROM {table.name}") as result:
        assert result.to_arrow().num_rows == 3
        db.drop_table(table.name)
        with pytest.raises(TableNotFound):
            result.to_arrow()


def test_a_variable_of_the_callers_is_no_table(db: strom.Database) -> None:
    secret_rows = pa.table({"a": [1]})
    with pytest.raises(TableNotFound):
        db.sql("SELECT * FROM secret_rows")
    assert secret_rows.num_rows == 1


def test_a_query_runs_on_the_async_face(server: ServerProcess, users: strom.Table) -> None:
    async def run() -> list[dict[str, object]]:
        async with await aio.connect(server.address) as db:
            result = await db.sql(
                f"SELECT city, count(*) AS n FROM {users.name} GROUP BY 1 ORDER BY 1 LIMIT 1"
            )
            found = await result.to_pylist()
            await result.close()
            return found

    assert asyncio.run(run()) == [{"city": "c0", "n": 13}]


def test_explain_shows_the_plan(db: strom.Database, users: strom.Table) -> None:
    with db.sql(f"EXPLAIN SELECT city FROM {users.name} WHERE id > 40") as result:
        assert "id" in result.to_pylist()[0]["explain_value"]


# --- any filter ---------------------------------------------------------------------------------------------------

LEAVES = st.sampled_from(
    [
        "id > 100",
        "id BETWEEN 50 AND 60",
        "id IN (1, 5, 1999, 3000)",
        "id NOT IN (1, 2)",
        "small = 12",
        "small > 3.5",
        "small <> 7",
        "small IS NULL",
        "name = 'n3'",
        "name LIKE 'n1%'",
        "name LIKE '%3'",
        "name NOT IN ('n1', 'n2')",
        "name IS NOT NULL",
        "name IS DISTINCT FROM 'n4'",
        "contains(name, '1')",
        "price > 100",
        "price = 'NaN'",
        "price <= 10.25",
        "exact = 12.25",
        "exact < 3",
        "stamp < '2026-11-01 00:10:00'",
        "stamp >= TIMESTAMPTZ '2026-11-01 00:20:00+01'",
        "local > TIMESTAMP '1970-01-01 00:05:00'",
        "local = TIMESTAMP '1970-01-01 00:00:00.5'",
        "date = DATE '2026-11-05'",
        "date > '2026-12-01'",
        "day = '2026-11-02'",
        "day > '2026-11-02'",
        "coalesce(small, 5) = 5",
        "id % 7 = 3",
        "id = small",
        "length(name) = 2",
    ]
)
CONDITIONS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds("({} AND {})".format, inner, inner),
        st.builds("({} OR {})".format, inner, inner),
        st.builds("(NOT {})".format, inner),
    ),
    max_leaves=5,
)
SHAPES = st.sampled_from(
    [
        "SELECT * FROM {t} WHERE {a}",
        "SELECT day, count(*) AS n, max(id) AS m FROM {t} WHERE {a} GROUP BY day",
        "SELECT x.id, y.name FROM {t} x JOIN (SELECT * FROM {t} WHERE {b}) y USING (id) WHERE {xa}",
        "WITH c AS (SELECT * FROM {t} WHERE {a}) SELECT count(*) AS n FROM c p, c q WHERE p.id = q.id + 1",
        "SELECT id FROM {t} WHERE {a} UNION ALL SELECT id FROM {t} WHERE {b}",
        "SELECT id FROM {t} WHERE {a} EXCEPT SELECT id FROM {t} WHERE {b}",
        "SELECT id FROM {t} WHERE ({a}) AND id >= (SELECT min(id) FROM {t} WHERE {b})",
        "SELECT x.id, y.id AS other FROM {t} x LEFT JOIN {t} y ON x.id = y.id AND y.small > 5 WHERE {xa}",
        "SELECT count(*) AS n FROM {t} WHERE {a} AND EXISTS (SELECT 1 FROM {t} z WHERE z.id = {t}.id AND {zb})",
    ]
)


@pytest.mark.parametrize(
    "condition",
    [
        "CAST(exact AS INTEGER) = 12",
        "CAST(exact AS DECIMAL(12, 1)) = 3.3",
        "CAST(exact AS BIGINT) < 3",
        "TRY_CAST(id AS TINYINT) IS NULL",
        "TRY_CAST(id AS TINYINT) IS NULL OR small = 7",
        "TRY_CAST(exact AS DECIMAL(3, 2)) IS NULL",
        "CAST(small AS BIGINT) = 12",
        "CAST(exact AS DECIMAL(18, 4)) = 12.25",
    ],
)
def test_a_cast_that_changes_values_hides_no_row(
    db: strom.Database, events: strom.Table, condition: str
) -> None:
    name = events.name.partition(".")[2]
    query = f"SELECT id FROM {name} WHERE {condition}"
    expected = plain(query, **{name: rows(2_000)})
    assert expected
    assert ours(db, query) == expected


@settings(max_examples=30, deadline=None)
@given(shape=SHAPES, a=CONDITIONS, b=CONDITIONS)
def test_any_query_gives_what_duckdb_gives_on_the_same_rows(
    db: strom.Database, events: strom.Table, shape: str, a: str, b: str
) -> None:
    def text(name: str) -> str:
        parts = {"a": a, "b": b, "xa": _qualified(a, "x"), "zb": _qualified(b, "z")}
        return shape.format(t=name, **parts)

    name = events.name.partition(".")[2]
    assert ours(db, text(name)) == plain(text(name), **{name: rows(2_000)})


def _qualified(condition: str, alias: str) -> str:
    words = condition
    for column in EVENTS.names:
        for before in ("(", " ", "NOT "):
            words = words.replace(f"{before}{column} ", f"{before}{alias}.{column} ")
        words = words.replace(f"({column},", f"({alias}.{column},").replace(
            f"({column})", f"({alias}.{column})"
        )
        if words.startswith(f"{column} "):
            words = f"{alias}.{words}"
        words = words.replace(f"= {column}", f"= {alias}.{column}")
    return words


def test_a_query_lets_go_of_everything_when_it_is_closed(db: strom.Database, users: strom.Table) -> None:
    result = db.sql(f"SELECT * FROM {users.name}")
    assert isinstance(result.query, Query)
    result.close()
    result.close()
    with pytest.raises(InvalidQuery, match="closed"):
        result.to_arrow()


def test_columns_that_differ_only_in_case_are_told(db: strom.Database) -> None:
    table = db.create_table(new_name("case"), {"id": "BIGINT", "Name": "STRING", "name": "STRING"})
    with pytest.raises(InvalidQuery, match="only in case"):
        db.sql(f"SELECT * FROM {table.name} WHERE id = 1").to_arrow()


# --- what there is ------------------------------------------------------------------------------------------------


def test_tables_are_listed_and_described(db: strom.Database) -> None:
    name = new_name("listed")
    db.create_database(name)
    db.create_table(f"{name}.log", {"at": "TIMESTAMP_LTZ(3) NOT NULL", "m": "MAP<STRING, INT>"})
    db.create_table(f"{name}.keyed", {"a": "INT", "b": "STRING", "v": "DOUBLE"}, primary_key=["a", "b"])
    with strom.connect(db.address, database=name) as here:
        assert here.sql("SHOW TABLES").to_pylist() == [{"name": "keyed"}, {"name": "log"}]
        assert {"database_name": name} in here.sql("SHOW DATABASES").to_pylist()
        described = here.sql("DESCRIBE keyed").to_arrow().select(["column_name", "null", "key"]).to_pylist()
        assert [tuple(row.values()) for row in described] == [
            ("a", "NO", "PRI"),
            ("b", "NO", "PRI"),
            ("v", "YES", None),
        ]
        assert here.sql("SHOW keyed").to_arrow().equals(here.sql("DESCRIBE keyed").to_arrow())
        assert here.sql(f"DESCRIBE {name}.log").to_arrow()["null"].to_pylist() == ["NO", "YES"]
        assert here.sql("DESCRIBE SELECT v AS x FROM keyed").to_pylist()[0]["column_type"] == "DOUBLE"
    listed = f"""SELECT t.table_name, count(*) AS columns FROM information_schema.tables t
        JOIN information_schema.columns USING (table_schema, table_name)
        WHERE table_schema = '{name}' GROUP BY 1 ORDER BY 1"""
    assert db.sql(listed).to_pylist() == [
        {"table_name": "keyed", "columns": 3},
        {"table_name": "log", "columns": 2},
    ]
    mixed = f"SELECT count(*) AS n FROM {name}.keyed, information_schema.tables WHERE table_name = 'log'"
    assert db.sql(mixed).to_pylist() == [{"n": 0}]


def test_a_table_that_sql_cannot_read_is_listed_all_the_same(db: strom.Database) -> None:
    table = db.create_table(new_name("twins"), {"a": "INT", "A": "INT"})
    listed = [row["name"] for row in db.sql("SHOW TABLES").to_pylist()]
    assert table.name.partition(".")[2] in listed
