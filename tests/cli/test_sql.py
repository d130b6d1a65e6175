"""``strom sql``: rows of a query in every form, and what is wrong with one in one line."""

from __future__ import annotations

import io
import json

import pyarrow as pa
import pytest

from cli.command import strom
from strom.testing.process import ServerProcess

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def table(server: ServerProcess) -> str:
    made = strom("table", "create", "cli_sql", "id:bigint", "name:string", server=server.address)
    assert made.code == 0, made.err
    lines = "\n".join(json.dumps({"id": n, "name": f"n{n}"}) for n in range(5)).encode()
    appended = strom("append", "cli_sql", "-", "--format", "json", server=server.address, stdin=lines)
    assert appended.code == 0, appended.err
    return "cli_sql"


def test_a_query_is_printed_in_every_form(server: ServerProcess, table: str) -> None:
    query = f"SELECT name, id * 2 AS twice FROM {table} WHERE id > 2 ORDER BY id"
    printed = strom("sql", query, server=server.address)
    assert printed.out.splitlines()[2:] == ["n3    6", "n4    8"]
    assert printed.err == ""
    told = strom("sql", query, "-o", "json", server=server.address)
    assert [json.loads(line) for line in told.out.splitlines()] == [
        {"name": "n3", "twice": 6},
        {"name": "n4", "twice": 8},
    ]
    arrow = strom("sql", query, "-o", "arrow", server=server.address)
    assert pa.ipc.open_stream(io.BytesIO(arrow.out_bytes)).read_all().num_rows == 2


def test_a_query_comes_from_standard_input(server: ServerProcess, table: str) -> None:
    asked = f"SELECT count(*) AS n FROM {table}".encode()
    found = strom("sql", "-", "-o", "csv", server=server.address, stdin=asked)
    assert found.out.splitlines() == ["n", "5"]


def test_what_is_wrong_is_said_in_one_line_of_a_person(server: ServerProcess, table: str) -> None:
    unknown = strom("sql", f"SELECT * FROM {table}x", server=server.address)
    assert unknown.code == 1
    assert "did you mean 'cli_sql'" in unknown.err
    writes = strom("sql", f"DELETE FROM {table}", server=server.address)
    assert writes.code == 1
    assert "changes nothing" in writes.err
    assert "Traceback" not in unknown.err + writes.err


def test_a_plan_is_printed_in_lines_and_tables_are_listed(server: ServerProcess, table: str) -> None:
    plan = strom("sql", f"EXPLAIN SELECT id FROM {table} WHERE id > 2", server=server.address)
    assert plan.code == 0, plan.err
    assert len(plan.out.splitlines()) > 3
    assert "\\n" not in plan.out
    shown = strom("sql", "SHOW TABLES", "-o", "csv", server=server.address)
    assert table in shown.out.split(), shown.err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ["sql", "SELECT 1", "--at", "banana"],
            "a time (2026-11-15T08:00:00Z), or the id of a lake snapshot",
        ),
        (
            ["sql", "SELECT 1", "--at", "latest"],
            "a time (2026-11-15T08:00:00Z), or the id of a lake snapshot",
        ),
        (["scan", "t", "--at", "banana"], "the id of a lake snapshot, or an offset (42)"),
        (["count", "t", "--at", "earliest"], "the id of a lake snapshot, or an offset (42)"),
    ],
)
def test_an_instant_that_is_none_is_told_what_one_looks_like(words: list[str], told: str) -> None:
    ran = strom(*words, COLUMNS="200")
    assert ran.code == 2
    assert f"--at {words[-1]}: give" in ran.err
    assert told in " ".join(ran.err.split())


def test_more_rows_than_a_table_shows_are_hinted_at_with_what_there_is(server: ServerProcess) -> None:
    ran = strom("sql", "SELECT * FROM range(1001)", server=server.address)
    assert ran.err == "1 more row: see them with -o json, csv or arrow\n"


def test_help_has_examples_and_needs_no_duckdb() -> None:
    shown = strom("sql", "--help")
    assert shown.code == 0
    assert "Examples:" in shown.out
    assert "events$snapshots" in shown.out
