"""``strom database``: create, list, drop."""

from __future__ import annotations

from typing import Annotated

import typer

from strom.cli.terminal.connection import connected
from strom.cli.terminal.group import group
from strom.cli.terminal.output import OutputForm, note, print_rows

app = group("Databases: create, list, drop.", "strom database create shop", "strom database list")


@app.command("create", help="Create a database.\n\nExample:  strom database create shop")
def create(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="The new database.")],
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="Do nothing if it exists.")] = False,
    comment: Annotated[str | None, typer.Option(help="What it is for.")] = None,
) -> None:
    """Create a database."""
    with connected(context) as database:
        database.create_database(name, if_exists="ignore" if if_not_exists else "error", comment=comment)
    note(f"created database {name}")


@app.command("list", help="List databases.\n\nExample:  strom database list -o json")
def list_(
    context: typer.Context,
    output: Annotated[OutputForm, typer.Option("-o", "--output", help="How to print.")] = OutputForm.table,
) -> None:
    """List databases."""
    with connected(context) as database:
        print_rows([{"database": name} for name in database.databases()], output, ["database"])


@app.command("drop", help="Drop a database.\n\nExample:  strom database drop shop --cascade")
def drop(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="The database to drop.")],
    cascade: Annotated[bool, typer.Option(help="Drop its tables with it.")] = False,
    if_exists: Annotated[bool, typer.Option("--if-exists", help="Do nothing if it does not exist.")] = False,
) -> None:
    """Drop a database."""
    with connected(context) as database:
        database.drop_database(name, cascade=cascade, if_missing="ignore" if if_exists else "error")
    note(f"dropped database {name}")
