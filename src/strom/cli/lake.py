"""``strom lake``: what is in the lake, and how far it is behind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from strom.cli.connection import connected
from strom.cli.output import Form, note, print_rows

if TYPE_CHECKING:
    from strom.client.lake_status import LakeStatus

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="The lake: tables that are copied into it, how far it is behind.",
)

Output = Annotated[Form, typer.Option("-o", "--output", help="How to print.")]

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
STATUS_COLUMNS = (
    "table",
    "state",
    "lag rows",
    "lag s",
    "freshness s",
    "rows",
    "files",
    "bytes",
    "snapshot",
    "last round",
    "service",
    "progress",
    "problem",
)
BUCKET_COLUMNS = ("partition", "bucket", "in the lake up to", "written up to", "lag rows", "problem")

LIST_HELP = """List the tables that are in the lake, or are to be.

\b
Example:
  strom lake list -o json
"""

STATUS_HELP = """How far the lake is behind: rows and seconds, the last round, what runs now.

A table is in the lake when table.datalake.enabled is true and a tiering service runs (`strom tier`). Everything that
was written longer ago than the lag in seconds is in the lake.

\b
Examples:
  strom lake status
  strom lake status clicks --buckets
"""


@app.command("list", help=LIST_HELP)
def list_tables(context: typer.Context, output: Output = Form.table) -> None:
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
    table: Annotated[str | None, typer.Argument(help="One table; all, when it is left out.")] = None,
    buckets: Annotated[bool, typer.Option("--buckets", help="Every bucket of the table.")] = False,
    output: Output = Form.table,
) -> None:
    """How far the lake is behind."""
    with connected(context) as database:
        names = [str(one.path) for one in database.lake_tables()] if table is None else [table]
        found = [database.lake(name) for name in names]
    if not found:
        note("no table is in the lake; set table.datalake.enabled = true on one, and run `strom tier`")
    if buckets:
        print_rows([row for one in found for row in _bucket_rows(one)], output, BUCKET_COLUMNS)
    else:
        print_rows([_status_row(one) for one in found], output, STATUS_COLUMNS)


def _status_row(one: LakeStatus) -> dict[str, Any]:
    facts = one.facts
    running = facts.running
    progress = "" if running is None else f"{running.rows_done:,} of {running.rows_planned:,} rows"
    ahead = any(bucket.ahead for bucket in one.buckets)
    return {
        "table": str(facts.path),
        "state": one.state,
        "lag rows": one.lag_rows,
        "lag s": None if one.lag_ms is None else round(one.lag_ms / 1000, 1),
        "freshness s": facts.freshness_ms / 1000,
        "rows": facts.rows,
        "files": facts.files,
        "bytes": facts.size_bytes,
        "snapshot": facts.snapshot_id,
        "last round": _ago(facts.ended_ms or facts.committed_ms, facts.now_ms),
        "service": facts.service_id or "",
        "progress": progress,
        "problem": facts.reason or facts.error or ("the lake is ahead of a bucket" if ahead else ""),
    }


def _bucket_rows(one: LakeStatus) -> list[dict[str, Any]]:
    return [
        {
            "partition": bucket.partition or "",
            "bucket": bucket.bucket,
            "in the lake up to": bucket.lake_offset,
            "written up to": bucket.high_watermark,
            "lag rows": bucket.lag_rows,
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
