"""Options of the commands that read rows from a file."""

from __future__ import annotations

from typing import Annotated

import typer

from strom.client.input.row_files.file_format import FileFormat

Format = Annotated[
    FileFormat | None, typer.Option("--format", help="What the file holds, if its ending does not tell.")
]
BatchRows = Annotated[int, typer.Option(min=1, help="Rows of one batch.")]
Nulls = Annotated[
    list[str] | None,
    typer.Option("--null", help="A CSV word that means NULL, like an empty field; repeatable."),
]
Create = Annotated[
    bool, typer.Option("--create", help="Create the table from the file's columns if it is missing.")
]

BATCH_ROWS = 10_000
"""Rows of one batch, if nothing else is said."""
