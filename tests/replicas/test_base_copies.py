"""A copy that is below its leader's log copies the base, then the log behind it."""

from __future__ import annotations

import asyncio

import pytest

from replicas.scene import BUCKET, ReplicaScene, play
from replicas.test_keys import begin as begin_keys
from replicas.test_keys import names, upsert
from replicas.test_moves import move
from strom.server.replicas import leading
from strom.server.replicas.base_copying import BaseCopying
from strom.server.replicas.following import FollowingBucket
from strom.testing.replicated import ReplicaServer

SMALL = {
    "log_segment_file-size": "1kb",
    "log_checkpoint_bytes": "1kb",
    "log_retention_check-interval": "200 ms",
}


async def away_while(scene: ReplicaScene, grows: int) -> ReplicaServer:
    """A follower is away while so many rows are written, and the oldest of them go."""
    away = scene.followers[0]
    away.kill()
    scene.cluster.believe_dead(away.server_id)
    for number in range(100, 100 + grows):
        await scene.append(number)
    await scene.until(lambda: scene.leader.tablet(BUCKET).start_offset > 20, within_s=120)
    return away


@pytest.mark.parametrize("durability", ["group", "os"])
def test_a_follower_below_the_log_goes_on_where_it_starts(durability: str) -> None:
    async def scenario(scene: ReplicaScene) -> None:
        await scene.begin(**{"table.log.retention-bytes": "2kb"})
        for number in range(10):
            await scene.append(number)
        away = await away_while(scene, 60)
        last = await scene.produce(scene.leader, 7, writer=(77, 0))
        await away.start()
        await scene.until(lambda: away.server_id in scene.in_sync)
        start = away.tablet(BUCKET).start_offset
        assert start > 20
        end = scene.end()
        await scene.until(lambda: away.tablet(BUCKET).high_watermark == end)
        assert scene.stored(away)[-100:] == scene.stored(scene.leader)[-100:]
        other = next(one for one in scene.followers if one is not away)
        scene.cluster.believe_dead(scene.leader.server_id, other.server_id, alive=[0, 1, 2])
        await scene.until(lambda: scene.leads(scene.leader))
        again = await scene.produce(scene.leader, 7, writer=(77, 0))
        assert again.base_offset == last.base_offset, "it learned of writers with the base"

    play(scenario, durability=durability, **SMALL)


def test_a_new_disk_of_a_primary_key_table_gets_the_base_files() -> None:
    async def scenario(scene: ReplicaScene) -> None:
        await begin_keys(scene, **{"table.log.retention-bytes": "2kb"})
        for number in range(150):
            await upsert(scene, (number % 40, f"name {number}"))
        leader = scene.leader
        await scene.until(lambda: leader.tablet(BUCKET).start_offset > 0, within_s=120)
        replaced = scene.followers[0]
        replaced.kill()
        scene.cluster.believe_dead(replaced.server_id)
        replaced.replace_disk()
        await replaced.start()
        for _ in range(8):  # a copy that is interrupted goes on
            await asyncio.sleep(0.01)
            scene.cluster.network.cut(replaced.host)
        await scene.until(lambda: replaced.server_id in scene.in_sync, within_s=60)
        expected = await names(scene, *range(40))
        assert replaced.tablet(BUCKET).start_offset > 0
        for server in list(scene.cluster.servers.values()):
            if server is not replaced:
                server.kill()
        scene.cluster.believe_dead(*[one for one in range(3) if one != replaced.server_id])
        await scene.until(lambda: scene.leader is replaced and scene.leads(replaced))
        for server in scene.cluster.servers.values():
            if not server.alive:
                await server.start()
        assert await names(scene, *range(40)) == expected
        await upsert(scene, (1, "after"))
        assert await names(scene, 1) == ["after"]

    play(scenario, **SMALL, kv_snapshot_bytes="2kb", kv_snapshot_interval="1 s")


@pytest.mark.parametrize("least", [1, 1 << 20])
def test_a_new_copy_gets_the_files_of_the_base_where_they_spare_it_much_of_the_log(
    least: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leading, "BASE_BYTES_MIN", least)
    copied: list[int] = []
    begin = BaseCopying.begin

    def noted(self: BaseCopying, following: FollowingBucket) -> None:
        copied.append(following.tablet.end_offset)
        begin(self, following)

    monkeypatch.setattr(BaseCopying, "begin", noted)

    async def scenario(scene: ReplicaScene) -> None:
        await begin_keys(scene)
        for number in range(150):
            await upsert(scene, (number % 40, f"name {number}"))
        leader = scene.leader
        await scene.until(lambda: leader.tablet(BUCKET).base_offset > 100, within_s=120)
        assert leader.tablet(BUCKET).start_offset == 0
        assert not copied, "who followed all along has all of it"
        kept = [one for one in scene.in_sync if one != scene.followers[0].server_id]
        new = next(one for one in range(4) if one not in scene.in_sync)
        await move(scene, *kept, new)
        assert copied == ([0] if least == 1 else [])
        await scene.equal()
        assert scene.cluster.servers[new].tablet(BUCKET).start_offset == 0, "with the whole history"
        for server_id in kept:
            scene.cluster.servers[server_id].kill()
        scene.cluster.believe_dead(*kept)
        await scene.until(lambda: scene.leader is scene.cluster.servers[new] and scene.leads(scene.leader))
        for server_id in kept:
            await scene.cluster.servers[server_id].start()
        assert await names(scene, *range(40)) == [
            f"name {one + (120 if one < 30 else 80)}" for one in range(40)
        ]

    play(scenario, servers=4, **SMALL, kv_snapshot_bytes="2kb", kv_snapshot_interval="1 s")
