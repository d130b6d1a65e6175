"""Choosing the reader for a file."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from typing import IO

import pyarrow as pa

from strom.client.input.files.column_files import ArrowRows, ParquetRows
from strom.client.input.files.csv_rows import CsvRows
from strom.client.input.files.form import InputForm
from strom.client.input.files.json_rows import JsonRows
from strom.client.input.files.rows import FileRows

_READERS: dict[InputForm, type[FileRows]] = {
    InputForm.csv: CsvRows,
    InputForm.json: JsonRows,
    InputForm.parquet: ParquetRows,
    InputForm.arrow: ArrowRows,
}


def rows_of(
    file: str | IO[bytes],
    form: InputForm,
    schema: pa.Schema,
    batch_rows: int,
    nulls: Sequence[str] = (),
) -> FileRows:
    """The rows of a file or a pipe for a table's schema. ``nulls``: words of CSV that mean NULL."""
    stream: IO[bytes] = open(file, "rb") if isinstance(file, str) else file  # noqa: SIM115  closed by the reader
    found = os.fstat(stream.fileno()) if isinstance(file, str) else None
    total = found.st_size if found is not None and stat.S_ISREG(found.st_mode) else None
    return _READERS[form](stream, total, schema, batch_rows, nulls)
