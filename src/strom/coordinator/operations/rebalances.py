"""A rebalance from its plan to its end: what is planned, begun, finished or taken back.

Moves wait in the metadata and are begun a few at a time, by giving a bucket its new ``wanted`` replicas; bringing those
about is what moves by hand do, too (``replicas.advance_moves``). A person may move a bucket of the plan meanwhile, or
drop it: then the plan leaves that bucket alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

from strom.coordinator import keys
from strom.coordinator.catalog import Catalog
from strom.coordinator.new_copies import STEP_ENTRIES_MAX
from strom.coordinator.operation_rows import (
    PlannedMove,
    RebalanceRecord,
    encode_moves,
    encode_record,
    encode_tag,
)
from strom.coordinator.plan import CommitStep, UpdatePlan
from strom.errors import InvalidRequest, NoRebalance, RebalanceRunning
from strom.metadata.changes import Delete, Put, Requirement, Update
from strom.model import properties
from strom.model.bucket import BucketId
from strom.replication import elections
from strom.replication.bucket_entry import BucketEntry, encode_bucket
from strom.replication.pacing import CopiesToMake, begin_next
from strom.replication.rebalance import ALL_GOALS, BucketSite, RebalanceGoals, ServerSite, rebalance

MoveState = Literal["waiting", "moving", "done", "given up"]

PIECE_MOVES_MAX = 500


# --- plans -------------------------------------------------------------------------------------------------------


def plan_moves(
    catalog: Catalog,
    *,
    alive: Collection[int],
    leaving: Collection[int] = (),
    goals: RebalanceGoals = ALL_GOALS,
    sizes: Mapping[BucketId, int] | None = None,
) -> list[PlannedMove]:
    """The moves that even out the cluster. ``sizes``: the bytes of a copy, where they are known.

    Where nothing but the leader is not the preferred one, and that one could lead, the bucket is among them as well.
    """
    known = sizes or {}
    entries = _entries(catalog)
    gone = {*leaving, *catalog.operations.leaving}
    moves = rebalance(
        [BucketSite(bucket, entry.wanted, known.get(bucket, 0)) for bucket, entry in entries.items()],
        _sites(catalog, gone, alive),
        goals,
    )
    found = {
        one.bucket: PlannedMove(one.bucket, entries[one.bucket].leader, one.before, one.after, one.bytes)
        for one in moves
    }
    for bucket, entry in entries.items() if goals.leaders else ():
        if bucket not in found and entry.leader != entry.wanted[0] and entry.wanted[0] in alive:
            found[bucket] = PlannedMove(bucket, entry.leader, entry.wanted, entry.wanted, 0)
    return [found[bucket] for bucket in entries if bucket in found]


def check_leaving(
    catalog: Catalog, server_id: int, moves: Sequence[PlannedMove], *, alive: Collection[int]
) -> None:
    """Refuse to empty a server whose copies have nowhere to go."""
    staying = sorted((catalog.registrations.keys() & set(alive)) - catalog.operations.leaving - {server_id})
    tables = catalog.all_tables()
    factors = [properties.replication_factor(one.description.properties) or 1 for one in tables]
    most = max(factors, default=1)
    if len(staying) < most:
        (first, *_) = [one for one, factor in zip(tables, factors, strict=True) if factor == most]
        raise InvalidRequest(
            f"server {server_id} cannot leave: table {first.path} has {most} copies of each bucket, and only "
            f"{len(staying)} of the servers that answer would stay. Start another one first, or drop such tables",
            server=server_id,
        )
    after = {one.bucket: one.after for one in moves}
    stuck = [
        bucket for bucket, entry in _entries(catalog).items() if server_id in after.get(bucket, entry.wanted)
    ]
    if stuck:
        more = f" (and {len(stuck) - 1} more)" if len(stuck) > 1 else ""
        raise InvalidRequest(
            f"server {server_id} cannot leave: {catalog.bucket_name(stuck[0])} has nowhere to go{more}. "
            "Start another server first",
            server=server_id,
        )


def racks_lost(catalog: Catalog, moves: Sequence[PlannedMove]) -> list[BucketId]:
    """Buckets whose copies would stand in fewer racks after these moves."""
    rack = {server_id: one.rack for server_id, one in catalog.registrations.items()}

    def racks(servers: Sequence[int]) -> int:
        return len({rack.get(one, "") for one in servers})

    return [one.bucket for one in moves if racks(one.after) < racks(one.before)]


def _entries(catalog: Catalog) -> dict[BucketId, BucketEntry]:
    """Every bucket of a table that exists, in order."""
    found = ((bucket, catalog.replicas.get(bucket)) for bucket in sorted(catalog.replicas, key=str))
    return {bucket: entry for bucket, entry in found if entry is not None and catalog.has_bucket(bucket)}


def _sites(catalog: Catalog, leaving: Collection[int], alive: Collection[int]) -> list[ServerSite]:
    resting = catalog.operations.resting
    return [
        ServerSite(one, registration.rack, one in leaving, one in resting, one not in alive)
        for one, registration in sorted(catalog.registrations.items())
    ]


# --- how far it is -----------------------------------------------------------------------------------------------


def state_of(catalog: Catalog, move: PlannedMove, alive: Collection[int]) -> MoveState:
    """How far a move of a rebalance is. One whose new leader is away is done without it."""
    entry = catalog.replicas.get(move.bucket)
    if entry is None:
        return "given up"
    if entry.wanted == move.after:
        led = entry.leader == move.after[0] or move.after[0] not in alive
        return "done" if led and not entry.moving else "moving"
    return "waiting" if entry.wanted == move.before else "given up"


class MoveProgress(NamedTuple):
    """The moves of a rebalance by how far they are."""

    waiting: list[PlannedMove]
    moving: list[PlannedMove]
    done: list[PlannedMove]
    given_up: list[PlannedMove]


def progress_of(catalog: Catalog, alive: Collection[int]) -> MoveProgress:
    """How far the newest rebalance is."""
    found = MoveProgress([], [], [], [])
    where = {"waiting": found.waiting, "moving": found.moving, "done": found.done, "given up": found.given_up}
    for move in catalog.operations.moves():
        where[state_of(catalog, move, alive)].append(move)
    return found


# --- its course --------------------------------------------------------------------------------------------------


def start_rebalance(
    catalog: Catalog,
    rebalance_id: str,
    moves: Sequence[PlannedMove],
    *,
    leaving: Sequence[int] = (),
    now_ms: int,
) -> UpdatePlan[RebalanceRecord]:
    """Begin a rebalance; ``leaving``: servers that it empties, tagged in the same commit if they are not yet."""
    _check_idle(catalog)
    steps = [
        CommitStep((), [Put(keys.moves(rebalance_id, number), encode_moves(some))])
        for number, some in enumerate(_pieces(moves))
    ]
    record = RebalanceRecord(rebalance_id, "running", now_ms, len(steps), len(moves), tuple(leaving))
    updates: list[Update] = [Put(keys.REBALANCE, encode_record(record))]
    new = [one for one in leaving if one not in catalog.operations.leaving]
    updates += [Put(keys.tag(one), encode_tag("leaving")) for one in new]
    older = [Delete(key) for key in catalog.operations.move_keys() if key.split("/")[2] != rebalance_id]
    return UpdatePlan(
        record,
        [catalog.unchanged(keys.REBALANCE), *(catalog.unchanged(keys.tag(one)) for one in leaving)],
        updates,
        steps,
        [CommitStep((), some) for some in _some(older)],
    )


def begin_moves(catalog: Catalog, *, alive: Collection[int], at_once: int) -> UpdatePlan[int]:
    """Begin the moves that may begin now; returns how many."""
    record = catalog.operations.rebalance
    if record is None or record.state != "running":
        return UpdatePlan(0)
    progress = progress_of(catalog, alive)
    may = begin_next(
        [CopiesToMake(one.bucket, _targets(one)) for one in progress.moving],
        [CopiesToMake(one.bucket, _targets(one)) for one in progress.waiting if _able(one, alive)],
        at_once,
    )
    moves = {one.bucket: one for one in progress.waiting}
    some = {bucket: moves[bucket].after for bucket in may[:STEP_ENTRIES_MAX]}
    return _wanting(catalog, some)


def take_back(catalog: Catalog, *, alive: Collection[int], now_ms: int) -> UpdatePlan[int]:
    """Undo the moves under way of a rebalance that is being cancelled; returns how many, 0 when it is cancelled."""
    record = catalog.operations.rebalance
    if record is None or record.state != "cancelling":
        return UpdatePlan(0)
    moving = [one for one in progress_of(catalog, alive).moving if one.before != one.after]
    if moving:
        return _wanting(catalog, {one.bucket: one.before for one in moving[:STEP_ENTRIES_MAX]})
    ended = replace(record, state="cancelled", ended_ms=now_ms)
    return UpdatePlan(0, [catalog.unchanged(keys.REBALANCE)], [Put(keys.REBALANCE, encode_record(ended))])


def finish_rebalance(catalog: Catalog, *, alive: Collection[int], now_ms: int) -> UpdatePlan[bool]:
    """Declare a rebalance done, if all its moves are and the servers it empties have no copies; whether it did."""
    record = catalog.operations.rebalance
    if record is None or record.state != "running":
        return UpdatePlan(False)
    progress = progress_of(catalog, alive)
    if progress.waiting or progress.moving or any(catalog.replicas.copy_count(one) for one in record.leaving):
        return UpdatePlan(False)
    ended = replace(record, state="done", ended_ms=now_ms)
    return UpdatePlan(True, [catalog.unchanged(keys.REBALANCE)], [Put(keys.REBALANCE, encode_record(ended))])


def extend_rebalance(catalog: Catalog, moves: Sequence[PlannedMove]) -> UpdatePlan[bool]:
    """More moves for a rebalance that runs: buckets that came to a server after it was planned."""
    record = catalog.operations.rebalance
    if record is None or record.state != "running" or not moves:
        return UpdatePlan(False)
    pieces = _pieces(moves)
    longer = replace(record, pieces=record.pieces + len(pieces), moves=record.moves + len(moves))
    steps = [
        CommitStep(
            [catalog.unchanged(keys.REBALANCE)],
            [Put(keys.moves(record.rebalance_id, record.pieces + number), encode_moves(some))],
        )
        for number, some in enumerate(pieces)
    ]
    return UpdatePlan(
        True,
        [catalog.unchanged(keys.REBALANCE)],
        [Put(keys.REBALANCE, encode_record(longer))],
        steps,
    )


def cancel_rebalance(
    catalog: Catalog, rebalance_id: str | None = None, *, staying: Sequence[int] = ()
) -> UpdatePlan[RebalanceRecord]:
    """Cancel the rebalance that runs: what was not begun stays, what is under way is taken back, what is done is done.

    ``staying``: servers that shall not leave after all.
    """
    record = catalog.operations.rebalance
    if (
        record is None
        or not record.under_way
        or (rebalance_id is not None and rebalance_id != record.rebalance_id)
    ):
        raise NoRebalance(
            "no rebalance is under way" + (f" with the id {rebalance_id}" if rebalance_id else "")
        )
    cancelled = replace(record, state="cancelling")
    return UpdatePlan(
        cancelled,
        [catalog.unchanged(keys.REBALANCE), *(catalog.unchanged(keys.tag(one)) for one in staying)],
        [Put(keys.REBALANCE, encode_record(cancelled)), *(Delete(keys.tag(one)) for one in staying)],
    )


def _wanting(catalog: Catalog, wanted: Mapping[BucketId, tuple[int, ...]]) -> UpdatePlan[int]:
    """R1: on the entries as they were read; and on the record, so that nothing begins once it is cancelled."""
    requirements: list[Requirement] = [catalog.unchanged(keys.REBALANCE)]
    updates: list[Update] = []
    for bucket, servers in wanted.items():
        entry = catalog.replicas.get(bucket)
        assert entry is not None
        requirements.append(catalog.unchanged(keys.replicas(bucket)))
        updates.append(Put(keys.replicas(bucket), encode_bucket(elections.want(entry, servers).entry)))
    return UpdatePlan(len(updates), requirements, updates)


def _targets(move: PlannedMove) -> tuple[int, ...]:
    return tuple(one for one in move.after if one not in move.before)


def _able(move: PlannedMove, alive: Collection[int]) -> bool:
    return all(one in alive for one in _targets(move))


def _check_idle(catalog: Catalog) -> None:
    record = catalog.operations.rebalance
    if record is not None and record.under_way:
        raise RebalanceRunning(
            f"rebalance {record.rebalance_id} is {record.state}: wait for its end, or cancel it",
            rebalance=record.rebalance_id,
        )


def _pieces(moves: Sequence[PlannedMove]) -> list[Sequence[PlannedMove]]:
    return [moves[at : at + PIECE_MOVES_MAX] for at in range(0, len(moves), PIECE_MOVES_MAX)]


def _some(deletes: Sequence[Delete]) -> Iterator[Sequence[Delete]]:
    for at in range(0, len(deletes), STEP_ENTRIES_MAX):
        yield deletes[at : at + STEP_ENTRIES_MAX]
