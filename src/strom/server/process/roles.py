"""``strom coordinator`` and ``strom tablet``: one server of a cluster, in the foreground.

Also ``python -m strom.server.process.roles coordinator --config strom.toml …``, which needs none of the command line's
libraries.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from strom.errors import InvalidSetting, StromError
from strom.metadata.zookeeper.options import options_of
from strom.metadata.zookeeper.store import ZooKeeperStore
from strom.runtime.settings import Settings, load
from strom.runtime.world import World
from strom.server.links.secret_file import read_secret
from strom.server.process import foreground
from strom.server.process.addresses import Addresses
from strom.server.process.cluster_coordinator import ClusterCoordinator
from strom.server.process.cluster_parts import ClusterStore
from strom.server.process.cluster_tablet import ClusterTablet
from strom.server.process.foreground import Servable, show, write_ready
from strom.server.process.log_lines import write_log
from strom.server.process.process_setup import prepare_process

Role = Literal["coordinator", "tablet"]


def run(
    role: Role,
    *,
    flags: Mapping[str, object],
    config: Path | None = None,
    ready_file: Path | None = None,
    leash: bool = False,
) -> int:
    """Serve in the foreground; returns the exit code. Raises what prevents the start."""
    prepare_process()
    settings = load(config, os.environ, flags)
    name = "coordinator" if role == "coordinator" else f"tablet-{settings['server.id']}"
    write_log(settings["logging.format"], name)
    if settings["metadata.store"] != "zookeeper":
        raise InvalidSetting(
            "a cluster keeps its metadata in ZooKeeper: set metadata.store = zookeeper and zookeeper.addresses, or run "
            "everything on this machine with strom up",
            setting="metadata.store",
        )
    secret = read_secret(settings["cluster.secret-file"])

    def ready(addresses: Addresses) -> None:
        show(addresses, "Coordinator" if role == "coordinator" else f"Tablet server {settings['server.id']}")
        if ready_file is not None:
            write_ready(ready_file, addresses)

    cleanly = foreground.run(
        settings, lambda world: _server(role, settings, world, secret), ready=ready, leash=leash
    )
    return 0 if cleanly else 1


def _server(role: Role, settings: Settings, world: World, secret: str) -> Servable:
    options = options_of(settings)

    def open_store(create: bool) -> ClusterStore:
        return ZooKeeperStore.open(options, create=create, clock=world.clock, randomness=world.randomness)

    kind = ClusterCoordinator if role == "coordinator" else ClusterTablet
    return kind(settings, world, secret=secret, open_store=open_store)


def main(argv: Sequence[str]) -> int:
    """The command line of ``python -m strom.server.process.roles``."""
    parser = argparse.ArgumentParser(
        prog="python -m strom.server.process.roles", description="Run one server of a cluster."
    )
    parser.add_argument("role", choices=("coordinator", "tablet"))
    parser.add_argument("--config", type=Path, help="settings in TOML")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="a setting; repeat it"
    )
    parser.add_argument("--ready-file", type=Path, help="write the addresses here once ready")
    parser.add_argument("--leash", action="store_true", help="stop when standard input ends")
    given = parser.parse_args(argv)
    try:
        return run(
            given.role,
            flags=dict(pair.partition("=")[::2] for pair in given.set),
            config=given.config,
            ready_file=given.ready_file,
            leash=given.leash,
        )
    except StromError as error:
        print(f"error: {error.message}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
