"""``create_table`` from rows: the table gets their columns, and takes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import strom
from api.place import new_name
from strom.client.input import inferring
from strom.errors import InvalidTable, SchemaMismatch
from strom.testing.process import ServerProcess

FRAME = pd.DataFrame(
    {
        "id": [1, 2],
        "name": ["a", None],
        "at": pd.to_datetime(["2026-01-01", "2026-01-02"]),
        "n": pd.array([1, None], dtype="Int64"),
    }
)
ROWS = pa.table({"id": [1, 2], "name": ["a", None]})


@pytest.mark.parametrize(
    ("data", "columns"),
    [
        (FRAME, ["id BIGINT", "name STRING", "at TIMESTAMP(6)", "n BIGINT"]),
        (
            pl.DataFrame({"id": [1, 2], "kind": pl.Series(["a", "b"], dtype=pl.Categorical)}),
            ["id BIGINT", "kind STRING"],
        ),
        (ROWS, ["id BIGINT", "name STRING"]),
        (ROWS.to_batches()[0], ["id BIGINT", "name STRING"]),
        ([{"a": 1, "b": ["x"]}, {"a": 2, "b": None}], ["a BIGINT", "b ARRAY<STRING>"]),
        ({"a": [1, 2], "b": np.array([1.5, 2.0])}, ["a BIGINT", "b DOUBLE"]),
        ([{"a": 1}, {"b": "x"}], ["a BIGINT", "b STRING"]),
    ],
    ids=["pandas", "polars", "arrow table", "arrow batch", "rows", "columns", "rows of other columns"],
)
def test_a_table_gets_the_columns_of_rows_and_takes_them(
    server: ServerProcess, data: Any, columns: list[str]
) -> None:
    with strom.connect(server.address) as db:
        table = db.create_table(new_name("inferred"), data)
        assert [f"{one.name} {one.type.sql()}" for one in table.columns] == columns
        assert table.scan().count() == 0
        table.append(data)
        assert table.scan().count() == 2


def test_a_table_gets_the_columns_of_a_file(server: ServerProcess, tmp_path: Path) -> None:
    pq.write_table(ROWS, tmp_path / "rows.parquet")
    (tmp_path / "rows.csv").write_text("id,at,price,empty\n1,2026-01-01 00:00:00,1,\n2,,2.5,\n")
    (tmp_path / "rows.jsonl").write_text('{"id": 1, "o": {"x": 1}}\n{"id": 2, "o": null}\n')
    with pa.OSFile(str(tmp_path / "rows.arrows"), "wb") as file, pa.ipc.new_stream(file, ROWS.schema):
        pass
    expected = {
        "rows.parquet": ["id BIGINT", "name STRING"],
        "rows.csv": ["id BIGINT", "at TIMESTAMP(6)", "price DOUBLE", "empty STRING"],
        "rows.jsonl": ["id BIGINT", "o ROW<x BIGINT>"],
        "rows.arrows": ["id BIGINT", "name STRING"],
    }
    with strom.connect(server.address) as db:
        for name, columns in expected.items():
            for path in (tmp_path / name, str(tmp_path / name)):
                table = db.create_table(new_name("file"), path)
                assert [f"{one.name} {one.type.sql()}" for one in table.columns] == columns


def test_a_file_fills_the_table_that_was_made_of_it(server: ServerProcess, tmp_path: Path) -> None:
    pq.write_table(ROWS, tmp_path / "rows.parquet")
    (tmp_path / "rows.csv").write_text("id,name\n1,a\n2,\n")
    (tmp_path / "rows.jsonl").write_text('{"id": 1, "name": "a"}\n{"id": 2}\n')
    with pa.OSFile(str(tmp_path / "rows.arrows"), "wb") as file, pa.ipc.new_stream(file, ROWS.schema) as out:
        out.write_table(ROWS)
    with strom.connect(server.address) as db:
        for name in ("rows.parquet", "rows.csv", "rows.jsonl", "rows.arrows"):
            table = db.create_table(new_name("filled"), tmp_path / name)
            table.append(str(tmp_path / name))
            table.append(tmp_path / name)
            assert table.scan().to_arrow().sort_by("id").equals(pa.concat_tables([ROWS, ROWS]).sort_by("id"))
        keyed = db.create_table(new_name("filled"), ROWS, primary_key="id")
        keyed.upsert([{"id": 1, "name": "stays"}])
        keyed.upsert(tmp_path / "rows.jsonl", columns=["id"])
        assert sorted(row["name"] or "" for row in keyed.scan().to_arrow().to_pylist()) == ["", "stays"]
        for path, says in [("none.csv", "no file 'none.csv'"), ("rows", "its ending is none of .csv")]:
            with pytest.raises(SchemaMismatch, match=says):
                table.append(path)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ("no-such-file.parquet", "no file 'no-such-file.parquet'"),
        ("rows.txt", "its ending is none of .parquet"),
        ([{"a": None}], "column 'a' holds only NULL"),
        (5, "a data frame, or the path of a file"),
        (pd.DataFrame({}), "no column"),
        ([{"a": 1, "b": [1, "x"]}], "column 'b' have no type in common"),
        ({"b": [1, "x"]}, "column 'b' have no type in common"),
        (pd.DataFrame({"a": [1, 2], "b": [1, "x"]}), "column 'b' have no type in common"),
    ],
)
def test_what_tells_no_schema_is_refused(server: ServerProcess, data: Any, says: str) -> None:
    with strom.connect(server.address) as db, pytest.raises(InvalidTable, match=says):
        db.create_table(new_name("never"), data)


def test_a_file_that_is_not_what_its_ending_says_is_refused(server: ServerProcess, tmp_path: Path) -> None:
    with strom.connect(server.address) as db:
        for name in ("rows.parquet", "rows.arrows", "rows.jsonl"):
            (tmp_path / name).write_bytes(b"nothing of the kind")
            with pytest.raises(InvalidTable, match="cannot tell the columns"):
                db.create_table(new_name("never"), tmp_path / name)


@pytest.mark.parametrize(
    ("name", "head", "line"),
    [("rows.csv", "id,name\n", "1,abc\n"), ("rows.jsonl", "", '{"id": 1, "name": "abc"}\n')],
)
def test_a_long_file_is_told_by_its_first_whole_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, head: str, line: str
) -> None:
    path = tmp_path / name
    path.write_text(head + line * 10)
    for sample in range(len(head) + 2 * len(line), len(head) + 3 * len(line)):
        monkeypatch.setattr(inferring, "SAMPLE_BYTES", sample)
        found = inferring.schema_of_file(path)
        assert found.equals(pa.schema([("id", pa.int64()), ("name", pa.string())])), sample
