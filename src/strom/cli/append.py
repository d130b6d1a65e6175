"""``strom append``: rows from a file or a pipe into a table, with progress."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from strom.cli.input.naming import check_file, input_of
from strom.cli.input.options import BATCH_ROWS, BatchRows, Create, Format, Nulls
from strom.cli.terminal.connection import connected
from strom.cli.terminal.output import note
from strom.runtime.units import counted

HELP = """Append rows of a CSV, JSON-lines, Parquet or Arrow file (or - for standard input).

Columns are matched by name; CSV and JSON values are read as the table's types. An empty CSV field without quotes is
NULL; --null adds other words for it. With --create, a missing table is created with the file's columns.

\b
Examples:
  strom append events day.parquet
  strom append events day.csv --batch-rows 50000
  strom append events old.csv --null NA --null NULL
  strom append visits day.csv --create
  cat day.jsonl | strom append events - --format json
  strom append events <(zcat day.csv.gz) --format csv
"""


def append(
    context: typer.Context,
    table: Annotated[str, typer.Argument(help="The table.")],
    file: Annotated[str, typer.Argument(help="The file, or - for standard input.")],
    form: Format = None,
    batch_rows: BatchRows = BATCH_ROWS,
    null: Nulls = None,
    create: Create = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar.")] = False,
) -> None:
    """Append a file."""
    from strom.cli.input.creating import found_or_created
    from strom.cli.input.telling import telling

    check_file(file, form)
    with connected(context) as database:
        target = found_or_created(database, table, file, form, create=create, nulls=null or ())
        if target.primary_key:
            raise typer.BadParameter(
                f"{table} is a primary-key table, whose rows are upserted: strom upsert {table} {file}"
            )
        source = input_of(file, form, target.schema, batch_rows, null or ())
        rows = 0
        with (
            telling(lambda: rows),
            _bar(source.bytes_total, quiet) as bar,
            target.writer() as writer,
        ):
            for batch, bytes_done in source:
                writer.append(batch)
                rows += batch.num_rows
                bar.update(bar.task_ids[0], completed=bytes_done, rows=f"{rows:,}")
        note(f"appended {counted(rows, 'row')} to {table}")


def _bar(bytes_total: int | None, quiet: bool):  # type: ignore[no-untyped-def]  # rich stays unimported until here
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn

    bar = Progress(
        TextColumn("appending"),
        BarColumn(),
        DownloadColumn(),
        TextColumn("{task.fields[rows]} rows"),
        TimeElapsedColumn(),
        console=Console(file=sys.stderr),
        disable=quiet or not sys.stderr.isatty(),
        transient=True,
    )
    bar.add_task("append", total=bytes_total, rows="0")
    return bar
