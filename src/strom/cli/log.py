"""``strom log``: look inside the files of a log, without a server; give up rows that nobody can read, with one."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from strom.cli.terminal.connection import connected
from strom.cli.terminal.group import group
from strom.cli.terminal.output import OutputForm, note, print_rows

if TYPE_CHECKING:
    from strom.client.read.damage import DamagedRange

app = group(
    "Look inside log files; give up what nobody can read.",
    "strom log show strom-data/buckets/1/-/0/00000000000000000000.log",
    "strom log damage list events",
)
damage = group(
    "Offsets that nobody can read: give them up, so that readers and tiering continue after them.",
    "strom log damage list events",
    "strom log damage mark events --bucket 0 --from 100 --to 200",
)
app.add_typer(damage, name="damage")

Table = Annotated[str, typer.Argument(help="The table.")]
Bucket = Annotated[int, typer.Option(min=0, help="The bucket.")]
Start = Annotated[int, typer.Option("--from", min=0, help="The first offset.")]
End = Annotated[int, typer.Option("--to", min=1, help="The offset after the last one.")]
Partition = Annotated[str | None, typer.Option(help="The partition, by name or id.")]
Output = Annotated[OutputForm, typer.Option("-o", "--output", help="How to print.")]

MARK_HELP = """Give up rows that nobody can read: readers and tiering continue after them.

A read of damaged rows fails and says which offsets to give here. From then on every read skips their batches and logs
it; `strom doctor` and `strom log damage list` show them. The bytes stay where they are: unmark undoes it.

\b
Example:
  strom log damage mark events --bucket 0 --from 4000 --to 4100
"""

UNMARK_HELP = """Remove the marks that touch these offsets, for example after the files were restored from a backup.

\b
Example:
  strom log damage unmark events --bucket 0 --from 4000 --to 4100
"""

LIST_HELP = """List the offsets of a table that were given up.

\b
Example:
  strom log damage list events
"""

SHOW_HELP = """Show the batches of a segment file (NAME.log) and check every byte of it.

Works on a stopped server's folder, or on sealed segments of a running one. The exit code is 1 if something is wrong.

\b
Examples:
  strom log show strom-data/buckets/1/-/0/00000000000000000000.log
  strom log show 00000000000000000000.log -o json | head
"""


@app.command("show", help=SHOW_HELP)
def show(
    segment: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="The .log file.")],
    limit: Annotated[int | None, typer.Option(min=1, help="Show only the first N batches.")] = None,
    output: Annotated[OutputForm, typer.Option("-o", "--output", help="How to print.")] = OutputForm.table,
) -> None:
    """Show and check a segment."""
    import itertools

    from strom.log.opening.inspect import inspect_segment
    from strom.runtime.files import LocalFiles

    facts = [batch.facts() for batch in itertools.islice(inspect_segment(LocalFiles(), str(segment)), limit)]
    columns = list(facts[0]) if facts else ["position"]
    print_rows(facts, output, columns)
    bad = [fact for fact in facts if fact.get("problem")]
    if bad:
        note(f"{len(bad)} of {len(facts)} batches have a problem; the first at position {bad[0]['position']}")
        raise typer.Exit(1)


@damage.command("mark", help=MARK_HELP)
def mark(
    context: typer.Context,
    table: Table,
    bucket: Bucket,
    start: Start,
    end: End,
    partition: Partition = None,
    output: Output = OutputForm.table,
) -> None:
    """Give up offsets."""
    with connected(context) as database:
        marks = database.table(table).mark_damaged(bucket, start, end, partition=partition)
    note("marked as damaged; this bucket now leaves out:")
    _print_marks(marks, output)


@damage.command("unmark", help=UNMARK_HELP)
def unmark(
    context: typer.Context,
    table: Table,
    bucket: Bucket,
    start: Start,
    end: End,
    partition: Partition = None,
    output: Output = OutputForm.table,
) -> None:
    """Take marks back."""
    with connected(context) as database:
        marks = database.table(table).unmark_damaged(bucket, start, end, partition=partition)
    note("no longer marked; this bucket still leaves out:")
    _print_marks(marks, output)


@damage.command("list", help=LIST_HELP)
def list_marks(context: typer.Context, table: Table, output: Output = OutputForm.table) -> None:
    """List what was given up."""
    with connected(context) as database:
        marks = database.table(table).damage()
    _print_marks(marks, output)


def _print_marks(marks: Sequence[DamagedRange], output: OutputForm) -> None:
    rows = [
        {
            "partition": mark.partition or "",
            "bucket": mark.bucket,
            "from": mark.start,
            "to": mark.end,
            "rows": mark.rows,
            "marked": datetime.fromtimestamp(mark.marked_ms / 1000, UTC).isoformat(timespec="seconds"),
        }
        for mark in marks
    ]
    print_rows(rows, output, ("partition", "bucket", "from", "to", "rows", "marked"))
