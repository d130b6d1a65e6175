"""Equal seeds give equal runs: the promise every simulation rests on.

The scene uses all fakes at once: three nodes gossip over a delaying, cutting network, each writing what it hears to a
disk that crashes, with timers and inline offload. Its trace is every message, in order, with its time.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import subprocess
import sys

from strom.errors import Disconnected
from strom.runtime.tasks import InlineOffload, Tasks
from strom.runtime.world import World
from strom.testing.clock import LoopClock
from strom.testing.disk import Drawn, ForgettingDisk
from strom.testing.loop import run
from strom.testing.network import MemoryNetwork
from strom.testing.random import SeededRandomness

NODES = ("a", "b", "c")
PORT = 9123
END_S = 30.0


class Hearing(asyncio.Protocol):
    def __init__(self, node: Node) -> None:
        self._node = node

    def data_received(self, data: bytes) -> None:
        self._node.hear(data)


class Node:
    """Tells another node a random word every now and then, and writes down what it hears."""

    def __init__(self, name: str, world: World, trace: list[str]) -> None:
        self._name = name
        self._world = world
        self._trace = trace
        self._tasks = Tasks()

    def hear(self, data: bytes) -> None:
        self._trace.append(f"{self._world.clock.now_ms()} {self._name} heard {data.hex()}")
        self._tasks.spawn(self._world.offload.run(self._write, data), "write")

    def _write(self, data: bytes) -> None:
        file = self._world.files.open(f"/{self._name}", create=True)
        file.append([data])
        if self._world.randomness.below(2):
            file.sync()

    async def live(self) -> None:
        await self._world.network.listen("0.0.0.0", PORT, lambda: Hearing(self))
        self._tasks.spawn(self._talk(), f"talk {self._name}")

    async def _talk(self) -> None:
        draw = self._world.randomness
        while True:
            await asyncio.sleep(draw.below(1000) / 1000)
            other = NODES[draw.below(len(NODES))]
            try:
                transport, _ = await self._world.network.connect(other, PORT, asyncio.Protocol)
            except Disconnected:
                self._trace.append(f"{self._world.clock.now_ms()} {self._name} cannot reach {other}")
                continue
            transport.write(draw.token(1 + draw.below(300)))
            transport.close()

    async def die(self) -> None:
        await self._tasks.close()


async def scene(seed: int) -> list[str]:
    loop = asyncio.get_running_loop()
    randomness = SeededRandomness(seed)
    network = MemoryNetwork(delay_s=0.001, jitter_s=0.2, randomness=randomness)
    disk = ForgettingDisk()
    trace: list[str] = []
    nodes = []
    for name in NODES:
        world = World(LoopClock(loop.time), randomness, disk, network.at(name), InlineOffload())
        nodes.append(Node(name, world, trace))
        await nodes[-1].live()
    while loop.time() < END_S:
        await asyncio.sleep(randomness.below(5000) / 1000)
        fault = randomness.below(4)
        trace.append(f"fault {fault}")
        if fault == 0:
            network.cut(NODES[randomness.below(3)])
        elif fault == 1:
            network.stall(*NODES[:2])
        elif fault == 2:
            network.refuse("c")
        else:
            network.heal()
    for node in nodes:
        await node.die()
    disk.crash(Drawn(seed))
    trace += [f"{name} {disk.read_whole(f'/{name}').hex()}" for name in disk.list("/")]
    trace += [repr(operation) for operation in disk.trace]
    return trace


def digest(seed: int) -> str:
    """The whole trace of a run, as one word."""
    return hashlib.sha256("\n".join(run(scene(seed))).encode()).hexdigest()


def test_the_same_seed_gives_the_same_trace() -> None:
    first, again = run(scene(1)), run(scene(1))
    assert len(first) > 100
    assert first == again


def test_another_seed_gives_another_trace() -> None:
    assert digest(1) != digest(2)


def test_the_trace_is_the_same_in_another_process_with_another_hash_seed() -> None:
    here = os.path.dirname(__file__)
    program = f"import sys; sys.path.insert(0, {here!r}); import {__name__} as m; print(m.digest(7))"
    seen = {digest(7)}
    for hash_seed in ("0", "12345"):
        done = subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        )
        seen.add(done.stdout.strip())
    assert len(seen) == 1
