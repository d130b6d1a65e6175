"""The contract of networks, on TCP with both event loops and on the network in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
import uvloop

from contracts.network_contract import NetworkContract, Play, Scene
from strom.runtime.sockets import Network, TcpNetwork
from strom.testing.loop import VirtualLoop
from strom.testing.network import MemoryNetwork
from strom.testing.random import SeededRandomness


def player(new_loop: Callable[[], asyncio.AbstractEventLoop], new_network: Callable[[], Network]) -> Play:
    """Plays each scene on a new loop and a new network."""

    def play(scene: Scene) -> None:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(scene(new_network()))

    return play


class TestTcpOnAsyncio(NetworkContract):
    @pytest.fixture
    def play(self) -> Play:
        return player(asyncio.SelectorEventLoop, TcpNetwork)


class TestTcpOnUvloop(NetworkContract):
    @pytest.fixture
    def play(self) -> Play:
        return player(uvloop.new_event_loop, TcpNetwork)


class TestMemoryOnVirtualTime(NetworkContract):
    @pytest.fixture
    def play(self) -> Play:
        return player(VirtualLoop, MemoryNetwork)


class TestMemoryOnAsyncio(NetworkContract):
    @pytest.fixture
    def play(self) -> Play:
        return player(asyncio.SelectorEventLoop, MemoryNetwork)


class TestMemoryWithDelaysAndSmallPieces(NetworkContract):
    @pytest.fixture
    def play(self) -> Play:
        return player(
            VirtualLoop,
            lambda: MemoryNetwork(delay_s=0.002, jitter_s=0.05, randomness=SeededRandomness(11)),
        )
