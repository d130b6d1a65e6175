"""What was acknowledged survives its leader; who comes next goes on where it was."""

from __future__ import annotations

import asyncio

import pytest

from replicas.scene import BUCKET, ReplicaScene, play
from strom import errors
from strom.protocol.error_codes import CODES

BOTH = pytest.mark.parametrize("durability", ["group", "os"])
NOT_LEADER = CODES[errors.NotLeader]


@BOTH
def test_copies_are_equal_byte_by_byte(durability: str) -> None:
    async def scenario(scene: ReplicaScene) -> None:
        await scene.begin()
        for number in range(20):
            await scene.append(number)
        await scene.equal()
        assert await scene.numbers() == list(range(20))

    play(scenario, durability=durability)


@BOTH
def test_acknowledged_rows_survive_the_death_of_their_leader(durability: str) -> None:
    async def scenario(scene: ReplicaScene) -> None:
        await scene.begin()
        acknowledged: list[int] = []

        async def write() -> None:
            for number in range(60):
                await scene.append(number)
                acknowledged.append(number)

        writing = asyncio.ensure_future(write())
        for round_ in range(3):
            await scene.until(lambda least=15 * (round_ + 1): len(acknowledged) >= least)
            dead = await scene.kill_leader()
            await scene.until(lambda least=15 * (round_ + 1) + 3: len(acknowledged) >= least)
            await dead.start()
            await scene.until(lambda dead=dead: dead.server_id in scene.in_sync)
        await writing
        assert await scene.numbers() == list(range(60))
        await scene.equal()

    play(scenario, durability=durability)


@BOTH
def test_a_power_loss_of_the_leader_loses_nothing_that_was_acknowledged(durability: str) -> None:
    async def scenario(scene: ReplicaScene) -> None:
        await scene.begin()
        for number in range(10):
            await scene.append(number)
        dead = await scene.kill_leader(power_loss=True)
        await scene.append(10)
        await dead.start()
        await scene.until(lambda: dead.server_id in scene.in_sync)
        assert await scene.numbers() == list(range(11))
        await scene.equal()

    play(scenario, durability=durability)


def test_a_repeated_batch_is_recognised_by_the_next_leader() -> None:
    async def scenario(scene: ReplicaScene) -> None:
        await scene.begin()
        first = await scene.produce(scene.leader, 1, 2, writer=(77, 0))
        second = await scene.produce(scene.leader, 3, writer=(77, 1))
        assert (first.base_offset, second.base_offset) == (0, 2)
        await scene.kill_leader()
        again = await scene.produce(scene.leader, 3, writer=(77, 1))
        assert (again.error_code, again.base_offset) == (None, 2)
        third = await scene.produce(scene.leader, 4, writer=(77, 2))
        assert third.base_offset == 3
        gap = await scene.produce(scene.leader, 9, writer=(77, 8))
        assert gap.error_code == CODES[errors.OutOfOrderSequence]
        assert await scene.numbers() == [1, 2, 3, 4]

    play(scenario)


def test_a_leader_that_is_cut_off_acknowledges_nothing_and_is_cut_back() -> None:
    async def scenario(scene: ReplicaScene) -> None:
        await scene.begin()
        await scene.append(1)
        old, others = scene.leader, scene.followers
        for other in others:
            scene.cluster.network.stall(old.host, other.host)
        lost = asyncio.ensure_future(scene.produce(old, 666, timeout_ms=3000))
        await scene.until(lambda: old.tablet(BUCKET).end_offset == 2)
        scene.cluster.believe_dead(old.server_id)
        await scene.until(lambda: scene.leads(scene.leader))
        assert scene.leader is not old
        await scene.append(2)
        answer = await lost
        assert answer.error_code == NOT_LEADER, "never acknowledged, and never answered with a fenced epoch"
        scene.cluster.network.heal()
        await scene.until(lambda: old.server_id in scene.in_sync)
        await scene.equal()
        assert await scene.numbers() == [1, 2]

    play(scenario)


def test_a_pull_with_a_higher_epoch_deposes_a_leader_that_cannot_see_the_metadata() -> None:
    async def scenario(scene: ReplicaScene) -> None:
        await scene.begin()
        await scene.append(1)
        old = scene.leader
        old.blind = True
        follower = scene.followers[0]
        scene.cluster.believe_dead(old.server_id)
        assert scene.leads(old)
        # Somebody asks the old leader in the name of the new epoch.
        replica = old.replicas.find(BUCKET)
        assert replica is not None
        await scene.until(lambda: scene.leads(scene.leader))
        assert scene.leads(old), "it does not know yet"
        question = await scene.ask_as_follower(old, follower, epoch=2)
        assert question is not None
        assert question.error_code == NOT_LEADER
        assert not scene.leads(old)
        refused = await scene.produce(old, 3)
        assert refused.error_code == NOT_LEADER
        old.blind = False
        await scene.append(2)
        assert await scene.numbers() == [1, 2]

    play(scenario)


def test_a_follower_refuses_writes_and_says_of_the_end_what_its_leader_says() -> None:
    async def scenario(scene: ReplicaScene) -> None:
        await scene.begin()
        await scene.append(1)
        for follower in scene.followers:
            for acks in (-1, 0, 1):
                refused = await scene.produce(follower, 2, acks=acks)
                assert refused.error_code == NOT_LEADER
            began = asyncio.get_running_loop().time()
            assert await scene.latest(follower) == 1
            assert asyncio.get_running_loop().time() - began < 1, "it asks, it does not wait to be served"
        assert await scene.numbers() == [1]

    play(scenario)


def test_a_client_without_a_pause_between_attempts_is_given_one() -> None:
    async def scenario(scene: ReplicaScene) -> None:
        await scene.begin()
        follower, loop = scene.followers[0], asyncio.get_running_loop()
        began = loop.time()
        for _ in range(20):
            assert (await scene.produce(follower, 1)).error_code == NOT_LEADER
        assert loop.time() - began < 0.5, "the first ones are answered at once: metadata are new in a moment"
        began = loop.time()
        for _ in range(5):
            assert (await scene.produce(follower, 1)).error_code == NOT_LEADER
        assert loop.time() - began >= 0.5

    play(scenario)
