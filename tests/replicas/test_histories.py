"""Histories from seeds: whatever happens to the servers of a bucket, what was acknowledged is there once, in order.

A failing seed is shown again with ``replicas.test_histories.history(SEED)``.
"""

from __future__ import annotations

import asyncio
import random

import pytest

from replicas.scene import BUCKET, ReplicaScene, play
from strom.coordinator import commands
from strom.errors import StromError

SECONDS = 12.0
SEEDS = 24
SEEDS_PER_TEST = 4
TROUBLES = ("kill", "kill leader", "power loss", "stall", "cut", "blind", "move", "doubt")


class History:
    """One cluster, one writer, one who sends troubles, one who decides as a coordinator does."""

    def __init__(self, scene: ReplicaScene, seed: int, durability: str) -> None:
        self.scene = scene
        self.draw = random.Random(f"history {seed}")
        self.durability = durability
        self.troubles = self.draw.sample(TROUBLES, self.draw.randrange(1, len(TROUBLES) + 1))
        self.acknowledged: list[int] = []
        self.seen: list[int] = []
        self.over = False
        self.trace: list[str] = []

    async def live(self) -> None:
        """Troubles for a while, then peace; then everything must be well."""
        await self.scene.begin(table_min_insync="2")
        work = [asyncio.ensure_future(one()) for one in (self.write, self.read, self.decide, self.disturb)]
        await asyncio.sleep(SECONDS)
        self.over = True
        await asyncio.gather(*work[2:])
        await self.heal()
        await asyncio.gather(*work)
        await self.scene.append(10**9)
        await self.check()

    async def write(self) -> None:
        number = 0
        while not self.over:
            await self.scene.append(number)
            self.acknowledged.append(number)
            number += 1
            await asyncio.sleep(self.draw.random() * 0.05)

    async def read(self) -> None:
        """A reader never sees less than it saw before."""
        while not self.over:
            await asyncio.sleep(self.draw.random() * 0.5)
            known = len(self.acknowledged)
            try:
                found = await self.scene.numbers()
            except StromError:
                continue
            assert found[: len(self.seen)] == self.seen, "what was seen is gone"
            assert len(found) >= known, "what was acknowledged before it was asked is not seen"
            self.seen = found

    async def decide(self) -> None:
        """A coordinator that looks three times a second, and is sometimes wrong."""
        cluster = self.scene.cluster
        while not self.over:
            await asyncio.sleep(0.3)
            alive = set(cluster.alive)
            if "doubt" in self.troubles and self.draw.random() < 0.2:
                alive -= {self.draw.randrange(3)}
            cluster.decide(commands.elect_leaders, range(3), alive=alive)
            cluster.decide(commands.drop_dead_members, set(range(3)) - alive, alive=alive)

    async def disturb(self) -> None:
        while not self.over:
            await asyncio.sleep(0.2 + self.draw.random())
            if self.over:
                return
            trouble = self.draw.choice(self.troubles)
            server = self.scene.cluster.servers[self.draw.randrange(3)]
            self.note(trouble, server.server_id)
            await self.strike(trouble, server.server_id)
            if self.draw.random() < 0.5:
                await self.some_peace()

    async def strike(self, trouble: str, number: int) -> None:
        scene, cluster = self.scene, self.scene.cluster
        server, network = cluster.servers[number], cluster.network
        other = cluster.servers[(number + 1 + self.draw.randrange(2)) % 3]
        match trouble:
            case "kill":
                server.kill()
            case "kill leader":
                scene.leader.kill()
            case "power loss" if self.may_lose_power():
                server.kill(power_loss=True)
            case "stall":
                network.stall(server.host, other.host)
            case "cut":
                network.cut(server.host)
            case "blind":
                server.blind = True
            case "move":
                cluster.decide(commands.move_leader, BUCKET, number, alive=cluster.alive)

    def may_lose_power(self) -> bool:
        """Under ``os`` one copy at a time may: all others have everything."""
        return self.durability == "group" or (
            len(self.scene.in_sync) == 3 and len(self.scene.cluster.alive) == 3
        )

    async def some_peace(self) -> None:
        cluster = self.scene.cluster
        cluster.network.heal()
        for server in cluster.servers.values():
            server.blind = False
            if not server.alive:
                await server.start()

    async def heal(self) -> None:
        await self.some_peace()
        cluster = self.scene.cluster

        def is_well() -> bool:
            cluster.decide(commands.elect_leaders, range(3), alive=cluster.alive)
            return self.scene.in_sync == {0, 1, 2} and self.scene.leads(self.scene.leader)

        await self.scene.until(is_well, within_s=60)

    async def check(self) -> None:
        found = await self.scene.numbers()
        rows = [one for one in found if one < 10**9]
        assert rows == sorted(set(rows)), "a row is there twice, or out of order"
        assert set(self.acknowledged) <= set(rows), "an acknowledged row is gone"
        assert found[: len(self.seen)] == self.seen
        await self.scene.equal()

    def note(self, *what: object) -> None:
        self.trace.append(f"{asyncio.get_running_loop().time():.3f} {' '.join(map(str, what))}")


def history(seed: int) -> int:
    """Play a seed; returns how many rows were acknowledged."""
    draw = random.Random(f"plan {seed}")
    durability = draw.choice(("group", "os"))
    told: list[History] = []

    async def scenario(scene: ReplicaScene) -> None:
        told.append(History(scene, seed, durability))
        await told[0].live()

    try:
        play(scenario, seed=seed, durability=durability, replica_lag_max=draw.choice(("300 ms", "2 s")))
    except BaseException as error:
        error.add_note(f"seed {seed}, {durability}\n" + "\n".join(told[0].trace if told else ()))
        raise
    return len(told[0].acknowledged)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_PER_TEST))
def test_acknowledged_rows_are_there_once_and_in_order(first: int) -> None:
    for seed in range(first, first + SEEDS_PER_TEST):
        assert history(seed) > 0, seed
