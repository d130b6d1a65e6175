"""What readers see: never less than they could have seen before, and nothing that could go again."""

from __future__ import annotations

import asyncio

import pytest

from replicas.scene import BUCKET, ReplicaScene, play
from strom import errors
from strom.errors import InvalidRequest
from strom.protocol.api_keys import CUT_BUCKETS, FETCH_LOG
from strom.protocol.error_codes import CODES
from strom.protocol.messages.cut import CutBucketRequest, CutBucketResponse, CutBucketsRequest
from strom.protocol.messages.log import FetchLogBucketRequest, FetchLogRequest, FetchLogTableRequest
from strom.testing.replicated import ReplicaServer


def test_a_new_leader_serves_readers_once_it_knows_what_was_committed() -> None:
    async def scenario(scene: ReplicaScene) -> None:
        await scene.begin()
        for number in range(5):
            await scene.append(number)
        for server in scene.followers:  # started anew, they know of no watermark
            server.kill()
            await server.start()
        await scene.until(lambda: scene.in_sync == {0, 1, 2})
        next_, other = scene.followers
        scene.cluster.network.stall(next_.host, other.host)
        scene.leader.kill()
        scene.cluster.believe_dead(0, alive=[next_.server_id, other.server_id])
        await scene.until(lambda: scene.leads(scene.leader))
        assert scene.leader is next_
        assert not scene.leading().serves
        asked = asyncio.ensure_future(scene.latest(next_))
        looked = asyncio.ensure_future(scene.numbers())
        await asyncio.sleep(1)
        assert not asked.done(), "it waits, it is not refused"
        assert not looked.done()
        scene.cluster.network.heal()
        assert await asked == 5
        assert await looked == list(range(5))

    play(scenario, replica_lag_max="60 s")


def test_readers_of_a_deposed_leader_are_sent_to_the_next() -> None:
    async def scenario(scene: ReplicaScene) -> None:
        await scene.begin()
        await scene.append(1)
        old = scene.leader
        fetching = asyncio.ensure_future(fetch(scene, old, offset=1, wait_ms=30_000))
        await asyncio.sleep(0.5)
        assert not fetching.done()
        scene.cluster.believe_dead(old.server_id)
        assert await fetching == CODES[errors.NotLeader]

    play(scenario)


async def fetch(
    scene: ReplicaScene, server: ReplicaServer, *, offset: int, wait_ms: int, follower: int = -1
) -> int | None:
    """The error code of a fetch."""
    bucket = FetchLogBucketRequest(bucket_id=0, fetch_offset=offset, max_fetch_bytes=1 << 20)
    table = FetchLogTableRequest(
        table_id=BUCKET.table_id, projection_pushdown_enabled=False, buckets_req=[bucket]
    )
    request = FetchLogRequest(
        follower_server_id=follower, max_bytes=1 << 20, max_wait_ms=wait_ms, tables_req=[table]
    )
    caller = await scene.caller(server)
    try:
        response = await caller.call(FETCH_LOG, request, timeout_s=60.0)
    finally:
        caller.close()
    return response.tables_resp[0].buckets_resp[0].error_code


def test_nobody_fetches_as_a_follower_on_a_listener_of_clients() -> None:
    async def scenario(scene: ReplicaScene) -> None:
        await scene.begin()
        await scene.append(1)
        with pytest.raises(InvalidRequest, match="inner listeners"):
            await fetch(scene, scene.leader, offset=0, wait_ms=0, follower=2)
        assert await fetch(scene, scene.leader, offset=0, wait_ms=0) is None

    play(scenario)


async def cut(scene: ReplicaScene, *, sync: bool) -> CutBucketResponse:
    request = CutBucketsRequest(
        table_id=BUCKET.table_id, timeout_ms=5000, buckets_req=[CutBucketRequest(bucket_id=0)], sync=sync
    )
    caller = await scene.caller(scene.leader)
    try:
        response = await caller.call(CUT_BUCKETS, request)
    finally:
        caller.close()
    return response.buckets_resp[0]


def test_a_tiering_round_ends_where_every_copy_is_synced() -> None:
    async def scenario(scene: ReplicaScene) -> None:
        await scene.begin()
        await scene.append(1)
        await scene.until(lambda: scene.leading().stable == 1)
        await scene.append(2)
        assert (await cut(scene, sync=False)).offset == 2
        assert (await cut(scene, sync=True)).offset == 1, "the other copies have not synced it yet"
        await scene.until(lambda: scene.leading().stable == 2, within_s=3)
        assert (await cut(scene, sync=True)).offset == 2

    play(scenario, durability="os", log_sync_interval="1 s")


def test_followers_learn_the_high_watermark_though_nothing_more_is_written() -> None:
    async def scenario(scene: ReplicaScene) -> None:
        await scene.begin()
        await scene.append(1)
        followers = [one.tablet(BUCKET) for one in scene.followers]
        began = asyncio.get_running_loop().time()
        await scene.until(lambda: all(one.high_watermark == 1 for one in followers))
        assert asyncio.get_running_loop().time() - began < 0.1

    play(scenario, replica_pull_wait="10 s")
