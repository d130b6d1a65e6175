"""``strom up``: run a server in the foreground until it is stopped.

Also ``python -m strom.server.process.up --data DIR --port 0 …``, which needs none of the command line's libraries.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from strom.errors import InvalidSetting, StromError
from strom.runtime.settings import load
from strom.runtime.world import World
from strom.server.process import foreground
from strom.server.process.addresses import Addresses
from strom.server.process.foreground import Servable, show, write_ready
from strom.server.process.local_cluster import LocalCluster
from strom.server.process.log_lines import write_log
from strom.server.process.process_setup import prepare_process
from strom.server.process.serve import RunningServer


def run(
    *,
    flags: Mapping[str, object],
    config: Path | None = None,
    host: str | None = None,
    port: int | None = None,
    ready_file: Path | None = None,
    leash: bool = False,
    servers: int | None = None,
    replicas: int | None = None,
) -> int:
    """Serve in the foreground; returns the exit code. Raises what prevents the start.

    ``servers``: run a cluster with this many tablet servers on this machine.
    """
    prepare_process()
    settings = load(config, os.environ, flags)
    more: list[str] = []

    def make(world: World) -> Servable:
        if servers is None:
            return RunningServer(settings, world, host=host, port=port)
        cluster = LocalCluster(
            settings,
            world,
            servers=servers,
            replicas=replicas,
            flags=flags,
            config=config,
            host=host,
            port=port,
        )
        more.append(f"  cluster {cluster.describe()}")
        return cluster

    def ready(addresses: Addresses) -> None:
        show(addresses, more=more)
        if ready_file is not None:
            write_ready(ready_file, addresses)

    if servers is None and replicas is not None:
        raise InvalidSetting("--replicas is for a cluster: say --servers, too")
    several = settings["tablet-server.count"] > 1
    name = "up" if servers is not None else "coordinator" if several else None
    write_log(settings["logging.format"], name)
    cleanly = foreground.run(settings, make, ready=ready, leash=leash)
    return 0 if cleanly else 1


def main(argv: Sequence[str]) -> int:
    """The command line of ``python -m strom.server.process.up``."""
    parser = argparse.ArgumentParser(
        prog="python -m strom.server.process.up", description="Run a Strom server."
    )
    parser.add_argument("--data", help="the data folder")
    parser.add_argument("--port", type=int, help="port of the first listener (0 = any)")
    parser.add_argument("--host", help="address of the first listener")
    parser.add_argument("--http-port", type=int, help="port of metrics and status (-1 = off)")
    parser.add_argument("--tablets", type=int, help="tablet server processes")
    parser.add_argument("--servers", type=int, help="a cluster with this many tablet servers, for trying out")
    parser.add_argument("--replicas", type=int, help="copies of every bucket in the cluster")
    parser.add_argument("--config", type=Path, help="settings in TOML")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="a setting; repeat it"
    )
    parser.add_argument("--ready-file", type=Path, help="write the addresses here once ready")
    parser.add_argument("--leash", action="store_true", help="stop when standard input ends")
    given = parser.parse_args(argv)
    flags: dict[str, object] = dict(pair.partition("=")[::2] for pair in given.set)
    named = {"data.dir": given.data, "http.port": given.http_port, "tablet-server.count": given.tablets}
    flags |= {name: value for name, value in named.items() if value is not None}
    try:
        return run(
            flags=flags,
            config=given.config,
            host=given.host,
            port=given.port,
            ready_file=given.ready_file,
            leash=given.leash,
            servers=given.servers,
            replicas=given.replicas,
        )
    except StromError as error:
        print(f"error: {error.message}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
