"""Copies come and go: a server is added, gets everything, joins; another is removed, and its files with it."""

from __future__ import annotations

import asyncio
import itertools

from replicas.scene import BUCKET, ReplicaScene, play
from strom.coordinator import commands
from strom.protocol.api_keys import POSITION
from strom.protocol.messages.replication import PositionRequest, WireBucket
from strom.testing.replicated import ReplicaServer


def folders(server: ReplicaServer) -> list[str]:
    """The copies of the bucket that lie on a server's disk."""
    path = f"/data/buckets/{BUCKET}"
    return server.disk.list(path) if server.disk.exists(path) else []


async def move(scene: ReplicaScene, *wanted: int) -> None:
    """Let these servers have the copies, step by step, as a coordinator does."""
    cluster = scene.cluster
    cluster.decide(commands.reassign, {BUCKET: wanted})

    def done() -> bool:
        cluster.decide(commands.advance_moves, [BUCKET], alive=cluster.alive)
        entry = cluster.entry(BUCKET)
        return set(entry.servers) == set(wanted) and {one.server_id for one in entry.in_sync} == set(wanted)

    await scene.until(done)


def test_a_copy_moves_to_another_server_and_its_folder_goes() -> None:
    async def scenario(scene: ReplicaScene) -> None:
        await scene.begin()
        for number in range(10):
            await scene.append(number)
        kept, gone = scene.leader.server_id, scene.followers[0]
        new = next(one for one in scene.cluster.servers.values() if not folders(one))
        other = scene.followers[1].server_id
        await move(scene, kept, other, new.server_id)
        assert scene.in_sync == {kept, other, new.server_id}
        await scene.until(lambda: not folders(gone))
        assert gone.replicas.find(BUCKET) is None
        assert folders(new) == ["p2"], "named by its placement"
        await scene.append(10)
        await scene.equal()
        assert await scene.numbers() == list(range(11))

    play(scenario, servers=4)


def test_a_writer_hardly_notices_that_its_leader_hands_over() -> None:
    """Two calls, a look at the metadata and a pull: no pause of the client is among them."""

    async def scenario(scene: ReplicaScene) -> None:
        await scene.begin()
        await scene.append(1)
        now, answered = asyncio.get_running_loop().time, [0.0]

        async def write() -> None:
            for number in itertools.count():
                await scene.append(number)
                answered.append(now())

        writing = asyncio.create_task(write())
        for _ in range(2):
            await asyncio.sleep(0.05)
            del answered[:-1]
            led, to = scene.leader, scene.followers[0].server_id
            scene.cluster.decide(commands.move_leader, BUCKET, to, alive=scene.cluster.alive)
            await asyncio.sleep(0.06)
            assert scene.leader is not led
            assert max(b - a for a, b in itertools.pairwise(answered)) < 0.016
        writing.cancel()

    play(scenario, durability="os")


def test_the_leader_itself_can_be_moved_away() -> None:
    async def scenario(scene: ReplicaScene) -> None:
        await scene.begin()
        await scene.append(1)
        gone, others = scene.leader, [one.server_id for one in scene.followers]
        new = next(one for one in scene.cluster.servers.values() if not folders(one))
        await move(scene, *others, new.server_id)
        await scene.append(2)
        await scene.until(lambda: not folders(gone))
        await scene.equal()
        assert await scene.numbers() == [1, 2]

    play(scenario, servers=4)


def test_a_server_that_is_removed_and_added_again_begins_with_another_copy() -> None:
    async def scenario(scene: ReplicaScene) -> None:
        await scene.begin(table_min_insync="1")
        for number in range(5):
            await scene.append(number)
        leader, again = scene.leader.server_id, scene.followers[0]
        other = scene.followers[1].server_id
        await move(scene, leader, other)
        await scene.until(lambda: not folders(again))
        await scene.append(5)
        await move(scene, leader, other, again.server_id)
        assert folders(again) == ["p2"]
        await scene.equal()

    play(scenario)


def test_a_dropped_table_leaves_no_copy_behind() -> None:
    async def scenario(scene: ReplicaScene) -> None:
        await scene.begin()
        await scene.append(1)
        await scene.database.drop_table("events")
        servers = scene.cluster.servers.values()
        await scene.until(lambda: not any(map(folders, servers)), within_s=5)
        assert not any(list(one.replicas) for one in servers)

    play(scenario)


def test_a_server_tells_what_its_copies_hold() -> None:
    async def scenario(scene: ReplicaScene) -> None:
        await scene.begin()
        await scene.append(1, 2, 3)
        follower = scene.followers[0]
        await scene.until(lambda: follower.tablet(BUCKET).log.synced_end == 3)
        wanted = [
            WireBucket(table_id=BUCKET.table_id, bucket_id=0),
            WireBucket(table_id=99, bucket_id=0),
        ]
        answer = await scene.inner(follower, POSITION, PositionRequest(buckets_req=wanted))
        assert (answer.server_id, answer.incarnation) == (follower.server_id, follower.incarnation)
        found, unknown = answer.positions
        assert (found.placement, found.last_epoch, found.end, found.synced) == (1, 1, 3, 3)
        assert unknown.error_code is not None

    play(scenario)
