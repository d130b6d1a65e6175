"""Directed histories: each is the situation that some rules are for, and in which their lack loses what was promised.

They run through the same users, checks and last look as the histories at random. ``make sim CLUSTER=<name>`` shows one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from cluster_histories.actors import EVENTS
from cluster_histories.director import FIRST_LOOK_S, Director
from cluster_histories.plan import Plan


@dataclass(frozen=True)
class Script:
    """One directed history."""

    plan: Plan
    play: Callable[[Director], Awaitable[None]]


_ROWS = Plan(
    seed=1,
    servers=3,
    durability="group",
    min_insync=2,
    buckets=1,
    lag_ms=20,
    replica_lag="300 ms",
    log_writers=1,
    key_writers=0,
    transactions=0,
    tails=0,
    seconds=0.0,
    again=False,
    troubles=(),
)
_ROWS_OS = replace(_ROWS, durability="os")
_TRANSACTIONS = replace(_ROWS, log_writers=0, transactions=1)


async def joined_unheard(it: Director) -> None:
    """A copy joins; its leader does not hear that it did (R7). Then only that copy is there to be elected."""
    leader, other, joiner = it.cast()
    await it.until(lambda: it.acknowledged > 3, "rows are acknowledged")
    feed = it.block(leader, joiner)
    await it.until(lambda: joiner not in it.in_sync, "the late copy leaves the set")

    def hide() -> None:
        it.note(f"t{joiner} has joined, and t{leader} does not hear of it")
        store = it.scene.machines[f"t{leader}"].store
        assert store is not None
        store.cut()
        it.block(leader, joiner)

    it.with_the_commit(lambda: joiner in it.in_sync, hide)
    feed()
    await it.until(lambda: joiner in it.in_sync, "it joins again")
    had = it.acknowledged
    await it.soon(lambda: it.acknowledged > had, 0.4)
    it.kill(leader, other)
    await it.until(lambda: it.entry.leader == joiner, "the joined copy leads")
    it.network.heal()
    it.start(leader, other)


async def joins_with_too_little(it: Director) -> None:
    """A copy that was away asks its leader, and gets no answer (R16). Then only that copy is there."""
    leader, other, late = it.cast()
    await it.until(lambda: it.acknowledged > 0, "rows are acknowledged")
    it.kill(late)
    await it.until(lambda: late not in it.in_sync, "the dead copy leaves the set")
    had = it.acknowledged
    await it.until(lambda: it.acknowledged > had + 3, "more rows are acknowledged")
    await _it_alone_is_left(it, leader, other, late)


async def joins_without_stages(it: Director) -> None:
    """The same of a copy that has all rows, and not the stage that is decided and cannot be published."""
    leader, other, late = it.cast()
    await it.until(
        lambda: it.acknowledged > 0 and not it.stages(leader) and it.ends() == {it.tablet(leader).end_offset},
        "all that was decided is published everywhere",
    )
    before = it.decided
    it.kill(late)
    it.hide_from_coordinators(leader)
    await it.until(lambda: it.decided > before, "more is decided")
    await _it_alone_is_left(it, leader, other, late)


async def _it_alone_is_left(it: Director, leader: int, other: int, late: int) -> None:
    it.start(late)
    await it.heard(leader, late)
    it.block(leader, late)
    await it.soon(lambda: late in it.in_sync, 0.3)
    it.kill(leader, other)
    await it.soon(lambda: it.entry.leader == late, 0.5)
    it.network.heal()
    it.start(leader, other)


async def reported_before_compared(it: Director) -> None:
    """A former leader has rows that nobody else got. It is cut to what its follower has; then it gets nothing more, and
    only it is there (R5): what it had before it was cut must not count.
    """
    leader, successor, other = it.cast()
    await it.until(lambda: it.acknowledged > 3, "rows are acknowledged")
    feed = it.block(leader, successor, other)
    await it.until(
        lambda: it.tablet(leader).end_offset > it.tablet(successor).end_offset + 2, "the leader has more"
    )
    it.kill(leader)
    feed()
    await it.until(lambda: it.leading(successor) is not None, "another one leads")
    leading = it.leading(successor)
    assert leading is not None
    start, had = leading.leadership.start, it.acknowledged
    let_write = it.silence_users(successor)
    it.start(leader)
    await it.until(
        lambda: it.scene.tablet(leader, it.bucket) is not None and it.tablet(leader).end_offset == start,
        "the former leader is cut",
        every_s=FIRST_LOOK_S,
    )
    it.block(successor, leader)
    await it.soon(lambda: leader in it.in_sync, 0.3)
    let_write()
    await it.soon(lambda: it.acknowledged > had, 0.5)
    it.kill(successor, other)
    await it.soon(lambda: it.entry.leader == leader, 0.5)
    it.network.heal()
    it.start(successor, other)


async def leader_out_of_reach(it: Director) -> None:
    """No follower reaches the leader any more, and then its disk is gone (R9): who was in sync leads."""
    leader, one, other = it.cast()
    await it.until(lambda: it.acknowledged > 3, "rows are acknowledged")
    it.block(leader, one, other)
    await it.until(lambda: len(it.in_sync) < 3, "a late copy leaves the set")
    await it.soon(lambda: len(it.in_sync) < 2, 0.5)
    it.lose_disk(leader)
    it.network.heal()


async def one_is_ahead(it: Director) -> None:
    """Of two followers one has rows that were never committed, and the other one is elected (R8): that is cut."""
    leader, behind, ahead = it.cast()
    await it.until(lambda: it.acknowledged > 3, "rows are acknowledged")
    it.block(leader, behind)
    await it.until(lambda: it.tablet(ahead).end_offset > it.tablet(behind).end_offset + 2, "one has more")
    it.kill(leader)
    await it.until(lambda: it.leading(behind) is not None, "the other one leads")
    it.network.heal()
    it.start(leader)


async def leader_alone(it: Director) -> None:
    """Without its followers a leader goes on, where one copy is enough (R9)."""
    leader, *others = it.cast()
    it.kill(*others)
    await it.until(lambda: it.in_sync == {leader}, "the dead copies leave the set")
    had = it.acknowledged
    await it.until(lambda: it.acknowledged > had + 3, "rows are acknowledged")
    it.start(*others)


async def last_one_loses_its_disk(it: Director) -> None:
    """The followers die, and the leader comes back with an empty disk (R9). Nobody can lead until a follower is back:
    no server that leads anything, as the metadata say.
    """
    leader, one, other = it.cast()
    await it.until(lambda: it.acknowledged > 3, "rows are acknowledged")
    it.kill(one, other)
    await it.until(lambda: len(it.in_sync) < 3, "a dead copy leaves the set")
    await it.soon(lambda: len(it.in_sync) < 2, 0.3)
    before = it.incarnation(leader)
    it.lose_disk(leader)
    await it.until(lambda: it.incarnation(leader) != before, "the leader is back")
    await it.soon(lambda: False, 0.5)
    it.start(one, other)


async def one_does_not_answer(it: Director) -> None:
    """All lose power, and who kept most is back last, as the coordinators see it (R10)."""
    leader, one, other = it.cast()
    await it.until(
        lambda: min(it.unsynced(server) for server in (leader, one, other)) > 3, "rows are not synced"
    )
    it.all_lose_power(but=other)
    before = it.incarnation(other)
    it.hide_from_coordinators(other)
    it.start(other)
    await it.until(lambda: it.incarnation(other) != before, "who has most is registered")
    await it.until(lambda: not it.is_believed_alive(other), "and does not answer")
    it.start(leader, one)
    await it.soon(lambda: it.entry.losses > 0, 1.0)
    it.network.heal()


async def lost_what_was_not_synced(it: Director) -> None:
    """A follower loses power with rows that were acknowledged (R4). Then only it is there."""
    leader, one, other = it.cast()
    await it.until(lambda: it.unsynced(other) > 3 and it.acknowledged > 6, "rows are not synced")
    it.kill(leader, one)
    it.lose_power(other, "what was synced")
    it.start(other)
    await it.soon(lambda: it.entry.leader == other, 1.0)
    it.start(leader, one)


async def stage_of_nobody(it: Director) -> None:
    """A follower dies with a stage that is published meanwhile; who leads when it is back has no stages to tell of
    (R15).
    """
    leader, other, late = it.cast()
    await it.until(lambda: it.stages(late) > 0, "a follower has a stage", every_s=FIRST_LOOK_S)
    it.kill(late)
    await it.users_are_done()
    await it.until(lambda: not it.stages(leader) and not it.stages(other), "the stage is gone")
    it.kill(leader)
    await it.until(lambda: it.entry.leader == other, "another one leads")
    it.start(leader, late)


async def moved_once(it: Director) -> None:
    """A copy is moved to a server that has none, and nothing else happens."""
    await it.until(lambda: it.acknowledged > 3, "rows are acknowledged")
    entry = it.entry
    spare = next(one for one in it.scene.plan.server_ids if one not in entry.servers)
    it.troubles.move_bucket(EVENTS, 0, (*entry.wanted[:2], spare))
    await it.until(lambda: spare in it.entry.wanted, "the move is ordered")
    await it.soon(lambda: not it.entry.moving, 2.0)


async def sealed_by_one(it: Director) -> None:
    """No follower gets the stage that is sealed; its leader dies, and is back when another one leads (R14)."""
    leader, one, other = it.cast()
    await it.until(lambda: it.acknowledged > 0, "something is published")
    before = it.decided
    it.block(leader, one, other)
    await it.soon(lambda: it.decided > before, 0.8)
    it.kill(leader)
    await it.until(lambda: it.entry.leader != leader, "another one leads")
    it.network.heal()
    it.start(leader)


SCRIPTS = {
    "joined-unheard": Script(_ROWS, joined_unheard),
    "joins-with-too-little": Script(replace(_ROWS, replica_lag="2 s"), joins_with_too_little),
    "joins-without-stages": Script(_TRANSACTIONS, joins_without_stages),
    "reported-before-compared": Script(_ROWS, reported_before_compared),
    "leader-out-of-reach": Script(_ROWS, leader_out_of_reach),
    "one-is-ahead": Script(_ROWS, one_is_ahead),
    "leader-alone": Script(replace(_ROWS, min_insync=1), leader_alone),
    "last-one-loses-its-disk": Script(_ROWS, last_one_loses_its_disk),
    "one-does-not-answer": Script(_ROWS_OS, one_does_not_answer),
    "lost-what-was-not-synced": Script(_ROWS_OS, lost_what_was_not_synced),
    "stage-of-nobody": Script(_TRANSACTIONS, stage_of_nobody),
    "moved-once": Script(replace(_ROWS, servers=4), moved_once),
    "sealed-by-one": Script(_TRANSACTIONS, sealed_by_one),
}


def script_plan(name: str) -> Plan:
    """The plan of a script."""
    return replace(SCRIPTS[name].plan, script=name)
