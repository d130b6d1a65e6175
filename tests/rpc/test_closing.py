"""A listener ends in order: what was accepted is answered, as far as time allows."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rpc.scene import (
    HOST,
    a_fetch,
    calling,
    everywhere,
    exists,
    in_memory,
    listening,
    nothing_fetched,
    stranger,
    yes,
)
from strom.errors import Disconnected, PortInUse, ServerStopping
from strom.protocol.api_keys import DATABASE_EXISTS, FETCH_LOG
from strom.protocol.messages.databases import DatabaseExistsResponse
from strom.protocol.messages.log import FetchLogBucketResponse, FetchLogResponse, FetchLogTableResponse
from strom.rpc.call import Call
from strom.rpc.caller import Caller
from strom.rpc.listener import Listener
from strom.runtime.world import World
from waiting import until

Play = Any


@everywhere
def test_running_calls_are_answered_before_the_end(play: Play) -> None:
    async def main(world: World) -> None:
        answer = asyncio.get_running_loop().create_future()
        async with listening(world, lambda call: answer) as listener, calling(world, listener) as caller:
            call = asyncio.ensure_future(caller.call(FETCH_LOG, a_fetch()))
            await until(lambda: listener.statistics().calls == 1)
            closing = asyncio.ensure_future(listener.close(timeout_s=30.0))
            await asyncio.sleep(0)
            with pytest.raises(Disconnected):
                await Caller.connect(world, HOST, listener.port)
            assert not closing.done()
            answer.set_result(nothing_fetched())
            assert await call == nothing_fetched()
            await closing

    play(main)


def test_requests_that_come_after_the_end_began_are_not_served() -> None:
    async def main(world: World) -> None:
        served: list[Call] = []
        answer = asyncio.get_running_loop().create_future()

        def handler(call: Call) -> Any:
            served.append(call)
            return answer

        async with listening(world, handler) as listener, calling(world, listener) as caller:
            first = asyncio.ensure_future(caller.call(FETCH_LOG, a_fetch()))
            await until(lambda: len(served) == 1)
            closing = asyncio.ensure_future(listener.close(timeout_s=30.0))
            await asyncio.sleep(0)
            second = asyncio.ensure_future(caller.call(FETCH_LOG, a_fetch()))
            await asyncio.sleep(1.0)
            answer.set_result(nothing_fetched())
            assert await first == nothing_fetched()
            with pytest.raises(Disconnected):
                await second
            await closing
            assert len(served) == 1

    in_memory(main)


@everywhere
def test_a_call_that_does_not_end_is_cancelled_and_says_so(play: Play) -> None:
    async def main(world: World) -> None:
        cancelled = []

        async def handler(call: Call) -> Any:
            try:
                await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError:
                cancelled.append(call.api)
                raise

        async with listening(world, handler) as listener, calling(world, listener) as caller:
            call = asyncio.ensure_future(caller.call(DATABASE_EXISTS, exists()))
            await until(lambda: listener.statistics().calls == 1)
            await listener.close(timeout_s=0.05)
            with pytest.raises(ServerStopping):
                await call
            assert cancelled == [DATABASE_EXISTS]

    play(main)


def test_a_call_that_refuses_to_be_cancelled_does_not_hold_up_the_end() -> None:
    async def main(world: World) -> None:
        patience = asyncio.get_running_loop().create_future()

        async def handler(call: Call) -> Any:
            while not patience.done():
                try:
                    await asyncio.shield(patience)
                except asyncio.CancelledError:
                    continue
            return nothing_fetched()

        async with listening(world, handler) as listener, stranger(world, listener) as client:
            client.ask(0, FETCH_LOG, a_fetch())
            await until(lambda: listener.statistics().calls == 1)
            began = asyncio.get_running_loop().time()
            await listener.close(timeout_s=1.0)
            await client.is_dropped()
            assert asyncio.get_running_loop().time() - began < 5.0
            patience.set_result(None)
            await until(lambda: listener._service.budget.used == 0)
            assert not client.answers

    in_memory(main)


def test_a_client_that_does_not_read_does_not_hold_up_the_end() -> None:
    async def main(world: World) -> None:
        def handler(call: Call) -> Any:
            bucket = FetchLogBucketResponse(bucket_id=0, records=bytes(10_000_000))
            return FetchLogResponse(tables_resp=[FetchLogTableResponse(table_id=1, buckets_resp=[bucket])])

        async with listening(world, handler) as listener, stranger(world, listener) as client:
            client.transport.pause_reading()
            client.ask(0, FETCH_LOG, a_fetch())
            await until(lambda: listener.statistics().unsent_bytes > 0 or bool(_held(listener)))
            await listener.close(timeout_s=5.0)
            assert asyncio.get_running_loop().time() < 10

    in_memory(main)


def _held(listener: Listener) -> list[int]:
    return [connection.flow.holds for connection in listener._connections if connection.flow.holds]


def test_closing_twice_or_before_the_start_is_fine() -> None:
    async def main(world: World) -> None:
        listener = Listener(world, "CLIENT", HOST, 0, yes)
        await listener.close()
        await listener.start()
        await listener.close()
        await listener.close()
        assert listener.statistics().connections == 0

    in_memory(main)


@everywhere
def test_a_taken_port_is_told(play: Play) -> None:
    async def main(world: World) -> None:
        async with listening(world, yes) as listener:
            with pytest.raises(PortInUse):
                await Listener(world, "OTHER", HOST, listener.port, yes).start()

    play(main)


def test_a_listener_may_be_opened_again_on_its_port() -> None:
    async def main(world: World) -> None:
        async with listening(world, yes) as listener:
            port = listener.port
        again = await Listener(world, "CLIENT", HOST, port, yes).start()
        caller = await Caller.connect(world, HOST, port)
        assert await caller.call(DATABASE_EXISTS, exists()) == DatabaseExistsResponse(exists=True)
        caller.close()
        await again.close()

    in_memory(main)
