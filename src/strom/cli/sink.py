"""``strom sink``: what streaming queries and transactions have published, and forgetting it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from strom.cli.terminal.connection import connected
from strom.cli.terminal.group import group
from strom.cli.terminal.output import OutputForm, note, print_rows

if TYPE_CHECKING:
    from strom.client.admin.admin import SkippedStage

app = group(
    "Sinks: what streaming queries and transactions published last.",
    "strom sink list",
    "strom sink drop nightly-import",
)

Name = Annotated[str, typer.Argument(help="The sink's name.")]
Output = Annotated[OutputForm, typer.Option("-o", "--output", help="How to print.")]

COLUMNS = ("sink", "tables", "query", "version", "number", "pending buckets", "problem")

LIST_HELP = """List sinks: the tables each one writes to, its query, and the last version it published.

A Spark query is shown by its name (`queryName`), or by its id if it has none. In pending buckets the last version is
not visible yet.

\b
Examples:
  strom sink list
  strom sink list -o json
"""

DROP_HELP = """Forget what a sink has published.

The next query of this name starts over, and a version that is written again is published again. Stop the query first.
With --force, a sink is forgotten even if rows of its last version are lost for good: see `strom sink skip --help`.

\b
Examples:
  strom sink drop nightly-import
  strom sink drop nightly-import --force
"""

SKIP_HELP = """Publish a sink's last version without its lost rows.

A decided version blocks its buckets when a file with its rows is lost or damaged, or when they can no longer be
written; `strom sink list` shows the problem. This publishes everything that is left. What it leaves out is printed here
and in the servers' logs, and a damaged file is kept as NAME.skipped. The query continues with its next version.

\b
Example:
  strom sink skip nightly-import
"""


@app.command(
    "list",
    help=LIST_HELP,
)
def list_sinks(
    context: typer.Context,
    all_sinks: Annotated[bool, typer.Option("--all", help="Unnamed transactions too.")] = False,
    output: Output = OutputForm.table,
) -> None:
    """List sinks."""
    with connected(context) as database:
        rows = [
            {
                "sink": sink.name,
                "tables": ", ".join(sink.table_names),
                "query": sink.query_name or sink.query_id,
                "version": sink.version,
                "number": sink.number,
                "pending buckets": sink.pending,
                "problem": sink.problem or "",
            }
            for sink in database.sinks(every=all_sinks)
        ]
    print_rows(rows, output, COLUMNS)


@app.command("drop", help=DROP_HELP)
def drop_sink(
    context: typer.Context,
    name: Name,
    force: Annotated[bool, typer.Option("--force", help="Continue without rows that are lost.")] = False,
) -> None:
    """Forget a sink."""
    with connected(context) as database:
        _tell(database.drop_sink(name, force=force))
    note(f"sink {name!r} is forgotten")


@app.command("skip", help=SKIP_HELP)
def skip_lost(context: typer.Context, name: Name) -> None:
    """Go on without what is lost."""
    with connected(context) as database:
        _tell(database.skip_lost(name))
    note(f"the last version of sink {name!r} is published")


def _tell(skipped: Sequence[SkippedStage]) -> None:
    for one in skipped:
        where = f"table {one.table_id}" + (f", partition {one.partition_id}" if one.partition_id else "")
        note(f"LEFT OUT: the rows of stage {one.stage} in {where}, bucket {one.bucket}: {one.reason}")
