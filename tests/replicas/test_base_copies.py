"""A copy that is below its leader's log copies the base, then the log behind it."""

from __future__ import annotations

import asyncio

import pytest

from replicas.scene import BUCKET, ReplicaScene, play
from replicas.test_keys import begin as begin_keys
from replicas.test_keys import names, upsert
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
