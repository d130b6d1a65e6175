"""``strom cluster rebalance``, ``decommission``, ``elect`` and ``losses``: what people do to a cluster."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from strom.cli.terminal.connection import connected
from strom.cli.terminal.output import OutputForm, note, print_rows
from strom.errors import InvalidRequest
from strom.runtime.units import counted, rough_size

if TYPE_CHECKING:
    from strom.api.database import Database
    from strom.client.admin.copies_admin import BucketCopies
    from strom.client.admin.operations_admin import CopyMove, HeldCopy, MovePlan, RebalanceStatus

Output = Annotated[OutputForm, typer.Option("-o", "--output", help="How to print.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the plan, and move nothing.")]
Status = Annotated[bool, typer.Option("--status", help="Show how far it is.")]

MOVES_SHOWN = 20
SHARE_COLUMNS = ("server", "rack", "state", "leads", "copies", "to be copied")
MOVE_COLUMNS = ("table", "partition", "bucket", "copies before", "copies after", "bytes")
POSITION_COLUMNS = ("server", "in sync", "answers", "last epoch", "end")
LOSS_COLUMNS = ("time", "table", "partition", "bucket", "leader", "epoch", "end", "missing", "decided by")

REBALANCE_HELP = """Even out copies and leaders over the servers of a cluster.

It shows the plan first and asks. Then copies are made a few at a time (replica.moves.max, replica.copy.rate) while rows
are written and read; whichever coordinator is active goes on with it. The copies of a bucket stay in as many racks.

\b
Examples:
  strom cluster rebalance                    the plan, then a question
  strom cluster rebalance --leaders --yes    only leaders: no copy is made
  strom cluster rebalance --status
  strom cluster rebalance --cancel           take back what is under way
"""

DECOMMISSION_HELP = """Take all copies off a server, so that it can be stopped for good.

It shows the plan first and asks. From then on the server gets no new copies. When --status says that it is done, stop
it. Refused if too few servers, or racks, would be left for the copies.

\b
Examples:
  strom cluster decommission 3
  strom cluster decommission 3 --status      exit code 1 until it is done
  strom cluster decommission 3 --cancel      it stays after all
"""

ELECT_HELP = """Let other servers lead the buckets of a table.

Without more, the preferred servers lead where their copies are in sync. --unclean gives up acknowledged rows: for a
bucket without a leader whose copies in sync will not come back. It says first what each copy holds, and asks; what was
given up is remembered (strom cluster losses).

\b
Examples:
  strom cluster elect shop.orders
  strom cluster elect shop.orders --bucket 0
  strom cluster elect shop.orders --bucket 0 --unclean --server 2
"""

LOSSES_HELP = """List elections that may have lost acknowledged rows, the newest first.

\b
Examples:
  strom cluster losses
  strom cluster losses -o json
"""


def rebalance(
    context: typer.Context,
    leaders: Annotated[bool, typer.Option("--leaders", help="Only leaders: no copy is made.")] = False,
    yes: Yes = False,
    dry_run: DryRun = False,
    status: Status = False,
    cancel: Annotated[bool, typer.Option("--cancel", help="Cancel the one that runs.")] = False,
) -> None:
    """Plan, ask, start; or show, or cancel."""
    with _cluster(context) as database:
        if status:
            raise typer.Exit(_print_status(database.rebalance_status()))
        if cancel:
            database.cancel_rebalance()
            note("cancelled: strom cluster rebalance --status shows what is taken back")
            return
        plan = database.plan_rebalance(leaders_only=leaders)
        if _agreed(plan, "the servers are even: nothing to do", yes=yes, dry_run=dry_run):
            database.rebalance(plan)
            note("it runs: strom cluster rebalance --status")


def decommission(
    context: typer.Context,
    server: Annotated[int, typer.Argument(help="The number of the server.")],
    yes: Yes = False,
    dry_run: DryRun = False,
    status: Status = False,
    cancel: Annotated[bool, typer.Option("--cancel", help="Let it stay after all.")] = False,
    fewer_racks: Annotated[
        bool, typer.Option("--fewer-racks", help="Copies of a bucket may stand in fewer racks than now.")
    ] = False,
) -> None:
    """Plan, ask, start; or show, or cancel."""
    with _cluster(context) as database:
        if status:
            raise typer.Exit(_print_leaving(database, server))
        if cancel:
            database.cancel_decommission(server)
            note(f"server {server} stays, and gets copies again")
            return
        plan = database.plan_decommission(server, fewer_racks=fewer_racks)
        if _agreed(plan, f"server {server} has no copies", yes=yes, dry_run=dry_run, start_empty=True):
            database.decommission(server, plan)
            note(f"it runs: strom cluster decommission {server} --status")


def elect(
    context: typer.Context,
    table: Annotated[str, typer.Argument(help="The table.")],
    bucket: Annotated[
        int | None, typer.Option("--bucket", help="One bucket; without it, all of them.")
    ] = None,
    partition: Annotated[str | None, typer.Option("--partition", help="The name of the partition.")] = None,
    preferred: Annotated[
        bool, typer.Option("--preferred", help="The preferred servers, as without any of these.")
    ] = False,
    unclean: Annotated[bool, typer.Option("--unclean", help="Give up acknowledged rows.")] = False,
    server: Annotated[int | None, typer.Option("--server", help="With --unclean: who shall lead.")] = None,
    yes: Yes = False,
) -> None:
    """Elect, after a question where rows may be lost."""
    if (unclean and preferred) or unclean != (server is not None):
        raise InvalidRequest(
            "say either --preferred, or --unclean --server N with the server that shall lead"
        )
    with _cluster(context) as database:
        if not unclean:
            found = database.elect(table, bucket, partition=partition)
        else:
            assert server is not None
            found = _elect_uncleanly(database, table, bucket, partition, server, yes=yes)
    _print_leaders(found)


def losses(context: typer.Context, output: Output = OutputForm.table) -> None:
    """Print one row per election."""
    with _cluster(context) as database:
        found = database.losses()
    rows = [
        {
            "time": datetime.datetime.fromtimestamp(one.time_ms / 1000, datetime.UTC).isoformat(
                " ", "seconds"
            ),
            "table": one.table,
            "partition": one.partition or "",
            "bucket": one.bucket,
            "leader": one.leader,
            "epoch": one.epoch,
            "end": one.end,
            "missing": _numbers(one.missing),
            "decided by": one.by or "the rules",
        }
        for one in found
    ]
    print_rows(rows, output, LOSS_COLUMNS)


@contextmanager
def _cluster(context: typer.Context) -> Iterator[Database]:
    """The database of this command; refused if no cluster answers."""
    with connected(context) as database:
        facts_of(database)
        yield database


def facts_of(database: Database) -> dict[str, Any]:
    """How a cluster is: its coordinators, its servers, what its buckets lack."""
    found: dict[str, Any] | None = database.status().get("cluster")
    if found is None:
        raise InvalidRequest("this server is no cluster: strom doctor and its status page say how it is")
    return found


# --- plans ---------------------------------------------------------------------------------------------------------


def _agreed(plan: MovePlan, nothing: str, *, yes: bool, dry_run: bool, start_empty: bool = False) -> bool:
    """Show a plan, and ask. One that moves nothing is started only where that means something (``start_empty``)."""
    if not plan.count:
        note(nothing)
    else:
        _print_plan(plan)
    if dry_run or not (plan.count or start_empty):
        return False
    if not yes:
        typer.confirm("Carry it out?", abort=True)
    return True


def _print_plan(plan: MovePlan) -> None:
    print_rows([_move_row(one) for one in plan.moves[:MOVES_SHOWN]], OutputForm.table, MOVE_COLUMNS)
    if plan.count > MOVES_SHOWN:
        note(f"and {plan.count - MOVES_SHOWN} more")
    print()
    print_rows(
        [
            {
                "server": one.server,
                "rack": one.rack,
                "state": one.state,
                "leads": _change(one.leaders_before, one.leaders_after),
                "copies": _change(one.copies_before, one.copies_after),
                "to be copied": rough_size(one.bytes_in) if one.bytes_in else "",
            }
            for one in plan.servers
        ],
        OutputForm.table,
        SHARE_COLUMNS,
    )
    made = sum(len(set(one.after) - set(one.before)) for one in plan.moves)
    leads = sum(one.after[0] != one.leader for one in plan.moves)
    note(
        f"{counted(plan.count, 'bucket')}: {made} copies to make, {rough_size(plan.bytes)} as far as known, and "
        f"{leads} other leaders"
    )


def _change(before: int, after: int) -> str:
    return str(before) if before == after else f"{before} → {after}"


def _move_row(one: CopyMove) -> dict[str, Any]:
    return {
        "table": one.table,
        "partition": one.partition or "",
        "bucket": one.bucket,
        "copies before": _numbers(one.before)
        + (f" (led by {one.leader})" if one.leader != one.before[0] else ""),
        "copies after": _numbers(one.after),
        "bytes": rough_size(one.bytes) if one.bytes else "",
    }


# --- progress ------------------------------------------------------------------------------------------------------


def _print_status(found: RebalanceStatus | None) -> int:
    """Print how far a rebalance is; the exit code: 1 while it is under way."""
    if found is None:
        note("there was no rebalance")
        return 0
    moves = found.waiting + found.moving + found.done + found.given_up
    print(f"rebalance {found.id}: {found.state}, {found.done} of {counted(moves, 'move')} done")
    under_way = found.state in ("running", "cancelling")
    if under_way:
        print(
            f"{found.moving} under way, {found.waiting} waiting, {rough_size(found.bytes_left)} to be copied"
        )
    if found.given_up:
        print(f"{found.given_up} left alone: somebody moved or dropped these buckets meanwhile")
    if found.leaving:
        print(f"it empties {'servers' if len(found.leaving) > 1 else 'server'} {_numbers(found.leaving)}")
    if found.waits_for:
        note(f"it waits for servers that do not answer: {_numbers(found.waits_for)}")
    if under_way and found.under_way:
        print_rows([_move_row(one) for one in found.under_way[:MOVES_SHOWN]], OutputForm.table, MOVE_COLUMNS)
    return 1 if under_way else 0


def _print_leaving(database: Database, server: int) -> int:
    """Print how far the leaving of a server is; the exit code: 1 until it has no copies."""
    known = {one["id"]: one for one in facts_of(database)["servers"]}
    if server not in known:
        raise InvalidRequest(
            f"the cluster has no tablet server {server}: it has {', '.join(map(str, known))}"
        )
    found = database.rebalance_status()
    if found is not None and server in found.leaving:
        _print_status(found)
    copies = [one for one in database.bucket_copies() if server in one.servers]
    if copies:
        stays = "" if known[server].get("tag") == "leaving" else "is not leaving: it "
        print(f"server {server} {stays}has copies of {counted(len(copies), 'bucket')}")
        return 1
    print(f"server {server} has no copies: it can be stopped")
    return 0


# --- elections -----------------------------------------------------------------------------------------------------


def _elect_uncleanly(
    database: Database,
    table: str,
    bucket: int | None,
    partition: str | None,
    server: int,
    *,
    yes: bool,
) -> list[BucketCopies]:
    if bucket is None:
        raise InvalidRequest("an unclean election is of one bucket: name it with --bucket N")
    copies, positions = database.copy_positions(table, bucket, partition=partition)
    if copies.leader is not None:
        raise InvalidRequest(f"server {copies.leader} leads this bucket: there is nothing to give up")
    print_rows([_position_row(one) for one in positions], OutputForm.table, POSITION_COLUMNS)
    for line in what_is_lost(positions, server):
        print(line)
    if not yes:
        typer.confirm(f"Let server {server} lead, and lose this for good?", abort=True)
    return database.elect(table, bucket, partition=partition, unclean=server, epoch=copies.epoch)


def what_is_lost(positions: Sequence[HeldCopy], server: int) -> list[str]:
    """What an election of a server's copy gives up, in words."""
    chosen = next((one for one in positions if one.server == server and one.end is not None), None)
    if chosen is None:
        raise InvalidRequest(f"server {server} does not answer for a copy of this bucket: it cannot lead")
    said = []
    silent = [one.server for one in positions if one.in_sync and one.end is None]
    if silent:
        said.append(
            f"lost: acknowledged rows from offset {chosen.end} on that only {_servers(silent)} may have; how many "
            "cannot be told, because nobody answers for them"
        )
    said += [
        f"lost: what server {one.server} has (epoch {one.last_epoch}, up to offset {one.end}) and server {server} has "
        f"not (epoch {chosen.last_epoch}, up to offset {chosen.end})"
        for one in positions
        if one.server != server and one.end is not None and _more(one, chosen)
    ]
    return said or [f"no copy that answers has more than server {server}"]


def _more(one: HeldCopy, chosen: HeldCopy) -> bool:
    return (one.last_epoch or 0, one.end or 0) > (chosen.last_epoch or 0, chosen.end or 0)


def _servers(numbers: Sequence[int]) -> str:
    return f"{'server' if len(numbers) == 1 else 'servers'} {_numbers(numbers)}"


def _position_row(one: HeldCopy) -> dict[str, Any]:
    return {
        "server": one.server,
        "in sync": "yes" if one.in_sync else "",
        "answers": "no" if one.end is None else "yes",
        "last epoch": "" if one.last_epoch is None else str(one.last_epoch),
        "end": "" if one.end is None else str(one.end),
    }


def _print_leaders(found: Sequence[BucketCopies]) -> None:
    rows = [
        {
            "table": one.table,
            "partition": one.partition or "",
            "bucket": one.bucket,
            "leader": "none" if one.leader is None else str(one.leader),
            "epoch": one.epoch,
            "preferred": one.wanted[0],
            "in sync": _numbers(one.in_sync),
        }
        for one in found
    ]
    columns = ("table", "partition", "bucket", "leader", "epoch", "preferred", "in sync")
    print_rows(rows, OutputForm.table, columns)


def _numbers(servers: Sequence[int]) -> str:
    return ",".join(map(str, servers))
