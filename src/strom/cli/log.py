"""``strom log``: look inside the files of a log, without a server."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from strom.cli.output import Form, note, print_rows

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Look inside log files.")

SHOW_HELP = """Show the batches of a segment file (NAME.log) and check every byte of it.

Works on a stopped server's folder, or on a running one's sealed segments. The exit code is 1 when something
is wrong.

\b
Examples:
  strom log show strom-data/buckets/1/-/0/00000000000000000000.log
  strom log show 00000000000000000000.log -o json | head
"""


@app.command("show", help=SHOW_HELP)
def show(
    segment: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="The .log file.")],
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first batches.")] = None,
    output: Annotated[Form, typer.Option("-o", "--output", help="How to print.")] = Form.table,
) -> None:
    """Show and check a segment."""
    import itertools

    from strom.log.inspect import inspect_segment
    from strom.runtime.files import LocalFiles

    facts = [batch.facts() for batch in itertools.islice(inspect_segment(LocalFiles(), str(segment)), limit)]
    columns = list(facts[0]) if facts else ["position"]
    print_rows(facts, output, columns)
    bad = [fact for fact in facts if fact.get("problem")]
    if bad:
        note(f"{len(bad)} of {len(facts)} batches have a problem; the first at position {bad[0]['position']}")
        raise typer.Exit(1)


@app.callback()
def _group() -> None:
    """Keeps ``show`` a word of its own although it is the only one so far."""
