"""Planned reads from followers: up to a cut that the leader gave, from any copy that has reached it."""

from __future__ import annotations

import pyarrow as pa
import pytest

from replicas.scene import BUCKET, ReplicaScene, play, rows
from replicas.test_keys import begin, customers
from strom import errors
from strom.protocol.api_keys import FETCH_ROWS, SCAN_ROWS
from strom.protocol.error_codes import CODES
from strom.protocol.messages.own import FetchRowsBucketRequest, FetchRowsRequest
from strom.protocol.messages.own_keys import ScanRowsRequest
from strom.testing.replicated import ReplicaServer


def followed_bytes(server: ReplicaServer) -> float:
    """What a server answered as a follower."""
    assert server.node is not None
    facts = server.node.tables.of(BUCKET.table_id)
    return float(facts.traffic.bytes_followed.value)


async def read(scene: ReplicaScene, plan: object) -> pa.Table:
    found: pa.Table = await scene.table.read_plan(plan).to_arrow()
    return found


async def begin_log(scene: ReplicaScene) -> None:
    await scene.begin()
    for number in range(5):
        await scene.append(number)
    await scene.equal()


async def begin_keys(scene: ReplicaScene) -> None:
    await begin(scene)
    await scene.table.upsert(customers(*((number, f"name {number}") for number in range(5))))
    await scene.table.flush()
    await scene.equal()


@pytest.mark.parametrize("start", [begin_log, begin_keys])
def test_a_plan_is_read_from_a_follower_and_its_leader_is_not_asked(start: object) -> None:
    async def scenario(scene: ReplicaScene) -> None:
        await start(scene)  # type: ignore[operator]
        plan = await scene.table.scan().plan()
        scene.cluster.network.stall("client", scene.leader.host)
        assert (await read(scene, plan)).num_rows == 5
        assert sum(map(followed_bytes, scene.followers)) > 0
        assert followed_bytes(scene.leader) == 0

    play(scenario, replica_lag_max="60 s")


@pytest.mark.parametrize("start", [begin_log, begin_keys])
@pytest.mark.parametrize("trouble", ["behind", "dead", "removed"])
def test_a_follower_that_cannot_answer_is_no_trouble(start: object, trouble: str) -> None:
    async def scenario(scene: ReplicaScene) -> None:
        await start(scene)  # type: ignore[operator]
        asked = scene.table.session.cluster.metadata.follower(BUCKET)
        assert asked is not None
        follower = next(one for one in scene.followers if one.host == asked.host)
        if trouble == "behind":
            scene.cluster.network.stall(scene.leader.host, follower.host)
            scene.cluster.believe_dead(follower.server_id)
            if start is begin_log:
                await scene.table.append(rows(5))
            else:
                await scene.table.upsert(customers((5, "name 5")))
            await scene.table.flush()
        plan = await scene.table.scan().plan()
        if trouble == "dead":
            follower.kill()
        elif trouble == "removed":
            replica = follower.replicas.find(BUCKET)
            assert replica is not None
            replica.close()
        assert (await read(scene, plan)).num_rows == (6 if trouble == "behind" else 5)
        assert not follower.alive or followed_bytes(follower) == 0

    play(scenario, replica_lag_max="60 s")


def test_a_scan_that_was_just_planned_asks_the_leader() -> None:
    async def scenario(scene: ReplicaScene) -> None:
        await begin_log(scene)
        assert len(await scene.numbers()) == 5
        assert not any(map(followed_bytes, scene.followers))

    play(scenario)


def test_a_follower_answers_only_what_is_committed_and_only_of_the_same_history() -> None:
    async def scenario(scene: ReplicaScene) -> None:
        await begin_log(scene)
        follower = scene.followers[0]
        epoch = scene.cluster.entry(BUCKET).epoch

        async def code(end: int, cut: int | None, cut_epoch: int | None) -> int | None:
            bucket = FetchRowsBucketRequest(
                bucket_id=0,
                fetch_offset=0,
                max_bytes=1 << 20,
                end_offset=end,
                cut_offset=cut,
                cut_epoch=cut_epoch,
            )
            request = FetchRowsRequest(
                table_id=BUCKET.table_id, max_bytes=1 << 20, max_wait_ms=0, min_bytes=1, buckets_req=[bucket]
            )
            caller = await scene.caller(follower)
            try:
                return (await caller.call(FETCH_ROWS, request)).buckets_resp[0].error_code
            finally:
                caller.close()

        assert await code(5, 5, epoch) is None
        assert await code(3, 5, epoch) is None, "a part of the plan"
        assert await code(5, None, None) == CODES[errors.NotLeader], "nobody vouches for the end"
        assert await code(6, 6, epoch) == CODES[errors.NotLeader], "above what is committed here"
        assert await code(5, 5, epoch + 1) == CODES[errors.StaleEpoch]
        for other in scene.followers:
            if other is not follower:
                scene.cluster.network.stall(scene.leader.host, other.host)
        await scene.produce(scene.leader, 5, timeout_ms=200)  # this follower has it, and it is not committed
        await scene.until(lambda: follower.tablet(BUCKET).end_offset == 6)
        assert await code(6, 6, epoch) == CODES[errors.NotLeader]

    play(scenario, replica_lag_max="60 s")


def test_a_standby_of_keys_answers_instants_that_it_has_reached() -> None:
    async def scenario(scene: ReplicaScene) -> None:
        await begin_keys(scene)
        follower, epoch = scene.followers[0], scene.cluster.entry(BUCKET).epoch

        async def code(at: int, at_epoch: int | None) -> int | None:
            request = ScanRowsRequest(
                table_id=BUCKET.table_id,
                bucket_id=0,
                at=at,
                at_epoch=at_epoch,
                start=0,
                max_bytes=1 << 20,
                dead=False,
                schema_id=1,
            )
            caller = await scene.caller(follower)
            try:
                return (await caller.call(SCAN_ROWS, request)).error_code
            finally:
                caller.close()

        end = follower.tablet(BUCKET).high_watermark
        assert await code(end, epoch) is None
        assert await code(end, None) == CODES[errors.NotLeader]
        assert await code(-1, None) == CODES[errors.NotLeader]
        assert await code(end + 1, epoch) == CODES[errors.NotLeader]
        assert await code(end, epoch + 1) == CODES[errors.StaleEpoch]

    play(scenario)
