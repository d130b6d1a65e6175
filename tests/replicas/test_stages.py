"""Transactions on several copies: a sealed stage is on every member, and is published once, whoever leads."""

from __future__ import annotations

import asyncio

import pytest

from replicas.scene import BUCKET, ReplicaScene, play, rows
from strom.aio.transaction import Transaction
from strom.client.write import staging
from strom.errors import StageNotFound, StorageFull, StromError
from strom.log.groups import Group
from strom.runtime.files import File

BOTH = pytest.mark.parametrize("durability", ["group", "os"])


async def staged(scene: ReplicaScene, *numbers: int, id: str = "load", version: int = 1) -> Transaction:
    """A transaction whose rows are sealed on every member, and not decided."""
    tx = scene.database.transaction(id, version)
    await tx.append("events", rows(*numbers))
    await tx.prepare()
    return tx


def sealed(scene: ReplicaScene) -> list[int]:
    """How many sealed stages each living copy has."""
    servers = [scene.leader, *scene.followers]
    return [len(one.tablet(BUCKET).stages.sealed_ids()) for one in servers]


@BOTH
def test_a_transaction_is_published_on_every_copy(durability: str) -> None:
    async def scenario(scene: ReplicaScene) -> None:
        await scene.begin()
        await scene.append(1)
        async with scene.database.transaction("load", 1) as tx:
            await tx.append("events", rows(2, 3, 4))
        await scene.append(5)
        await scene.equal()
        assert await scene.numbers() == [1, 2, 3, 4, 5]
        numbers = {one.tablet(BUCKET).log.groups.newest for one in (scene.leader, *scene.followers)}
        assert len(numbers) == 1
        await scene.until(lambda: sealed(scene) == [0, 0, 0])

    play(scenario, durability=durability)


@BOTH
def test_a_sealed_stage_is_on_every_member_and_survives_the_leader(durability: str) -> None:
    async def scenario(scene: ReplicaScene) -> None:
        await scene.begin()
        tx = await staged(scene, 1, 2, 3)
        assert sealed(scene) == [1, 1, 1]
        await scene.kill_leader()
        await tx.commit()
        await scene.append(4)
        assert await scene.numbers() == [1, 2, 3, 4]
        await scene.until(lambda: sealed(scene) == [0, 0])

    play(scenario, durability=durability)


def test_a_seal_is_not_acknowledged_while_a_member_lacks_it() -> None:
    async def scenario(scene: ReplicaScene) -> None:
        await scene.begin()
        await scene.append(1)
        scene.cluster.network.stall(scene.leader.host, scene.followers[0].host)
        sealing = asyncio.ensure_future(staged(scene, 2))
        await scene.until(lambda: len(scene.leader.tablet(BUCKET).stages.sealed_ids()) == 1)
        await asyncio.sleep(1)
        assert not sealing.done()
        scene.cluster.network.heal()
        await sealing

    play(scenario, replica_lag_max="60 s")


def test_a_seal_is_not_acknowledged_while_too_few_copies_are_in_sync() -> None:
    async def scenario(scene: ReplicaScene) -> None:
        await scene.begin(table_min_insync="2")
        await scene.append(1)
        away = scene.followers
        for follower in away:
            follower.kill()
        scene.only_member(scene.leader.server_id)
        await scene.until(lambda: len(scene.leading().leadership.counted()) == 1)
        sealing = asyncio.ensure_future(staged(scene, 2))
        await scene.until(lambda: len(scene.leader.tablet(BUCKET).stages.sealed_ids()) == 1)
        await asyncio.sleep(2)
        assert not sealing.done(), "one machine alone has it"
        for follower in away:
            await follower.start()
        tx = await sealing
        await tx.commit()
        assert await scene.numbers() == [1, 2]

    play(scenario)


def test_a_long_stage_comes_in_pieces() -> None:
    async def scenario(scene: ReplicaScene) -> None:
        await scene.begin()
        many = range(100_000)
        tx = await staged(scene, *many)
        assert sealed(scene) == [1, 1, 1]
        await scene.kill_leader()
        await tx.commit()
        assert await scene.numbers() == list(many)

    play(scenario)


def test_a_follower_that_returns_keeps_stages_and_drops_what_the_leader_dropped() -> None:
    async def scenario(scene: ReplicaScene) -> None:
        await scene.begin(table_min_insync="1")
        kept = await staged(scene, 1, id="kept")
        gone = await staged(scene, 2, id="gone")
        away = scene.followers[0]
        away.kill()
        scene.cluster.believe_dead(away.server_id)
        await scene.until(lambda: away.server_id not in scene.in_sync)
        await gone.commit()
        new = await staged(scene, 3, id="new")
        await scene.until(lambda: len(scene.leader.tablet(BUCKET).stages.sealed_ids()) == 2)
        await away.start()
        await scene.until(lambda: away.server_id in scene.in_sync)
        await scene.until(lambda: sealed(scene) == [2, 2, 2])
        for tx in (kept, new):
            await tx.commit()
        assert sorted(await scene.numbers()) == [1, 2, 3]
        await scene.until(lambda: sealed(scene) == [0, 0, 0])

    play(scenario)


@BOTH
def test_a_decision_is_published_once_though_leaders_die_all_the_time(durability: str) -> None:
    async def scenario(scene: ReplicaScene) -> None:
        await scene.begin()
        done = asyncio.Event()

        async def load() -> None:
            for version in range(12):
                while True:
                    try:
                        async with scene.database.transaction("load", version) as tx:
                            await tx.append("events", rows(*range(10 * version, 10 * version + 10)))
                        break
                    except StromError:
                        await asyncio.sleep(0.05)
            done.set()

        loading = asyncio.ensure_future(load())
        while not done.is_set():
            await asyncio.sleep(0.15)
            if scene.in_sync == {0, 1, 2}:
                dead = await scene.kill_leader()
                await dead.start()
        await loading
        assert await scene.numbers() == list(range(120))
        await scene.equal()

    play(scenario, durability=durability)


def test_a_decision_goes_to_the_next_leader_though_nobody_repeats_it() -> None:
    async def scenario(scene: ReplicaScene) -> None:
        await scene.begin()
        tx = await staged(scene, 1, 2, 3)
        dead = scene.leader
        dead.kill()
        committing = asyncio.ensure_future(tx.commit())
        await scene.until(lambda: scene.cluster.catalog.last_decision == 1)
        committing.cancel()
        await asyncio.sleep(1)
        scene.cluster.believe_dead(dead.server_id)
        await scene.until(lambda: scene.leads(scene.leader))
        await scene.until(lambda: scene.leader.tablet(BUCKET).high_watermark == 3)
        assert await scene.numbers() == [1, 2, 3]

    play(scenario)


def test_a_copy_drops_a_stage_that_is_gone_though_its_leader_has_none() -> None:
    """A leader without stages had nothing to tell: who came back with one kept it."""

    async def scenario(scene: ReplicaScene) -> None:
        await scene.begin()
        tx = await staged(scene, 1)
        away = scene.followers[0]
        away.kill()
        await tx.abort()
        await scene.until(lambda: sealed(scene) == [0, 0])
        await scene.kill_leader()
        await away.start()
        await scene.until(lambda: scene.in_sync >= {away.server_id})
        await scene.until(lambda: sealed(scene) == [0, 0])
        assert await scene.numbers() == []

    play(scenario, replica_lag_max="300 ms")


@BOTH
def test_a_group_whose_closing_found_no_room_is_closed_though_nothing_more_comes(durability: str) -> None:
    async def scenario(scene: ReplicaScene) -> None:
        await scene.begin()
        await scene.append(1)
        groups = scene.followers[0].tablet(BUCKET).log._group_file
        close, refused = groups.close, []

        def close_if_there_is_room(group: Group) -> File:
            if len(refused) < 3:
                refused.append(group)
                raise StorageFull("no room on the disk")
            return close(group)

        groups.close = close_if_there_is_room  # type: ignore[method-assign]
        async with scene.database.transaction("load", 1) as tx:
            await tx.append("events", rows(2, 3, 4))
        await scene.equal()
        assert len(refused) == 3
        assert scene.in_sync == {0, 1, 2}

    play(scenario, durability=durability, replica_lag_max="60 s")


@BOTH
@pytest.mark.parametrize("more", [False, True])
def test_what_was_staged_at_a_leader_that_dies_is_staged_at_the_next_one(durability: str, more: bool) -> None:
    """Before its seal a stage is on one server only. Its loss is found by the next piece, or by the seal."""

    async def scenario(scene: ReplicaScene) -> None:
        await scene.begin()
        tx = await half_staged(scene)
        await scene.kill_leader()
        if more:
            await tx.append("events", rows(5, 6))
        await tx.commit()
        await scene.append(7)
        assert await scene.numbers() == [1, 2, 3, 4, *([5, 6] if more else []), 7]

    play(scenario, durability=durability)


async def half_staged(scene: ReplicaScene) -> Transaction:
    """A transaction whose leader has acknowledged two pieces."""
    tx = scene.database.transaction("load", 1)
    for numbers in ((1, 2), (3, 4)):
        await tx.append("events", rows(*numbers))
        (writer,) = tx._writers.values()
        await writer.flush()
    assert writer.stage_call.pieces == {BUCKET: 2}
    return tx


@pytest.mark.parametrize("more", [False, True])
def test_more_than_is_kept_has_to_be_staged_again_by_the_caller(
    more: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(scene: ReplicaScene) -> None:
        await scene.begin()
        tx = await half_staged(scene)
        await scene.kill_leader()
        if more:
            await tx.append("events", rows(5, 6))
        with pytest.raises(StageNotFound):
            await tx.commit()
        await scene.append(7)
        assert await scene.numbers() == [7]

    monkeypatch.setattr(staging, "KEPT_BYTES_MAX", 10)
    play(scenario)
