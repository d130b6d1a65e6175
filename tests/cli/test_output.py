"""Rows as text: nothing is lost on the way, and a table on the screen has an end."""

from __future__ import annotations

import csv
import io
import json

import pyarrow as pa
import pytest

from strom.cli.terminal.output import TABLE_ROWS_MAX, OutputForm, print_rows, write_batches
from strom.client.show.row_text import Preview


def test_texts_of_every_kind_come_back_from_csv(capsys: pytest.CaptureFixture[str]) -> None:
    texts = [" before", "after ", "\t", "", "a,b", 'say "x"', "two\nlines", "plain", "\rback"]
    batch = pa.RecordBatch.from_pydict({"id": range(len(texts)), "text": texts})
    assert write_batches([batch], batch.schema, OutputForm.csv) == len(texts)
    found = list(csv.reader(io.StringIO(capsys.readouterr().out, newline=""), skipinitialspace=False))
    assert [row[1] for row in found[1:]] == texts
    # Some programs strip what is not quoted.
    assert write_batches([batch.slice(0, 2)], batch.schema, OutputForm.csv) == 2
    assert capsys.readouterr().out.splitlines()[1:] == ['0," before"', '1,"after "']


def test_a_table_on_the_screen_shows_so_many_rows_and_counts_the_rest(
    capsys: pytest.CaptureFixture[str],
) -> None:
    batches = [pa.RecordBatch.from_pydict({"id": range(start, start + 700)}) for start in (0, 700)]
    assert write_batches(batches, batches[0].schema, OutputForm.table) == 1_400
    told = capsys.readouterr()
    lines = told.out.splitlines()
    assert len(lines) == 2 + TABLE_ROWS_MAX
    assert lines[-1].strip() == str(TABLE_ROWS_MAX - 1)
    assert f"{1_400 - TABLE_ROWS_MAX} more rows" in told.err


def test_a_row_of_one_null_is_a_line_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    batch = pa.RecordBatch.from_pydict({"name": pa.array(["a", None, "b"])})
    write_batches([batch], batch.schema, OutputForm.csv)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4
    assert all(lines), "an empty line is no row at all to those who read it"


def test_a_map_without_entries_is_no_list(capsys: pytest.CaptureFixture[str]) -> None:
    texts, numbers = pa.map_(pa.string(), pa.int32()), pa.map_(pa.int32(), pa.string())
    inside = pa.list_(pa.struct([("m", texts)]))
    batch = pa.RecordBatch.from_pydict(
        {
            "m": pa.array([[], [("a", 1)], None], texts),
            "in": pa.array([[{"m": []}], [], [None]], inside),
            "n": pa.array([[(1, "x")], [], None], numbers),
            "l": pa.array([[], [1], None], pa.list_(pa.int32())),
        }
    )
    write_batches([batch], batch.schema, OutputForm.json)
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == [
        {"m": {}, "in": [{"m": {}}], "n": [[1, "x"]], "l": []},
        {"m": {"a": 1}, "in": [], "n": {}, "l": [1]},
        {"m": None, "in": [None], "n": None, "l": None},
    ]
    for form in (OutputForm.table, OutputForm.csv):
        write_batches([batch], batch.schema, form)
        assert "{}" in capsys.readouterr().out.splitlines()[2 if form is OutputForm.table else 1]
    assert Preview(batch.schema, [batch]).text().splitlines()[2].startswith("{}")


WIDE = [{"sink": "s" * 30, "tables": "shop.orders, shop.customers", "query": "q" * 36, "problem": ""}]


def test_facts_that_do_not_fit_the_terminal_have_a_line_each(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    columns = list(WIDE[0])
    print_rows([*WIDE, *WIDE], OutputForm.table, columns)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert [line.split()[0] for line in lines if line] == ["sink", "tables", "query"] * 2
    print_rows([{**WIDE[0], "query": "q", "problem": "lost " * 20}], OutputForm.table, columns)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert "".join(lines).count("lost") == 20
    print_rows([{**WIDE[0], "query": "q" * 11}], OutputForm.table, columns)
    assert capsys.readouterr().out.splitlines()[0].split() == ["sink", "tables", "query"], (
        "problems have none"
    )
    monkeypatch.setenv("COLUMNS", "200")
    print_rows(WIDE, OutputForm.table, columns)
    assert capsys.readouterr().out.splitlines()[0].split() == columns
    print_rows([], OutputForm.table, columns)
    assert capsys.readouterr().out.splitlines()[0].split() == columns


def test_a_fact_that_one_row_lacks_has_its_line_there_too(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    print_rows([{**WIDE[0], "problem": "lost"}, WIDE[0]], OutputForm.table, list(WIDE[0]))
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines if line] == ["sink", "tables", "query", "problem"] * 2
    assert [line for line in lines if line.startswith("problem")] == [
        f"{'problem':<17} {one}" for one in ("lost", "-")
    ]
    assert lines.count("") == 1, "an empty line between two rows"
