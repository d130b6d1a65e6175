"""``strom zookeeper``: a ZooKeeper for small installations and for trying out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

HELP = """Run a ZooKeeper on this machine, for the metadata of a small cluster.

It is the real one, from PySpark's jars, and needs Java. One server is for trying out: the cluster stops with it.
Three on three machines survive the loss of one. It listens on this machine alone unless --host says otherwise, and
has no passwords of its own: keep it inside your network.

\b
Examples:
  strom zookeeper
  strom zookeeper --data /var/lib/zookeeper --port 2181
  strom zookeeper --data /var/lib/zookeeper --host 10.0.0.1 --id 1 \\
      --peers 1=10.0.0.1:2888:3888,2=10.0.0.2:2888:3888,3=10.0.0.3:2888:3888
"""


def zookeeper(
    data: Annotated[Path, typer.Option(help="Its folder.")] = Path("zookeeper-data"),
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port for the servers of Strom.")] = 2181,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    id_: Annotated[
        int | None, typer.Option("--id", min=1, max=255, help="Which of several servers this is.")
    ] = None,
    peers: Annotated[
        str, typer.Option(help="All of several servers, this one too: ID=HOST:PORT:ELECTION_PORT,...")
    ] = "",
    tick: Annotated[
        int, typer.Option(min=50, max=60_000, help="Milliseconds; sessions last from 2 to 20 of them.")
    ] = 500,
    memory: Annotated[int, typer.Option(min=32, help="Megabytes for Java.")] = 256,
    ready_file: Annotated[
        Path | None, typer.Option(help="Write the address here (JSON) once it serves; for scripts.")
    ] = None,
) -> None:
    """Become ZooKeeper."""
    from strom.server.zookeeper import run as server

    raise typer.Exit(
        server.run(
            server.ZooKeeperRun(
                folder=data,
                host=host,
                port=port,
                own_id=id_,
                peers=peers,
                tick_ms=tick,
                memory_mb=memory,
                ready_file=ready_file,
            )
        )
    )
