"""Readers with a memory never go back: they are sent on, wait, or are told what was lost (R11)."""

from __future__ import annotations

import asyncio

import pyarrow as pa
import pytest

from replicas.scene import BUCKET, ReplicaScene, play
from replicas.test_keys import begin, names, upsert
from replicas.test_losses import found
from replicas.test_strong_lookups import deposed_unheard
from strom.client.cluster.address import Address
from strom.coordinator import commands
from strom.errors import StaleEpoch
from strom.protocol.api_keys import GET_METADATA
from strom.protocol.messages.metadata import GetMetadataRequest
from strom.protocol.messages.tables import WireTablePath
from strom.testing.replicated import CLIENT_PORT


def test_a_server_that_has_not_heard_of_the_new_leader_sends_nobody_back() -> None:
    async def scenario(scene: ReplicaScene) -> None:
        await begin(scene)
        await upsert(scene, (1, "old"))
        old = await deposed_unheard(scene)
        cluster = scene.table.session.cluster
        await cluster.refresh(scene.table.info, [BUCKET])
        if cluster.metadata.leader_id(BUCKET) == old.server_id:  # the former leader itself was asked
            cluster.metadata._leaders[BUCKET] = scene.leader.server_id
        await upsert(scene, (1, "new"))
        assert await names(scene, 1) == ["new"]
        path = scene.table.info.path
        wanted = GetMetadataRequest(
            table_path=[WireTablePath(database_name=path.database, table_name=path.table)]
        )
        stale = await cluster.call(Address(old.host, CLIENT_PORT), GET_METADATA, wanted)
        assert stale.table_metadata[0].bucket_metadata[0].leader_id == old.server_id
        cluster.metadata.learn(stale)
        assert await names(scene, 1) == ["new"]

    play(scenario, replica_lag_max="60 s")


def test_a_tail_is_told_what_it_saw_that_is_lost() -> None:
    async def scenario(scene: ReplicaScene) -> None:
        await scene.begin()
        for number in range(5):
            await scene.append(number)
        await scene.until(lambda: scene.leading().stable == 5)
        tail = scene.table.tail(start="earliest")
        seen: list[int] = []
        for number in range(5, 8):
            await scene.append(number)
        while len(seen) < 8:
            batch = await anext(tail)
            seen += batch.data.column("number").to_pylist()
        scene.cluster.network.cut("client")
        for server in scene.cluster.servers.values():
            server.kill(power_loss=True)
        for server in scene.cluster.servers.values():
            await server.start()
        entry = scene.cluster.decide(commands.recover, BUCKET, await found(scene), now_ms=1)
        assert entry is not None
        await scene.until(lambda: scene.in_sync == {0, 1, 2})
        kept = scene.end()
        assert kept < 8, "what was not synced is lost"
        for number in range(100, 110):  # the offsets that the tail saw are used again, before it is back
            await scene.produce(scene.leader, number)
        scene.cluster.network.heal()
        with pytest.raises(
            StaleEpoch, match=f"lost the rows from offset {kept} to 8 .*read on from offset {kept}"
        ):
            await anext(tail)

    play(scenario, durability="os", log_sync_interval="1 s")


@pytest.mark.parametrize("seed", range(2))
def test_a_tail_goes_on_through_failovers_without_a_gap_or_a_row_twice(seed: int) -> None:
    async def scenario(scene: ReplicaScene) -> None:
        await scene.begin()
        tail = scene.table.tail(start="earliest")
        seen: list[int] = []

        async def follow() -> None:
            async for batch in tail:
                seen.extend(batch.data.column("number").to_pylist())

        following = asyncio.ensure_future(follow())
        for round_ in range(3):
            for number in range(5):
                await scene.append(10 * round_ + number)
            dead = await scene.kill_leader()
            await scene.append(10 * round_ + 9)
            await dead.start()
            await scene.until(lambda: scene.in_sync == {0, 1, 2})
        wanted = [10 * round_ + number for round_ in range(3) for number in (0, 1, 2, 3, 4, 9)]
        await scene.until(lambda: len(seen) >= len(wanted))
        assert seen == wanted
        following.cancel()

    play(scenario, seed=seed)


def test_keys_of_a_tail_too() -> None:
    async def scenario(scene: ReplicaScene) -> None:
        await begin(scene)
        tail = scene.table.tail(start="earliest")
        await upsert(scene, (1, "ann"))
        assert (await anext(tail)).data.num_rows == 1
        await scene.kill_leader()
        await upsert(scene, (1, "bob"))
        batch = await anext(tail)
        assert pa.Table.from_batches([batch.data]).column("name").to_pylist() == ["ann", "bob"]

    play(scenario)
