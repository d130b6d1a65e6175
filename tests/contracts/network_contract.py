"""What every network does: connections that behave as asyncio's TCP transports do.

A runner gives one fixture, ``play``: it calls a scene (an async function of a network) inside an event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, cast

import numpy as np
import pytest

from strom.errors import Disconnected, PortInUse
from strom.runtime.sockets import Listening, Network
from waiting import pause

HOST = "127.0.0.1"
MANY = 8 << 20  # more than the system's socket buffers hold

Scene = Callable[[Network], Coroutine[Any, Any, None]]
Play = Callable[[Scene], None]


class Recorder(asyncio.Protocol):
    """Writes down what happens to it, and wakes those who wait for it."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport
        self.received = bytearray()
        self.events: list[str] = []
        self.lost_with: BaseException | None = None
        self._changed = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is none by inheritance
        self._note("made")

    def data_received(self, data: bytes) -> None:
        self.received += data
        self._changed.set()

    def eof_received(self) -> bool:
        self._note("end")
        return False

    def pause_writing(self) -> None:
        self._note("pause")

    def resume_writing(self) -> None:
        self._note("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost_with = exc
        self._note("lost")

    def _note(self, event: str) -> None:
        self.events.append(event)
        self._changed.set()

    async def until(self, reached: Callable[[], bool]) -> None:
        """Wait for something to be true; one waiter at a time."""
        async with asyncio.timeout(20):
            while not reached():
                self._changed.clear()
                await self._changed.wait()

    async def until_received(self, size: int) -> None:
        await self.until(lambda: len(self.received) >= size)

    async def until_event(self, event: str) -> None:
        await self.until(lambda: event in self.events)


class HalfClosing(Recorder):
    """Keeps its own side open when the other ends."""

    def eof_received(self) -> bool:
        super().eof_received()
        return True


class Buffered(asyncio.BufferedProtocol):
    """Receives into a small buffer of its own."""

    def __init__(self) -> None:
        self.recorder = Recorder()
        self._buffer = bytearray(1000)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.recorder.connection_made(transport)

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.recorder.data_received(bytes(self._buffer[:nbytes]))
        self._buffer = bytearray(1000 + nbytes)  # a protocol may change its buffer between two calls

    def eof_received(self) -> bool:
        return self.recorder.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self.recorder.connection_lost(exc)


class Pair:
    """A client and a server that are connected."""

    def __init__(self, listening: Listening, client: Recorder, server: Recorder) -> None:
        self.listening = listening
        self.client = client
        self.server = server

    @classmethod
    async def join(cls, network: Network, kind: type[Recorder] = Recorder) -> Pair:
        accepted: asyncio.Queue[Recorder] = asyncio.Queue()

        def accept() -> Recorder:
            server = kind()
            accepted.put_nowait(server)
            return server

        listening = await network.listen(HOST, 0, accept)
        _, client = await network.connect(HOST, listening.port, kind)
        server = await accepted.get()
        await server.until_event("made")
        return cls(listening, client, server)

    async def end(self) -> None:
        self.listening.close()
        await self.listening.wait_closed()
        for one in (self.client, self.server):
            if "lost" not in one.events:  # asyncio cannot abort what is gone
                one.transport.abort()
            await one.until_event("lost")


async def a_round_trip(network: Network) -> None:
    """Bytes there and back on a connection of their own: whatever could have arrived elsewhere meanwhile has."""
    pair = await Pair.join(network)
    pair.client.transport.write(b"there")
    await pair.server.until_received(5)
    pair.server.transport.write(b"back")
    await pair.client.until_received(4)
    await pair.end()


def numbered(size: int) -> bytes:
    """Bytes in which every place is different from the ones near it."""
    return np.arange(size // 4, dtype=">u4").tobytes()


class NetworkContract:
    """Inherit, and give the fixture ``play``."""

    def test_bytes_arrive_in_order_both_ways(self, play: Play) -> None:
        async def scene(network: Network) -> None:
            pair = await Pair.join(network)
            content = numbered(200_000)
            for start in range(0, len(content), 1000):
                pair.client.transport.write(content[start : start + 1000])
            pair.server.transport.writelines([b"ab", bytearray(b"cd"), memoryview(b"ef")])
            await pair.server.until_received(len(content))
            await pair.client.until_received(6)
            assert pair.server.received == content
            assert pair.client.received == b"abcdef"
            await pair.end()

        play(scene)

    def test_a_connection_that_nobody_answers_is_refused(self, play: Play) -> None:
        async def scene(network: Network) -> None:
            listening = await network.listen(HOST, 0, Recorder)
            port = listening.port
            listening.close()
            await listening.wait_closed()
            with pytest.raises(Disconnected) as caught:
                await network.connect(HOST, port, Recorder)
            assert caught.value.facts == {"host": HOST, "port": port, "refused": True}
            assert f"{HOST}:{port}: Connection refused" in str(caught.value)

        play(scene)

    def test_a_port_has_one_listener_until_it_is_closed(self, play: Play) -> None:
        async def scene(network: Network) -> None:
            first = await network.listen(HOST, 0, Recorder)
            with pytest.raises(PortInUse) as caught:
                await network.listen(HOST, first.port, Recorder)
            assert caught.value.facts["port"] == first.port
            first.close()
            first.close()
            await first.wait_closed()
            second = await network.listen(HOST, first.port, Recorder)
            assert second.port == first.port
            second.close()
            await second.wait_closed()

        play(scene)

    def test_port_zero_is_a_free_port(self, play: Play) -> None:
        async def scene(network: Network) -> None:
            opened = [await network.listen(HOST, 0, Recorder) for _ in range(3)]
            assert len({one.port for one in opened} - {0}) == 3
            for one in opened:
                one.close()
                await one.wait_closed()

        play(scene)

    def test_both_ends_know_both_addresses(self, play: Play) -> None:
        async def scene(network: Network) -> None:
            pair = await Pair.join(network)
            client, server = pair.client.transport, pair.server.transport
            assert client.get_extra_info("peername") == server.get_extra_info("sockname")
            assert client.get_extra_info("sockname") == server.get_extra_info("peername")
            assert client.get_extra_info("peername")[1] == pair.listening.port
            assert client.get_extra_info("something else", "nothing") == "nothing"
            await pair.end()

        play(scene)

    def test_closing_the_listener_leaves_its_connections_open(self, play: Play) -> None:
        async def scene(network: Network) -> None:
            pair = await Pair.join(network)
            pair.listening.close()
            await pair.listening.wait_closed()
            pair.client.transport.write(b"still here")
            await pair.server.until_received(10)
            assert pair.server.received == b"still here"
            await pair.end()

        play(scene)

    def test_what_was_written_before_a_close_arrives_first(self, play: Play) -> None:
        async def scene(network: Network) -> None:
            pair = await Pair.join(network)
            content = numbered(MANY)
            pair.client.transport.write(content)
            pair.client.transport.close()
            assert pair.client.transport.is_closing()
            await pair.server.until_event("lost")
            await pair.client.until_event("lost")
            assert pair.server.received == content
            assert pair.server.events == ["made", "end", "lost"]
            assert (pair.server.lost_with, pair.client.lost_with) == (None, None)
            await pair.end()

        play(scene)

    def test_an_abort_ends_both_sides_at_once(self, play: Play) -> None:
        async def scene(network: Network) -> None:
            pair = await Pair.join(network)
            pair.client.transport.abort()
            await pair.client.until_event("lost")
            await pair.server.until_event("lost")
            assert pair.client.lost_with is None
            assert pair.client.events == ["made", "lost"]
            await pair.end()

        play(scene)

    def test_one_side_may_end_and_still_be_answered(self, play: Play) -> None:
        async def scene(network: Network) -> None:
            pair = await Pair.join(network, HalfClosing)
            client = pair.client.transport
            assert client.can_write_eof()
            client.write(b"question")
            client.write_eof()
            await pair.server.until_event("end")
            assert pair.server.received == b"question"
            with pytest.raises(RuntimeError):
                client.write(b"too late")
            pair.server.transport.write(b"answer")
            await pair.client.until_received(6)
            assert pair.client.received == b"answer"
            assert "lost" not in pair.client.events + pair.server.events
            await pair.end()

        play(scene)

    def test_a_writer_is_paused_while_the_reader_is_and_nothing_is_lost(self, play: Play) -> None:
        async def scene(network: Network) -> None:
            pair = await Pair.join(network)
            client, server = pair.client, pair.server
            server.transport.pause_reading()
            assert not server.transport.is_reading()
            content = numbered(MANY)
            client.transport.write(content)
            assert client.events == ["made", "pause"]
            assert client.transport.get_write_buffer_size() > client.transport.get_write_buffer_limits()[1]
            await a_round_trip(network)
            assert client.events == ["made", "pause"]
            server.transport.resume_reading()
            assert server.transport.is_reading()
            await server.until_received(len(content))
            await client.until_event("resume")
            assert client.events == ["made", "pause", "resume"]
            assert client.transport.get_write_buffer_size() == 0
            assert server.received == content
            await pair.end()

        play(scene)

    def test_no_more_bytes_come_after_reading_is_paused_in_the_middle(self, play: Play) -> None:
        class Sipping(Recorder):
            def data_received(self, data: bytes) -> None:
                super().data_received(data)
                self.transport.pause_reading()

        async def scene(network: Network) -> None:
            pair = await Pair.join(network, Sipping)
            pair.client.transport.write(numbered(MANY))
            await pair.server.until_received(1)
            sipped = len(pair.server.received)
            await a_round_trip(network)
            assert len(pair.server.received) == sipped < MANY
            await pair.end()

        play(scene)

    def test_no_more_bytes_come_after_reading_is_paused_from_outside(self, play: Play) -> None:
        async def scene(network: Network) -> None:
            for rounds in range(8):  # whichever moment on the bytes' way the pause hits
                pair = await Pair.join(network)
                pair.client.transport.write(numbered(4000))
                for _ in range(rounds):
                    await asyncio.sleep(0)
                pair.server.transport.pause_reading()
                received = len(pair.server.received)
                await a_round_trip(network)
                assert len(pair.server.received) == received
                pair.server.transport.resume_reading()
                await pair.server.until_received(4000)
                assert pair.server.received == numbered(4000)
                await pair.end()

        play(scene)

    def test_write_limits_can_be_chosen(self, play: Play) -> None:
        async def scene(network: Network) -> None:
            pair = await Pair.join(network)
            transport = pair.client.transport
            transport.set_write_buffer_limits(high=1000, low=100)
            assert transport.get_write_buffer_limits() == (100, 1000)
            with pytest.raises(ValueError):
                transport.set_write_buffer_limits(high=1, low=2)
            assert transport.get_write_buffer_size() == 0
            await pair.end()

        play(scene)

    def test_a_buffered_protocol_receives_into_its_own_buffer(self, play: Play) -> None:
        async def scene(network: Network) -> None:
            accepted: list[Buffered] = []

            def accept() -> Buffered:
                accepted.append(Buffered())
                return accepted[-1]

            listening = await network.listen(HOST, 0, accept)
            transport, client = await network.connect(HOST, listening.port, Recorder)
            content = numbered(300_000)
            transport.write(content)
            transport.write_eof()
            await client.until_event("end")
            assert accepted[0].recorder.received == content
            assert accepted[0].recorder.events == ["made", "end", "lost"]
            listening.close()
            await listening.wait_closed()
            await client.until_event("lost")

        play(scene)

    def test_a_connection_can_be_handed_to_another_protocol(self, play: Play) -> None:
        async def scene(network: Network) -> None:
            pair = await Pair.join(network)
            successor = Recorder()
            successor.transport = pair.server.transport
            pair.server.transport.set_protocol(successor)
            assert pair.server.transport.get_protocol() is successor
            pair.client.transport.write(b"for the next one")
            pair.client.transport.close()
            await successor.until_event("lost")
            assert successor.received == b"for the next one"
            assert pair.server.received == b""
            pair.listening.close()
            await pair.listening.wait_closed()
            await pair.client.until_event("lost")

        play(scene)

    def test_what_is_written_after_the_close_goes_nowhere(self, play: Play) -> None:
        async def scene(network: Network) -> None:
            pair = await Pair.join(network)
            pair.client.transport.close()
            pair.client.transport.close()
            pair.client.transport.write(b"too late")
            await pair.server.until_event("lost")
            assert pair.server.received == b""
            await pair.end()

        play(scene)

    def test_only_bytes_can_be_written(self, play: Play) -> None:
        async def scene(network: Network) -> None:
            pair = await Pair.join(network)
            with pytest.raises(TypeError):
                pair.client.transport.write("text")  # type: ignore[arg-type]
            pair.client.transport.write(b"")
            pair.client.transport.write(b"x")
            await pair.server.until_received(1)
            assert pair.server.received == b"x"
            await pair.end()

        play(scene)

    def test_whoever_writes_to_a_side_that_left_loses_the_connection(self, play: Play) -> None:
        async def scene(network: Network) -> None:
            pair = await Pair.join(network, HalfClosing)
            pair.server.transport.close()
            await pair.client.until_event("end")
            for _ in range(1000):
                if "lost" in pair.client.events:
                    break
                pair.client.transport.write(b"anyone there?")
                await pause(0.001)
            assert pair.client.events == ["made", "end", "lost"]
            assert isinstance(pair.client.lost_with, (ConnectionResetError, BrokenPipeError))
            await pair.end()

        play(scene)

    def test_a_protocol_that_crashes_is_reported_and_dropped(self, play: Play) -> None:
        class Crashing(Recorder):
            def data_received(self, data: bytes) -> None:
                raise ZeroDivisionError("a bug")

        async def scene(network: Network) -> None:
            reported: list[object] = []
            loop = asyncio.get_running_loop()
            loop.set_exception_handler(lambda _, context: reported.append(context.get("exception")))
            pair = await Pair.join(network, Crashing)
            pair.client.transport.write(b"x")
            await pair.server.until_event("lost")
            await pair.client.until_event("lost")
            assert [type(error) for error in reported] == [ZeroDivisionError]
            await pair.end()

        play(scene)

    def test_many_connections_at_once_stay_apart(self, play: Play) -> None:
        class Echo(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                self.transport = cast(asyncio.Transport, transport)

            def data_received(self, data: bytes) -> None:
                self.transport.write(data)

        async def scene(network: Network) -> None:
            listening = await network.listen(HOST, 0, Echo)
            joined = await asyncio.gather(
                *(network.connect(HOST, listening.port, Recorder) for _ in range(50))
            )
            for number, (transport, _) in enumerate(joined):
                transport.write(b"%d." % number * 100)
            for number, (transport, client) in enumerate(joined):
                await client.until_received(len(b"%d." % number * 100))
                assert client.received == b"%d." % number * 100
                transport.close()
                await client.until_event("lost")
            listening.close()
            await listening.wait_closed()

        play(scene)
