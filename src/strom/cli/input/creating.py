"""``--create``: a table with the columns of the file that is about to be written."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import typer

from strom.api import Database, Table
from strom.cli.input.naming import can_be_looked_into, form_of
from strom.cli.terminal.output import note
from strom.client.input.inferring import SAMPLE_BYTES, inferred, schema_of_text
from strom.client.input.row_files.file_format import FileFormat
from strom.errors import InvalidTable, TableNotFound


def found_or_created(
    database: Database,
    name: str,
    file: str,
    form: FileFormat | None,
    *,
    create: bool,
    nulls: Sequence[str] = (),
    primary_key: list[str] | None = None,
) -> Table:
    """The table; with ``create`` a missing one is created for the file, and its columns are printed."""
    try:
        found = database.table(name)
    except TableNotFound as missing:
        if not create:
            hint = f"{missing.message.rstrip('.')}. Add --create to create it from the file's columns"
            raise TableNotFound(hint, **missing.facts) from missing
    else:
        if primary_key is not None and list(found.primary_key) != primary_key:
            raise _other_key(found, primary_key)
        return found
    if not can_be_looked_into(file):
        raise typer.BadParameter(
            "--create reads the file twice, and a pipe can be read only once: write it to a file first"
        )
    table = database.create_table(name, _schema_of(Path(file), form, tuple(nulls)), primary_key=primary_key)
    columns = " ".join(f"{column.name}:{column.type.sql()}" for column in table.columns)
    note(f"created table {name} with {columns}")
    return table


def _other_key(table: Table, wanted: list[str]) -> InvalidTable:
    has = f"the primary key {','.join(table.primary_key)}" if table.primary_key else "no primary key"
    return InvalidTable(
        f"table {table.name} exists and has {has}, not {','.join(wanted)}: leave --primary-key out to write into it, "
        "or name another table",
        table=table.name,
        primary_key=list(table.primary_key),
    )


def _schema_of(path: Path, form: FileFormat | None, nulls: tuple[str, ...]) -> pa.Schema:
    kind = form_of(str(path), form)
    if kind in (FileFormat.csv, FileFormat.json):
        with path.open("rb") as file:
            sample = file.read(SAMPLE_BYTES)
        try:
            return schema_of_text(sample, csv=kind is FileFormat.csv, nulls=nulls)
        except pa.ArrowException as error:
            raise InvalidTable(f"cannot tell the columns of {str(path)!r}: {error}") from error
    found = inferred(path)
    assert found is not None
    return found
