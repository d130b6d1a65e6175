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


def test_help_has_examples_and_needs_no_duckdb() -> None:
    shown = strom("sql", "--help")
    assert shown.code == 0
    assert "Examples:" in shown.out
    assert "events$snapshots" in shown.out
