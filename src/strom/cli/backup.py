"""``strom backup`` and ``strom restore``: a data folder as it is at one instant, and the way back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from strom.cli.terminal.connection import connected
from strom.cli.terminal.output import note
from strom.runtime.units import counted

if TYPE_CHECKING:
    from strom.moving.backup import BackupFacts, Copied

BACKUP_HELP = """Copy everything that a server holds at one instant into a new folder DIR.

It has everything that was acknowledged before: tables, logs, keys, transactions, groups, and the lake inside the data
folder. The server keeps running; writes pause briefly. A lake outside of the folder (S3) is not copied, only the
cluster's record of it. Run this on the server's machine, where DIR will be, as a user who may read its data folder.
With --data, copy the data folder of a stopped server.

\b
Examples:
  strom backup /backups/monday
  strom backup /backups/monday --data /var/lib/strom
"""

RESTORE_HELP = """Turn a backup of `strom backup` into a data folder. Every byte is checked.

The new folder may be anywhere; the first start on it completes the lake inside it. It is a copy of the cluster that was
backed up, so it does not write to a lake outside of the folder until `strom lake take-over`.

\b
Example:
  strom restore /backups/monday --data /var/lib/strom2
  strom up --data /var/lib/strom2
"""


def backup(
    context: typer.Context,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new or empty folder.")],
    data: Annotated[
        Path | None,
        typer.Option("--data", help="The data folder of a stopped server."),
    ] = None,
) -> None:
    """Take a backup."""
    if data is None:
        with connected(context) as database:
            facts = database.backup(folder, progress=_show)
    else:
        from strom.moving.backup import copy_folder
        from strom.runtime.clock import SystemClock
        from strom.runtime.files import LocalFiles

        now_ms = SystemClock().now_ms()
        facts = copy_folder(LocalFiles(), str(data.absolute()), str(folder.absolute()), now_ms, _show)
    _tell("Backed up", facts, folder)


def restore(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The backup.")],
    data: Annotated[Path, typer.Option("--data", help="The data folder to create: new or empty.")],
) -> None:
    """Restore a backup."""
    from strom.moving.backup import restore as restored

    _tell("Restored", restored(str(folder.absolute()), str(data.absolute()), _show), data)


def _show(copied: Copied) -> None:
    """Progress, where somebody looks at it."""
    err = typer.get_text_stream("stderr")
    if err.isatty() and (copied.files == copied.files_total or not copied.files % 50):
        end = "\n" if copied.files == copied.files_total else ""
        err.write(
            f"\r{copied.files:,} of {copied.files_total:,} files, {copied.size >> 20:,} of "
            f"{copied.size_total >> 20:,} MB{end}"
        )
        err.flush()


def _tell(done: str, facts: BackupFacts, folder: Path) -> None:
    note(f"{done} {counted(len(facts.files), 'file')}, {facts.size / (1 << 20):,.1f} MB, in {folder}")
