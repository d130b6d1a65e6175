"""Primary-key tables on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.command import strom
from strom.testing.process import ServerProcess


def test_rows_are_written_looked_up_and_deleted(server: ServerProcess, tmp_path: Path) -> None:
    at = server.address
    columns = ["id:bigint", "name:string", "city:string", "score:int"]
    made = strom(
        "table", "create", "cli_users", *columns, "--primary-key", "id", "--index", "by_city=city", server=at
    )
    assert made.code == 0, made.err
    file = tmp_path / "users.csv"
    file.write_text("id,name,city,score\n" + "".join(f"{n},n{n},c{n % 2},{n * 10}\n" for n in range(5)))
    upserted = strom("upsert", "cli_users", str(file), "--batch-rows", "2", server=at)
    assert "upserted 5 rows" in upserted.err
    assert (
        strom("upsert", "cli_users", "--set", "id=7", "--set", "name=", "--set", "score=", server=at).code
        == 0
    )
    partial = b'{"id": 1, "score": 99}\n'
    done = strom("upsert", "cli_users", "-", "--format", "json", "-c", "id,score", server=at, stdin=partial)
    assert done.code == 0, done.err

    found = strom("lookup", "cli_users", "1", "7", "-o", "json", server=at)
    assert [json.loads(line) for line in found.out.splitlines()] == [
        {"id": 1, "name": "n1", "city": "c1", "score": 99},
        {"id": 7, "name": "", "city": None, "score": None},
    ]
    missing = strom("lookup", "cli_users", "1", "8", "id=2", "-c", "name", "-o", "csv", server=at)
    assert (missing.code, missing.out) == (1, "name\nn1\nn2\n")
    assert "1 of 3 keys was not found" in missing.err
    by_city = strom("lookup", "cli_users", "--index", "by_city", "c1", "-c", "id", "-o", "csv", server=at)
    assert sorted(by_city.out.split()) == ["1", "3", "id"]

    assert strom("delete", "cli_users", "7", "id=0", server=at).code == 0
    assert strom("delete", "cli_users", "--file", str(file), server=at).code == 0
    assert strom("lookup", "cli_users", "3", server=at).code == 1
    log = strom("changelog", "cli_users", "-c", "id", "-o", "json", server=at)
    kinds = [json.loads(line)["_change_type"] for line in log.out.splitlines()]
    assert kinds == ["+I"] * 6 + ["-U", "+U"] + ["-D"] * 6
    newest = strom("tail", "cli_users", "-n", "2", "-c", "id", server=at)
    assert [json.loads(line)["_change_type"] for line in newest.out.splitlines()] == ["-D", "-D"]
    assert strom("scan", "cli_users", "--at", "6", "-c", "id", "-o", "csv", server=at).out.count("\n") == 7


def test_indexes_are_created_listed_and_dropped(server: ServerProcess) -> None:
    at = server.address
    assert (
        strom("table", "create", "cli_indexed", "id:int", "v:string", "--primary-key", "id", server=at).code
        == 0
    )
    created = strom("index", "create", "cli_indexed", "by_v", "v", server=at)
    assert created.code == 0, created.err
    listed = strom("index", "list", "cli_indexed", "-o", "json", server=at)
    assert json.loads(listed.out) == {"index": "by_v", "columns": "v", "state": "ready", "rows": 0}
    assert strom("index", "drop", "cli_indexed", "by_v", server=at).code == 0
    gone = strom("index", "drop", "cli_indexed", "by_v", server=at)
    assert gone.code == 1
    assert "has no index 'by_v'" in gone.err


def test_a_description_tells_what_the_key_store_holds(server: ServerProcess) -> None:
    at = server.address
    assert (
        strom("table", "create", "cli_told", "id:int", "v:string", "--primary-key", "id", server=at).code == 0
    )
    assert strom("upsert", "cli_told", "--set", "id=1", "--set", "v=x", server=at).code == 0
    told = strom("table", "describe", "cli_told", "-o", "json", server=at)
    facts = json.loads(told.out)
    assert (facts["live_rows"], facts["rows"], facts["primary_key"]) == (1, 1, ["id"])
    assert facts["index_bytes"] > 0
    eyes = strom("table", "describe", "cli_told", server=at).out
    assert "primary-key table" in eyes
    for word in ("live rows", "dead share", "base files", "index bytes"):
        assert word in eyes


def test_several_key_columns_and_prefixes(server: ServerProcess) -> None:
    at = server.address
    words = [
        "user:string",
        "number:int",
        "price:double",
        "--primary-key",
        "user,number",
        "--bucket-key",
        "user",
    ]
    assert strom("table", "create", "cli_orders", *words, "--buckets", "2", server=at).code == 0
    for number in ("1", "2"):
        row = ["--set", "user=ann", "--set", f"number={number}", "--set", f"price={number}.5"]
        assert strom("upsert", "cli_orders", *row, server=at).code == 0
    found = strom("lookup", "cli_orders", "user=ann,number=2", "-c", "price", "-o", "csv", server=at)
    assert found.out == "price\n2.5\n"
    prefix = strom("lookup", "cli_orders", "--prefix", "user=ann", "-c", "number", "-o", "csv", server=at)
    assert sorted(prefix.out.split()) == ["1", "2", "number"]


def test_what_cannot_be_is_said(server: ServerProcess) -> None:
    at = server.address
    assert (
        strom("table", "create", "cli_bad", "id:int", "v:string", "--primary-key", "id", server=at).code == 0
    )
    for words in (
        ["lookup", "cli_bad"],
        ["lookup", "cli_bad", "x"],
        ["lookup", "cli_bad", "1", "--index", "i", "--prefix"],
        ["upsert", "cli_bad"],
        ["upsert", "cli_bad", "--set", "nix=1"],
        ["upsert", "cli_bad", "no-such-file.csv"],
        ["delete", "cli_bad"],
        ["changelog", "cli_bad", "-f", "--limit", "3"],
    ):
        refused = strom(*words, server=at)
        assert refused.code != 0, words
        assert refused.err.strip(), words
        assert "Traceback" not in refused.err, refused.err


def test_what_is_wrong_with_a_lookup_is_said(server: ServerProcess) -> None:
    at = server.address
    assert (
        strom("table", "create", "cli_by", "id:int", "v:string", "--primary-key", "id", server=at).code == 0
    )
    gone = strom("lookup", "cli_by", "--index", "by_w", "x", server=at)
    assert gone.code == 2
    assert "no index 'by_w'" in gone.err.replace("\n", " ")
    assert strom("table", "create", "cli_no_key", "id:int", server=at).code == 0
    for command in ("lookup", "delete"):
        refused = strom(command, "cli_no_key", "1", server=at)
        assert refused.code == 2
        assert "log table" in refused.err


def test_deletes_that_are_ignored_or_name_no_key_are_told(server: ServerProcess, tmp_path: Path) -> None:
    at = server.address
    first = ["--primary-key", "id", "--merge-engine", "first_row"]
    assert strom("table", "create", "cli_first", "id:int", "v:string", *first, server=at).code == 0
    assert strom("upsert", "cli_first", "--set", "id=1", "--set", "v=x", server=at).code == 0
    ignored = strom("delete", "cli_first", "1", server=at)
    assert "ignores deletes" in ignored.err
    assert "x" in strom("lookup", "cli_first", "1", server=at).out
    keys = tmp_path / "keys.csv"
    keys.write_text("idd\n1\n")
    refused = strom("delete", "cli_first", "--file", str(keys), server=at)
    assert refused.code == 1
    assert "no column 'id' of the key" in refused.err
    assert "Traceback" not in refused.err


def test_a_server_numbers_a_column(server: ServerProcess) -> None:
    at = server.address
    numbered = ["--primary-key", "word", "--auto-increment", "number"]
    made = strom("table", "create", "cli_numbered", "word:string", "number:bigint", *numbered, server=at)
    assert made.code == 0, made.err
    assert strom("upsert", "cli_numbered", "--set", "word=a", server=at).code == 0
    found = strom("lookup", "cli_numbered", "a", "-o", "json", server=at)
    assert json.loads(found.out)["number"] >= 1


def test_keys_with_commas_are_named_in_quotes_or_as_json(server: ServerProcess) -> None:
    at = server.address
    columns = ["user:string", "number:int", "v:string", "--primary-key", "user,number"]
    assert strom("table", "create", "cli_commas", *columns, server=at).code == 0
    for user, number in (("Hill, Ann", "1"), ('the "x"', "2")):
        row = ["--set", f"user={user}", "--set", f"number={number}", "--set", "v=y"]
        assert strom("upsert", "cli_commas", *row, server=at).code == 0
    for word in (
        'user="Hill, Ann",number=1',
        '{"user": "Hill, Ann", "number": 1}',
        'number=2,user="the ""x"""',
    ):
        assert strom("lookup", "cli_commas", word, server=at).code == 0, word
    part = strom("lookup", "cli_commas", "user=ann", server=at)
    assert part.code == 2
    assert "number" in part.err
    assert strom("delete", "cli_commas", '{"user": "Hill, Ann", "number": 1}', server=at).code == 0
    assert strom("lookup", "cli_commas", 'user="Hill, Ann",number=1', server=at).code == 1
    assert strom("count", "cli_commas", server=at).out == "1\n"
    assert strom("count", "cli_commas", "--where", "number > 2", server=at).out == "0\n"


def test_a_table_is_made_for_a_file(server: ServerProcess, tmp_path: Path) -> None:
    at = server.address
    file = tmp_path / "people.csv"
    file.write_text("id,name,city\n1,ann,NA\n2,bob,\n")
    hinted = strom("append", "cli_made_log", str(file), server=at)
    assert hinted.code == 1
    assert "--create" in hinted.err
    logged = strom("append", "cli_made_log", str(file), "--create", "--null", "NA", server=at)
    assert logged.code == 0, logged.err
    assert "id:BIGINT name:STRING city:STRING" in logged.err
    assert strom("append", "cli_made_log", str(file), "--create", server=at).code == 0
    assert strom("count", "cli_made_log", server=at).out == "4\n"
    made = strom("upsert", "cli_made_keys", str(file), "--create", "--primary-key", "id", server=at)
    assert made.code == 0, made.err
    assert strom("lookup", "cli_made_keys", "2", "-c", "name", "-o", "csv", server=at).out == "name\nbob\n"
    assert strom("upsert", "cli_made_keys", str(file), "--create", server=at).code == 2
    assert strom("append", "cli_no", "-", "--format", "csv", "--create", server=at).code == 2


def test_another_key_than_the_table_has_is_refused(server: ServerProcess, tmp_path: Path) -> None:
    at, file = server.address, tmp_path / "rows.csv"
    file.write_text("id,other\n1,2\n")
    words = ["upsert", "cli_other_key", str(file), "--create", "--primary-key"]
    made = strom(*words, "id", server=at)
    assert "upserted 1 row into cli_other_key\n" in made.err
    assert strom(*words, "id", server=at).code == 0
    other = strom(*words, "other", server=at)
    assert other.code == 1
    assert "has the primary key id, not other: leave --primary-key out" in other.err


@pytest.mark.parametrize("words", [["upsert", "t"], ["delete", "t", "--file"]], ids=["upsert", "delete"])
def test_a_file_that_is_not_there_is_told_before_a_server_is_asked(words: list[str]) -> None:
    ran = strom(*words, "nowhere.csv", server="localhost:1")
    assert ran.code == 2
    assert "there is no file nowhere.csv" in ran.err
