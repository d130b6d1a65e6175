"""A server and its callers on one loop: the small language of the tests in this folder."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, cast

import pytest

from strom.protocol.api_keys import Api
from strom.protocol.codec import decode
from strom.protocol.connection import FrameReader
from strom.protocol.frame import RESPONSE_HEAD, encode_request, read_response_head
from strom.protocol.message import Message
from strom.protocol.messages.connection import ErrorResponse
from strom.protocol.messages.databases import DatabaseExistsRequest, DatabaseExistsResponse
from strom.protocol.messages.log import (
    FetchLogRequest,
    FetchLogResponse,
    ProduceLogBucketRequest,
    ProduceLogBucketResponse,
    ProduceLogRequest,
    ProduceLogResponse,
)
from strom.rpc import connection
from strom.rpc.call import Call
from strom.rpc.caller import Caller
from strom.rpc.listener import Listener
from strom.runtime import loops
from strom.runtime.files import Bytes
from strom.runtime.tasks import InlineOffload
from strom.runtime.world import World
from strom.testing import loop as virtual
from strom.testing.network import MemoryNetwork
from strom.testing.random import SeededRandomness
from waiting import until

HOST = "127.0.0.1"

Main = Callable[[World], Coroutine[Any, Any, None]]


def in_memory(main: Main, *, seed: int | None = None) -> None:
    """Run on virtual time and a network in memory; with a seed, bytes arrive in pieces of any size."""
    randomness = SeededRandomness(seed) if seed is not None else None
    world = replace(World.system(), network=MemoryNetwork(randomness=randomness), offload=InlineOffload())
    virtual.run(main(world))


def on_sockets(main: Main, *, plain: bool = False) -> None:
    """Run on real sockets, with uvloop or (``plain``) with asyncio's own loop.

    What is refused lingers for less long than it does where time is virtual.
    """
    world = replace(World.system(), offload=InlineOffload())
    factory = asyncio.new_event_loop if plain else loops.new_event_loop
    with pytest.MonkeyPatch.context() as patch, asyncio.Runner(loop_factory=factory) as runner:
        patch.setattr(connection, "LINGER_S", 0.1)
        runner.run(main(world))


everywhere = pytest.mark.parametrize(
    "play",
    [in_memory, lambda main: in_memory(main, seed=7), on_sockets, lambda main: on_sockets(main, plain=True)],
    ids=["memory", "memory-in-pieces", "uvloop", "asyncio"],
)
"""Runs a test on every kind of loop and network."""


@asynccontextmanager
async def listening(world: World, handler: Any, **options: Any) -> AsyncIterator[Listener]:
    """A listener that is open; afterwards nothing may be left of it."""
    listener = Listener(world, "CLIENT", HOST, 0, handler, **options)
    await listener.start()
    try:
        yield listener
    finally:
        await listener.close(timeout_s=1.0)
        assert listener.statistics() == (0, 0, 0, 0)
        assert listener._service.budget.used == 0, "what was counted in is counted out"


@asynccontextmanager
async def calling(world: World, listener: Listener, **options: Any) -> AsyncIterator[Caller]:
    """A caller that is connected."""
    caller = await Caller.connect(world, HOST, listener.port, **options)
    try:
        yield caller
    finally:
        caller.close()
        await caller.wait_closed()


def exists(name: str = "fluss") -> DatabaseExistsRequest:
    return DatabaseExistsRequest(database_name=name)


def yes(call: Call) -> Message:
    """A handler that knows one call."""
    return DatabaseExistsResponse(exists=True)


def a_fetch(wait_ms: int = 500) -> FetchLogRequest:
    return FetchLogRequest(follower_server_id=-1, max_bytes=1, max_wait_ms=wait_ms)


def nothing_fetched() -> FetchLogResponse:
    return FetchLogResponse()


def a_produce(records: Any) -> ProduceLogRequest:
    bucket = ProduceLogBucketRequest(bucket_id=0, records=records)
    return ProduceLogRequest(acks=-1, table_id=1, timeout_ms=1000, buckets_req=[bucket])


def produced(offset: int = 0) -> ProduceLogResponse:
    return ProduceLogResponse(buckets_resp=[ProduceLogBucketResponse(bucket_id=0, base_offset=offset)])


class Stranger(asyncio.BufferedProtocol):
    """A client that sends any bytes it likes, and writes down what comes back."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport
        self.reader = FrameReader(frame_bytes_max=1 << 30, head_bytes=RESPONSE_HEAD.size)
        self.answers: dict[int, tuple[bool, Bytes]] = {}
        self.lost = False
        self.appetite_bytes, self.rest_s = 1 << 60, 0.0
        """Reads this much, then rests this long."""
        self._eaten = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def connection_lost(self, error: Exception | None) -> None:
        self.lost = True

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.reader.room()

    def buffer_updated(self, nbytes: int) -> None:
        self.reader.filled(nbytes)
        self._eaten += nbytes
        if self._eaten > self.appetite_bytes:
            self._eaten = 0
            self.transport.pause_reading()
            asyncio.get_running_loop().call_later(self.rest_s, self.transport.resume_reading)
        while True:
            frame = self.reader.next()
            if frame is not None:
                succeeded, request_id = read_response_head(frame)
                self.answers[request_id] = (succeeded, frame[RESPONSE_HEAD.size :])
            elif self.reader.wanted:
                self.reader.admit()
            else:
                return

    def send(self, *buffers: Bytes) -> None:
        for buffer in buffers:
            self.transport.write(buffer)

    def ask(self, request_id: int, api: Api[Any, Any], request: Message, *, version: int = 0) -> None:
        self.send(*encode_request(api.key, version, request_id, request))

    async def answer(self, request_id: int, kind: type[Any]) -> Any:
        """The answer to a request, which must be a success."""
        await until(lambda: request_id in self.answers)
        succeeded, body = self.answers.pop(request_id)
        assert succeeded, decode(ErrorResponse, body)
        return decode(kind, body)

    async def error(self, request_id: int) -> int:
        """The error number a request was answered with."""
        await until(lambda: request_id in self.answers)
        succeeded, body = self.answers.pop(request_id)
        assert not succeeded
        return decode(ErrorResponse, body).error_code

    async def is_dropped(self) -> None:
        await until(lambda: self.lost)


@asynccontextmanager
async def stranger(world: World, listener: Listener) -> AsyncIterator[Stranger]:
    """A connection for any bytes."""
    _, protocol = await world.network.connect(HOST, listener.port, Stranger)
    try:
        yield protocol
    finally:
        if not protocol.lost:
            protocol.transport.abort()
            await protocol.is_dropped()


def silenced(caplog: pytest.LogCaptureFixture) -> None:
    """Errors are expected in the log."""
    caplog.set_level(logging.CRITICAL, logger="strom.rpc")
