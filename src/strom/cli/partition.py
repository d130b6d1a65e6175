"""``strom partition``: create, list, drop."""

from __future__ import annotations

from typing import Annotated

import typer

from strom.cli.terminal.connection import connected
from strom.cli.terminal.group import group
from strom.cli.terminal.output import OutputForm, note, print_rows
from strom.cli.terminal.words import pairs

app = group(
    "Partitions of a table: create, list, drop.",
    "strom partition list clicks",
    "strom partition create clicks day=2026-11-16",
)

Values = Annotated[list[str], typer.Argument(help="key=value, one for each partition key.")]


@app.command("create", help="Create a partition.\n\nExample:  strom partition create events day=2026-11-15")
def create(
    context: typer.Context,
    table: Annotated[str, typer.Argument(help="The table.")],
    values: Values,
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="Do nothing if it exists.")] = False,
) -> None:
    """Create a partition."""
    with connected(context) as database:
        database.table(table).create_partition(
            pairs(values), if_exists="ignore" if if_not_exists else "error"
        )
    note(f"created partition {' '.join(values)} of {table}")


@app.command("list", help="List the partitions of a table.\n\nExample:  strom partition list events")
def list_(
    context: typer.Context,
    table: Annotated[str, typer.Argument(help="The table.")],
    output: Annotated[OutputForm, typer.Option("-o", "--output", help="How to print.")] = OutputForm.table,
) -> None:
    """List partitions."""
    with connected(context) as database:
        rows = [
            {"partition": partition.name, "id": partition.partition_id}
            for partition in database.table(table).partitions()
        ]
    print_rows(rows, output, ["partition", "id"])


@app.command(
    "drop", help="Drop a partition and its rows.\n\nExample:  strom partition drop events day=2026-11-15"
)
def drop(
    context: typer.Context,
    table: Annotated[str, typer.Argument(help="The table.")],
    values: Values,
    if_exists: Annotated[bool, typer.Option("--if-exists", help="Do nothing if it does not exist.")] = False,
) -> None:
    """Drop a partition."""
    spec = pairs(values)
    with connected(context) as database:
        database.table(table).drop_partition(spec, if_missing="ignore" if if_exists else "error")
    note(f"dropped partition {' '.join(values)} of {table}")
