"""``strom coordinator`` and ``strom tablet``: one server of a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from strom.cli.terminal.words import pairs

COORDINATOR_HELP = """Run a coordinator of a cluster: one is active, the others stand by and take over.

Its metadata is in ZooKeeper (metadata.store, zookeeper.addresses), and all servers of the cluster share a secret
(cluster.secret-file). Settings come from --config (TOML), then STROM_... in the environment, then --set.

\b
Examples:
  strom coordinator --config strom.toml
  strom coordinator --config strom.toml --set cluster.listener=10.0.0.1:9300
"""

TABLET_HELP = """Run a tablet server of a cluster: it keeps copies of buckets.

Every tablet server has a number of its own (server.id), which it keeps over restarts. SIGTERM and Ctrl-C stop it
without a failed request: other servers lead its buckets first.

\b
Examples:
  strom tablet --config strom.toml
  strom tablet --config strom.toml --set server.id=3 --set server.rack=north
"""

Config = Annotated[Path | None, typer.Option(exists=True, dir_okay=False, help="Settings in TOML.")]
Set = Annotated[list[str] | None, typer.Option("--set", help="name=value; repeatable.")]
ReadyFile = Annotated[
    Path | None, typer.Option(help="Write the addresses here (JSON) once ready; for scripts.")
]


def coordinator(config: Config = None, set_: Set = None, ready_file: ReadyFile = None) -> None:
    """Start, print the addresses, serve until stopped."""
    from strom.server.process import roles

    code = roles.run("coordinator", flags=pairs(set_ or []), config=config, ready_file=ready_file)
    raise typer.Exit(code)


def tablet(config: Config = None, set_: Set = None, ready_file: ReadyFile = None) -> None:
    """Start, print the addresses, serve until stopped."""
    from strom.server.process import roles

    raise typer.Exit(roles.run("tablet", flags=pairs(set_ or []), config=config, ready_file=ready_file))
