"""``strom migrate-metadata``: from the data folder of one machine to ZooKeeper, and back."""

from __future__ import annotations

import os
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from strom.cli.terminal.output import note
from strom.cli.terminal.words import pairs
from strom.runtime.units import counted

HELP = """Move the metadata of a stopped installation to ZooKeeper, or back.

To zookeeper: the data folder becomes that of a tablet server (--server-id), the only one of a new cluster; the root in
ZooKeeper must be empty. To embedded: the data folder of a tablet server that has a copy of every bucket in sync becomes
that of one machine; all servers of the cluster are stopped. Rows stay where they are. The old metadata are kept: in
the folder as metadata.moved.*, in ZooKeeper below the root. A move that was interrupted can be repeated.

\b
Examples:
  strom migrate-metadata --to zookeeper --data /var/lib/strom \\
      --set zookeeper.addresses=10.0.0.1:2181,10.0.0.2:2181,10.0.0.3:2181
  strom migrate-metadata --to embedded --config strom.toml
"""


class MetadataTarget(Enum):
    """Where to."""

    ZOOKEEPER = "zookeeper"
    EMBEDDED = "embedded"


def migrate_metadata(
    to: Annotated[MetadataTarget, typer.Option(help="Where the metadata go.")],
    data: Annotated[str | None, typer.Option(help="The data folder.", show_default="./strom-data")] = None,
    server_id: Annotated[
        int, typer.Option(min=0, max=2**31 - 1, help="server.id of the tablet server on this folder.")
    ] = 0,
    config: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="Settings in TOML.")
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="name=value, such as zookeeper.root; repeatable.")
    ] = None,
) -> None:
    """Move."""
    from strom.metadata.zookeeper.options import options_of
    from strom.runtime.settings import load
    from strom.runtime.world import World
    from strom.server.migration.migrate import MetadataMigration
    from strom.server.process.coordinator_node import limits_of

    settings = load(config, os.environ, {**pairs(set_ or []), **({"data.dir": data} if data else {})})
    world = World.system()
    try:
        path = os.path.abspath(settings["data.dir"])
        options = options_of(settings)
        limits = replace(limits_of(settings), durability_default=settings["durability"])
        migration = MetadataMigration(world, path, options, limits, progress=note)
        if to is MetadataTarget.ZOOKEEPER:
            report = migration.to_zookeeper(server_id)
            after = f"Start it as: strom tablet --set server.id={server_id} --set data.dirs={path}"
        else:
            report = migration.to_embedded()
            after = f"Start it as: strom up --data {path}"
    finally:
        world.offload.close()
    typer.echo(
        f"Moved {report.what}: {report.entries:,} entries, {counted(report.buckets, 'bucket')}.\n"
        f"The old metadata are kept in {report.kept}.\n{after}"
    )
