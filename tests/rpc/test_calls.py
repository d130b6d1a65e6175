"""A call reaches its handler and the answer its caller, over any network, at once or later."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rpc.scene import (
    a_fetch,
    a_produce,
    calling,
    everywhere,
    exists,
    in_memory,
    listening,
    nothing_fetched,
    produced,
    stranger,
    yes,
)
from strom.errors import (
    ConnectionClosed,
    Corrupt,
    Disconnected,
    RequestTimeout,
    StromError,
    TableNotFound,
    UnsupportedVersion,
)
from strom.protocol.api_keys import (
    APIS,
    DATABASE_EXISTS,
    FETCH_LOG,
    GET_TABLE_INFO,
    LOOKUP,
    PRODUCE_LOG,
    PUT_KV,
)
from strom.protocol.error_codes import CODES
from strom.protocol.frame import encode_response
from strom.protocol.message import Message, whole
from strom.protocol.messages.databases import DatabaseExistsResponse
from strom.protocol.messages.keys import LookupRequest
from strom.protocol.messages.log import FetchLogBucketResponse, FetchLogResponse, FetchLogTableResponse
from strom.protocol.messages.tables import GetTableInfoRequest, WireTablePath
from strom.rpc.call import Call
from strom.rpc.caller import Caller
from strom.runtime.world import World
from waiting import pause, until

Play = Any


@everywhere
def test_a_caller_gets_its_answer(play: Play) -> None:
    async def main(world: World) -> None:
        def handler(call: Call) -> Message:
            return DatabaseExistsResponse(exists=call.request.database_name == "fluss")

        async with listening(world, handler) as listener, calling(world, listener) as caller:
            assert (await caller.call(DATABASE_EXISTS, exists("fluss"))).exists
            assert not (await caller.call(DATABASE_EXISTS, exists("other"))).exists

    play(main)


@everywhere
def test_many_calls_at_once_get_each_its_own_answer(play: Play) -> None:
    async def main(world: World) -> None:
        async def later(call: Call) -> Message:
            await pause(int(call.request.database_name) % 7 / 1000)
            return DatabaseExistsResponse(exists=int(call.request.database_name) % 3 == 0)

        def handler(call: Call) -> Any:
            number = int(call.request.database_name)
            return DatabaseExistsResponse(exists=number % 3 == 0) if number % 2 else later(call)

        async with listening(world, handler) as listener, calling(world, listener) as caller:
            answers = await asyncio.gather(
                *(caller.call(DATABASE_EXISTS, exists(str(number))) for number in range(300))
            )
            assert [answer.exists for answer in answers] == [number % 3 == 0 for number in range(300)]

    play(main)


@everywhere
def test_large_payloads_go_both_ways_unharmed(play: Play) -> None:
    records = bytes(range(256)) * 4096  # 1 MB

    async def main(world: World) -> None:
        kept: list[Any] = []

        def handler(call: Call) -> Message:
            if call.api is PRODUCE_LOG:
                kept.append(call.request.buckets_req[0].records)
                return produced()
            bucket = FetchLogBucketResponse(bucket_id=0, records=[kept[0], b"", kept[1][:100_000], b"tail"])
            return FetchLogResponse(tables_resp=[FetchLogTableResponse(table_id=1, buckets_resp=[bucket])])

        async with listening(world, handler) as listener, calling(world, listener) as caller:
            await asyncio.gather(*(caller.call(PRODUCE_LOG, a_produce(records)) for _ in range(5)))
            assert [bytes(found) == records for found in kept] == [True] * 5
            answer = await caller.call(FETCH_LOG, a_fetch())
            fetched = whole(answer.tables_resp[0].buckets_resp[0].records or b"")
            assert bytes(fetched) == records + records[:100_000] + b"tail"
            sent = caller.statistics()
            assert sent.bytes_sent > 5 * len(records)
            assert sent.bytes_received > len(fetched)
            assert sent.requests == 7

    play(main)


def test_a_received_batch_can_be_stamped_where_it_lies() -> None:
    async def main(world: World) -> None:
        def handler(call: Call) -> Message:
            records = call.request.buckets_req[0].records
            assert isinstance(records, memoryview)
            records[:8] = b"stamped!"
            assert bytes(records[:10]) == b"stamped!ii"
            return produced()

        async with listening(world, handler) as listener, calling(world, listener) as caller:
            for size in (100, 1_000_000):
                await caller.call(PRODUCE_LOG, a_produce(b"i" * size))

    in_memory(main)


def test_a_call_answered_at_once_needs_no_task() -> None:
    async def main(world: World) -> None:
        before: list[int] = []

        def handler(call: Call) -> Message:
            assert asyncio.current_task() is None
            before.append(len(asyncio.all_tasks()))
            return yes(call)

        async with listening(world, handler) as listener, calling(world, listener) as caller:
            await caller.call(DATABASE_EXISTS, exists())
            assert before == [1], "only this test"

    in_memory(main)


@everywhere
def test_a_large_frame_may_be_answered_the_short_way_too(play: Play) -> None:
    async def main(world: World) -> None:
        class Handler:
            def __init__(self) -> None:
                self.at_once = {PRODUCE_LOG.key: self.quick}
                self.sizes: list[int] = []

            def quick(self, frame: Any, request_id: int) -> Any:
                self.sizes.append(len(frame))
                return encode_response(request_id, produced(len(self.sizes)))

            def __call__(self, call: Call) -> Message:
                raise AssertionError("the short way was not asked")

        handler = Handler()
        async with listening(world, handler) as listener, calling(world, listener) as caller:
            for number, size in enumerate((100, 1_000_000, 100, 50_000), 1):
                assert await caller.call(PRODUCE_LOG, a_produce(b"i" * size)) == produced(number)
                assert handler.sizes[-1] > size
                assert listener.statistics().request_bytes == 0

    play(main)


@everywhere
def test_a_waiting_call_does_not_block_its_connection(play: Play) -> None:
    async def main(world: World) -> None:
        arrived = asyncio.get_running_loop().create_future()

        def handler(call: Call) -> Any:
            return arrived if call.api is FETCH_LOG else yes(call)

        async with listening(world, handler) as listener, calling(world, listener) as caller:
            fetch = asyncio.ensure_future(caller.call(FETCH_LOG, a_fetch()))
            for _ in range(10):
                assert (await caller.call(DATABASE_EXISTS, exists())).exists
            assert not fetch.done()
            arrived.set_result(nothing_fetched())
            assert await fetch == nothing_fetched()

    play(main)


def test_a_call_may_be_sent_at_once_unless_too_much_is_unsent() -> None:
    async def main(world: World) -> None:
        async with (
            listening(world, lambda call: produced(3)) as listener,
            calling(world, listener) as caller,
        ):
            before = caller.statistics().requests
            answer = caller.start(PRODUCE_LOG, a_produce(b"x"))
            assert caller.statistics().requests == before + 1, "sent before anything is awaited"
            assert answer is not None
            assert await answer == produced(3)
            started = [caller.start(PRODUCE_LOG, a_produce(bytes(300_000))) for _ in range(10)]
            assert None in started
            assert [await one for one in started if one is not None]

    in_memory(main)


def test_calls_may_wait_for_the_same_thing() -> None:
    async def main(world: World) -> None:
        synced = asyncio.get_running_loop().create_future()

        async with listening(world, lambda call: synced) as listener, calling(world, listener) as caller:
            calls = [asyncio.ensure_future(caller.call(PRODUCE_LOG, a_produce(b"x"))) for _ in range(5)]
            await until(lambda: listener.statistics().calls == 5)
            synced.set_result(produced(7))
            assert await asyncio.gather(*calls) == [produced(7)] * 5

    in_memory(main)


@everywhere
def test_an_error_arrives_as_what_it_is(play: Play) -> None:
    async def main(world: World) -> None:
        def handler(call: Call) -> Any:
            raise TableNotFound("there is no table a.b", table="a.b")

        async with listening(world, handler) as listener, calling(world, listener) as caller:
            with pytest.raises(TableNotFound, match=r"there is no table a\.b"):
                await caller.call(GET_TABLE_INFO, table_info())
            with pytest.raises(TableNotFound):
                await caller.call(GET_TABLE_INFO, table_info())

    play(main)


def table_info() -> GetTableInfoRequest:
    return GetTableInfoRequest(table_path=WireTablePath(database_name="a", table_name="b"))


async def fails_later() -> Message:
    raise ZeroDivisionError("secret")


def fails_at_once() -> Message:
    raise ZeroDivisionError("secret")


@pytest.mark.parametrize(
    "wrong", [fails_at_once, fails_later, lambda: None, produced], ids=lambda one: one.__name__
)
def test_a_fault_of_ours_becomes_an_error_and_a_line_in_the_log(
    wrong: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def main(world: World) -> None:
        async with listening(world, lambda call: wrong()) as listener, calling(world, listener) as caller:
            with pytest.raises(StromError, match="internal error") as caught:
                await caller.call(DATABASE_EXISTS, exists())
            assert caught.value.facts["code"] == -1
            assert "secret" not in caught.value.message
            assert not caller.closed

    in_memory(main)
    assert "DatabaseExists failed" in caplog.text


def test_a_handler_may_give_a_failed_call_an_answer_of_its_own(caplog: pytest.LogCaptureFixture) -> None:
    class Handler:
        def __call__(self, call: Call) -> Any:
            if call.api is PRODUCE_LOG:
                raise TableNotFound("gone")
            raise TableNotFound("gone too")

        def failed(self, call: Call, error: BaseException) -> Message | None:
            assert isinstance(error, TableNotFound)
            return produced(-7) if call.api is PRODUCE_LOG else None

    async def main(world: World) -> None:
        async with listening(world, Handler()) as listener, calling(world, listener) as caller:
            answer = await caller.call(PRODUCE_LOG, a_produce(b""))
            assert answer.buckets_resp[0].base_offset == -7
            with pytest.raises(TableNotFound, match="gone too"):
                await caller.call(DATABASE_EXISTS, exists())

    in_memory(main)


def test_a_handler_whose_excuse_fails_is_excused() -> None:
    class Handler:
        def __call__(self, call: Call) -> Any:
            raise TableNotFound("gone")

        def failed(self, call: Call, error: BaseException) -> Message | None:
            raise ZeroDivisionError

    async def main(world: World) -> None:
        async with listening(world, Handler()) as listener, calling(world, listener) as caller:
            with pytest.raises(TableNotFound, match="gone"):
                await caller.call(PRODUCE_LOG, a_produce(b""))

    in_memory(main)


def test_a_handler_sees_who_calls_and_where() -> None:
    async def main(world: World) -> None:
        seen: list[Call] = []

        def handler(call: Call) -> Message:
            seen.append(call)
            return yes(call)

        async with (
            listening(world, handler) as listener,
            calling(world, listener) as one,
            calling(world, listener) as other,
        ):
            await one.call(DATABASE_EXISTS, exists())
            await other.call(DATABASE_EXISTS, exists())
            first, second = seen
            assert (first.api, first.version, first.listener_name) == (DATABASE_EXISTS, 0, "CLIENT")
            assert first.principal is None
            assert first.connection_id != second.connection_id

    in_memory(main)


# --- versions ------------------------------------------------------------------------------------------------


def test_a_call_the_server_does_not_offer_is_refused_by_the_caller() -> None:
    async def main(world: World) -> None:
        async with listening(world, yes) as listener, calling(world, listener) as caller:
            assert await caller.call(DATABASE_EXISTS, exists())
            with pytest.raises(UnsupportedVersion, match="does not offer Lookup"):
                await caller.call(LOOKUP, LookupRequest(table_id=1))

    in_memory(main)


@pytest.mark.parametrize("version", [-1, DATABASE_EXISTS.max_version + 1, 32767])
def test_a_version_that_is_not_offered_is_refused_by_the_server_and_others_go_on(version: int) -> None:
    async def main(world: World) -> None:
        async with listening(world, yes) as listener, stranger(world, listener) as client:
            client.ask(0, DATABASE_EXISTS, exists(), version=version)
            client.ask(1, DATABASE_EXISTS, exists())
            assert await client.error(0) == CODES[UnsupportedVersion]
            await until(lambda: 1 in client.answers)
            assert client.answers[1][0]

    in_memory(main)


def test_the_highest_version_both_know_is_used() -> None:
    async def main(world: World) -> None:
        seen: list[int] = []

        def handler(call: Call) -> Message:
            seen.append(call.version)
            return call.api.response()

        async with (
            listening(world, handler, apis=APIS.values()) as listener,
            calling(world, listener) as caller,
        ):
            await caller.call(LOOKUP, LookupRequest(table_id=1))
            assert seen == [LOOKUP.max_version]
            assert PUT_KV.max_version == 2

    in_memory(main)


def test_a_server_says_what_it_is_only_if_told_to() -> None:
    async def main(world: World) -> None:
        async with listening(world, yes) as listener, calling(world, listener) as caller:
            assert caller.server_type is None
        async with listening(world, yes, server_type=2) as listener, calling(world, listener) as caller:
            assert caller.server_type == 2

    in_memory(main)


# --- the end of a connection ---------------------------------------------------------------------------------


@everywhere
def test_calls_that_wait_hear_that_the_connection_is_lost(play: Play) -> None:
    async def main(world: World) -> None:
        def handler(call: Call) -> Any:
            return asyncio.get_running_loop().create_future()

        async with listening(world, handler) as listener, calling(world, listener) as caller:
            calls = [asyncio.ensure_future(caller.call(FETCH_LOG, a_fetch())) for _ in range(3)]
            await until(lambda: listener.statistics().calls == 3)
            for connection in list(listener._connections):
                connection.abort()
            results = await asyncio.gather(*calls, return_exceptions=True)
            assert [type(result) for result in results] == [Disconnected] * 3
            assert len({id(result) for result in results}) == 3, "each has its own, with its own traceback"
            assert caller.closed
            with pytest.raises(Disconnected):
                await caller.call(FETCH_LOG, a_fetch())

    play(main)


@everywhere
def test_closing_a_caller_ends_its_calls(play: Play) -> None:
    async def main(world: World) -> None:
        def handler(call: Call) -> Any:
            return asyncio.get_running_loop().create_future()

        async with listening(world, handler) as listener, calling(world, listener) as caller:
            waiting = asyncio.ensure_future(caller.call(FETCH_LOG, a_fetch()))
            await until(lambda: listener.statistics().calls == 1)
            caller.close()
            with pytest.raises(ConnectionClosed):
                await waiting
            with pytest.raises(ConnectionClosed):
                await caller.call(FETCH_LOG, a_fetch())
            await until(lambda: listener.statistics().connections == 0)

    play(main)


def test_a_waiting_fetch_ends_with_its_connection_and_a_write_does_not() -> None:
    async def main(world: World) -> None:
        loop = asyncio.get_running_loop()
        fetch, write = loop.create_future(), loop.create_future()

        def handler(call: Call) -> Any:
            return fetch if call.api is FETCH_LOG else write

        async with listening(world, handler) as listener:
            async with stranger(world, listener) as client:
                client.ask(0, FETCH_LOG, a_fetch())
                client.ask(1, PRODUCE_LOG, a_produce(b"x" * 100_000))
                await until(lambda: listener.statistics().calls == 2)
            await until(lambda: listener.statistics().connections == 0)
            assert fetch.cancelled()
            assert not write.done()
            assert listener._service.budget.used > 100_000, "the write still holds its frame"
            write.set_result(produced())
            await until(lambda: listener._service.budget.used == 0)

    in_memory(main)


def test_a_call_without_an_answer_ends_in_time() -> None:
    async def main(world: World) -> None:
        answers: list[asyncio.Future[Message]] = []

        def handler(call: Call) -> Any:
            answers.append(asyncio.get_running_loop().create_future())
            return answers[-1]

        async with listening(world, handler) as listener, calling(world, listener) as caller:
            loop = asyncio.get_running_loop()
            began = loop.time()
            slow = asyncio.ensure_future(caller.call(DATABASE_EXISTS, exists(), timeout_s=60.0))
            await until(lambda: len(answers) == 1)
            with pytest.raises(RequestTimeout, match="DatabaseExists"):
                await caller.call(DATABASE_EXISTS, exists(), timeout_s=5.0)
            assert loop.time() - began == pytest.approx(5.0, abs=0.1)
            answers[1].set_result(DatabaseExistsResponse(exists=False))  # too late: nobody listens
            answers[0].set_result(DatabaseExistsResponse(exists=True))
            assert (await slow).exists
            assert caller.waiting == 0

    in_memory(main)


def test_a_cancelled_call_leaves_the_others_alone() -> None:
    async def main(world: World) -> None:
        answer = asyncio.get_running_loop().create_future()

        async def handler(call: Call) -> Any:
            return await asyncio.shield(answer)

        async with listening(world, handler) as listener, calling(world, listener) as caller:
            calls = [asyncio.ensure_future(caller.call(DATABASE_EXISTS, exists())) for _ in range(2)]
            await until(lambda: listener.statistics().calls == 2)
            calls[0].cancel()
            answer.set_result(DatabaseExistsResponse(exists=True))
            assert (await calls[1]).exists
            await until(lambda: caller.waiting == 0)

    in_memory(main)


@everywhere
def test_a_server_that_is_not_there_is_disconnected(play: Play) -> None:
    async def main(world: World) -> None:
        async with listening(world, yes) as listener:
            port = listener.port
        with pytest.raises(Disconnected, match=f"127.0.0.1:{port}"):
            await Caller.connect(world, "127.0.0.1", port)

    play(main)


def test_a_server_that_does_not_answer_is_given_up() -> None:
    async def main(world: World) -> None:
        class Mute(asyncio.Protocol):
            """Accepts and says nothing."""

        mute = await world.network.listen("127.0.0.1", 0, Mute)
        with pytest.raises(RequestTimeout):
            await Caller.connect(world, "127.0.0.1", mute.port, timeout_s=3.0)
        mute.close()

    in_memory(main)


@pytest.mark.parametrize(
    ("said", "heard"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", Disconnected),
        (bytes.fromhex("000000050200000000"), Disconnected),
        (bytes.fromhex("0000000100"), Disconnected),
        (bytes.fromhex("000000060000000000ff"), Corrupt),
        (bytes.fromhex("0000000701000000000807"), TableNotFound),
    ],
    ids=["http", "type 2", "short", "undecodable", "error without a sentence"],
)
def test_a_caller_survives_whatever_answers(said: bytes, heard: type[StromError]) -> None:
    async def main(world: World) -> None:
        class Odd(asyncio.Protocol):
            def connection_made(self, transport: Any) -> None:
                self.transport = transport

            def data_received(self, data: bytes) -> None:
                self.transport.write(said)

        odd = await world.network.listen("127.0.0.1", 0, Odd)
        with pytest.raises(StromError) as caught:
            await Caller.connect(world, "127.0.0.1", odd.port, timeout_s=3.0)
        assert type(caught.value) is heard
        odd.close()

    in_memory(main)


def test_a_caller_waits_while_the_server_does_not_read() -> None:
    async def main(world: World) -> None:
        held = asyncio.get_running_loop().create_future()

        async def handler(call: Call) -> Message:
            await asyncio.shield(held)
            return produced()

        from strom.rpc.limits import ListenerLimits

        limits = ListenerLimits(connection_inflight_bytes_max=1_000_000)
        async with listening(world, handler, limits=limits) as listener, calling(world, listener) as caller:
            records = b"x" * 400_000
            calls = [asyncio.ensure_future(caller.call(PRODUCE_LOG, a_produce(records))) for _ in range(20)]
            await asyncio.sleep(1.0)
            assert caller.statistics().bytes_sent < 10 * len(records)
            assert listener.statistics().request_bytes <= 1_000_000
            held.set_result(None)
            assert len(await asyncio.gather(*calls)) == 20

    in_memory(main)
