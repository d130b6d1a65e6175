"""``strom remote``: what the object store has of logs, and whether it can be read. No server is asked."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from strom.cli.terminal.group import group
from strom.cli.terminal.output import OutputForm, note, print_rows
from strom.cli.terminal.words import pairs
from strom.runtime.units import counted

if TYPE_CHECKING:
    from strom.remote.inspection import RemoteBucket
    from strom.runtime.objects.object_store import Objects

app = group(
    "The object store that logs are uploaded to (remote.data.dir).",
    "strom remote status --config strom.toml",
    "strom remote verify --set remote.data.dir=s3://bucket/prefix",
)

COLUMNS = ("table", "partition", "bucket", "from", "up to", "segments", "bytes", "unnamed", "problem")

STATUS_HELP = """What the object store has of every bucket: offsets, segments, bytes.

The store is read directly, with the settings that servers have (remote.data.dir and what belongs to it), so this works
while no server runs. Segments that nothing names are being uploaded, or were left behind by a server that was killed;
the next leader of the bucket removes those. How far uploads are behind is told by `strom status` and the metrics.

\b
Examples:
  strom remote status --config strom.toml
  strom remote status --set remote.data.dir=/mnt/history -o json
"""

VERIFY_HELP = """Read everything in the object store that a manifest names, and check every byte.

Prints what is missing or damaged, with its offsets; the exit code is then 1. Nothing is changed. This moves as many
bytes as the store has of the chosen tables.

\b
Examples:
  strom remote verify --config strom.toml
  strom remote verify shop.orders --set remote.data.dir=s3://bucket/prefix
"""

Config = Annotated[Path | None, typer.Option(exists=True, dir_okay=False, help="Settings in TOML.")]
Set = Annotated[list[str] | None, typer.Option("--set", help="name=value; repeatable.")]
Table = Annotated[str | None, typer.Argument(help="One table; all by default.")]
Output = Annotated[OutputForm, typer.Option("-o", "--output", help="How to print.")]

Result = TypeVar("Result")


@app.command("status", help=STATUS_HELP)
def status(
    table: Table = None, config: Config = None, set_: Set = None, output: Output = OutputForm.table
) -> None:
    """What is there."""

    async def rows(objects: Objects) -> list[dict[str, Any]]:
        return [_row(one) async for one in _chosen(objects, table)]

    found = _with_store(config, set_, rows)
    if not found:
        note("nothing was uploaded there")
    print_rows(found, output, COLUMNS)


@app.command("verify", help=VERIFY_HELP)
def verify(table: Table = None, config: Config = None, set_: Set = None) -> None:
    """Read and check all of it."""
    from strom.remote.inspection import problems_of
    from strom.runtime.objects.range_reader import RangeBudget

    async def checked(objects: Objects) -> tuple[int, int, int]:
        budget, segments, size, problems = RangeBudget(), 0, 0, 0
        async for bucket in _chosen(objects, table):
            segments, size = segments + len(bucket.manifest.segments), size + bucket.size
            async for problem in problems_of(bucket, budget):
                problems += 1
                print(f"{_name(bucket)} bucket {bucket.chain.names.bucket}: {problem}")
        return segments, size, problems

    segments, size, problems = _with_store(config, set_, checked)
    note(f"read {counted(segments, 'segment')}, {size:,} bytes: {counted(problems, 'problem')}")
    raise typer.Exit(1 if problems else 0)


async def _chosen(objects: Objects, table: str | None) -> Any:
    from strom.remote.inspection import remote_buckets

    async for one in remote_buckets(objects):
        if not one.manifest.dropped and (
            table is None or table in (_name(one), one.manifest.about.get("table"))
        ):
            yield one


def _name(bucket: RemoteBucket) -> str:
    about, names = bucket.manifest.about, bucket.chain.names
    return f"{about['database']}.{about['table']}" if "table" in about else f"table {names.table_id}"


def _row(bucket: RemoteBucket) -> dict[str, Any]:
    manifest = bucket.manifest
    return {
        "table": _name(bucket),
        "partition": manifest.about.get("partition") or "",
        "bucket": bucket.chain.names.bucket,
        "from": manifest.start_offset,
        "up to": manifest.end_offset,
        "segments": len(manifest.segments),
        "bytes": bucket.size,
        "unnamed": bucket.unnamed,
        "problem": bucket.problem,
    }


def _with_store(
    config: Path | None, set_: list[str] | None, work: Callable[[Objects], Awaitable[Result]]
) -> Result:
    """The result of ``work`` on the store that the settings name."""
    from strom.errors import InvalidSetting
    from strom.model.lake.lake_owner import LakeOwner
    from strom.runtime.loops import run
    from strom.runtime.settings import load
    from strom.runtime.world import World
    from strom.server.remote.remote_access import RemoteAccess

    settings = load(config, os.environ, pairs(set_ or []))
    access = RemoteAccess.of(settings, LakeOwner("", ""))
    if access is None:
        raise InvalidSetting(
            "remote.data.dir is not set: name the store with --config strom.toml or --set remote.data.dir=…",
            setting="remote.data.dir",
        )
    world = World.system()
    objects = access.open(world, world.offload)

    async def main() -> Result:
        return await work(objects)

    try:
        return run(main())
    finally:
        world.offload.close()
