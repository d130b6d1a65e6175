"""Values and instants of a query: they reach the rows, and no value is taken for SQL."""

from __future__ import annotations

import asyncio
import datetime as dt
import decimal
from collections.abc import Iterator

import duckdb
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import strom
from api.place import new_name
from strom import aio
from strom.errors import InvalidQuery
from strom.sql.parameters import filled, literal_of
from strom.sql.tokens import tokens
from strom.testing.process import ServerProcess
from waiting import next_millisecond


@pytest.fixture(scope="module")
def db(server: ServerProcess) -> Iterator[strom.Database]:
    with strom.connect(server.address) as connected:
        yield connected


@pytest.fixture(scope="module")
def people(db: strom.Database) -> strom.Table:
    columns = {"id": "BIGINT", "name": "STRING", "score": "BIGINT"}
    table = db.create_table(new_name("people"), columns, primary_key="id")
    table.upsert([{"id": n, "name": f"n{n}", "score": None if n % 2 else 2**60 + n} for n in range(20)])
    table.upsert([{"id": 1, "name": "O'Hara; -- $x ?"}])
    table.flush()
    return table


def test_values_stand_where_the_marks_are(db: strom.Database, people: strom.Table) -> None:
    t = people.name
    by_position = db.sql(f"SELECT count(*) AS n FROM {t} WHERE id < ? AND name <> ?", [5, "n2"])
    assert by_position.to_pylist() == [{"n": 4}]
    by_name = db.sql(f"SELECT id FROM {t} WHERE name = $who -- $not ? a mark", {"who": "O'Hara; -- $x ?"})
    assert by_name.to_pylist() == [{"id": 1}]
    numbered = db.sql(f"SELECT '$1 ?' AS a, id FROM {t} WHERE id = $2 AND $1 = $1", [True, 3])
    assert numbered.to_pylist() == [{"a": "$1 ?", "id": 3}]


def test_a_parameter_reaches_the_servers_as_a_constant_does(db: strom.Database) -> None:
    table = db.create_table(new_name("logged"), {"id": "BIGINT", "name": "STRING"})
    for start in range(0, 4000, 1000):
        table.append({"id": list(range(start, start + 1000)), "name": ["x" * 100] * 1000})
        table.flush()
    moved = []
    for query, values in (("id = 7", None), ("id = ?", [7])):
        with db.sql(f"SELECT name FROM {table.name} WHERE {query}", values) as result:
            assert len(result.to_pylist()) == 1
            moved.append(result.statistics.bytes_fetched)
    assert moved[1] == moved[0]


@pytest.mark.parametrize(
    ("query", "values", "says"),
    [
        ("SELECT ?", [], "parameter 1; 0 were given"),
        ("SELECT ?", [1, 2], "2 parameters were given; the query uses 1"),
        ("SELECT $a", [1], "given by name"),
        ("SELECT $a", {"b": 1}, r"asks for \$a; given are: \$b"),
        ("SELECT $a", {"a": 1, "b": 2}, r"does not use the parameter \$b"),
        ("SELECT ?", "text", "not one text"),
        ("SELECT ?", [object()], "cannot be a object"),
        ("SELECT ?", [decimal.Decimal("1e40")], "at most 38 digits"),
    ],
)
def test_marks_and_values_that_do_not_fit_are_refused(
    db: strom.Database, query: str, values: object, says: str
) -> None:
    with pytest.raises(InvalidQuery, match=says):
        db.sql(query, values)  # type: ignore[arg-type]


_VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"])),
    st.binary(),
    st.dates(dt.date(1700, 1, 1), dt.date(2200, 1, 1)),
    st.datetimes(dt.datetime(1700, 1, 1), dt.datetime(2200, 1, 1)),
    st.decimals(-(10**12), 10**12, places=3),
    st.times(),
)


@given(_VALUES)
@settings(deadline=None)
def test_a_literal_means_its_value(value: object) -> None:
    with duckdb.connect() as connection:
        ((found,),) = connection.execute(f"SELECT {literal_of(value)}").fetchall()
    assert found == value


def test_lists_times_with_zones_and_numpys_numbers_are_literals_too() -> None:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        moment = dt.datetime(2026, 11, 15, 8, tzinfo=dt.timezone(dt.timedelta(hours=2)))
        said = [
            literal_of(one) for one in ([1, None, 2], np.int64(-5), np.float32(0.5), dt.timedelta(days=-2))
        ]
        assert connection.execute(f"SELECT {', '.join(said)}").fetchone() == (
            [1, None, 2],
            -5,
            0.5,
            dt.timedelta(days=-2),
        )
        (text,) = connection.execute(f"SELECT CAST({literal_of(moment)} AS TEXT)").fetchone() or ()
        assert text == "2026-11-15 06:00:00+00"


@given(st.text(alphabet="ab'\"$?-/*\n e", max_size=30))
def test_tokens_are_the_whole_text(text: str) -> None:
    assert "".join(one.text for one in tokens(text)) == text


def test_marks_inside_of_texts_names_and_comments_are_none() -> None:
    query = (
        """SELECT '?''?', "a?", $$ ? $$, $x$ $1 $x$, E'\\'?' -- ?\n /* $1 */ , t$lake FROM a WHERE b = ?"""
    )
    assert filled(query, [1]) == query[:-1] + "(1)"


def test_a_table_is_read_as_it_was(db: strom.Database) -> None:
    table = db.create_table(new_name("then"), {"id": "BIGINT", "name": "STRING"}, primary_key="id")
    table.upsert([{"id": n, "name": "old"} for n in range(3)])
    table.flush()
    then = _between_two_milliseconds()
    table.upsert([{"id": 0, "name": "new"}, {"id": 9, "name": "new"}])
    table.flush()
    t = table.name
    assert db.sql(f"SELECT count(*) AS n FROM {t}", at=then).to_pylist() == [{"n": 3}]
    assert db.sql(f"SELECT count(*) AS n FROM {t}").to_pylist() == [{"n": 4}]
    one = db.sql(
        f"SELECT {t.partition('.')[2]}.name FROM {t} AT (TIMESTAMP => '{then.isoformat()}') WHERE id = 0"
    )
    assert one.to_pylist() == [{"name": "old"}]
    both = f"""SELECT o.name AS before, n.name AS "after" FROM {t} AS o AT (TIMESTAMP => ?)
        JOIN {t} n USING (id) WHERE id = 0 -- AT (TIMESTAMP => 'no clause')"""
    assert db.sql(both, [then]).to_pylist() == [{"before": "old", "after": "new"}]
    assert db.sql(f"EXPLAIN SELECT * FROM {t} AT (TIMESTAMP => ?)", [then]).to_arrow().num_rows == 1
    for alias in ("o", "AS o", '"o"', "AS o WHERE true AND"):
        behind = f"SELECT o.name FROM {t} AT (TIMESTAMP => greatest(?, '2020-01-01')) {alias}"
        behind += " o.id = 0" if alias.endswith("AND") else " WHERE o.id = 0"
        assert db.sql(behind, [then]).to_pylist() == [{"name": "old"}], alias
    joined = (
        f"SELECT count(*) AS n FROM {t} AT (TIMESTAMP => ?) a LEFT JOIN {t} AT (TIMESTAMP => ?) USING (id)"
    )
    assert db.sql(joined, [then, then]).to_pylist() == [{"n": 3}]

    async def asked() -> list[dict[str, object]]:
        async with await aio.connect(db.address) as face:
            found = await face.sql(f"SELECT name FROM {t} WHERE id = $id", {"id": 0}, at=then)
            return await found.to_pylist()

    assert asyncio.run(asked()) == [{"name": "old"}]


def _between_two_milliseconds() -> dt.datetime:
    """An instant after all that was written so far, and before all that is written later."""
    return dt.datetime.fromtimestamp(next_millisecond() / 1000, dt.UTC)


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("SELECT * FROM {t} AT (TIMESTAMP => 'x')", "invalid timestamp"),
        ("SELECT * FROM {t} AT (VERSION => 'x')", "not a number"),
        ('SELECT * FROM "{t}$offsets" AT (TIMESTAMP => now())', "has no history"),
    ],
)
def test_an_instant_that_is_none_is_refused(
    db: strom.Database, people: strom.Table, query: str, says: str
) -> None:
    with pytest.raises(InvalidQuery, match=says):
        db.sql(query.format(t=people.name.partition(".")[2])).to_arrow()


def test_a_result_shows_its_first_rows_and_is_read_in_full_afterwards(
    db: strom.Database, people: strom.Table
) -> None:
    result = db.sql(f"SELECT id, name FROM {people.name} ORDER BY id")
    assert repr(result).splitlines()[0].split() == ["id", "name"]
    assert "9   n9" in repr(result)
    assert "n10" not in repr(result)
    assert "the first 10 rows" in repr(result)
    assert len(result.to_pylist()) == 20
    plan = db.sql("EXPLAIN SELECT 1 AS one")
    assert len(repr(plan).splitlines()) > 3
    assert "explain_value" not in repr(plan)
    assert "\\n" not in repr(plan)
    assert plan._repr_html_().startswith("<pre>")
    html = db.sql("SELECT '<b>&' AS \"x<y\"")._repr_html_()
    assert "&lt;b&gt;&amp;" in html
    assert "x&lt;y" in html
    result.close()
    assert "closed" in repr(result)


def test_a_preview_of_a_scan_does_not_fix_its_moment(db: strom.Database) -> None:
    table = db.create_table(new_name("shown"), {"id": "BIGINT", "name": "STRING"})
    table.append([{"id": 1, "name": "a\nb"}])
    scan, changes = table.scan(), table.changelog()
    assert "a\\nb" in repr(scan)
    assert "<td>1</td>" in scan._repr_html_()
    assert "+A" in repr(changes)
    table.append([{"id": 2, "name": None}])
    assert scan.to_arrow().num_rows == changes.to_arrow().num_rows == 2
    assert "NULL" in repr(table.scan(where="id = 2"))
    assert len(repr(table.scan(limit=1)).splitlines()) == 3
    db.drop_table(table.name)
    assert "TableNotFound" in repr(table.scan())


def test_a_preview_of_a_scan_says_that_there_is_more(people: strom.Table) -> None:
    for scan, more in ((people.scan(), True), (people.scan(limit=10), False), (people.scan(limit=11), True)):
        assert ("the first 10 rows" in repr(scan)) is more
        assert ("the first 10 rows" in scan._repr_html_()) is more


def test_whole_numbers_with_nulls_keep_their_digits_in_pandas(
    db: strom.Database, people: strom.Table
) -> None:
    async def asked() -> list[object]:
        async with await aio.connect(db.address) as face:
            scanned = await (await face.table(people.name)).scan().to_pandas()
            queried = await (await face.sql(f"SELECT * FROM {people.name}")).to_pandas()
            return [scanned, queried]

    frames = [people.scan().to_pandas(), db.sql(f"SELECT * FROM {people.name}").to_pandas()]
    for frame in [*frames, *asyncio.run(asked())]:
        assert str(frame["score"].dtype) == "Int64"
        assert frame.set_index("id")["score"][6] == 2**60 + 6
        assert frame["score"].isna().sum() == 10
        assert str(frame["id"].dtype) == "int64"


@pytest.mark.parametrize("query", ["SELECT * FROM {t} WHERE order = 1", "SELECT order FROM {t}"])
def test_a_column_named_as_a_word_of_sql_is_hinted_at(
    db: strom.Database, people: strom.Table, query: str
) -> None:
    with pytest.raises(InvalidQuery, match='order is an SQL keyword: write a column of that name as "order"'):
        db.sql(query.format(t=people.name))


def test_what_does_not_fit_is_said_without_a_word_that_nobody_wrote(
    db: strom.Database, people: strom.Table
) -> None:
    with pytest.raises(InvalidQuery) as refused:
        db.sql(f"SELECT nope FROM {people.name}")
    assert "nope" in str(refused.value)
    assert "EXPLAIN" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("9" * 38, "DECIMAL(38, 0)"),
        ("0." + "9" * 38, "DECIMAL(38, 38)"),
        ("-" + "1" * 20 + "." + "2" * 18, "DECIMAL(38, 18)"),
        ("1E+37", "DECIMAL(38, 0)"),
        ("1E-38", "DECIMAL(38, 38)"),
        ("0", "DECIMAL(1, 0)"),
        ("0.00", "DECIMAL(2, 2)"),
    ],
)
def test_a_decimal_of_up_to_38_digits_is_a_literal_of_its_own_type(text: str, kind: str) -> None:
    value = decimal.Decimal(text)
    assert literal_of(value).endswith(f" AS {kind})")
    assert duckdb.sql(f"SELECT {literal_of(value)}").fetchall() == [(value,)]


@pytest.mark.parametrize("text", ["1" * 39, "0." + "1" * 39, "1E+38", "1E-39", "1" * 20 + "." + "2" * 19])
def test_a_decimal_of_more_digits_is_refused(text: str) -> None:
    with pytest.raises(InvalidQuery, match="at most 38 digits, not 39"):
        literal_of(decimal.Decimal(text))
