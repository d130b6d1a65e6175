"""``strom tier``: the tiering service."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from strom.cli.terminal.connection import Connection
from strom.errors import InvalidSetting

HELP = """Copy tables into the lake, round by round, as PySpark jobs.

Tables with table.datalake.enabled=true are copied as often as their table.datalake.freshness says. Runs until it is
stopped; with --once, until everything that was there at the start is in the lake. Several may run at once: the
coordinator gives each table to one of them. `strom lake status` shows how far the lake is. For spark-submit see
docs/lake-tiering.md.

\b
Examples:
  strom tier
  strom tier --once --table shop.orders
  strom --server db1:9123 tier --master 'local[8]' --metrics-port 9464
  strom tier --bootstrap-servers db1:9123,db2:9123 \\
      --master spark://boss:7077 --conf spark.executor.memory=4g
"""

MB = 1024 * 1024


def tier(
    context: typer.Context,
    once: Annotated[
        bool, typer.Option("--once", help="Stop when everything that is there now is in the lake.")
    ] = False,
    table: Annotated[
        list[str] | None, typer.Option("--table", "-t", help="Only this table; repeatable.")
    ] = None,
    master: Annotated[
        str | None,
        typer.Option(
            help="Spark's master. By default all cores of this machine, or what spark-submit chose."
        ),
    ] = None,
    bootstrap_servers: Annotated[
        str | None, typer.Option("--bootstrap-servers", help="The same as --server, for spark-submit.")
    ] = None,
    conf: Annotated[
        list[str] | None, typer.Option("--conf", help="A Spark setting, key=value; repeatable.")
    ] = None,
    tables_at_once: Annotated[int, typer.Option(min=1, max=1000, help="Tables tiered side by side.")] = 4,
    round_size: Annotated[
        str, typer.Option(help="About how much a round copies at most; the rest follows in the next one.")
    ] = "4gb",
    metrics_port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Serve /metrics for Prometheus here.")
    ] = None,
    metrics_host: Annotated[str, typer.Option(help="The address of --metrics-port.")] = "127.0.0.1",
    metrics_file: Annotated[
        Path | None, typer.Option(help="Write the metrics to this file every few seconds.")
    ] = None,
) -> None:
    """Run the service."""
    from strom.lake.rounds.parts import Bounds
    from strom.lake.rounds.service import TieringOptions
    from strom.spark.connect.options import ConnectOptions
    from strom.spark.tiering.running import Where, run

    connection = context.find_object(Connection)
    assert connection is not None
    where = Where(
        server=ConnectOptions(bootstrap_servers or connection.server, connection.user, connection.password),
        master=master,
        spark=_settings(conf or []),
        metrics_file=metrics_file,
        metrics_port=metrics_port,
        metrics_host=metrics_host,
    )
    options = TieringOptions(
        tables=tuple(table or ()),
        once=once,
        tables_at_once=tables_at_once,
        bounds=Bounds(round_bytes=_size(round_size)),
    )
    if run(where, options):
        raise typer.Exit(1)


def _size(text: str) -> int:
    from strom.runtime.units import parse_size_bytes

    try:
        found = parse_size_bytes(text)
    except ValueError as error:
        raise InvalidSetting(f"--round-size is {text!r}: {error}", found=text) from None
    if found < MB:
        raise InvalidSetting(f"--round-size is at least 1mb, not {text!r}", found=text)
    return found


def _settings(pairs: list[str]) -> dict[str, str]:
    found = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.startswith("spark."):
            raise InvalidSetting(f"--conf is {pair!r}; write --conf spark.executor.memory=4g", found=pair)
        found[key] = value
    return found
