"""``strom sink``: what streaming queries and transactions have published, and forgetting it."""

from __future__ import annotations

from typing import Annotated

import typer

from strom.cli.connection import connected
from strom.cli.output import Form, note, print_rows

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Sinks: what streaming queries and transactions published last.",
)

Output = Annotated[Form, typer.Option("-o", "--output", help="How to print.")]

COLUMNS = ("sink", "version", "number", "pending buckets", "tables", "query")

DROP_HELP = """Forget what a sink has published.

The next query of this name starts anew; a version that is written again is published again. Not while it runs.

\b
Example:
  strom sink drop nightly-import
"""


@app.command(
    "list",
    help="List sinks: the last version of each, and where it is not visible yet.\n\nExample:  strom sink list -o json",
)
def list_sinks(
    context: typer.Context,
    all_sinks: Annotated[bool, typer.Option("--all", help="Unnamed transactions too.")] = False,
    output: Output = Form.table,
) -> None:
    """List sinks."""
    with connected(context) as database:
        rows = [
            {
                "sink": sink.name,
                "version": sink.version,
                "number": sink.number,
                "pending buckets": sink.pending,
                "tables": len(sink.tables),
                "query": sink.query_id,
            }
            for sink in database.sinks()
            if all_sinks or not sink.one_shot
        ]
    print_rows(rows, output, COLUMNS)


@app.command("drop", help=DROP_HELP)
def drop_sink(context: typer.Context, name: Annotated[str, typer.Argument(help="The sink's name.")]) -> None:
    """Forget a sink."""
    with connected(context) as database:
        database.drop_sink(name)
    note(f"sink {name!r} is forgotten")
