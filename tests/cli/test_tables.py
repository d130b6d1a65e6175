"""``strom table | database | partition``: what a person types and sees."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace

import pytest

from cli.command import strom
from strom import connect
from strom.cli.table import _bucket_rows
from strom.cli.terminal.output import print_facts
from strom.client.admin.admin import BucketStatus, TableStatus
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
    assert "watermark" in shown.out


def test_a_large_table_is_described_within_80_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    large = [
        BucketStatus("2026-11-15", number, 2, 0, 123_456_789, 123_456_789, 0, 17, 12_345_678_901, None)
        for number in range(12)
    ]
    for buckets in (large, [replace(large[0], epoch=3), *large[1:]]):
        names, rows = _bucket_rows(TableStatus(0, 0, tuple(buckets)))
        print_facts(names, rows)
        lines = capsys.readouterr().out.splitlines()
        assert max(map(len, lines)) <= 80, lines[0]
        assert ("epoch" in lines[0]) == any(one.epoch for one in buckets)


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


def test_a_description_as_a_command_makes_the_same_table_again(server: ServerProcess) -> None:
    words = ["id:bigint", "d:decimal(10,2) not null", "r:row<a int, `B c` string>", "day:string", "e:int"]
    options = ["--primary-key", "id,e,day", "--partition-by", "day", "--buckets", "3", "--index", "by_d=d"]
    options += ["--bucket-key", "e"]
    extra = ["-p", "table.log.ttl=3 d", "-p", 'my.note=it\'s "so"', "--comment", "a b"]
    assert strom("table", "create", "cli_like", *words, *options, *extra, server=server.address).code == 0
    told = strom("table", "describe", "cli_like", "--ddl", server=server.address)
    assert told.code == 0, told.err
    command = shlex.split(told.out)
    assert command[:4] == ["strom", "table", "create", "fluss.cli_like"]
    given = [*options, *extra]
    for option in ("--primary-key", "--partition-by", "--bucket-key", "--buckets", "--comment"):
        assert command[command.index(option) + 1] == given[given.index(option) + 1]
    command[3] = "fluss.cli_like_2"
    again = strom(*command[1:], server=server.address)
    assert again.code == 0, again.err
    second = strom("table", "describe", "cli_like_2", "--ddl", server=server.address).out
    assert second == told.out.replace("fluss.cli_like", "fluss.cli_like_2")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["table", "create", "t", "id:int64"], "did you mean BIGINT"),
        (["table", "create", "cli_twice", "id:int"], "--if-not-exists"),
        (["scan", "cli_twice", "--partition", "day=1"], "--partition"),
        (["scan", "cli_twice", "--at", "5", "--end", "5"], "--at and --end"),
        (["sql", "SELECT $a", "--param", "b=1"], "$a; given are: $b"),
    ],
)
def test_errors_are_in_the_words_of_the_command_line(
    server: ServerProcess, words: list[str], says: str
) -> None:
    strom("table", "create", "cli_twice", "id:int", "--if-not-exists", server=server.address)
    ran = strom(*words, server=server.address)
    assert ran.code == 1
    assert says in ran.err
    assert "=…" not in ran.err
    assert 'if_exists="' not in ran.err
