"""Faults of the network in memory, and how long things take on it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from contracts.network_contract import Pair, Recorder, numbered
from strom.errors import Disconnected
from strom.runtime.sockets import Network
from strom.testing.loop import Deadlock, run
from strom.testing.network import MemoryNetwork
from strom.testing.random import SeededRandomness


async def joined(
    network: MemoryNetwork, source: str, target: str, port: int = 9123
) -> tuple[Recorder, Recorder]:
    """A client on ``source`` and the server's side of it on ``target``."""
    accepted: asyncio.Queue[Recorder] = asyncio.Queue()

    def accept() -> Recorder:
        server = Recorder()
        accepted.put_nowait(server)
        return server

    listening = await network.at(target).listen("0.0.0.0", port, accept)
    _, client = await network.at(source).connect(target, port, Recorder)
    server = await accepted.get()
    listening.close()
    return client, server


def now() -> float:
    return asyncio.get_running_loop().time()


@pytest.mark.parametrize("end", ["with bytes", "alone"])
def test_what_came_while_a_host_was_frozen_is_there_when_it_wakes(end: str) -> None:
    async def main() -> None:
        network = MemoryNetwork(delay_s=0.25)
        client, server = await joined(network, "a", "b")
        network.freeze("b")
        if end == "with bytes":
            client.transport.write(b"last words")
        client.transport.close()
        await asyncio.sleep(5)
        assert not server.received
        assert server.events == ["made"]
        network.wake("b")
        await server.until_event("end")
        assert server.received == (b"last words" if end == "with bytes" else b"")

    run(main())


def test_a_delay_is_how_long_bytes_are_under_way() -> None:
    async def main() -> None:
        network = MemoryNetwork(delay_s=0.25)
        client, server = await joined(network, "a", "b")
        sent = now()
        client.transport.write(b"x")
        await asyncio.sleep(0.1)
        client.transport.write(b"y")
        await server.until_received(1)
        assert server.received == b"x"
        assert now() - sent == pytest.approx(0.25)
        await server.until_received(2)
        assert server.received == b"xy"
        assert now() - sent == pytest.approx(0.35)
        network.set_delay(2)
        server.transport.write(b"z")
        await client.until_received(1)
        assert now() - sent == pytest.approx(2.35)

    run(main())


def test_varying_delays_keep_the_order_of_a_connection() -> None:
    async def main() -> None:
        network = MemoryNetwork(delay_s=0.001, jitter_s=1, randomness=SeededRandomness(3))
        client, server = await joined(network, "a", "b")
        content = numbered(4000)
        for start in range(0, len(content), 10):
            client.transport.write(content[start : start + 10])
            await asyncio.sleep(0.01)
        await server.until_received(len(content))
        assert server.received == content

    run(main())


def test_with_a_seed_bytes_arrive_in_pieces_of_many_sizes() -> None:
    class Sizes(Recorder):
        sizes: list[int]

        def data_received(self, data: bytes) -> None:
            self.sizes = [*getattr(self, "sizes", []), len(data)]
            super().data_received(data)

    async def main() -> None:
        network = MemoryNetwork(randomness=SeededRandomness(5))
        pair = await Pair.join(network, Sizes)
        content = numbered(1 << 20)
        pair.client.transport.write(content)
        await pair.server.until_received(len(content))
        assert pair.server.received == content
        assert isinstance(pair.server, Sizes)
        assert min(pair.server.sizes) == 1
        assert len(set(pair.server.sizes)) > 10

    run(main())


def test_a_cut_breaks_the_connections_between_two_hosts_and_no_others() -> None:
    async def main() -> None:
        network = MemoryNetwork(delay_s=0.1)
        ab, ba = await joined(network, "a", "b")
        ac, ca = await joined(network, "a", "c")
        assert network.connection_count == 2
        ab.transport.write(b"under way")
        assert network.cut("a", "b") == 1
        await ab.until_event("lost")
        await ba.until_event("lost")
        assert isinstance(ab.lost_with, ConnectionResetError)
        assert isinstance(ba.lost_with, ConnectionResetError)
        assert ba.received == b""
        ac.transport.write(b"x")
        await ca.until_received(1)
        assert network.connection_count == 1
        assert network.cut("c") == 1
        await ca.until_event("lost")
        assert network.cut() == 0

    run(main())


def test_a_stall_holds_bytes_up_and_tells_nobody_until_it_heals() -> None:
    async def main() -> None:
        network = MemoryNetwork(delay_s=0.1)
        client, server = await joined(network, "a", "b")
        network.stall("a", "b")
        client.transport.write(b"held up")
        await asyncio.sleep(3600)
        assert server.received == b""
        assert client.events == server.events == ["made"]
        network.heal()
        await server.until_received(7)
        assert server.received == b"held up"

    run(main())


def test_connecting_to_a_stalled_host_waits() -> None:
    async def main(network: MemoryNetwork, meanwhile: Callable[[], object]) -> float:
        listening = await network.at("b").listen("b", 9123, Recorder)
        network.stall("b")
        asyncio.get_running_loop().call_later(10, meanwhile)
        await network.at("a").connect("b", 9123, Recorder)
        listening.close()
        return now()

    network = MemoryNetwork()
    assert run(main(network, network.heal)) == 10
    with pytest.raises(Deadlock):
        run(main(MemoryNetwork(), lambda: None))


def test_waiting_for_a_stalled_host_can_be_given_up() -> None:
    async def main() -> None:
        network = MemoryNetwork()
        await network.listen("b", 9123, Recorder)
        network.stall()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await network.connect("b", 9123, Recorder)
        network.heal()
        assert network.connection_count == 0

    run(main())


def test_a_host_can_refuse_new_connections() -> None:
    async def main() -> None:
        network = MemoryNetwork()
        await network.at("b").listen("b", 9123, Recorder)
        network.refuse("b")
        with pytest.raises(Disconnected):
            await network.at("a").connect("b", 9123, Recorder)
        network.heal()
        transport, _ = await network.at("a").connect("b", 9123, Recorder)
        assert transport.get_extra_info("peername") == ("b", 9123)

    run(main())


def test_hosts_have_ports_of_their_own() -> None:
    async def main() -> None:
        network: Network
        memory = MemoryNetwork()
        for host in ("a", "b"):
            network = memory.at(host)
            listening = await network.listen("127.0.0.1", 9123, Recorder)
            assert listening.port == 9123

    run(main())


def test_a_factory_that_fails_ends_the_connection() -> None:
    async def main() -> None:
        reported: list[object] = []
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: reported.append(context.get("exception"))
        )

        def broken() -> Recorder:
            raise ZeroDivisionError("a bug")

        network = MemoryNetwork()
        listening = await network.listen("b", 0, broken)
        _, client = await network.connect("b", listening.port, Recorder)
        await client.until_event("lost")
        assert [type(error) for error in reported] == [ZeroDivisionError]
        assert network.connection_count == 0

    run(main())
