"""TCP itself: what the contract cannot ask of a network in memory."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest
import uvloop

from strom.errors import Disconnected, InvalidSetting, PortInUse
from strom.runtime.sockets import TcpNetwork

Play = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture(params=["asyncio", "uvloop"])
def play(request: pytest.FixtureRequest) -> Play:
    new_loop = asyncio.SelectorEventLoop if request.param == "asyncio" else uvloop.new_event_loop

    def play(scene: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(scene)

    return play


class Silent(asyncio.Protocol):
    def __init__(self, accepted: asyncio.Queue[asyncio.Transport] | None = None) -> None:
        self._accepted = accepted

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if self._accepted is not None:
            self._accepted.put_nowait(cast(asyncio.Transport, transport))


def test_small_messages_leave_at_once_on_both_sides(play: Play) -> None:
    async def scene() -> None:
        network = TcpNetwork()
        accepted: asyncio.Queue[asyncio.Transport] = asyncio.Queue()
        listening = await network.listen("127.0.0.1", 0, lambda: Silent(accepted))
        client, _ = await network.connect("127.0.0.1", listening.port, Silent)
        server = await accepted.get()
        for transport in (client, server):
            one = transport.get_extra_info("socket")
            assert one.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0
            transport.abort()
        listening.close()
        await listening.wait_closed()

    play(scene())


def test_every_address_of_a_name_is_on_the_same_port(play: Play) -> None:
    async def scene() -> None:
        network = TcpNetwork()
        listening = await network.listen("localhost", 0, Silent)
        found = await asyncio.get_running_loop().getaddrinfo("localhost", 0, type=socket.SOCK_STREAM)
        connected = []
        for host in {address[4][0] for address in found}:
            try:
                connected.append((await network.connect(str(host), listening.port, Silent))[0])
            except Disconnected:
                assert ":" in str(host)  # a machine without IPv6
        assert connected
        for transport in connected:
            transport.abort()
        listening.close()
        await listening.wait_closed()

    play(scene())


def test_all_interfaces_together_are_one_listener(play: Play) -> None:
    async def scene() -> None:
        network = TcpNetwork()
        listening = await network.listen("0.0.0.0", 0, Silent)
        with pytest.raises(PortInUse):
            await network.listen("127.0.0.1", listening.port, Silent)
        transport, _ = await network.connect("127.0.0.1", listening.port, Silent)
        assert transport.get_extra_info("peername")[1] == listening.port
        transport.abort()
        listening.close()
        await listening.wait_closed()

    play(scene())


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-host.invalid"])
def test_an_address_that_is_not_ours_is_refused_with_its_name(play: Play, host: str) -> None:
    async def scene() -> None:
        with pytest.raises(InvalidSetting) as caught:
            await TcpNetwork().listen(host, 0, Silent)
        assert host in str(caught.value)

    play(scene())


def test_a_name_without_an_address_cannot_be_connected_to(play: Play) -> None:
    async def scene() -> None:
        with pytest.raises(Disconnected) as caught:
            await TcpNetwork().connect("no-such-host.invalid", 9123, Silent)
        assert "no-such-host.invalid:9123" in str(caught.value)

    play(scene())


def test_a_failed_listen_leaves_no_socket_behind(play: Play) -> None:
    async def scene() -> None:
        network = TcpNetwork()
        taken = await network.listen("127.0.0.1", 0, Silent)
        for _ in range(20):
            with pytest.raises(PortInUse):
                await network.listen("127.0.0.1", taken.port, Silent)  # a leak would be a ResourceWarning
        taken.close()
        await taken.wait_closed()
        again = await network.listen("127.0.0.1", taken.port, Silent)
        assert again.port == taken.port
        again.close()
        await again.wait_closed()

    play(scene())


def test_a_host_with_one_address_taken_is_refused_whole(play: Play) -> None:
    async def scene() -> None:
        network = TcpNetwork()
        try:
            taken = await network.listen("::1", 0, Silent)
        except InvalidSetting:
            pytest.skip("no IPv6 here")
        with pytest.raises(PortInUse):
            await network.listen("", taken.port, Silent)  # every interface, first IPv4, then IPv6
        other = await network.listen("127.0.0.1", taken.port, Silent)  # the first address was given back
        assert other.port == taken.port
        for one in (taken, other):
            one.close()
            await one.wait_closed()

    play(scene())
