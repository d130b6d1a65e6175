"""``strom index``: create, list, drop secondary indexes of a primary-key table."""

from __future__ import annotations

from typing import Annotated

import typer

from strom.cli.terminal.connection import connected
from strom.cli.terminal.group import group
from strom.cli.terminal.output import OutputForm, note, print_rows
from strom.cli.terminal.words import names

app = group(
    "Secondary indexes: create, list, drop.",
    "strom index create users by_city city",
    "strom index list users",
    "strom lookup users --index by_city Berlin",
)

Name = Annotated[str, typer.Argument(help="The table.")]
Index = Annotated[str, typer.Argument(help="The index.")]
Output = Annotated[OutputForm, typer.Option("-o", "--output", help="How to print.")]

CREATE_HELP = """Index columns of a live table. The servers build it in the background.

\b
Examples:
  strom index create users by_city city
  strom index create users by_city_score city,score --no-wait
"""


@app.command("create", help=CREATE_HELP)
def create(
    context: typer.Context,
    table: Name,
    index: Index,
    columns: Annotated[str, typer.Argument(help="Its columns, separated by commas.")],
    wait: Annotated[bool, typer.Option(help="Wait until it is built.")] = True,
) -> None:
    """Create an index."""
    with connected(context) as database:
        database.table(table).create_index(index, names(columns) or [], wait=wait)
    note(f"created index {index} on {table}" + ("" if wait else ", which is being built"))


@app.command("list", help="List the indexes of a table.\n\nExample:  strom index list users -o json")
def list_(context: typer.Context, table: Name, output: Output = OutputForm.table) -> None:
    """List indexes."""
    with connected(context) as database:
        found = database.table(table).indexes()
    rows = [
        {"index": one.name, "columns": ", ".join(one.columns), "state": one.state, "rows": one.rows}
        for one in found.values()
    ]
    print_rows(rows, output, ["index", "columns", "state", "rows"])


@app.command("drop", help="Drop an index.\n\nExample:  strom index drop users by_city")
def drop(context: typer.Context, table: Name, index: Index) -> None:
    """Drop an index."""
    with connected(context) as database:
        database.table(table).drop_index(index)
    note(f"dropped index {index} of {table}")
