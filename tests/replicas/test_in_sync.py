"""Who is in the in-sync set: who lags leaves, who has everything joins, never fewer than ``table.min.insync``."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from replicas.scene import BUCKET, ReplicaScene, play
from strom import errors
from strom.coordinator import commands
from strom.protocol.error_codes import CODES

BOTH = pytest.mark.parametrize("durability", ["group", "os"])


@BOTH
def test_a_copy_that_lags_leaves_and_joins_again_when_it_has_everything(durability: str) -> None:
    async def scenario(scene: ReplicaScene) -> None:
        await scene.begin()
        await scene.append(1)
        slow = scene.followers[0]
        scene.cluster.network.stall(scene.leader.host, slow.host)
        began = asyncio.get_running_loop().time()
        await scene.append(2)  # waits until the slow one has left
        waited = asyncio.get_running_loop().time() - began
        assert 0.9 <= waited <= 2.0
        assert scene.in_sync == {0, 1, 2} - {slow.server_id}
        for number in range(3, 10):
            await scene.append(number)
        scene.cluster.network.heal()
        await scene.until(lambda: slow.server_id in scene.in_sync)
        await scene.equal()

    play(scenario, durability=durability, replica_lag_max="1 s")


@BOTH
def test_a_copy_that_returns_joins_while_rows_are_written_all_the_time(durability: str) -> None:
    """Under `os` the watermark is ahead of every sync until somebody stops writing."""

    async def scenario(scene: ReplicaScene) -> None:
        await scene.begin()
        back = scene.followers[0]
        back.kill()
        await scene.until(lambda: back.server_id not in scene.in_sync)

        async def write() -> None:
            for number in itertools.count():
                await scene.append(number)

        writing = asyncio.create_task(write())
        try:
            await back.start()
            await scene.until(lambda: back.server_id in scene.in_sync, within_s=5)
            assert not writing.done(), "nobody stopped writing for it"
        finally:
            writing.cancel()
        assert back.server_id in scene.in_sync

    play(scenario, durability=durability, replica_lag_max="1 s")


@pytest.mark.parametrize("lag_max", ["1 s", "300 ms"], ids=["", "less than a question waits"])
def test_a_copy_that_has_everything_stays_though_nothing_is_written(lag_max: str) -> None:
    async def scenario(scene: ReplicaScene) -> None:
        await scene.begin()
        await scene.append(1)
        versions = scene.cluster.catalog.version
        await asyncio.sleep(30)
        assert scene.in_sync == {0, 1, 2}
        assert scene.cluster.catalog.version == versions, "nothing was proposed"

    play(scenario, replica_lag_max=lag_max, replica_pull_wait="500 ms")


def test_a_dead_copy_leaves_though_nothing_is_written() -> None:
    async def scenario(scene: ReplicaScene) -> None:
        await scene.begin()
        await scene.append(1)
        dead = scene.followers[0]
        dead.kill()
        await scene.until(lambda: dead.server_id not in scene.in_sync, within_s=5)
        assert scene.in_sync == {0, 1, 2} - {dead.server_id}

    play(scenario, replica_lag_max="1 s")


def test_the_set_never_shrinks_below_min_insync() -> None:
    async def scenario(scene: ReplicaScene) -> None:
        await scene.begin(table_min_insync="2")
        await scene.append(1)
        leader, (first, second) = scene.leader, scene.followers
        first.kill()
        await scene.until(lambda: first.server_id not in scene.in_sync)
        second.kill()
        answer = await scene.produce(leader, 2, timeout_ms=10_000)
        assert answer.error_code == CODES[errors.RequestTimeout]
        assert scene.in_sync == {leader.server_id, second.server_id}
        await second.start()
        await scene.until(lambda: leader.tablet(BUCKET).high_watermark == 2)

    play(scenario, replica_lag_max="1 s")


def test_without_min_insync_the_leader_goes_on_alone() -> None:
    async def scenario(scene: ReplicaScene) -> None:
        await scene.begin(table_min_insync="1")
        await scene.append(1)
        for follower in scene.followers:
            follower.kill()
        await scene.append(2)
        assert scene.in_sync == {scene.leader.server_id}

    play(scenario, replica_lag_max="500 ms")


def test_a_copy_on_a_new_disk_joins_as_another_member_and_only_with_everything() -> None:
    async def scenario(scene: ReplicaScene) -> None:
        await scene.begin()
        for number in range(20):
            await scene.append(number)
        replaced = scene.followers[0]
        replaced.kill()
        replaced.replace_disk()
        await replaced.start()
        await scene.until(lambda: f"{replaced.disk_id}" in str(scene.cluster.entry(BUCKET).in_sync))
        assert replaced.tablet(BUCKET).log.synced_end == 20
        await scene.equal()
        member = scene.cluster.entry(BUCKET).member_of(replaced.server_id)
        assert member is not None
        assert member.identity.disk == replaced.disk_id
        await scene.append(20)
        version = scene.cluster.catalog.version
        await asyncio.sleep(5)
        assert scene.cluster.catalog.version == version, "that its older copy is late is not held against it"

    play(scenario, replica_lag_max="1 s")


def test_a_copy_whose_connection_ended_is_not_let_in() -> None:
    """It had everything a moment ago, and would hold up every write until it counts as late."""

    async def scenario(scene: ReplicaScene) -> None:
        await scene.begin(table_min_insync="1")
        await scene.append(1)
        leader, gone = scene.leader, scene.followers[0]
        gone.kill()
        scene.cluster.network.cut(gone.host)
        await scene.until(lambda: not leader.replicas.sessions.asks(gone.server_id))
        scene.only_member(leader.server_id)
        await scene.until(lambda: len(scene.in_sync) > 1)
        await asyncio.sleep(3)
        assert scene.in_sync == {0, 1, 2} - {gone.server_id}

    play(scenario, replica_lag_max="60 s")


def test_a_proposal_whose_outcome_is_unknown_goes_on_counting() -> None:
    async def scenario(scene: ReplicaScene) -> None:
        await scene.begin(table_min_insync="1")
        await scene.append(1)
        leader, slow = scene.leader, scene.followers[0]
        slow.kill()
        scene.cluster.decide(commands.drop_dead_members, [slow.server_id], alive=scene.cluster.alive)
        await scene.until(lambda: slow.server_id not in scene.in_sync)
        await scene.append(2)
        leader.loses_answers = True  # what it commits happens, and it never hears of it
        await slow.start()
        await scene.until(lambda: slow.server_id in scene.in_sync)
        assert not scene.leading().leadership.counted() <= set()
        counted = {one.server_id for one in scene.leading().leadership.counted()}
        assert slow.server_id in counted, "it may be in the set by now, and it is"
        scene.cluster.network.stall(leader.host, slow.host)
        waiting = await scene.produce(leader, 3, timeout_ms=300)
        assert waiting.error_code == CODES[errors.RequestTimeout]

    play(scenario, replica_lag_max="60 s")


def test_a_failed_sync_takes_the_copy_offline_and_the_others_go_on() -> None:
    async def scenario(scene: ReplicaScene) -> None:
        await scene.begin()
        await scene.append(1)
        broken = scene.followers[0]
        broken.disk.fail_next_sync(10)
        await scene.append(2)
        await scene.until(lambda: broken.server_id not in scene.in_sync)
        assert not broken.tablet(BUCKET).online
        await scene.append(3)
        assert await scene.numbers() == [1, 2, 3]

    play(scenario, durability="group", replica_lag_max="500 ms")
