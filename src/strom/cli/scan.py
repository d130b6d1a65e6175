"""``strom scan`` and ``strom tail``: rows of a table, all that are there or as they come."""

from __future__ import annotations

import datetime
import enum
import itertools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from strom.cli.terminal.changes import data_of
from strom.cli.terminal.connection import connected
from strom.cli.terminal.output import OutputForm, write_batches
from strom.cli.terminal.words import SkipMissing, instant, names, pairs, place

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    from strom.api import Scan, Table
    from strom.client.plan.log_place import Key, PlaceLike
    from strom.client.read.beginning import Missing

SCAN_HELP = """Print the rows of a table.

The server sends only the columns, partitions and batches that you ask for.

\b
Examples:
  strom scan events --limit 10
  strom scan events --columns id,price --where "user = 'ann'" -o csv
  strom scan events --start 2026-11-15T08:00:00Z -o arrow > rows.arrows
  strom scan clicks --partition day=2026-11-15 --where "price > 100"
  strom scan users --at 2026-11-15T08:00:00Z --where "city = 'Berlin'"
"""

TAIL_HELP = """Print the newest rows, and with -f every row that arrives from now on.

Of a primary-key table these are its changes, as `strom changelog` prints them.

\b
Examples:
  strom tail events
  strom tail -f events --where "level = 'ERROR'" -o json
  strom tail -f events --start earliest
"""

COUNT_HELP = """Print how many rows a table has; with --where, how many pass. Without a filter no row is read.

\b
Examples:
  strom count events
  strom count events --where "price > 100" --partition day=2026-11-15
  strom count users --at 2026-11-15T08:00:00Z
"""

STEP_GROWTH = 8
"""How much further back ``tail --where`` looks each time it has not found enough rows."""

Output = Annotated[OutputForm, typer.Option("-o", "--output", help="How to print.")]
Columns = Annotated[
    str | None, typer.Option("--columns", "-c", help="Columns, separated by commas; all by default.")
]
Where = Annotated[str | None, typer.Option("--where", "-w", help="Only rows for which this is true.")]


class Tier(enum.StrEnum):
    """What ``--tier`` takes."""

    hot = "hot"
    lake = "lake"


def scan(
    context: typer.Context,
    table: Annotated[str, typer.Argument(help="The table.")],
    columns: Columns = None,
    where: Where = None,
    start: Annotated[str | None, typer.Option(help="From here: earliest, an offset, a time.")] = None,
    end: Annotated[str | None, typer.Option(help="Up to here: latest, an offset, a time.")] = None,
    at: Annotated[
        str | None, typer.Option(help="The table as it was then: an offset, a time, a lake snapshot's id.")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=0, help="Print at most N rows.")] = None,
    partition: Annotated[list[str] | None, typer.Option(help="key=value; only these partitions.")] = None,
    tier: Annotated[Tier | None, typer.Option(help="Read only the servers, or only the lake.")] = None,
    output: Output = OutputForm.table,
) -> None:
    """Print a table."""
    wanted, first, last, then = names(columns), place(start), place(end), instant(at)
    chosen = pairs(partition) if partition else None
    with connected(context) as database:
        if "$" in table:
            if first is not None or last is not None:
                raise typer.BadParameter(f"{table} has no log: use --at instead of --start and --end")
            found = database.system_table(table).scan(wanted, where, limit, chosen, then)
        else:
            found = database.table(table).scan(
                columns=wanted,
                where=where,
                start=first,
                end=last,
                limit=limit,
                partitions=chosen,
                at=then,
                tier=None if tier is None else tier.value,
            )
        write_batches(found.to_batches(), found.schema, output)


def count(
    context: typer.Context,
    table: Annotated[str, typer.Argument(help="The table.")],
    where: Where = None,
    at: Annotated[str | None, typer.Option(help="As it was: a time, or the id of a lake snapshot.")] = None,
    partition: Annotated[list[str] | None, typer.Option(help="key=value; only these partitions.")] = None,
) -> None:
    """Print how many rows there are."""
    then, chosen = instant(at), pairs(partition) if partition else None
    with connected(context) as database:
        print(database.table(table).scan(where=where, partitions=chosen, at=then).count())


def tail(
    context: typer.Context,
    table: Annotated[str, typer.Argument(help="The table.")],
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Keep printing what arrives.")] = False,
    rows: Annotated[
        int, typer.Option("-n", "--rows", min=0, help="How many of the newest rows to print first.")
    ] = 10,
    start: Annotated[
        str | None, typer.Option(help="Start here instead: earliest, an offset, a time.")
    ] = None,
    columns: Columns = None,
    where: Where = None,
    skip_missing: SkipMissing = False,
    output: Output = OutputForm.json,
) -> None:
    """Print the newest rows, then what arrives."""
    wanted = names(columns)
    begin: PlaceLike = place(start)
    with connected(context) as database:
        target = database.table(table)
        schema = _log(target)(columns=wanted).schema
        missing: Missing = "skip" if skip_missing else "error"
        first: Iterator[pa.RecordBatch] = iter(())
        if start is None:
            begin, first = _newest(target, rows, wanted, where, schema)
        batches = first
        if follow:
            tail = target.tail(start=begin, columns=wanted, where=where, missing=missing)
            live = (data_of(batch, schema) for batch in tail)
            batches = itertools.chain(first, live)
        elif start is not None:
            said = {"missing": missing} if target.primary_key else {}
            batches = iter(_log(target)(columns=wanted, where=where, start=begin, **said).to_batches())
        write_batches(batches, schema, output)


def _log(table: Table) -> Callable[..., Scan]:
    """How the log of a table is read: a primary-key table's is its changelog."""
    return table.changelog if table.primary_key else table.scan


def _newest(
    table: Table, rows: int, columns: list[str] | None, where: str | None, schema: pa.Schema
) -> tuple[PlaceLike, Iterator[pa.RecordBatch]]:
    """The offsets where everything now ends, and the newest rows before them, of all buckets together, as ``schema``.

    Rows of one instant stay in the order of the log.
    """
    buckets = table.describe().buckets
    ends: dict[Key, int] = {(bucket.partition, bucket.bucket): bucket.high_watermark for bucket in buckets}
    firsts: dict[Key, int] = {(bucket.partition, bucket.bucket): bucket.start_offset for bucket in buckets}
    if not rows or not ends:
        return ends, iter(())

    def read(start: PlaceLike, end: dict[Key, int]) -> pa.Table:
        found = table.changelog(columns=columns, where=where, start=start, end=end).to_arrow()
        return found.take(_times(found).argsort(kind="stable")[-rows:])

    newest = _read_back(read, rows, firsts, ends)
    if where is not None and newest.num_rows == rows:
        # A bucket may have more matches than were read that are newer than the oldest of these: read on from its time.
        newest = read(_instant(_times(newest)[0]), ends)
    facts = newest.num_columns - len(schema)
    return ends, iter(newest.select(list(range(facts, newest.num_columns))).to_batches())


def _read_back(
    read: Callable[[PlaceLike, dict[Key, int]], pa.Table],
    rows: int,
    firsts: dict[Key, int],
    ends: dict[Key, int],
) -> pa.Table:
    """Read every bucket backwards, in growing steps, until ``rows`` rows are found or all buckets are read."""
    import pyarrow as pa

    parts: list[pa.Table] = []
    found, step, end = 0, rows, ends
    while True:
        start = {key: max(firsts[key], offset - step) for key, offset in end.items()}
        parts.insert(0, read(start, end))
        found += parts[0].num_rows
        if found >= rows or start == firsts:
            break
        end, step = start, step * STEP_GROWTH
    newest = pa.concat_tables(parts)
    return newest.take(_times(newest).argsort(kind="stable")[-rows:])


def _times(rows: pa.Table) -> npt.NDArray[np.int64]:
    """When each row was committed. A file that another engine wrote into the lake may not say: such rows are old."""
    from strom.client.read.changelog import COMMIT_TIMESTAMP

    found: npt.NDArray[np.int64] = rows.column(COMMIT_TIMESTAMP).cast("int64").fill_null(0).to_numpy()
    return found


def _instant(ms: int) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(int(ms) / 1000, datetime.UTC)
