"""``strom table | database | partition``: what a person types and sees."""

from __future__ import annotations

import json

import pytest

from cli.command import strom
from strom import connect
from strom.testing.process import ServerProcess

pytestmark = pytest.mark.slow


def _rows(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


def test_a_table_is_created_listed_described_altered_and_dropped(server: ServerProcess) -> None:
    made = strom(
        "table", "create", "cli_events", "id:bigint not null", "price:decimal(10,2)", "at:timestamp(3)",
        "--buckets", "2", "-p", "table.log.ttl=1d", "--comment", "clicks", server=server.address,
    )  # fmt: skip
    assert (made.code, made.out) == (0, ""), made.err
    assert "cli_events" in strom("table", "list", server=server.address).out
    altered = strom("table", "alter", "cli_events", "--add", "tags:array<string>", "--set", "table.log.ttl=2d",
                    server=server.address)  # fmt: skip
    assert altered.code == 0, altered.err
    (facts,) = _rows(strom("table", "describe", "cli_events", "-o", "json", server=server.address).out)
    assert facts["buckets"] == 2
    assert facts["columns"] == [
        "id BIGINT NOT NULL",
        "price DECIMAL(10, 2)",
        "at TIMESTAMP(3)",
        "tags ARRAY<STRING>",
    ]
    assert facts["comment"] == "clicks"
    assert strom("table", "drop", "cli_events", server=server.address).code == 0
    assert strom("table", "describe", "cli_events", server=server.address).code == 1


def test_describe_shows_columns_and_buckets_to_people(server: ServerProcess) -> None:
    strom("table", "create", "cli_seen", "id:bigint", server=server.address)
    shown = strom("table", "describe", "cli_seen", server=server.address)
    assert shown.code == 0, shown.err
    assert "BIGINT" in shown.out
    assert "high watermark" in shown.out


def test_describe_shows_what_is_staged_and_published(server: ServerProcess) -> None:
    describe = ["table", "describe", "cli_staged", "-o", "json"]
    with connect(server.address) as db:
        table = db.create_table("cli_staged", {"id": "BIGINT"}, buckets=1)
        (before,) = _rows(strom(*describe, server=server.address).out)
        assert "stages" not in before
        with db.transaction() as tx:
            tx.append(table, [{"id": 1}, {"id": 2}])
        (after,) = _rows(strom(*describe, server=server.address).out)
        assert (after["rows"], after["stages"], after["stage_bytes"]) == (2, 0, 0)
        assert int(str(after["last_decision"])) > 0
        assert "last decision" in strom(*describe[:3], server=server.address).out


def test_partitions_are_created_listed_and_dropped(server: ServerProcess) -> None:
    words = ["table", "create", "cli_parts", "id:bigint", "day:string", "--partition-by", "day"]
    assert strom(*words, server=server.address).code == 0
    assert strom("partition", "create", "cli_parts", "day=2026-11-15", server=server.address).code == 0
    listed = _rows(strom("partition", "list", "cli_parts", "-o", "json", server=server.address).out)
    assert [row["partition"] for row in listed] == ["2026-11-15"]
    again = strom("partition", "create", "cli_parts", "day=2026-11-15", server=server.address)
    assert again.code == 1
    assert "2026-11-15" in again.err
    assert strom("partition", "drop", "cli_parts", "day=2026-11-15", server=server.address).code == 0


def test_databases_are_created_listed_and_dropped(server: ServerProcess) -> None:
    assert strom("database", "create", "cli_shop", server=server.address).code == 0
    names = [
        row["database"] for row in _rows(strom("database", "list", "-o", "json", server=server.address).out)
    ]
    assert {"fluss", "cli_shop"} <= set(names)
    strom("table", "create", "cli_shop.t", "id:bigint", server=server.address)
    full = strom("database", "drop", "cli_shop", server=server.address)
    assert full.code == 1
    assert "cascade" in full.err
    assert strom("database", "drop", "cli_shop", "--cascade", server=server.address).code == 0


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["table", "create", "bad_type", "id:bigit"], "bigit"),
        (["table", "create", "bad/name", "id:bigint"], "bad/name"),
        (["table", "create", "bad_prop", "id:bigint", "-p", "table.log.tll=1d"], "table.log.ttl"),
        (["table", "describe", "not_there"], "not_there"),
        (["table", "drop", "not_there"], "not_there"),
        (["scan", "not_there"], "not_there"),
    ],
)
def test_a_refusal_is_one_line_that_says_what_is_wrong(
    server: ServerProcess, words: list[str], says: str
) -> None:
    ran = strom(*words, server=server.address)
    assert ran.code == 1
    assert ran.out == ""
    assert ran.err.startswith("strom: ")
    assert says in ran.err
    assert "Traceback" not in ran.err


def test_words_that_make_no_command_end_with_code_2(server: ServerProcess) -> None:
    assert strom("table", "create", "t", server=server.address).code == 2
    assert strom("table", "create", "t", "no-colon", server=server.address).code == 2
    assert strom("scan", "t", "--start", "yesterday", server=server.address).code == 2


def test_no_server_is_said_with_what_to_do() -> None:
    ran = strom("table", "list", server="127.0.0.1:1")
    assert ran.code == 1
    assert "strom up" in ran.err
    assert "Traceback" not in ran.err
