"""Strong lookups: whoever answers one still led when it was asked (R22)."""

from __future__ import annotations

import asyncio
from itertools import count

import pyarrow as pa
import pytest

from replicas.scene import BUCKET, ReplicaScene, play
from replicas.test_keys import begin, names, upsert
from strom.client.cluster.options import ClientOptions
from strom.errors import NotConfirmed, StromError
from strom.testing.replicated import ReplicaServer

HASTY = ClientOptions(connect_timeout_ms=500, request_timeout_ms=1_000, retry_timeout_ms=1_500)


async def strong_name(scene: ReplicaScene, key: int) -> str | None:
    row = await scene.table.lookup(key, strong=True)
    return None if row is None else str(row["name"])


async def deposed_unheard(scene: ReplicaScene) -> ReplicaServer:
    """Another leads, and the former leader, which clients still reach, does not hear of it."""
    old = scene.leader
    old.blind = True
    for other in scene.followers:
        scene.cluster.network.stall(old.host, other.host)
    scene.cluster.believe_dead(old.server_id)
    await scene.until(lambda: scene.leads(scene.leader))
    assert scene.leader is not old
    assert scene.leads(old)
    return old


def test_a_strong_lookup_never_shows_what_a_deposed_leader_still_has() -> None:
    async def scenario(scene: ReplicaScene) -> None:
        await begin(scene)
        await upsert(scene, (1, "old"))
        await deposed_unheard(scene)
        writer = await scene.cluster.connect(scene.cluster.client("writer"))
        await (there := await writer.table("customers")).upsert(
            pa.table({"id": [1], "name": ["new"]}, schema=there.schema)
        )
        await there.flush()
        assert await names(scene, 1) == ["old"], "a lookup that is not strong may be answered with it"
        assert await strong_name(scene, 1) == "new"
        assert await names(scene, 1) == ["new"], "the client has learned who leads"

    play(scenario, replica_lag_max="60 s")


def test_every_way_to_look_up_can_be_strong() -> None:
    async def scenario(scene: ReplicaScene) -> None:
        await begin(scene)
        await scene.table.create_index("by_name", "name")
        await upsert(scene, (1, "ann"), (2, "bob"))
        await deposed_unheard(scene)
        writer = await scene.cluster.connect(scene.cluster.client("writer"))
        await (there := await writer.table("customers")).delete([2])
        await there.flush()
        table = scene.table
        ways = (
            lambda: table.lookup_many([1, 2], strong=True),
            lambda: table.lookup_prefix({"id": 2}, strong=True),
            lambda: table.lookup_index("by_name", "bob", strong=True),
        )
        former = scene.table.session.cluster.metadata._leaders.copy()
        for way in ways:
            scene.table.session.cluster.metadata._leaders.update(former)  # it has not heard of the new one
            assert "bob" not in (await way()).column("name").to_pylist()

    play(scenario, replica_lag_max="60 s")


def test_a_strong_lookup_waits_for_a_silent_copy_and_says_what_to_do() -> None:
    async def scenario(scene: ReplicaScene) -> None:
        await begin(scene)
        await upsert(scene, (1, "ann"))
        silent = scene.followers[0]
        scene.cluster.network.stall(scene.leader.host, silent.host)
        hasty = await (await scene.cluster.connect(scene.life, HASTY)).table("customers")
        with pytest.raises(NotConfirmed, match=f"server {silent.server_id} .*min.insync.*strom cluster move"):
            await hasty.lookup(1, strong=True)
        assert await hasty.lookup(1) is not None, "others do not wait"
        asked = asyncio.ensure_future(strong_name(scene, 1))
        await asyncio.sleep(3)
        assert not asked.done()
        scene.cluster.believe_dead(silent.server_id)  # the copy leaves the set
        assert await asked == "ann"

    play(scenario, replica_lag_max="60 s")


@pytest.mark.parametrize("factor", [1, 3])
def test_a_leader_whose_copy_alone_is_in_sync_confirms_by_itself(factor: int) -> None:
    async def scenario(scene: ReplicaScene) -> None:
        await begin(scene, **{"table.min.insync": "1"}, copies=factor)
        await upsert(scene, (1, "ann"))
        for other in scene.followers:
            other.kill()
            scene.cluster.believe_dead(other.server_id)
        began = asyncio.get_running_loop().time()
        assert await strong_name(scene, 1) == "ann"
        assert asyncio.get_running_loop().time() - began < 0.9, "it waited for nobody"

    play(scenario, factor=factor)


class _Register:
    """One key, what was acknowledged of it, and what strong lookups showed; values only rise."""

    def __init__(self, scene: ReplicaScene) -> None:
        self.scene = scene
        self.sent = count(1)
        self.acknowledged = 0
        self.shown = 0
        self.lookups = 0

    async def write(self, until: float) -> None:
        loop = asyncio.get_running_loop()
        database = await self.scene.cluster.connect(self.scene.cluster.client("writer"))
        table = await database.table("customers")
        while loop.time() < until:
            value = next(self.sent)
            await table.upsert(pa.table({"id": [1], "name": [str(value)]}, schema=table.schema))
            await table.flush()
            self.acknowledged = value
            await asyncio.sleep(0.01)

    async def look(self, name: str, until: float) -> None:
        loop = asyncio.get_running_loop()
        database = await self.scene.cluster.connect(self.scene.cluster.client(name))
        table = await database.table("customers")
        while loop.time() < until:
            least = max(self.acknowledged, self.shown)
            try:
                row = await table.lookup(1, strong=True)
            except StromError:
                continue
            value = 0 if row is None else int(row["name"])
            assert value >= least, f"{value} after {least} at {loop.time()}"
            self.shown = max(self.shown, value)
            self.lookups += 1
            await asyncio.sleep(0.02)


async def _troubles(scene: ReplicaScene, until: float) -> None:
    """Leaders are cut off, from others or from the metadata, and deposed; then everything heals."""
    loop, randomness = asyncio.get_running_loop(), scene.cluster.randomness
    while loop.time() < until:
        await asyncio.sleep(randomness.below(300) / 1000)
        old = scene.leader
        old.blind = bool(randomness.below(2))
        for other in scene.followers:
            if randomness.below(3):
                scene.cluster.network.stall(old.host, other.host)
        scene.cluster.believe_dead(old.server_id)
        await asyncio.sleep(randomness.below(1500) / 1000)
        old.blind = False
        scene.cluster.network.heal()
        await scene.until(lambda: scene.in_sync == {0, 1, 2})


@pytest.mark.parametrize("seed", range(2))
def test_strong_lookups_and_upserts_are_linearizable_while_leaders_change(seed: int) -> None:
    async def scenario(scene: ReplicaScene) -> None:
        await begin(scene)
        register = _Register(scene)
        until = asyncio.get_running_loop().time() + 4
        await asyncio.gather(
            _troubles(scene, until),
            register.write(until),
            *(register.look(f"reader{n}", until) for n in (1, 2)),
        )
        assert register.acknowledged > 10
        assert register.lookups > 10
        assert scene.cluster.entry(BUCKET).epoch > 2

    play(scenario, seed=seed, replica_lag_max="60 s")
