"""``strom cluster``: how a cluster of machines is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from strom.cli import cluster_operations
from strom.cli.terminal.connection import connected
from strom.cli.terminal.group import group
from strom.cli.terminal.output import OutputForm, note, print_rows
from strom.errors import InvalidRequest
from strom.runtime.units import counted

if TYPE_CHECKING:
    from strom.client.admin.copies_admin import BucketCopies

app = group(
    "Clusters: their coordinators, tablet servers and copies.",
    "strom cluster status",
    "strom cluster servers",
    "strom cluster buckets --lacking",
    "strom cluster move shop.orders --bucket 0 --to 2,3,1",
    "strom cluster rebalance",
    "strom cluster decommission 3",
)

Output = Annotated[OutputForm, typer.Option("-o", "--output", help="How to print.")]

SERVER_COLUMNS = ("id", "rack", "address", "state", "leads", "copies", "disks")

STATUS_HELP = """Show how a cluster is: who coordinates it, which servers are there, and what its buckets lack.

The exit code is 1 if a bucket has no leader, or too few copies in sync to be written to.

\b
Examples:
  strom cluster status
  strom --server db1:9123 cluster status
"""

SERVERS_HELP = """List the tablet servers of a cluster: where they are, what they lead, and how many copies they have.

\b
Examples:
  strom cluster servers
  strom cluster servers -o json
"""


BUCKET_COLUMNS = (
    *("table", "partition", "bucket", "leader", "epoch", "copies", "in sync", "wanted", "moving", "lacks"),
    "losses",
)

BUCKETS_HELP = """List buckets: who leads them, who has copies, whose are in sync, and what they lack.

\b
Examples:
  strom cluster buckets
  strom cluster buckets shop.orders
  strom cluster buckets --lacking
"""

MOVE_HELP = """Move the copies of a bucket to other servers, or let another server lead it.

New copies are made first; when they are in sync, the old ones are removed. Rows are written and read meanwhile. The
same command with the former servers takes it back.

\b
Examples:
  strom cluster move shop.orders --bucket 0 --to 2,3,1
  strom cluster move shop.orders --bucket 0 --leader 3
"""


@app.command("status", help=STATUS_HELP)
def status(context: typer.Context) -> None:
    """Print the state in a few lines."""
    found = _facts(context)
    for one in found["coordinators"]:
        state = f"active, term {one['term']}" if one["active"] else "stands by"
        print(f"coordinator  {one['address']}  {state}")
    if not any(one["active"] for one in found["coordinators"]):
        print("coordinator  none is active right now")
    gone = [_gone(one) for one in found["servers"] if not one["alive"]]
    away = f", not there: {', '.join(gone)}" if gone else ", all there"
    print(f"servers      {counted(len(found['servers']), 'tablet server')}{away}{_tagged(found['servers'])}")
    print(f"buckets      {_buckets(found['buckets'])}")
    if found.get("concerns"):
        print(f"concerns     {len(found['concerns'])}: strom doctor says what to do about them")
    unhealthy = found["buckets"]["without_leader"] or found["buckets"]["under_min_insync"]
    raise typer.Exit(1 if unhealthy else 0)


@app.command("servers", help=SERVERS_HELP)
def servers(context: typer.Context, output: Output = OutputForm.table) -> None:
    """Print one row per tablet server."""
    rows = [{**one, "state": _state(one)} for one in _facts(context)["servers"]]
    print_rows(rows, output, SERVER_COLUMNS)


@app.command("buckets", help=BUCKETS_HELP)
def buckets(
    context: typer.Context,
    table: Annotated[str | None, typer.Argument(help="A table; without one, all of them.")] = None,
    lacking: Annotated[bool, typer.Option("--lacking", help="Only buckets that lack something.")] = False,
    output: Output = OutputForm.table,
) -> None:
    """Print one row per bucket."""
    _facts(context)
    with connected(context) as database:
        found = database.bucket_copies(table)
    print_rows([_row(one) for one in found if one.lacks or not lacking], output, BUCKET_COLUMNS)


@app.command("move", help=MOVE_HELP)
def move(
    context: typer.Context,
    table: Annotated[str, typer.Argument(help="The table.")],
    bucket: Annotated[int, typer.Option("--bucket", help="The number of the bucket.")],
    to: Annotated[str, typer.Option("--to", help="Servers for its copies, the preferred leader first.")] = "",
    leader: Annotated[int | None, typer.Option("--leader", help="The server that shall lead it now.")] = None,
    partition: Annotated[str | None, typer.Option("--partition", help="The name of the partition.")] = None,
) -> None:
    """Have copies moved."""
    servers = [one.strip() for one in to.split(",") if one.strip()]
    if not all(one.isdecimal() for one in servers):
        raise InvalidRequest(f"--to {to} is no list of servers: name their numbers, as in --to 2,3,1")
    if not servers and leader is None:
        raise InvalidRequest("say where: --to 2,3,1 for the copies, --leader 2 for the leader")
    _facts(context)
    with connected(context) as database:
        found = database.move_bucket(
            table, bucket, to=[int(one) for one in servers], leader=leader, partition=partition
        )
    print_rows([_row(found)], OutputForm.table, BUCKET_COLUMNS)
    if found.moving:
        note(f"copies are being made: strom cluster buckets {table} shows when they are in sync")


app.command("rebalance", help=cluster_operations.REBALANCE_HELP)(cluster_operations.rebalance)
app.command("decommission", help=cluster_operations.DECOMMISSION_HELP)(cluster_operations.decommission)
app.command("elect", help=cluster_operations.ELECT_HELP)(cluster_operations.elect)
app.command("losses", help=cluster_operations.LOSSES_HELP)(cluster_operations.losses)


def _gone(server: dict[str, Any]) -> str:
    since = f" (for {server['silent_s']:.0f} s: {server['why']})" if "silent_s" in server else ""
    return f"{server['id']}{since}"


def _tagged(servers: Sequence[dict[str, Any]]) -> str:
    """Who is about to leave, with what it still has, and who rests: in words, if anybody."""
    leaving = [
        f"{one['id']} (copies left: {one['copies']:,})" for one in servers if one.get("tag") == "leaving"
    ]
    resting = [str(one["id"]) for one in servers if one.get("tag") == "resting"]
    said = (("leaving", leaving), ("resting", resting))
    return "".join(f"; {word}: {', '.join(some)}" for word, some in said if some)


def _state(server: dict[str, Any]) -> str:
    """Of a server, in a word or two."""
    return ", ".join(("up" if server["alive"] else "gone", *filter(None, (server.get("tag"),))))


def _row(one: BucketCopies) -> dict[str, Any]:
    return {
        "table": one.table,
        "partition": one.partition or "",
        "bucket": one.bucket,
        "leader": "none" if one.leader is None else str(one.leader),
        "epoch": one.epoch,
        "copies": _numbers(one.servers),
        "in sync": _numbers(one.in_sync),
        "wanted": _numbers(one.wanted),
        "moving": "yes" if one.moving else "",
        "lacks": one.lacks,
        "losses": one.losses,
    }


def _numbers(servers: Sequence[int]) -> str:
    return ",".join(map(str, servers))


def _facts(context: typer.Context) -> dict[str, Any]:
    with connected(context) as database:
        return cluster_operations.facts_of(database)


def _buckets(counts: dict[str, int]) -> str:
    words = {
        "without_leader": "without a leader",
        "under_min_insync": "with too few copies in sync to be written to",
        "under_replicated": "with fewer copies in sync than wanted",
        "moving": "on the move",
    }
    lacking = [f"{counts[key]} {word}" for key, word in words.items() if counts.get(key)]
    said = f"{counts['all']}: " + (", ".join(lacking) if lacking else "all copies in sync")
    if counts.get("losses"):  # of the past: whoever waits for the copies waits for nothing here
        said += (
            f"; {counts['losses']} in which acknowledged rows may have been given up (strom cluster losses)"
        )
    return said
