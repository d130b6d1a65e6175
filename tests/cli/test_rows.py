"""``strom append | scan | tail``: rows in and out, in every form."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from cli.command import strom
from strom import connect
from strom.cli.terminal.wording import in_words
from strom.client.input.casting import advice
from strom.client.input.row_files import csv_rows
from strom.client.input.row_files.csv_rows import BLOCK_BYTES, blocks_of
from strom.client.input.row_files.json_rows import JsonRows
from strom.errors import SchemaMismatch
from strom.runtime.clock import SystemClock
from strom.testing.process import ServerProcess

pytestmark = pytest.mark.slow

ROWS = pa.table({"id": pa.array(range(25), pa.int64()), "name": [f"n{i}" for i in range(25)]})

_SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("m", pa.map_(pa.string(), pa.int32())),
        ("d", pa.date32()),
        ("l", pa.list_(pa.decimal128(5, 2))),
    ]
)


@pytest.fixture
def table(server: ServerProcess, request: pytest.FixtureRequest) -> str:
    name = "cli_" + re.sub(r"\W", "_", request.node.name[5:])
    made = strom("table", "create", name, "id:bigint", "name:string", server=server.address)
    assert made.code == 0, made.err
    return name


def _ids(server: ServerProcess, table: str, *words: str) -> list[int]:
    ran = strom("scan", table, "-o", "json", *words, server=server.address)
    assert ran.code == 0, ran.err
    return sorted(json.loads(line)["id"] for line in ran.out.splitlines())


def _write(form: str, path: Path) -> None:
    if form == "csv":
        pyarrow.csv.write_csv(ROWS, path)
    elif form == "parquet":
        pyarrow.parquet.write_table(ROWS, path)
    elif form == "arrow":
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, ROWS.schema) as stream:
            stream.write_table(ROWS)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in ROWS.to_pylist()))


@pytest.mark.parametrize("form", ["csv", "json", "parquet", "arrow"])
def test_files_of_every_form_are_appended(
    server: ServerProcess, table: str, form: str, tmp_path: Path
) -> None:
    path = tmp_path / f"rows.{form}"
    _write(form, path)
    before = len(_ids(server, table))
    ran = strom("append", table, str(path), "--batch-rows", "10", server=server.address)
    assert ran.code == 0, ran.err
    assert "25" in ran.err
    assert len(_ids(server, table)) == before + 25


def test_standard_input_is_appended(server: ServerProcess, table: str) -> None:
    ran = strom(
        "append", table, "-", "--format", "json", stdin=b'{"id": 7, "name": "x"}\n', server=server.address
    )
    assert ran.code == 0, ran.err
    assert _ids(server, table) == [7]
    assert strom("append", table, "-", stdin=b"", server=server.address).code == 2


@pytest.mark.parametrize("form", ["csv", "json", "parquet", "arrow"])
def test_a_pipe_is_appended(server: ServerProcess, table: str, form: str, tmp_path: Path) -> None:
    _write(form, tmp_path / f"rows.{form}")
    append = f"{sys.executable} -m strom.cli.main append {table} <(cat {tmp_path}/rows.{form})"
    environment = os.environ | {"STROM_SERVER": server.address}
    for words, code, told in [
        ("", 2, "a pipe has no ending: add --format csv, json, parquet, arrow"),
        (f"--format {form}", 0, "appended 25 rows"),
        (f"--format {form} --create", 0, "appended 25 rows"),
    ]:
        ran = subprocess.run(
            ["bash", "-c", f"{append} {words}"],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            env=environment,
        )
        assert (ran.returncode, told in ran.stderr) == (code, True), ran.stderr
    assert len(_ids(server, table)) == 50


def test_a_file_that_does_not_fit_is_refused_and_says_why(server: ServerProcess, table: str) -> None:
    ran = strom("append", table, "-", "--format", "json", stdin=b'{"id": "seven"}\n', server=server.address)
    assert ran.code == 1
    assert "id" in ran.err or "seven" in ran.err
    assert "Traceback" not in ran.err
    assert _ids(server, table) == []


def test_scan_prunes_filters_limits_and_prints_every_form(server: ServerProcess, table: str) -> None:
    lines = "".join(json.dumps(row) + "\n" for row in ROWS.to_pylist()).encode()
    assert strom("append", table, "-", "--format", "json", stdin=lines, server=server.address).code == 0
    assert _ids(server, table, "--where", "id >= 20 and name <> 'n24'") == [20, 21, 22, 23]
    assert len(_ids(server, table, "--limit", "3")) == 3
    as_csv = strom("scan", table, "--columns", "name", "-o", "csv", server=server.address).out
    assert list(csv.reader(io.StringIO(as_csv)))[:2] == [["name"], ["n0"]]
    arrow = strom("scan", table, "-o", "arrow", server=server.address).out_bytes
    with pa.ipc.open_stream(arrow) as reader:
        assert reader.read_all().sort_by("id").equals(ROWS)
    seen = strom("scan", table, server=server.address).out
    assert "n24" in seen
    wrong = strom("scan", table, "--columns", "nope", server=server.address)
    assert wrong.code == 1
    assert "nope" in wrong.err


def test_tail_shows_the_newest_rows_and_follows(server: ServerProcess, table: str) -> None:
    lines = "".join(json.dumps(row) + "\n" for row in ROWS.to_pylist()).encode()
    strom("append", table, "-", "--format", "json", stdin=lines, server=server.address)
    newest = strom("tail", table, "-n", "2", server=server.address)
    assert [json.loads(line)["id"] for line in newest.out.splitlines()] == [23, 24]
    command = [
        sys.executable,
        "-m",
        "strom.cli.main",
        "--server",
        server.address,
        "tail",
        "-f",
        table,
        "-n",
        "1",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as following:
        assert following.stdout is not None
        assert json.loads(following.stdout.readline())["id"] == 24
        strom("append", table, "-", "--format", "json", stdin=b'{"id": 99}\n', server=server.address)
        assert json.loads(following.stdout.readline()) == {"id": 99, "name": None}
        following.send_signal(2)
        assert following.wait(timeout=20) == 130


@pytest.mark.parametrize("keys", [{}, {"primary_key": ["id"]}])
def test_tail_shows_the_newest_rows_of_all_buckets(server: ServerProcess, keys: dict[str, Any]) -> None:
    name = f"cli_newest_{'keys' if keys else 'log'}"
    with connect(server.address) as db:
        made = db.create_table(name, {"id": "BIGINT"}, buckets=3, bucket_key=["id"], **keys)
        for number in range(12):
            before = SystemClock().now_ms()
            made.upsert({"id": [number]}) if keys else made.append({"id": [number]})
            made.flush()
            while SystemClock().now_ms() == before:  # the next one is of another millisecond
                pass
        assert len({bucket.bucket for bucket in made.describe().buckets if bucket.high_watermark}) == 3
    newest = strom("tail", name, "-n", "5", server=server.address)
    assert [json.loads(line)["id"] for line in newest.out.splitlines()] == [7, 8, 9, 10, 11], newest.err


def test_tail_shows_the_newest_rows_that_match(server: ServerProcess) -> None:
    """They lie far behind the newest of all, and nearly all of them in one bucket."""
    with connect(server.address) as db:
        made = db.create_table(
            "cli_matching", {"id": "BIGINT", "kind": "STRING"}, buckets=2, bucket_key=["kind"]
        )
        for number in range(6):
            before = SystemClock().now_ms()
            made.append({"id": [number], "kind": ["rare" if number in (0, 4) else "often"]})
            made.flush()
            while SystemClock().now_ms() == before:  # the next one is of another millisecond
                pass
        made.append({"id": list(range(100, 300)), "kind": ["rare", *["often"] * 199]})
        made.append({"id": list(range(300, 500)), "kind": ["other"] * 200})
        made.flush()
    words = ("tail", "cli_matching", "--where", "id < 101", "-n")
    for count, ids in ((3, [4, 5, 100]), (4, [3, 4, 5, 100]), (50, [0, 1, 2, 3, 4, 5, 100])):
        found = strom(*words, str(count), server=server.address)
        assert [json.loads(line)["id"] for line in found.out.splitlines()] == ids, found.err


def test_a_reader_that_has_seen_enough_ends_the_command_quietly(server: ServerProcess, table: str) -> None:
    lines = "".join(json.dumps({"id": i, "name": "x" * 100}) + "\n" for i in range(5000)).encode()
    strom("append", table, "-", "--format", "json", stdin=lines, server=server.address)
    words = f"{sys.executable} -m strom.cli.main --server {server.address} scan {table} -o json | head -1"
    ran = subprocess.run(
        ["bash", "-o", "pipefail", "-c", words], capture_output=True, text=True, check=False, timeout=60
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr == ""
    assert len(ran.stdout.splitlines()) == 1


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("id,name\n1,a\n2,b\nx,c\n", "line 4, column 'id': CSV conversion error to int64: invalid value 'x'"),
        ("name,id\na,1\nb,2,3\n", "line 3: Expected 2 columns, got 3"),
        ('name,id\n"a, b",1\nc,1.5\n', "line 3, column 'id': "),
    ],
)
def test_an_error_in_a_csv_names_its_line_and_column(
    server: ServerProcess, table: str, text: str, told: str, tmp_path: Path
) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(text)
    ran = strom("append", table, str(path), server=server.address)
    assert ran.code != 0
    assert told in " ".join(ran.err.split())
    piped = strom("append", table, "-", "--format", "csv", server=server.address, stdin=text.encode())
    assert re.search(r"line \d", piped.err)


def test_an_error_in_json_names_its_line_and_column(server: ServerProcess) -> None:
    at, columns = server.address, ["id:bigint", "m:map<string, int>", "d:date", "l:array<decimal(5,2)>"]
    assert strom("table", "create", "cli_json_errors", *columns, server=at).code == 0
    good = '{"id": 1, "m": {"a": 1}, "d": "2026-11-15", "l": ["1.50"]}'
    for wrong, told in [
        ('{"id": 1.5}', "line 2, column 'id': 1.5 does not fit BIGINT"),
        ('{"d": "today"}', "line 2, column 'd': \"today\" does not fit DATE"),
        ('{"m": {"a": "x"}}', 'line 2, column \'m\': {"a": "x"} does not fit MAP<STRING, INT>'),
        ('{"m": 7}', "line 2, column 'm': 7 does not fit MAP<STRING, INT>"),
        ('{"l": ["x"]}', "line 2, column 'l': [\"x\"] does not fit ARRAY<DECIMAL(5, 2)>"),
        ('{"nope": 1}', "line 2: the table has no column 'nope'; it has id, m, d, l"),
        ("[1]", "line 2: expected a JSON object, not [1]"),
        ("{", "line 2: "),
    ]:
        rows = JsonRows(io.BytesIO(f"{good}\n{wrong}\n".encode()), None, _SCHEMA, 100)
        with pytest.raises(SchemaMismatch) as caught:
            list(rows)
        assert told in caught.value.message
    ran = strom("append", "cli_json_errors", "-", "--format", "json", stdin=b'{"m": [1]}\n', server=at)
    assert ran.code == 1
    assert "line 1, column 'm': [1] does not fit MAP<STRING, INT>" in ran.err
    assert "pa." not in ran.err


def test_advice_on_the_command_line_is_no_python() -> None:
    kinds = [pa.string(), pa.float64(), pa.decimal128(5, 2), pa.timestamp("ms"), pa.timestamp("ms", "UTC")]
    kinds += [pa.date32(), pa.binary(), pa.list_(pa.int8()), pa.map_(pa.string(), pa.int8())]
    given = {told for have in kinds for want in kinds if (told := advice(have, want)) is not None}
    assert len(given) > 10
    for told in given:
        said = in_words(f"Column 'x' does not fit; {told}. The 3 rows before it were written")
        assert not re.search(r"\bp[ac]\.|column\.", said), said
        assert "in the file" in said
        assert said.endswith(". The 3 rows before it were written")


def test_rows_of_a_primary_key_table_are_upserted_and_append_says_so(
    server: ServerProcess, tmp_path: Path
) -> None:
    words = ["table", "create", "cli_keyed", "id:bigint", "name:string", "--primary-key", "id"]
    made = strom(*words, server=server.address)
    assert made.code == 0, made.err
    path = tmp_path / "rows.csv"
    path.write_text("id,name\n1,a\n")
    ran = strom("append", "cli_keyed", str(path), server=server.address)
    assert ran.code != 0
    assert f"strom upsert cli_keyed {path}" in "".join(ran.err.replace("\n", " ").split("  "))


def test_words_of_a_csv_are_null_only_where_somebody_says_so(server: ServerProcess, tmp_path: Path) -> None:
    at = server.address
    columns = ["id:int", "a:string", "b:double"]
    assert strom("table", "create", "cli_words", *columns, "--primary-key", "id", server=at).code == 0
    file = tmp_path / "words.csv"
    file.write_text('id,a,b\n1,NA,nan\n2,,\n3,"",1\n4,NULL,2\n5,"a,""b""",3\n')
    assert strom("upsert", "cli_words", str(file), server=at).code == 0

    def rows() -> list[tuple[object, ...]]:
        found = strom("scan", "cli_words", "-o", "json", server=at).out.splitlines()
        return sorted((row["id"], row["a"], str(row["b"])) for row in map(json.loads, found))

    expected = [(1, "NA", "nan"), (2, None, "None"), (3, "", "1.0"), (4, "NULL", "2.0"), (5, 'a,"b"', "3.0")]
    assert rows() == expected
    copy = tmp_path / "copy.csv"
    copy.write_text(strom("scan", "cli_words", "-o", "csv", server=at).out)
    assert strom("upsert", "cli_words", str(copy), server=at).code == 0
    assert rows() == expected
    assert strom("upsert", "cli_words", str(file), "--null", "NA", "--null", "NULL", server=at).code == 0
    assert [row[1] for row in rows()] == [None, None, "", None, 'a,"b"']


def test_an_error_amid_a_file_says_what_was_written(server: ServerProcess, tmp_path: Path) -> None:
    at = server.address
    assert strom("table", "create", "cli_amid", "id:int not null", "a:string", server=at).code == 0
    file = tmp_path / "amid.csv"
    file.write_text("id,a\n" + "".join(f"{n},x\n" for n in range(300)) + ",x\n")
    failed = strom("append", "cli_amid", str(file), "--batch-rows", "100", server=at)
    assert failed.code == 1
    assert "The 300 rows before it were written" in failed.err
    assert len(strom("scan", "cli_amid", "-o", "csv", server=at).out.splitlines()) == 301


@pytest.mark.parametrize("piped", [False, True])
def test_a_large_csv_whose_beginning_does_not_fit_ends_the_command_in_order(
    server: ServerProcess, table: str, piped: bool, tmp_path: Path
) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("id,name\nx,y\n" + "".join(f"{n},abc{n}\n" for n in range(500_000)))
    words = ["append", table, "-", "--format", "csv"] if piped else ["append", table, str(path)]
    for _ in range(4):  # threads of Arrow's that still read when Python ended aborted it every other time
        ran = strom(*words, server=server.address, stdin=path.read_bytes() if piped else b"")
        assert ran.code == 1, ran.err[-500:]
        assert "line 2, column 'id'" in ran.err


def test_quoted_line_ends_and_long_files_are_read_as_records(
    server: ServerProcess, table: str, tmp_path: Path
) -> None:
    path = tmp_path / "rows.csv"
    with path.open("w", newline="") as file:
        file.write("\ufeff")
        rows = csv.writer(file)
        rows.writerow(["name", "id"])
        rows.writerows([f'say "{n}"\r\nand, more', n] for n in range(60_000))
    assert path.stat().st_size > 2 * BLOCK_BYTES - BLOCK_BYTES // 2
    ran = strom("append", table, str(path), server=server.address)
    assert ran.code == 0, ran.err
    found = strom("scan", table, "-o", "arrow", server=server.address).out_bytes
    with pa.ipc.open_stream(found) as reader:
        read = reader.read_all().sort_by("id")
    assert read.column("id").to_pylist() == list(range(60_000))
    assert read.column("name")[59_999].as_py() == 'say "59999"\r\nand, more'
    wrong = tmp_path / "late.csv"
    wrong.write_bytes(path.read_bytes() + b"a,not a number\n")
    late = strom("append", table, str(wrong), server=server.address)
    assert "line 60002, column 'id'" in late.err


@pytest.mark.parametrize(
    ("block", "text", "expected"),
    [
        (4, b"a,b\n1,2\n3,4\n", [b"a,b\n", b"1,2\n", b"3,4\n"]),
        (5, b'a\n"x\ny"\nz', [b"a\n", b'"x\ny"\n', b"z"]),
        (100, b"a", [b"a"]),
        (1, b'"\n"', [b'"\n"']),
    ],
)
def test_blocks_of_a_csv_end_where_records_end(block: int, text: bytes, expected: list[bytes]) -> None:
    assert list(blocks_of(io.BytesIO(text), block)) == expected


def test_a_quote_that_is_never_closed_does_not_make_the_rest_of_a_csv_one_record(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(csv_rows, "RECORD_BYTES_MAX", 100)
    text = b'a,"b\n' + b"1,2\n" * 100
    blocks = list(blocks_of(io.BytesIO(text), 10))
    assert b"".join(blocks) == text
    assert 100 < len(blocks[0]) <= 110
    assert all(block.endswith(b"\n") for block in blocks)
    assert all(len(block) <= 12 for block in blocks[1:]), "behind it the records are whole again"


def test_json_fills_maps_dates_and_times_and_prints_them_as_it_read_them(server: ServerProcess) -> None:
    columns = ["id:bigint", "tags:map<string,int>", "deep:array<row<m map<int,string>>>", "at:timestamp(3)"]
    columns += ["day:date", "hour:time(3)"]
    assert strom("table", "create", "cli_maps", *columns, server=server.address).code == 0
    rows = [
        {"id": 1, "tags": {"a": 1, "b": None}, "deep": [{"m": [[7, "x"]]}], "at": "2026-11-15T08:00:00"},
        {"id": 2, "tags": {}, "deep": None, "at": None, "day": "2026-11-15", "hour": "08:30:00"},
        {"id": 3, "tags": None, "deep": [], "at": None},
    ]
    rows = [{"day": None, "hour": None, **row} for row in rows]
    lines = "".join(json.dumps(row) + "\n" for row in rows).encode()
    ran = strom("append", "cli_maps", "-", "--format", "json", stdin=lines, server=server.address)
    assert ran.code == 0, ran.err
    found = strom("scan", "cli_maps", "-o", "json", server=server.address).out.splitlines()
    read = sorted((json.loads(line) for line in found), key=lambda row: row["id"])
    assert read == rows


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ('{"id": 1}\n\n{"id": "x"}\n', "line 3, column 'id': "),
        ('{"id": 1}\n{"id": \n', "line 2: "),
        ('{"id": 1}\n{"id": 2, "nam": "x"}\n', "line 2: "),
    ],
)
def test_an_error_in_json_names_its_line(server: ServerProcess, table: str, lines: str, told: str) -> None:
    ran = strom("append", table, "-", "--format", "json", stdin=lines.encode(), server=server.address)
    assert ran.code == 1
    assert told in ran.err
    assert "Traceback" not in ran.err


def test_an_error_far_into_a_file_names_the_line_of_the_file(
    server: ServerProcess, table: str, tmp_path: Path
) -> None:
    """However many batches, or blocks, came before it."""
    lines = tmp_path / "rows.jsonl"
    lines.write_text("".join(f'{{"id": {number}}}\n' for number in range(6)) + '{"id": "x"}\n')
    ran = strom("append", table, str(lines), "--batch-rows", "2", server=server.address)
    assert ran.code == 1
    assert "line 7, column 'id': " in ran.err
    assert "6 rows before it were written" in " ".join(ran.err.split())
    assert _ids(server, table) == list(range(6))
    text = tmp_path / "rows.csv"
    rows = BLOCK_BYTES // 1000 + 10
    text.write_text("id,name\n" + "".join(f"{number},{'n' * 990}\n" for number in range(rows)) + "x,last\n")
    ran = strom("append", table, str(text), server=server.address)
    assert ran.code == 1
    assert f"line {rows + 2}, column 'id'" in " ".join(ran.err.split())


def test_a_csv_of_a_spreadsheet_may_begin_with_the_mark_of_its_encoding(
    server: ServerProcess, table: str, tmp_path: Path
) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes("id,name\r\n1,ä\r\n2,b\r\n".encode("utf-8-sig"))
    ran = strom("append", table, str(path), server=server.address)
    assert ran.code == 0, ran.err
    assert _ids(server, table, "--where", "name = 'ä'") == [1]
