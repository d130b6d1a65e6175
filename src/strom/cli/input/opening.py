"""Choosing the reader for a file."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import IO

import pyarrow as pa

from strom.cli.input.column_files import ArrowRows, ParquetRows
from strom.cli.input.csv_rows import CsvRows
from strom.cli.input.form import InputForm, form_of
from strom.cli.input.json_rows import JsonRows
from strom.cli.input.rows import FileRows


def input_of(
    file: str, form: InputForm | None, schema: pa.Schema, batch_rows: int, nulls: Sequence[str] = ()
) -> FileRows:
    """The right reader for a file name (or ``-``) and a table's schema. ``nulls``: words of CSV that mean NULL."""
    stream: IO[bytes] = sys.stdin.buffer if file == "-" else open(file, "rb")  # noqa: SIM115  closed by the reader
    total = None if file == "-" else os.path.getsize(file)
    readers: dict[InputForm, type[FileRows]] = {
        InputForm.csv: CsvRows,
        InputForm.json: JsonRows,
        InputForm.parquet: ParquetRows,
        InputForm.arrow: ArrowRows,
    }
    return readers[form_of(file, form)](stream, total, schema, batch_rows, nulls)
