"""``strom``: the words on the command line, and what an error looks like to a person."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from strom._version import __version__
from strom.cli import (
    append,
    backup,
    cluster,
    database,
    demo,
    doctor,
    index,
    keys,
    lake,
    log,
    migrate,
    partition,
    remote,
    roles,
    scan,
    sink,
    spark,
    sql,
    table,
    tier,
    up,
    zookeeper,
)
from strom.cli.terminal.connection import Connection
from strom.cli.terminal.contents import Contents
from strom.cli.terminal.wording import in_words
from strom.errors import StromError

app = typer.Typer(
    name="strom",
    cls=Contents,
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Streaming storage for real-time analytics: tables that are columnar logs or have a key.",
    epilog="strom COMMAND --help shows its options, with examples. The guides are in docs/.",
)

app.command("up", help=up.HELP)(up.up)
app.command("zookeeper", help=zookeeper.HELP)(zookeeper.zookeeper)
app.command("migrate-metadata", help=migrate.HELP)(migrate.migrate_metadata)
app.command("coordinator", help=roles.COORDINATOR_HELP)(roles.coordinator)
app.command("tablet", help=roles.TABLET_HELP)(roles.tablet)
app.command("demo", help=demo.HELP)(demo.demo)
app.command("append", help=append.HELP)(append.append)
app.command("scan", help=scan.SCAN_HELP)(scan.scan)
app.command("tail", help=scan.TAIL_HELP)(scan.tail)
app.command("count", help=scan.COUNT_HELP)(scan.count)
app.command("sql", help=sql.HELP)(sql.sql)
app.command("lookup", help=keys.LOOKUP_HELP)(keys.lookup)
app.command("upsert", help=keys.UPSERT_HELP)(keys.upsert)
app.command("delete", help=keys.DELETE_HELP)(keys.delete)
app.command("changelog", help=keys.CHANGELOG_HELP)(keys.changelog)
app.command("tier", help=tier.HELP)(tier.tier)
app.command("doctor", help=doctor.HELP)(doctor.doctor)
app.command("backup", help=backup.BACKUP_HELP)(backup.backup)
app.command("restore", help=backup.RESTORE_HELP)(backup.restore)
app.add_typer(table.app, name="table")
app.add_typer(database.app, name="database")
app.add_typer(partition.app, name="partition")
app.add_typer(index.app, name="index")
app.add_typer(log.app, name="log")
app.add_typer(spark.app, name="spark")
app.add_typer(sink.app, name="sink")
app.add_typer(lake.app, name="lake")
app.add_typer(remote.app, name="remote")
app.add_typer(cluster.app, name="cluster")


def _version(wanted: bool) -> None:
    if wanted:
        print(f"strom {__version__}")
        raise typer.Exit()


@app.callback()
def options(
    context: typer.Context,
    server: Annotated[
        str, typer.Option("--server", "-s", envvar="STROM_SERVER", help="Where the server listens.")
    ] = "localhost:9123",
    user: Annotated[
        str | None, typer.Option(envvar="STROM_USER", help="User name, for SASL listeners.")
    ] = None,
    password: Annotated[
        str | None,
        typer.Option(envvar="STROM_PASSWORD", help="Password; better in the environment than here."),
    ] = None,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Remember how to reach the server; nothing is opened until a command needs it."""
    context.obj = Connection(server=server, user=user, password=password)


def main() -> None:
    """Run one command; turn every expected failure into one line on standard error and an exit code."""
    try:
        app(standalone_mode=True)
    except StromError as error:
        print(f"strom: {in_words(str(error))}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
    except OSError as error:
        print(f"strom: {error}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
