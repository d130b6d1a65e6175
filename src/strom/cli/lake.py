"""``strom lake``: what is in the lake, how far it is behind, and what to do when something is wrong with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from strom.cli.terminal.connection import connected
from strom.cli.terminal.group import group
from strom.cli.terminal.output import OutputForm, note, print_rows, print_table
from strom.client.show.row_text import cell
from strom.runtime.units import counted

if TYPE_CHECKING:
    from strom.api import Database
    from strom.client.admin.lake_status import LakeStatus
    from strom.lake.upkeep.lake_admin import LakeDrop, LakeRebuild

app = group(
    "The lake: tables that are copied into it, how far it is behind, and repairs.",
    "strom lake status",
    "strom lake status clicks --buckets",
    "strom lake rebuild --dry-run",
)

DryRun = Annotated[bool, typer.Option("--dry-run", help="Only print what would be done.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Output = Annotated[OutputForm, typer.Option("-o", "--output", help="How to print.")]

LIST_COLUMNS = (
    "table",
    "state",
    "snapshot",
    "rows",
    "files",
    "bytes",
    "freshness s",
    "last round",
    "problem",
)
SHORT_STATUS = ("table", "state", "lag rows", "lag s", "rows", "last round")
"""What fits a terminal of 80 columns; the rest is shown of one table, and by -o."""
STATUS_COLUMNS = (
    "table",
    "state",
    "lag rows",
    "lag s",
    "freshness s",
    "rows",
    "files",
    "delete files",
    "bytes",
    "snapshot",
    "last round",
    "last compaction",
    "service",
    "progress",
    "problem",
)
BUCKET_COLUMNS = ("partition", "bucket", "in the lake up to", "written up to", "lag rows", "problem")

REBUILD_COLUMNS = ("table", "result", "snapshot", "rows", "files", "buckets", "changes")

REBUILD_HELP = """Restore the cluster's record of the lake from the lake itself.

The servers remember how far each table's lake is. If that is lost (a data folder or metadata from an older backup), or
a table is quarantined and its lake was repaired, this reads it from the Iceberg tables and stores it. A record that
agrees with the lake stays as it is. A lake table that belongs to another table id is refused.

With --roll-back, a table that somebody else committed to gets Strom's newest snapshot as its head again. If none is
left, its buckets are repaired one by one, and what is lost is printed (with --dry-run: beforehand). Commits on top
leave the table; they can be read as snapshots until these expire.

\b
Examples:
  strom lake rebuild --dry-run
  strom lake rebuild shop.orders
  strom lake rebuild shop.orders --roll-back
"""

DROP_HELP = """Remove a dropped table from the lake for good: its Iceberg table and its files.

The lake of a dropped table stays, so that others can still read its rows. All dropped tables that had the name are
removed together; a table that exists and is copied into the lake is not touched.

The lake of an existing table is removed too if table.datalake.enabled is false. Rows that only the lake has are lost
with it. If it is set to true again, tiering starts over from what the servers hold.

\b
Examples:
  strom lake drop orders --dry-run
  strom lake drop orders --yes
"""

COMPACT_HELP = """Merge the small files of a table's lake, drop their dead rows, and apply deletes.

Rounds do this by themselves, a little at a time (table.datalake.auto-compaction). This command does all of it at once:
every file below half of table.datalake.compaction.file-size, and every file with a dead row. Readers and rounds
continue meanwhile.

\b
Example:
  strom lake compact shop.orders
"""

EXPIRE_HELP = """Expire old snapshots of a table's lake, and remove files that no snapshot uses.

Rounds do this by themselves (table.datalake.auto-expire-snapshot). The table's properties say what stays:
table.datalake.snapshots.keep, .snapshots.keep-time, and for files table.datalake.removal-delay.

\b
Example:
  strom lake expire shop.orders
"""

TAKE_OVER_HELP = """Make this cluster the owner of the lake's warehouse, if the previous owner is gone for good.

A warehouse has one owner. A data folder that was copied, or restored from a backup, must not write to a lake outside of
it while the original may be alive. This command makes it the owner; from then on the original is refused. A lake inside
the data folder is copied with it and needs none of this.

\b
Example:
  strom lake take-over
"""

LIST_HELP = """List the tables that are in the lake, or soon will be.

\b
Example:
  strom lake list -o json
"""

STATUS_HELP = """How far the lake is behind: rows and seconds, the last round, what runs now.

A table is copied into the lake while table.datalake.enabled is true and a tiering service runs (`strom tier`). Rows
that are older than the lag in seconds are in the lake.

\b
Examples:
  strom lake status
  strom lake status clicks --buckets
"""


@app.command("list", help=LIST_HELP)
def list_tables(context: typer.Context, output: Output = OutputForm.table) -> None:
    """List the tables of the lake."""
    with connected(context) as database:
        found = database.lake_tables()
    rows = [
        {
            "table": str(one.path),
            "state": one.state,
            "snapshot": one.snapshot_id,
            "rows": one.rows,
            "files": one.files,
            "bytes": one.size_bytes,
            "freshness s": one.freshness_ms / 1000,
            "last round": _ago(one.ended_ms or one.committed_ms, one.now_ms),
            "problem": one.reason or one.error or "",
        }
        for one in found
    ]
    print_rows(rows, output, LIST_COLUMNS)


@app.command("status", help=STATUS_HELP)
def status(
    context: typer.Context,
    table: Annotated[str | None, typer.Argument(help="One table; all by default.")] = None,
    buckets: Annotated[bool, typer.Option("--buckets", help="Every bucket of the table.")] = False,
    output: Output = OutputForm.table,
) -> None:
    """How far the lake is behind."""
    with connected(context) as database:
        names = [str(one.path) for one in database.lake_tables()] if table is None else [table]
        found = [database.lake(name) for name in names]
    if not found:
        note("no table is in the lake: set table.datalake.enabled=true, then run `strom tier`")
    if buckets:
        print_rows([row for one in found for row in _bucket_rows(one)], output, BUCKET_COLUMNS)
    elif output is OutputForm.table:
        _status_for_eyes([_status_row(one) for one in found], whole=table is not None)
    else:
        print_rows([_status_row(one) for one in found], output, STATUS_COLUMNS)


def _status_for_eyes(rows: list[dict[str, Any]], *, whole: bool) -> None:
    """Within 80 columns: one line per table, with problems below; everything for a single table."""
    if whole:
        for row in rows:
            print_table(["fact", str(row["table"])], [[name, cell(row[name])] for name in STATUS_COLUMNS[1:]])
        return
    print_rows(rows, OutputForm.table, SHORT_STATUS)
    for row in rows:
        for name in ("progress", "problem"):
            if row[name]:
                print(f"{row['table']}: {name}: {row[name]}")


@app.command("compact", help=COMPACT_HELP)
def compact(context: typer.Context, table: Annotated[str, typer.Argument(help="The table's name.")]) -> None:
    """Merge files."""
    with connected(context) as database:
        done = database.lake_compact(table)
    note(
        f"{counted(done.files_before, 'file')} became {done.files_after}, "
        f"{counted(done.rows_removed, 'dead row')} dropped, "
        f"{counted(done.deletes_removed, 'delete file')} removed"
    )


@app.command("expire", help=EXPIRE_HELP)
def expire(context: typer.Context, table: Annotated[str, typer.Argument(help="The table's name.")]) -> None:
    """Forget snapshots."""
    with connected(context) as database:
        done = database.lake_expire(table)
    note(
        f"{counted(done.snapshots_expired, 'snapshot')} forgotten, {counted(done.files_removed, 'file')} removed"
    )


@app.command("rebuild", help=REBUILD_HELP)
def rebuild(
    context: typer.Context,
    tables: Annotated[list[str] | None, typer.Argument(help="Tables; all by default.")] = None,
    dry_run: DryRun = False,
    roll_back: Annotated[
        bool, typer.Option("--roll-back", help="Undo commits of others; name the tables.")
    ] = False,
    yes: Yes = False,
    output: Output = OutputForm.table,
) -> None:
    """Bring records back."""
    if roll_back and not tables:
        raise typer.BadParameter("--roll-back undoes commits: name the tables")
    if roll_back and not dry_run and not yes:
        typer.confirm(f"Undo what others committed to the lake of {', '.join(tables or ())}?", abort=True)
    with connected(context) as database:
        names = tables or [str(one.path) for one in database.lake_tables()]
        rows = [_rebuilt(database, name, dry_run=dry_run, roll_back=roll_back) for name in names]
    print_rows(rows, output, REBUILD_COLUMNS)
    if any(row["result"] == "failed" for row in rows):
        raise typer.Exit(1)


def _rebuilt(database: Database, name: str, *, dry_run: bool, roll_back: bool) -> dict[str, Any]:
    """One table's row; what is wrong with it does not keep the others from theirs."""
    from strom.errors import LakeSnapshotNotFound, StromError

    try:
        return _rebuild_row(database.lake_rebuild(name, dry_run=dry_run, roll_back=roll_back))
    except LakeSnapshotNotFound as nothing:
        return {"table": name, "result": "nothing in the lake", "changes": nothing.message}
    except StromError as error:
        note(f"{name}: {error.message}")
        return {"table": name, "result": "failed", "changes": error.message}


def _rebuild_row(one: LakeRebuild) -> dict[str, Any]:
    result = "as it was" if not one.changed else "would change" if one.dry_run else "rebuilt"
    taken_back = [] if one.rolled_back is None else [f"snapshot {one.rolled_back} by somebody else undone"]
    return {
        "table": str(one.path),
        "result": result,
        "snapshot": one.snapshot_id,
        "rows": one.rows,
        "files": one.files,
        "buckets": one.buckets,
        "changes": "; ".join([*taken_back, *one.told, *one.changes]),
    }


@app.command("drop", help=DROP_HELP)
def drop(
    context: typer.Context,
    table: Annotated[str, typer.Argument(help="The table's name.")],
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Remove what is left in the lake."""
    with connected(context) as database:
        found = database.lake_drop(table, dry_run=True)
        for line in _remnants(found):
            note(line)
        if dry_run:
            return
        if not yes:
            typer.confirm("Remove it for good?", abort=True)
        database.lake_drop(table)
    note(f"removed from the lake: {len(found.removed)} of {table}")


def _remnants(found: LakeDrop) -> list[str]:
    lines = [
        f"{', '.join(one.names) or 'files'} of table id {one.table_id}: "
        + ("rows unknown" if one.rows is None else counted(one.rows, "row"))
        + f" in {one.location}"
        for one in found.removed
    ]
    lines += [f"not removed, because nothing marks it as this cluster's: {one}" for one in found.others]
    if found.own:
        lines.append(f"table {found.path} exists: rows that only the lake has are lost with this")
    return lines


def _status_row(one: LakeStatus) -> dict[str, Any]:
    from strom.errors import LagUnknown

    facts = one.facts
    running = facts.running
    progress = "" if running is None else f"{running.rows_done:,} of {running.rows_planned:,} rows"
    ahead = any(bucket.ahead for bucket in one.buckets)
    told = {} if facts.record is None else facts.record.facts
    unknown = None
    try:
        lag_rows, lag_ms = one.lag_rows, one.lag_ms
    except LagUnknown as error:
        lag_rows, lag_ms, unknown = None, None, error.message
    return {
        "table": str(facts.path),
        "state": one.state,
        "lag rows": lag_rows,
        "lag s": None if lag_ms is None else round(lag_ms / 1000, 1),
        "freshness s": facts.freshness_ms / 1000,
        "rows": facts.rows,
        "files": facts.files,
        "delete files": told.get("delete_files"),
        "bytes": facts.size_bytes,
        "snapshot": facts.snapshot_id,
        "last round": _ago(facts.ended_ms or facts.committed_ms, facts.now_ms),
        "last compaction": _ago(told.get("upkeep_ms"), facts.now_ms),
        "service": facts.service_id or "",
        "progress": progress,
        "problem": facts.reason
        or facts.error
        or unknown
        or ("the lake is ahead of a bucket" if ahead else ""),
    }


def _bucket_rows(one: LakeStatus) -> list[dict[str, Any]]:
    return [
        {
            "partition": bucket.partition or "",
            "bucket": bucket.bucket,
            "in the lake up to": bucket.lake_offset,
            "written up to": bucket.high_watermark,
            "lag rows": bucket.lag_rows if bucket.error is None else None,
            "problem": bucket.error or ("the lake is ahead" if bucket.ahead else ""),
        }
        for bucket in one.buckets
    ]


def _ago(then_ms: int | None, now_ms: int) -> str:
    """When something was, seen from now."""
    if not then_ms:
        return "never"
    seconds = max(0, now_ms - then_ms) / 1000
    if seconds < 120:
        return f"{seconds:.0f} s ago"
    return f"{seconds / 60:.0f} min ago" if seconds < 7200 else f"{seconds / 3600:.0f} h ago"


@app.command("take-over", help=TAKE_OVER_HELP)
def take_over(context: typer.Context, yes: Yes = False) -> None:
    """Become the owner of the warehouse."""
    with connected(context) as database:
        if not yes:
            typer.confirm("Is the server that wrote to this lake before gone for good?", abort=True)
        before = database.lake_take_over()
    note(
        "The lake had no owner; it is this cluster's now."
        if before is None
        else f"The lake was {before}'s; it is this cluster's now."
    )
