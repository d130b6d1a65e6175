"""All in-sync copies lost power at once, under ``os``: as little as can be is lost, and it is declared (R10)."""

from __future__ import annotations

from replicas.scene import BUCKET, ReplicaScene, play
from strom.coordinator import commands
from strom.protocol.api_keys import POSITION
from strom.protocol.messages.replication import PositionRequest, WireBucket
from strom.replication.elections import FoundCopy
from strom.replication.member import CopyIdentity
from strom.testing.replicated import ReplicaServer


async def found(scene: ReplicaScene) -> dict[int, FoundCopy]:
    """What the servers answer when they are asked for their copies."""
    copies = {}
    wanted = PositionRequest(buckets_req=[WireBucket(table_id=BUCKET.table_id, bucket_id=0)])
    for server in [scene.cluster.servers[one] for one in scene.cluster.alive]:
        answer = await scene.inner(server, POSITION, wanted)
        one = answer.positions[0]
        assert one.error_code is None
        identity = CopyIdentity(server.disk_id, one.placement or 0, server.lineage)
        copies[server.server_id] = FoundCopy(answer.incarnation, identity, one.last_epoch or 0, one.end or 0)
    return copies


def test_after_a_power_loss_of_all_everything_that_was_synced_everywhere_is_there() -> None:
    async def scenario(scene: ReplicaScene) -> None:
        await scene.begin()
        for number in range(5):
            await scene.append(number)
        await scene.until(lambda: scene.leading().stable == 5)
        for number in range(5, 8):
            await scene.append(number)
        for server in scene.cluster.servers.values():
            server.kill(power_loss=True)
        for server in scene.cluster.servers.values():
            await server.start()
        scene.cluster.decide(commands.elect_leaders, range(3), alive=range(3))
        assert not any(map(scene.leads, scene.cluster.servers.values())), "no copy is what it was"
        entry = scene.cluster.decide(commands.recover, BUCKET, await found(scene), now_ms=1)
        assert entry is not None
        assert entry.losses == 1
        await scene.until(lambda: scene.in_sync == {0, 1, 2})
        numbers = await scene.numbers()
        assert numbers[:5] == list(range(5))
        assert numbers == list(range(len(numbers)))
        await scene.append(100)
        await scene.equal()

    play(scenario, durability="os", log_sync_interval="1 s")


def test_under_group_a_power_loss_of_all_loses_nothing_and_needs_nobody() -> None:
    async def scenario(scene: ReplicaScene) -> None:
        await scene.begin()
        for number in range(8):
            await scene.append(number)
        for server in scene.cluster.servers.values():
            server.kill(power_loss=True)
        for server in scene.cluster.servers.values():
            await server.start()
        scene.cluster.decide(commands.elect_leaders, range(3), alive=range(3))
        await scene.until(lambda: scene.leads(scene.leader))
        assert await scene.numbers() == list(range(8))
        assert scene.cluster.entry(BUCKET).losses == 0
        await scene.append(8)
        await scene.equal()

    play(scenario, durability="group")


def test_a_copy_with_more_than_is_left_is_cut_even_if_the_leader_changes_before_it_answers() -> None:
    async def scenario(scene: ReplicaScene) -> None:
        await scene.begin(table_min_insync="1")
        await scene.append(0)
        ahead, behind = scene.followers
        behind.kill()
        scene.cluster.believe_dead(behind.server_id)
        await scene.append(1)
        await scene.append(2)
        await scene.until(lambda: ahead.tablet(BUCKET).high_watermark == 3)
        scene.leader.kill()
        await behind.start()
        copies = await found(scene)
        forced = {behind.server_id: copies[behind.server_id]}
        assert forced[behind.server_id].end == 1
        epoch = scene.cluster.entry(BUCKET).epoch
        scene.cluster.decide(
            commands.elect_uncleanly, BUCKET, forced, behind.server_id, epoch=epoch, now_ms=1, by="a person"
        )
        behind.kill()  # before it answers anybody
        await scene.until(lambda: following(ahead, epoch + 1))
        await behind.start()
        scene.cluster.decide(commands.elect_leaders, [behind.server_id], alive=scene.cluster.alive)
        await scene.until(lambda: scene.leads(behind))
        await scene.until(lambda: scene.in_sync == {ahead.server_id, behind.server_id})
        assert await scene.numbers() == [0]
        await scene.append(3)
        await scene.equal()

    play(scenario, durability="group")


def following(server: ReplicaServer, epoch: int) -> bool:
    """Whether a server follows the leader of an epoch."""
    replica = server.replicas.find(BUCKET)
    return replica is not None and replica.following is not None and replica.following.epoch == epoch
