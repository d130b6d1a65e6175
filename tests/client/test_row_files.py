"""Every reader of files keeps one promise: all rows, in bounded batches, and how far it is."""

from __future__ import annotations

import io
import json
import os
import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from strom.client.input.row_files.file_format import FileFormat
from strom.client.input.row_files.opening import rows_of
from strom.errors import SchemaMismatch

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
FORMS = list(FileFormat)


def rows(count: int) -> pa.Table:
    return pa.table({"id": range(count), "name": [f"n{number}" for number in range(count)]}, SCHEMA)


def content(form: FileFormat, table: pa.Table, piece_rows: int = 1_000) -> bytes:
    out = io.BytesIO()
    if form is FileFormat.csv:
        pyarrow.csv.write_csv(table, out)
    elif form is FileFormat.json:
        out.write(b"".join(json.dumps(row).encode() + b"\n" for row in table.to_pylist()))
    elif form is FileFormat.parquet:
        pyarrow.parquet.write_table(table, out, row_group_size=piece_rows)
    else:
        with pa.ipc.new_stream(out, table.schema) as writer:
            writer.write_table(table, piece_rows)
    return out.getvalue()


def read(
    file: str | io.BytesIO, form: FileFormat, batch_rows: int = 10
) -> tuple[list[pa.RecordBatch], list[int], int]:
    """The batches, how far the reader said it was at each, and the size it knows."""
    source = rows_of(file, form, SCHEMA, batch_rows)
    found = list(source)
    assert source.stream.closed
    return [batch for batch, _ in found], [done for _, done in found], source.bytes_total or 0


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("count", [1, 2, 10, 11, 95])
def test_all_rows_come_in_batches_of_at_most_so_many(tmp_path: Path, form: FileFormat, count: int) -> None:
    path = tmp_path / "rows"
    path.write_bytes(content(form, rows(count), piece_rows=25))
    batches, done, size = read(str(path), form)
    assert pa.Table.from_batches(batches).select(SCHEMA.names).cast(SCHEMA) == rows(count)
    assert max(batch.num_rows for batch in batches) <= 10
    assert size == path.stat().st_size
    assert done == sorted(done)
    assert 0 < done[-1] <= size


@pytest.mark.parametrize("count", [95])
def test_a_parquet_file_says_how_far_it_is_by_its_rows(tmp_path: Path, count: int) -> None:
    path = tmp_path / "rows.parquet"
    path.write_bytes(content(FileFormat.parquet, rows(count), piece_rows=25))
    batches, done, size = read(str(path), FileFormat.parquet)
    seen = 0
    for batch, told in zip(batches, done, strict=True):
        seen += batch.num_rows
        assert told == size * seen // count


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", ["memory", "pipe"])
def test_a_pipe_gives_the_same_rows(form: FileFormat, kind: str) -> None:
    given = content(form, rows(95))
    if kind == "memory":
        batches, _, size = read(io.BytesIO(given), form)
    else:
        out, into = os.pipe()

        def write() -> None:
            with open(into, "wb") as pipe:
                pipe.write(given)

        thread = threading.Thread(target=write)
        thread.start()
        batches, _, size = read(open(out, "rb"), form)  # type: ignore[arg-type]  # noqa: SIM115
        thread.join()
    assert size == 0
    assert pa.Table.from_batches(batches).select(SCHEMA.names).cast(SCHEMA) == rows(95)


@pytest.mark.parametrize(
    ("form", "told"), [("parquet", "not a Parquet file"), ("arrow", "not an Arrow stream")]
)
@pytest.mark.parametrize("piped", [False, True])
@pytest.mark.parametrize("given", [b"", b"id,name\n1,a\n", b"PAR1" + bytes(100) + b"PAR1"])
def test_what_is_no_such_file_is_told(
    tmp_path: Path, form: str, told: str, piped: bool, given: bytes
) -> None:
    path = tmp_path / "rows"
    path.write_bytes(given)
    source = io.BytesIO(given) if piped else str(path)
    with pytest.raises(SchemaMismatch, match=told):
        read(source, FileFormat(form))  # type: ignore[arg-type]


def test_a_stream_that_ends_in_the_middle_of_a_batch_is_told(tmp_path: Path) -> None:
    path = tmp_path / "rows.arrow"
    given = content(FileFormat.arrow, rows(1_000), piece_rows=500)
    path.write_bytes(given[: len(given) * 3 // 4])
    with pytest.raises(SchemaMismatch, match="not an Arrow stream"):
        read(str(path), FileFormat.arrow, batch_rows=1_000)
