"""``strom up``: every role on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from strom.cli.terminal.words import pairs

HELP = """Run Strom on this machine: coordinator and tablet servers, metadata embedded.

Settings come from --config (TOML), then STROM_... in the environment, then the flags here. Stop with Ctrl-C;
start again on the same folder to continue.

With --servers it is a whole cluster for trying out: a ZooKeeper (it needs Java), coordinators and this many tablet
servers, each a process of its own that you may kill. Clusters on several machines: strom coordinator, strom tablet.

\b
Examples:
  strom up
  strom up --data /var/lib/strom --tablets 4
  strom up --port 9123 --set durability=os --set log.segment.file-size=256mb
  strom up --config strom.toml
  strom up --servers 3 --data ./cluster
"""


def up(
    data: Annotated[str | None, typer.Option(help="The data folder.", show_default="./strom-data")] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port (0 = any).", show_default="9123")
    ] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on.", show_default="127.0.0.1")] = None,
    tablets: Annotated[
        int | None, typer.Option(min=1, max=64, help="Tablet server processes.", show_default="1")
    ] = None,
    servers: Annotated[
        int | None, typer.Option(min=1, max=64, help="Tablet servers of a cluster on this machine.")
    ] = None,
    replicas: Annotated[
        int | None,
        typer.Option(min=1, max=64, help="Copies of every bucket in that cluster.", show_default="up to 3"),
    ] = None,
    http_port: Annotated[
        int | None,
        typer.Option(min=-1, max=65535, help="Metrics and status page (-1 = off).", show_default="9249"),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="Settings in TOML.")
    ] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="name=value; repeatable.")] = None,
    ready_file: Annotated[
        Path | None, typer.Option(help="Write the addresses here (JSON) once ready; for scripts.")
    ] = None,
) -> None:
    """Start, print the addresses, serve until stopped."""
    from strom.server.process import up as server

    flags = pairs(set_ or [])
    if data is not None:
        flags["data.dir"] = data
    if tablets is not None:
        flags["tablet-server.count"] = str(tablets)
    if http_port is not None:
        flags["http.port"] = str(http_port)
    code = server.run(
        flags=flags,
        config=config,
        host=host,
        port=port,
        ready_file=ready_file,
        servers=servers,
        replicas=replicas,
    )
    raise typer.Exit(code)
