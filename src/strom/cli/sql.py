"""``strom sql``: a query over tables, printed as any rows are."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from strom.cli.terminal.connection import connected
from strom.cli.terminal.output import OutputForm, write_batches
from strom.cli.terminal.words import moment, pairs
from strom.client.show.drawn_plan import EXPLAINED, DrawnPlan

if TYPE_CHECKING:
    from strom.sql.query import Query

HELP = """Run a query over tables with DuckDB. It reads the lake and the servers together, each row once.

Tables are `t` or `database.t`, and each has `t$lake`, `t$snapshots` and `t$offsets`. Columns and filters are pushed
down to the lake's files and the servers, so a query on the last seconds opens no file. Queries only read.
With `-` the query is read from standard input.

\b
Examples:
  strom sql "SELECT count(*), max(price) FROM events"
  strom sql "SELECT u.city, sum(e.price) FROM events e
      JOIN shop.users u USING (id) GROUP BY 1 ORDER BY 2 DESC"
  strom sql "SELECT * FROM events WHERE at > now() - INTERVAL 5 SECOND"
  strom sql 'SELECT * FROM "events$snapshots"'
  strom sql 'SELECT * FROM events WHERE name = $who' --param who="O'Hara"
  strom sql "SELECT count(*) FROM events" --at 2026-11-15T08:00:00Z
  strom sql - -o csv < report.sql > report.csv
"""

PROGRESS_AFTER_S = 1.0
PROGRESS_EVERY_S = 0.2


def sql(
    context: typer.Context,
    query: Annotated[str, typer.Argument(help="The query; - for standard input.")],
    output: Annotated[OutputForm, typer.Option("-o", "--output", help="How to print.")] = OutputForm.table,
    database: Annotated[
        str | None, typer.Option("--database", "-d", help="The database of tables without one.")
    ] = None,
    param: Annotated[
        list[str] | None, typer.Option(help="name=value for $name in the query, as text; repeatable.")
    ] = None,
    at: Annotated[
        str | None, typer.Option(help="As the tables were: a time, or the id of a lake snapshot.")
    ] = None,
    progress: Annotated[bool, typer.Option(help="Show how far a long query is, on a terminal.")] = True,
) -> None:
    """Print the rows of a query."""
    text = sys.stdin.read() if query == "-" else query
    values, instant = pairs(param) if param else None, moment(at)
    with connected(context, database) as found, found.sql(text, values, at=instant) as result:
        with _shown(result.query, progress and sys.stderr.isatty()):
            reader = result.query.reader()
        batches = result.query.rest_of(reader)
        if output is OutputForm.table and reader.schema.names == EXPLAINED:
            print(DrawnPlan(batches).text())
        else:
            write_batches(batches, reader.schema, output)


@contextmanager
def _shown(query: Query, wanted: bool) -> Iterator[None]:
    """Show how far the query is while the block waits for it, once that takes long."""
    if not wanted:
        yield
        return
    done = threading.Event()
    watcher = threading.Thread(target=_watch, args=(query, done), name="strom-progress", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()


def _watch(query: Query, done: threading.Event) -> None:
    if done.wait(PROGRESS_AFTER_S):
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    columns = (TextColumn("query"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("query", total=None)
        while not done.wait(PROGRESS_EVERY_S):
            percent = query.progress()
            if percent is not None:
                bar.update(task, total=100, completed=percent)
