"""Choosing the reader for a file."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from typing import IO

import pyarrow as pa

from strom.client.input.row_files.column_files import ArrowRows, ParquetRows
from strom.client.input.row_files.csv_rows import CsvRows
from strom.client.input.row_files.file_format import FileFormat
from strom.client.input.row_files.file_rows import FileRows
from strom.client.input.row_files.json_rows import JsonRows

_READERS: dict[FileFormat, type[FileRows]] = {
    FileFormat.csv: CsvRows,
    FileFormat.json: JsonRows,
    FileFormat.parquet: ParquetRows,
    FileFormat.arrow: ArrowRows,
}


def rows_of(
    file: str | IO[bytes],
    form: FileFormat,
    schema: pa.Schema,
    batch_rows: int,
    nulls: Sequence[str] = (),
) -> FileRows:
    """The rows of a file or a pipe for a table's schema. ``nulls``: words of CSV that mean NULL."""
    stream: IO[bytes] = open(file, "rb") if isinstance(file, str) else file  # noqa: SIM115  closed by the reader
    found = os.fstat(stream.fileno()) if isinstance(file, str) else None
    total = found.st_size if found is not None and stat.S_ISREG(found.st_mode) else None
    return _READERS[form](stream, total, schema, batch_rows, nulls)
