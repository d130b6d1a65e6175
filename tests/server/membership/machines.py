"""Machines of a cluster on virtual time: each is a host of one network in memory, and may be killed or cut off."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any

from strom.coordinator.catalog import ListenerAddress
from strom.rpc.listener import Listener
from strom.runtime.tasks import InlineOffload
from strom.runtime.world import World
from strom.server.calls.dispatch import CallGroup
from strom.server.links.inner_link import InnerLink, open_inner_listener
from strom.testing import loop as virtual
from strom.testing.clock import LoopClock
from strom.testing.network import MemoryNetwork
from strom.testing.random import SeededRandomness

SECRET = "of this cluster, and long enough"
PORT = 7000


class Machines:
    """The network, and what listens in it."""

    def __init__(self, loop_time: Callable[[], float]) -> None:
        self.network = MemoryNetwork(delay_s=0.0005)
        self._clock = LoopClock(loop_time)
        self._randomness = SeededRandomness(1)
        self._listening: dict[str, Listener] = {}

    def world(self, host: str) -> World:
        system = World.system()
        return replace(
            system,
            clock=self._clock,
            randomness=self._randomness,
            network=self.network.at(host),
            offload=InlineOffload(),
        )

    async def listen(self, host: str, *groups: CallGroup) -> ListenerAddress:
        """A process on this machine that takes inner calls."""
        await self.listen_at(host, *groups)
        return ListenerAddress(host, PORT)

    async def listen_at(self, host: str, *groups: CallGroup) -> Listener:
        """The same; the listener itself."""
        world = self.world(host)
        listener = await open_inner_listener(world, SECRET, groups, host=host, port=PORT)
        self._listening[host] = listener
        return listener

    def kill(self, host: str) -> None:
        """The process is gone, the machine is there."""
        listener = self._listening.pop(host)
        assert listener._listening is not None
        listener._listening.close()
        self.network.cut(host)

    def link(self, source: str, target: str) -> InnerLink:
        return InnerLink(self.world(source), SECRET, target, ListenerAddress(target, PORT))

    async def close(self) -> None:
        self.network.heal()
        for listener in self._listening.values():
            await listener.close(0)


def on_machines(main: Callable[[Machines], Coroutine[Any, Any, None]]) -> None:
    """Run a test on virtual time."""

    async def whole() -> None:
        machines = Machines(asyncio.get_running_loop().time)
        try:
            await main(machines)
        finally:
            await machines.close()

    virtual.run(whole())


def ids(verdicts: Sequence[Any]) -> list[tuple[str, int]]:
    return [(type(one).__name__, one.server_id) for one in verdicts]
