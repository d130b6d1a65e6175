"""When a write is acknowledged, and when it is refused: ``acks`` 0, 1 and all; ``table.min.insync``."""

from __future__ import annotations

import asyncio

import pytest

from replicas.scene import BUCKET, ReplicaScene, play
from strom import errors
from strom.protocol.error_codes import CODES

BOTH = pytest.mark.parametrize("durability", ["group", "os"])
TIMEOUT = CODES[errors.RequestTimeout]
TOO_FEW = CODES[errors.TooFewInSync]


def stall_followers(scene: ReplicaScene) -> None:
    for follower in scene.followers:
        scene.cluster.network.stall(scene.leader.host, follower.host)


@BOTH
def test_all_waits_for_every_copy_one_for_the_leader_and_none_for_nobody(durability: str) -> None:
    async def scenario(scene: ReplicaScene) -> None:
        await scene.begin()
        await scene.append(1)
        stall_followers(scene)
        leader = scene.leader
        for acks in (0, 1):
            answer = await scene.produce(leader, 2, acks=acks)
            assert answer.error_code is None
        waiting = await scene.produce(leader, 3, acks=-1, timeout_ms=300)
        assert waiting.error_code == TIMEOUT
        assert leader.tablet(BUCKET).high_watermark == 1
        assert await scene.latest(leader) == 1, "readers see what is committed, whatever was acknowledged"
        scene.cluster.network.heal()
        await scene.until(lambda: leader.tablet(BUCKET).high_watermark == 4)

    play(scenario, durability=durability, replica_lag_max="60 s")


def test_one_waits_for_the_sync_of_the_leader_under_group() -> None:
    async def scenario(scene: ReplicaScene) -> None:
        await scene.begin()
        await scene.append(1)
        stall_followers(scene)
        leader = scene.leader
        for number in range(2, 12):
            answer = await scene.produce(leader, number, acks=1)
            assert answer.error_code is None
            assert leader.tablet(BUCKET).log.synced_end == number

    play(scenario, durability="group", replica_lag_max="60 s", offload_ms_max=50)


def test_a_follower_that_only_wrote_does_not_count_under_group() -> None:
    async def scenario(scene: ReplicaScene) -> None:
        await scene.begin()
        await scene.append(1)
        leader, slow = scene.leader, scene.followers[0]
        slow.kill()
        waiting = asyncio.ensure_future(scene.produce(leader, 2, timeout_ms=20_000))
        await scene.until(lambda: scene.followers[0].tablet(BUCKET).log.synced_end == 2)
        said = {"at": 2, "epoch_before": 1, "end": 2, "high": 1}
        await scene.ask_as_follower(leader, slow, epoch=1, **said, synced=1)
        assert leader.tablet(BUCKET).high_watermark == 1
        await scene.ask_as_follower(leader, slow, epoch=1, **said, synced=2)
        assert (await waiting).error_code is None
        assert leader.tablet(BUCKET).high_watermark == 2

    play(scenario, durability="group", replica_lag_max="60 s")


def test_too_few_in_sync_refuse_before_anything_is_written_and_not_at_once() -> None:
    async def scenario(scene: ReplicaScene) -> None:
        await scene.begin(table_min_insync="2")
        await scene.append(1)
        leader = scene.leader
        for follower in scene.followers:
            follower.kill()
        scene.only_member(leader.server_id)
        await scene.until(lambda: len(scene.leading().leadership.counted()) == 1)
        began = asyncio.get_running_loop().time()
        answer = await scene.produce(leader, 2, timeout_ms=5000)
        assert answer.error_code == TOO_FEW
        assert 0.1 <= asyncio.get_running_loop().time() - began <= 0.5, "a client without a pause would spin"
        assert leader.tablet(BUCKET).end_offset == 1
        for acks in (0, 1):
            accepted = await scene.produce(leader, 3, acks=acks)
            assert accepted.error_code is None
        assert leader.tablet(BUCKET).high_watermark == 1, "nothing above the epoch's start is committed"

    play(scenario)


def test_what_was_asked_of_a_leader_is_answered_by_none_when_it_is_deposed() -> None:
    async def scenario(scene: ReplicaScene) -> None:
        await scene.begin()
        await scene.append(1)
        old = scene.leader
        stall_followers(scene)
        waiting = [asyncio.ensure_future(scene.produce(old, 7, timeout_ms=20_000)) for _ in range(3)]
        await scene.until(lambda: old.tablet(BUCKET).end_offset == 4)
        began = asyncio.get_running_loop().time()
        scene.cluster.believe_dead(old.server_id)
        answers = await asyncio.gather(*waiting)
        assert {answer.error_code for answer in answers} == {CODES[errors.NotLeader]}
        assert asyncio.get_running_loop().time() - began < 1.0

    play(scenario, replica_lag_max="60 s")
