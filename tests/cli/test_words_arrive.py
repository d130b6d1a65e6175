"""What the words of a reading command say is what the library is asked: nothing is dropped on the way."""

from __future__ import annotations

import datetime
from typing import Any
from unittest.mock import MagicMock

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import strom
from strom.cli.main import app

SCHEMA = pa.schema([("id", pa.int64())])
MOMENT = datetime.datetime(2026, 11, 15, 8, tzinfo=datetime.UTC)
TIME = "2026-11-15T08:00:00Z"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> MagicMock:
    """A connection that remembers what it was asked, and has no rows."""
    connect = MagicMock()
    database = connect.return_value.__enter__.return_value
    for found in (database.table.return_value, database.system_table.return_value):
        found.primary_key = []
        for scan in (found.scan.return_value, found.changelog.return_value):
            scan.schema = SCHEMA
            scan.to_batches.side_effect = lambda: iter(())
            scan.count.return_value = 3
        found.tail.return_value = iter(())
    result = database.sql.return_value.__enter__.return_value
    result.query.reader.return_value.schema = SCHEMA
    result.query.rest_of.side_effect = lambda reader: iter(())
    monkeypatch.setattr(strom, "connect", connect)
    database.connected = connect
    return database


def run(*words: str) -> None:
    ran = CliRunner().invoke(app, list(words), catch_exceptions=False)
    assert ran.exit_code == 0, ran.output


def said(call: Any) -> dict[str, Any]:
    return {**dict(enumerate(call.args)), **call.kwargs}


def test_the_connection_is_the_one_that_was_named(asked: MagicMock) -> None:
    run("--server", "h:1", "--user", "u", "--password", "p", "sql", "SELECT 1", "-d", "shop")
    (call,) = asked.connected.call_args_list
    assert said(call) == {0: "h:1", "user": "u", "password": "p", "database": "shop"}


@pytest.mark.parametrize(
    ("words", "more"),
    [
        ((), {}),
        (("--columns", "a, b"), {"columns": ["a", "b"]}),
        (("-c", "a"), {"columns": ["a"]}),
        (("--where", "a > 1"), {"where": "a > 1"}),
        (("-w", "a > 1"), {"where": "a > 1"}),
        (("--start", "earliest", "--end", "42"), {"start": "earliest", "end": 42}),
        (("--start", "7", "--end", TIME), {"start": 7, "end": MOMENT}),
        (("--at", TIME), {"at": MOMENT}),
        (("--at", "42"), {"at": 42}),
        (("--limit", "0"), {"limit": 0}),
        (("--limit", "9"), {"limit": 9}),
        (("--partition", "day=1", "--partition", "hour=2"), {"partitions": {"day": "1", "hour": "2"}}),
        (("--tier", "lake"), {"tier": "lake"}),
        (("--tier", "hot"), {"tier": "hot"}),
    ],
)
def test_scan(asked: MagicMock, words: tuple[str, ...], more: dict[str, Any]) -> None:
    run("scan", "shop.t", *words)
    asked.table.assert_called_once_with("shop.t")
    nothing = dict.fromkeys(("columns", "where", "start", "end", "limit", "partitions", "at", "tier"))
    assert said(asked.table.return_value.scan.call_args) == nothing | more


def test_scan_of_a_system_table(asked: MagicMock) -> None:
    run("scan", "t$files", "-c", "a", "-w", "a > 1", "--limit", "2", "--partition", "day=1", "--at", "42")
    asked.system_table.assert_called_once_with("t$files")
    (call,) = asked.system_table.return_value.scan.call_args_list
    assert list(call.args) == [["a"], "a > 1", 2, {"day": "1"}, 42]


def test_count(asked: MagicMock) -> None:
    run("count", "t", "--where", "a > 1", "--at", "42", "--partition", "day=1")
    assert said(asked.table.return_value.scan.call_args) == {
        "where": "a > 1",
        "partitions": {"day": "1"},
        "at": 42,
    }


@pytest.mark.parametrize(
    ("words", "values", "at"),
    [
        ((), None, None),
        (("--param", "a=1", "--param", "b=x=y"), {"a": "1", "b": "x=y"}, None),
        (("--at", TIME), None, MOMENT),
        (("--at", "42"), None, 42),
    ],
)
def test_sql(asked: MagicMock, words: tuple[str, ...], values: dict[str, str] | None, at: object) -> None:
    run("sql", "SELECT * FROM t", *words)
    assert said(asked.sql.call_args) == {0: "SELECT * FROM t", 1: values, "at": at}


def test_sql_from_standard_input(asked: MagicMock) -> None:
    ran = CliRunner().invoke(app, ["sql", "-"], input="SELECT 7", catch_exceptions=False)
    assert ran.exit_code == 0
    assert asked.sql.call_args.args[0] == "SELECT 7"


@pytest.mark.parametrize(("skip", "missing"), [((), "error"), (("--skip-missing",), "skip")])
def test_tail_that_follows(asked: MagicMock, skip: tuple[str, ...], missing: str) -> None:
    run("tail", "t", "-f", "--start", "5", "-c", "id", "-w", "id > 1", *skip)
    (call,) = asked.table.return_value.tail.call_args_list
    assert said(call) == {"start": 5, "columns": ["id"], "where": "id > 1", "missing": missing}


@pytest.mark.parametrize("keyed", [False, True])
def test_tail_from_a_place(asked: MagicMock, keyed: bool) -> None:
    target = asked.table.return_value
    target.primary_key = ["id"] if keyed else []
    run("tail", "t", "--start", TIME, "-c", "id", "-w", "id > 1", "--skip-missing")
    call = (target.changelog if keyed else target.scan).call_args
    more = {"missing": "skip"} if keyed else {}
    assert said(call) == {"columns": ["id"], "where": "id > 1", "start": MOMENT} | more
    assert not target.tail.called


def test_changelog(asked: MagicMock) -> None:
    run("changelog", "t", "--start", "5", "--end", TIME, "-c", "id", "--limit", "3", "--skip-missing")
    (call,) = asked.table.return_value.changelog.call_args_list
    assert said(call) == {0: 5, 1: MOMENT, "columns": ["id"], "limit": 3, "missing": "skip"}
    assert not asked.table.return_value.tail.called


@pytest.mark.parametrize(("words", "start"), [((), "earliest"), (("--start", "5"), 5)])
def test_changelog_that_follows(asked: MagicMock, words: tuple[str, ...], start: object) -> None:
    run("changelog", "t", "-f", "-c", "id", *words)
    (call,) = asked.table.return_value.tail.call_args_list
    assert said(call) == {"start": start, "columns": ["id"], "missing": "error"}
