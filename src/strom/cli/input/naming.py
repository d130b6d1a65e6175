"""A file as the command line names it: a path, a pipe, or ``-`` for standard input."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from strom.client.input.row_files.file_format import ENDINGS, FileFormat, format_by_ending

if TYPE_CHECKING:
    import pyarrow as pa

    from strom.client.input.row_files.file_rows import FileRows


def check_file(file: str, form: FileFormat | None) -> None:
    """Refuse a file that cannot be read, before anything is sent to a server."""
    if file == "-":
        if form is None:
            raise typer.BadParameter("standard input has no ending: add --format csv, json, parquet or arrow")
        return
    path = Path(file)
    if not path.exists():
        raise typer.BadParameter(f"there is no file {file}")
    if path.is_dir():
        raise typer.BadParameter(f"{file} is a folder: name a file in it")
    form_of(file, form)


def can_be_looked_into(file: str) -> bool:
    """Whether it can be read twice: standard input and other pipes cannot."""
    return file != "-" and Path(file).is_file()


def form_of(file: str, said: FileFormat | None) -> FileFormat:
    """The format of a file: as given, or by its ending."""
    found = said or format_by_ending(file)
    if found is None:
        if not can_be_looked_into(file):
            raise typer.BadParameter(f"a pipe has no ending: add --format {', '.join(FileFormat)}")
        raise typer.BadParameter(f"the ending of {file} is none of {', '.join(ENDINGS)}: add --format")
    return found


def input_of(
    file: str, form: FileFormat | None, schema: pa.Schema, batch_rows: int, nulls: Sequence[str] = ()
) -> FileRows:
    """The rows of the file for a table's schema. ``nulls``: words of CSV that mean NULL."""
    from strom.client.input.row_files.opening import rows_of

    return rows_of(sys.stdin.buffer if file == "-" else file, form_of(file, form), schema, batch_rows, nulls)
