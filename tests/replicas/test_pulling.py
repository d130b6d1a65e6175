"""Questions and answers between copies: what counts, what is late, what waits."""

from __future__ import annotations

import asyncio

import pytest

from replicas.scene import BUCKET, ReplicaScene, play
from strom import errors
from strom.coordinator import commands
from strom.errors import StorageOffline
from strom.log.copies.pulled import PulledBatches
from strom.protocol.error_codes import CODES
from strom.protocol.messages.replication import WireAnswer
from strom.server.replicas.pull_answers import (
    ALONE_BYTES_MAX,
    AT_ONCE_BYTES_MAX,
    AnswerPlan,
    size_of_answer,
)

NOT_LEADER = CODES[errors.NotLeader]
MANY_BYTES = 1024 * 1024
"""Above what is read and appended on the loop whatever else is done."""


def test_a_report_of_another_log_counts_for_nothing() -> None:
    async def scenario(scene: ReplicaScene) -> None:
        await scene.begin()
        await scene.append(1)
        leader, gone = scene.leader, scene.followers[0]
        gone.kill()
        waiting = asyncio.ensure_future(scene.produce(leader, 2, timeout_ms=3000))
        await scene.until(lambda: scene.followers[0].tablet(BUCKET).log.synced_end == 2)
        other = await scene.ask_as_follower(
            leader, gone, epoch=1, at=2, epoch_before=0, end=2, synced=2, high=0
        )
        assert other is not None
        assert (other.diverging_epoch, other.diverging_end) == (-1, 0), "its record has another epoch"
        assert leader.tablet(BUCKET).high_watermark == 1
        assert (await waiting).error_code == CODES[errors.RequestTimeout]

    play(scenario, replica_lag_max="60 s")


@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside small rows"])
def test_many_rows_are_read_and_appended_on_the_loop_while_nothing_small_is_done(
    beside: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To hand them to a thread and back costs as much; but whoever does something small would wait for them."""
    read_on_loop: list[bool] = []
    appended_on_loop: list[bool] = []

    async def scenario(scene: ReplicaScene) -> None:
        await scene.begin()
        await scene.append(1)
        await asyncio.sleep(1)
        leader, follower = scene.leader, scene.followers[0]
        replica = follower.replicas.find(BUCKET)
        assert replica is not None
        copy = follower.tablet(BUCKET).copy
        append, read = copy.append_pulled, AnswerPlan.read

        def appended(pulled: PulledBatches, *, now_ms: int) -> int:
            if pulled.size > MANY_BYTES:
                appended_on_loop.append(replica.slot.lane_idle)
            return append(pulled, now_ms=now_ms)

        def noted(plan: AnswerPlan, room: int) -> WireAnswer:
            answer = read(plan, room)
            if size_of_answer(answer) > MANY_BYTES:
                sessions = leader.replicas.sessions._sessions.values()
                read_on_loop.append(not any(one.building for one in sessions))
            return answer

        copy.append_pulled = appended  # type: ignore[method-assign]
        monkeypatch.setattr(AnswerPlan, "read", noted)
        if beside:
            await scene.append(2)
        assert (await scene.produce(leader, *range(60_000), timeout_ms=5000)).error_code is None
        await scene.equal()

    play(scenario)
    assert set(read_on_loop) == set(appended_on_loop) == {not beside}


def test_so_many_rows_are_read_at_once_that_others_need_not_wait_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sizes: list[int] = []

    async def scenario(scene: ReplicaScene) -> None:
        await scene.begin()
        await scene.append(1)
        leader, read = scene.leader, AnswerPlan.read

        def noted(plan: AnswerPlan, room: int) -> WireAnswer:
            answer = read(plan, room)
            sizes.append(size_of_answer(answer))
            return answer

        monkeypatch.setattr(AnswerPlan, "read", noted)
        for follower in scene.followers:
            scene.cluster.network.stall(leader.host, follower.host)
        for _ in range(5):
            assert (await scene.produce(leader, *range(60_000), acks=0)).error_code is None
        behind = leader.tablet(BUCKET).bytes_from(1)
        assert AT_ONCE_BYTES_MAX < behind < ALONE_BYTES_MAX
        await asyncio.sleep(1)
        sizes.clear()
        scene.cluster.network.heal()
        await scene.equal()

    play(scenario, replica_lag_max="60 s")
    assert AT_ONCE_BYTES_MAX // 2 < max(sizes) <= AT_ONCE_BYTES_MAX


def test_a_late_answer_is_not_taken() -> None:
    async def scenario(scene: ReplicaScene) -> None:
        await scene.begin()
        await scene.append(1)
        follower = scene.followers[0]
        replica = follower.replicas.find(BUCKET)
        assert replica is not None
        following = replica.following
        assert following is not None
        answer = await scene.ask_as_follower(scene.leader, follower, epoch=1)
        assert answer is not None
        assert answer.records is not None
        before = following.tablet.copy.position()
        following.answered(answer)  # to a question that it never asked
        await asyncio.sleep(1)
        assert following.tablet.copy.position() == before
        await scene.append(2)
        await scene.equal()

    play(scenario)


def test_a_strong_read_waits_until_every_member_has_answered() -> None:
    async def scenario(scene: ReplicaScene) -> None:
        await scene.begin()
        await scene.append(1)
        leader = scene.leader
        replica = leader.replicas.find(BUCKET)
        assert replica is not None
        await replica.confirmed(10.0)
        scene.cluster.network.stall(leader.host, scene.followers[0].host)
        asked = asyncio.ensure_future(replica.confirmed(10.0))
        await asyncio.sleep(1)
        assert not asked.done(), "another may be leading by now"
        scene.cluster.network.heal()
        await asked

    play(scenario, replica_lag_max="60 s")


def test_a_restarted_leader_waits_to_be_elected() -> None:
    async def scenario(scene: ReplicaScene) -> None:
        await scene.begin()
        await scene.append(1)
        leader = scene.leader
        leader.kill()
        await leader.start()
        await asyncio.sleep(1)
        assert not scene.leads(leader), "its epoch was led by another process"
        refused = await scene.produce(leader, 2)
        assert refused.error_code == NOT_LEADER
        epoch = scene.cluster.entry(BUCKET).epoch
        scene.cluster.decide(commands.elect_leaders, [leader.server_id], alive=[0, 1, 2])
        await scene.append(2)
        assert scene.cluster.entry(BUCKET).epoch == epoch + 1
        assert await scene.numbers() == [1, 2]

    play(scenario)


@pytest.mark.parametrize("acks", [-1, 1, 0])
def test_a_write_that_was_under_way_when_its_leader_was_deposed_is_not_acknowledged(acks: int) -> None:
    async def scenario(scene: ReplicaScene) -> None:
        await scene.begin()
        await scene.append(1)
        old = scene.leader
        replica = old.replicas.find(BUCKET)
        assert replica is not None
        # The append is large, so it leaves the loop; its role changes before its answer is built.
        writing = asyncio.ensure_future(scene.produce(old, *range(60_000), acks=acks, timeout_ms=5000))
        await scene.until(lambda: not replica.slot.lane_idle)
        replica.heard_of(2)
        answer = await writing
        assert answer.error_code == NOT_LEADER

    play(scenario, offload_ms_max=20)


def test_many_buckets_share_the_calls_of_a_session() -> None:
    async def scenario(scene: ReplicaScene) -> None:
        await scene.begin(buckets=30)
        for number in range(60):
            await scene.append(number)
        assert sorted(await scene.numbers()) == list(range(60))
        dead = scene.cluster.servers[0]
        dead.kill()
        scene.cluster.believe_dead(0)
        for number in range(60, 120):
            await scene.append(number)
        assert sorted(await scene.numbers()) == list(range(120))
        leaders = {scene.cluster.entry(one).leader for one in scene.cluster.catalog.replicas}
        assert leaders == {1, 2}

    play(scenario)


def test_a_broken_connection_loses_no_question() -> None:
    async def scenario(scene: ReplicaScene) -> None:
        await scene.begin()
        for number in range(10):
            scene.cluster.network.cut(scene.leader.host)
            began = asyncio.get_running_loop().time()
            await scene.append(number)
            assert asyncio.get_running_loop().time() - began < 2
        assert await scene.numbers() == list(range(10))

    play(scenario, replica_lag_max="60 s")


def test_an_answer_that_a_copy_cannot_take_stops_that_copy_and_no_other() -> None:
    async def scenario(scene: ReplicaScene) -> None:
        await scene.begin(buckets=3)
        await scene.append(1)
        follower = scene.followers[0]
        copy = follower.tablet(BUCKET).copy

        def fail(_pulled: object, *, now_ms: int) -> int:
            raise AssertionError(f"at {now_ms}")

        copy.append_pulled = fail  # type: ignore[method-assign]
        for number in range(2, 30):
            await scene.append(number)
        assert isinstance(follower.tablet(BUCKET).error, StorageOffline)
        assert sorted(await scene.numbers()) == list(range(1, 30))
        others = [one for one in scene.cluster.catalog.replicas if one != BUCKET]
        await scene.until(
            lambda: all(
                follower.tablet(one).high_watermark
                == scene.cluster.servers[scene.cluster.entry(one).leader].tablet(one).end_offset
                for one in others
            )
        )

    play(scenario)


def test_partitions_are_copied_each_for_itself() -> None:
    async def scenario(scene: ReplicaScene) -> None:
        await scene.begin()
        days = await scene.database.create_table(
            "days", {"number": "BIGINT", "day": "STRING"}, partition_by="day", buckets=1
        )
        for day, numbers in (("20261119", [1, 2, 3]), ("20261120", [4])):
            await days.append({"number": numbers, "day": [day] * len(numbers)})
        await days.flush()
        copied = [
            sorted(
                (one.slot.tablet.end_offset, one.slot.tablet.log.synced_end)
                for one in scene.cluster.servers[number].replicas
                if one.slot.bucket.partition_id is not None
            )
            for number in scene.cluster.alive
        ]
        assert copied == [[(1, 1), (3, 3)]] * 3

    play(scenario)
