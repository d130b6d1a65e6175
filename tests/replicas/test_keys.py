"""Primary-key tables: a follower is a hot standby, its index and rows are what a replay would make them."""

from __future__ import annotations

import asyncio

import pyarrow as pa
import pytest

from replicas.scene import BUCKET, OPTIONS, ReplicaScene, play

CUSTOMERS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])


def customers(*pairs: tuple[int, str]) -> pa.Table:
    return pa.table({"id": [one for one, _ in pairs], "name": [name for _, name in pairs]}, schema=CUSTOMERS)


async def begin(scene: ReplicaScene, copies: int = 3, **properties: str) -> None:
    scene.database = await scene.cluster.connect(scene.life, OPTIONS)
    scene.table = await scene.database.create_table(
        "customers", CUSTOMERS, primary_key="id", buckets=1, properties=properties
    )
    await scene.until(lambda: len(scene.copies()) == copies)
    await scene.until(lambda: all(one.slot.tablet is not None for one in scene.copies()))


async def upsert(scene: ReplicaScene, *pairs: tuple[int, str]) -> None:
    await scene.table.upsert(customers(*pairs))
    await scene.table.flush()


async def names(scene: ReplicaScene, *keys: int) -> list[str | None]:
    """What a lookup finds, key by key."""
    found = [await scene.table.lookup(key) for key in keys]
    return [None if row is None else row["name"] for row in found]


@pytest.mark.parametrize("durability", ["group", "os"])
def test_a_standby_takes_over_with_every_row(durability: str) -> None:
    async def scenario(scene: ReplicaScene) -> None:
        await begin(scene)
        for number in range(20):
            await upsert(scene, (number % 7, f"name {number}"))
        await scene.table.delete(pa.table({"id": [3]}))
        await scene.table.flush()
        before = await names(scene, *range(8))
        dead = await scene.kill_leader()
        assert await names(scene, *range(8)) == before
        await upsert(scene, (3, "again"), (100, "new"))
        assert await names(scene, 3, 100) == ["again", "new"]
        await dead.start()
        await scene.until(lambda: dead.server_id in scene.in_sync)
        await scene.equal()
        await scene.kill_leader()
        assert await names(scene, 3, 100) == ["again", "new"]

    play(scenario, durability=durability)


def test_what_was_not_committed_is_undone_in_the_index() -> None:
    async def scenario(scene: ReplicaScene) -> None:
        await begin(scene)
        await upsert(scene, (1, "first"), (2, "second"))
        old = scene.leader
        for other in scene.followers:
            scene.cluster.network.stall(old.host, other.host)
        lost = asyncio.ensure_future(upsert(scene, (1, "lost"), (5, "lost too")))
        await scene.until(lambda: old.tablet(BUCKET).end_offset > 2)
        end = old.tablet(BUCKET).end_offset
        scene.cluster.network.cut("client")
        scene.cluster.believe_dead(old.server_id)
        await scene.until(lambda: scene.leads(scene.leader))
        assert scene.leader is not old
        scene.cluster.network.heal()
        await lost  # its client repeats it at the next leader
        await scene.until(lambda: old.server_id in scene.in_sync)
        assert old.tablet(BUCKET).end_offset == end
        await scene.equal()
        assert await names(scene, 1, 2, 5) == ["lost", "second", "lost too"]
        await scene.kill_leader()
        assert await names(scene, 1, 2, 5) == ["lost", "second", "lost too"]

    play(scenario, replica_lag_max="60 s")
