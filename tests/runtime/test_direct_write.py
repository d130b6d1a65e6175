"""Large answers leave without the interpreter's lock: the same bytes in the same order, whatever the socket takes."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest
import uvloop

from strom.rpc.sending import send
from strom.runtime.direct_write import BUFFERS_MAX, LARGE_BYTES, write_now
from strom.runtime.files import Bytes
from strom.runtime.sockets import TcpNetwork


class Receiver(asyncio.Protocol):
    """Keeps what comes; does not read before it is told to."""

    def __init__(self) -> None:
        self.content = bytearray()
        self.ended = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.pause_reading()

    def data_received(self, data: bytes) -> None:
        self.content += data

    def connection_lost(self, error: Exception | None) -> None:
        self.ended.set()


class Sender(asyncio.Protocol):
    pass


def received(answers: list[list[Bytes]]) -> tuple[bytes, int]:
    """What the other side gets of some answers, and how many bytes the transport had to keep for a while."""

    async def scene() -> tuple[bytes, int]:
        network, receiver = TcpNetwork(), Receiver()
        listening = await network.listen("127.0.0.1", 0, lambda: receiver)
        transport, _ = await network.connect("127.0.0.1", listening.port, Sender)
        for answer in answers:
            send(transport, answer)
        kept = transport.get_write_buffer_size()
        transport.close()  # what it keeps is sent before
        receiver.transport.resume_reading()
        await receiver.ended.wait()
        listening.close()
        await listening.wait_closed()
        return bytes(receiver.content), kept

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(scene())


def test_what_the_socket_does_not_take_follows_in_order() -> None:
    pieces: list[Bytes] = [bytes([number % 251]) * (LARGE_BYTES + number) for number in range(200)]
    content, kept = received([pieces, [b"and then"], [memoryview(pieces[7])], pieces[:3]])
    assert kept > 0
    assert content == b"".join([*pieces, b"and then", pieces[7], *pieces[:3]])


def test_more_pieces_than_the_system_takes_at_once_arrive_whole() -> None:
    pieces: list[Bytes] = [number.to_bytes(4, "big") * 50 for number in range(3 * BUFFERS_MAX)]
    content, _ = received([pieces])
    assert content == b"".join(pieces)


class Filled:
    """A transport that has bytes of its own."""

    def __init__(self, unsent: int, closing: bool) -> None:
        self._unsent = unsent
        self._closing = closing

    def get_write_buffer_size(self) -> int:
        return self._unsent

    def is_closing(self) -> bool:
        return self._closing

    def get_extra_info(self, name: str) -> None:
        return None


@pytest.mark.parametrize(("unsent", "closing"), [(1, False), (0, True), (0, False)])
def test_nothing_overtakes_what_waits_and_nothing_is_written_to_what_is_no_socket(
    unsent: int, closing: bool
) -> None:
    piece = bytes(LARGE_BYTES)
    transport = cast(asyncio.Transport, Filled(unsent, closing))
    assert write_now(transport, [piece, b"x"], len(piece) + 1) == [piece, b"x"]
