"""Every bound of a listener, against a client that means harm."""

from __future__ import annotations

import asyncio
import struct
import time
from contextlib import AsyncExitStack
from itertools import pairwise
from typing import Any

import pytest

from rpc.scene import (
    Stranger,
    a_fetch,
    a_produce,
    calling,
    everywhere,
    exists,
    in_memory,
    listening,
    on_sockets,
    produced,
    stranger,
    yes,
)
from strom.protocol.api_keys import (
    API_VERSIONS,
    APIS,
    DATABASE_EXISTS,
    FETCH_LOG,
    LOG_APIS,
    LOOKUP,
    PRODUCE_LOG,
)
from strom.protocol.frame import encode_request
from strom.protocol.message import Message
from strom.protocol.messages.connection import ApiVersionsRequest, ApiVersionsResponse
from strom.protocol.messages.databases import DatabaseExistsResponse
from strom.protocol.messages.keys import LookupRequest
from strom.protocol.messages.log import FetchLogBucketResponse, FetchLogResponse, FetchLogTableResponse
from strom.rpc.budget import Budget
from strom.rpc.call import Call
from strom.rpc.connection import TURN_S
from strom.rpc.limits import ListenerLimits
from strom.rpc.slow_calls import SlowCalls
from strom.rpc.traffic import InFlight, ListenerTraffic
from strom.runtime.clock import SystemClock
from strom.runtime.metrics import Metrics
from strom.runtime.world import World
from waiting import until

Play = Any


def head(length: int, *, key: int = 1004, request_id: int = 9) -> bytes:
    return struct.pack(">ihhi", length, key, 0, request_id)


# --- frames that make no sense -------------------------------------------------------------------------------


@everywhere
def test_a_call_nobody_knows_is_an_error_and_the_connection_stays(play: Play) -> None:
    async def main(world: World) -> None:
        async with listening(world, yes) as listener, stranger(world, listener) as client:
            client.send(head(8, key=4711, request_id=1))
            assert await client.error(1) == 2
            client.ask(2, DATABASE_EXISTS, exists(), version=7)
            assert await client.error(2) == 2
            client.ask(3, LOOKUP, LookupRequest(table_id=1))
            assert await client.error(3) == 2, "known, but not offered here"
            client.ask(4, DATABASE_EXISTS, exists())
            assert (await client.answer(4, DatabaseExistsResponse)).exists

    play(main)


@everywhere
def test_a_request_that_cannot_be_read_is_an_error_and_the_connection_stays(play: Play) -> None:
    async def main(world: World) -> None:
        async with listening(world, yes) as listener, stranger(world, listener) as client:
            client.send(head(10, request_id=1) + b"\xff\xff")
            assert await client.error(1) == 3
            client.ask(2, DATABASE_EXISTS, exists())
            assert (await client.answer(2, DatabaseExistsResponse)).exists

    play(main)


@everywhere
def test_a_frame_that_is_too_large_is_refused_and_then_the_connection_goes(play: Play) -> None:
    async def main(world: World) -> None:
        limits = ListenerLimits(frame_bytes_max=1000)
        async with listening(world, yes, limits=limits) as listener, stranger(world, listener) as client:
            client.send(head(1001, request_id=5) + b"x" * 500)
            assert await client.error(5) == 13
            await client.is_dropped()

    play(main)


@everywhere
def test_a_stream_that_is_not_ours_is_dropped(play: Play) -> None:
    async def main(world: World) -> None:
        async with listening(world, yes) as listener:
            for said in (struct.pack(">i", -1), struct.pack(">i", 7), b"\x00\x00\x00\x00"):
                async with stranger(world, listener) as client:
                    client.send(said)
                    await client.is_dropped()
                    assert not client.answers
            async with stranger(world, listener) as client:
                client.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
                await client.is_dropped()
                assert [succeeded for succeeded, _ in client.answers.values()] == [False]

    play(main)


def test_only_what_is_offered_is_advertised() -> None:
    async def main(world: World) -> None:
        async with listening(world, yes) as listener, stranger(world, listener) as client:
            hello = ApiVersionsRequest(client_software_name="x", client_software_version="1")
            client.ask(0, API_VERSIONS, hello)
            offer = await client.answer(0, ApiVersionsResponse)
            assert {row.api_key for row in offer.api_versions} == {api.key for api in LOG_APIS}
            assert {row.api_key for row in offer.api_versions} < set(APIS)
            assert offer.server_type is None

    in_memory(main)


# --- slow and silent clients ---------------------------------------------------------------------------------


def test_a_frame_that_does_not_end_is_given_up() -> None:
    async def main(world: World) -> None:
        metrics = Metrics()
        limits = ListenerLimits(frame_timeout_s=30.0, frame_bytes_per_s_min=1000)
        async with listening(world, yes, limits=limits, metrics=metrics) as listener:
            loop = asyncio.get_running_loop()
            async with stranger(world, listener) as client:
                began = loop.time()
                client.send(head(100))
                while not client.lost:
                    client.transport.write(b"x")  # one byte now and again keeps nothing alive
                    await asyncio.sleep(2.0)
                assert 30 <= loop.time() - began < 40
            async with stranger(world, listener) as client:
                began = loop.time()
                client.send(head(50_000) + b"x")
                while not client.lost:
                    client.transport.write(b"x")
                    await asyncio.sleep(2.0)
                assert 80 <= loop.time() - began < 90, "a large frame has more time, by its size"
            async with stranger(world, listener) as client:
                began = loop.time()
                client.send(head(50_000) + b"x")
                await until(lambda: client.lost, within_s=1000)
                assert 30 <= loop.time() - began < 40, "but only while it goes on"
        assert dropped(metrics) == {"slow frame": 2.0, "silent frame": 1.0}

    in_memory(main)


def dropped(metrics: Metrics) -> dict[str, float]:
    samples = [one for one in metrics.samples() if one["family"] == "strom_rpc_dropped_total"]
    return {one["labels"]["reason"]: one["value"] for one in samples}


def test_a_silent_connection_is_closed_and_a_waiting_one_is_not() -> None:
    async def main(world: World) -> None:
        metrics = Metrics()
        never = asyncio.get_running_loop().create_future()

        def handler(call: Call) -> Any:
            return never if call.api is FETCH_LOG else yes(call)

        limits = ListenerLimits(idle_timeout_s=100.0)
        async with (
            listening(world, handler, limits=limits, metrics=metrics) as listener,
            stranger(world, listener) as silent,
            stranger(world, listener) as waiting,
            stranger(world, listener) as talking,
        ):
            waiting.ask(0, FETCH_LOG, a_fetch())
            for turn in range(20):
                talking.ask(turn, DATABASE_EXISTS, exists())
                await asyncio.sleep(10.0)
            assert silent.lost
            assert not waiting.lost
            assert not talking.lost
            never.set_result(FetchLogResponse())
            await until(lambda: waiting.lost, within_s=200)
        assert dropped(metrics) == {"idle": 3.0}, "in the end, everyone is silent"

    in_memory(main)


@pytest.mark.parametrize("many", [1, 50], ids=["one large answer", "many"])
def test_a_client_that_does_not_read_is_held_back_and_then_dropped(many: int) -> None:
    async def main(world: World) -> None:
        served = 0
        metrics = Metrics()

        def handler(call: Call) -> Message:
            nonlocal served
            served += 1
            bucket = FetchLogBucketResponse(bucket_id=0, records=bytes(5_000_000 // many))
            return FetchLogResponse(tables_resp=[FetchLogTableResponse(table_id=1, buckets_resp=[bucket])])

        limits = ListenerLimits(answer_bytes_high=100_000, stall_timeout_s=60.0)
        async with (
            listening(world, handler, limits=limits, metrics=metrics) as listener,
            stranger(world, listener) as client,
            calling(world, listener) as other,
        ):
            client.transport.pause_reading()
            for request_id in range(1000):
                client.ask(request_id, FETCH_LOG, a_fetch())
            await asyncio.sleep(1.0)
            assert served < 10, "nothing is served to one who does not read"
            assert listener.statistics().unsent_bytes < 6_000_000
            assert await other.call(FETCH_LOG, a_fetch()), "others are served"
            await until(lambda: listener.statistics().connections == 1, within_s=1000)
            assert asyncio.get_running_loop().time() < 100
        assert dropped(metrics) == {"answers not read": 1.0}

    in_memory(main)


def test_a_client_that_reads_slowly_is_served() -> None:
    async def main(world: World) -> None:
        def handler(call: Call) -> Message:
            bucket = FetchLogBucketResponse(bucket_id=0, records=bytes(1_000_000))
            return FetchLogResponse(tables_resp=[FetchLogTableResponse(table_id=1, buckets_resp=[bucket])])

        limits = ListenerLimits(answer_bytes_high=100_000, stall_timeout_s=60.0)
        async with (
            listening(world, handler, limits=limits) as listener,
            stranger(world, listener) as client,
        ):
            client.appetite_bytes, client.rest_s = 300_000, 40.0
            for request_id in range(20):
                client.ask(request_id, FETCH_LOG, a_fetch())
            await until(lambda: len(client.answers) == 20, within_s=10_000)
            assert not client.lost
            assert asyncio.get_running_loop().time() > 500

    in_memory(main)


def test_answers_of_waiting_calls_that_nobody_reads_are_bounded_too() -> None:
    async def main(world: World) -> None:
        ready = asyncio.get_running_loop().create_future()

        async def handler(call: Call) -> Message:
            await asyncio.shield(ready)
            bucket = FetchLogBucketResponse(bucket_id=0, records=bytes(1_000_000))
            return FetchLogResponse(tables_resp=[FetchLogTableResponse(table_id=1, buckets_resp=[bucket])])

        limits = ListenerLimits(answer_bytes_high=100_000, answer_bytes_max=5_000_000)
        async with (
            listening(world, handler, limits=limits) as listener,
            stranger(world, listener) as client,
        ):
            client.transport.pause_reading()
            for request_id in range(100):
                client.ask(request_id, FETCH_LOG, a_fetch())
            await until(lambda: listener.statistics().calls == 100)
            ready.set_result(None)
            await until(lambda: listener.statistics().connections == 0)
            assert not client.answers
            assert asyncio.get_running_loop().time() < limits.stall_timeout_s, "by their bytes, not by time"

    in_memory(main)


# --- too much at once ----------------------------------------------------------------------------------------


@everywhere
def test_one_connection_too_many_is_closed(play: Play) -> None:
    async def main(world: World) -> None:
        metrics = Metrics()
        limits = ListenerLimits(connections_max=3)
        async with listening(world, yes, limits=limits, metrics=metrics) as listener:
            async with (
                stranger(world, listener) as one,
                stranger(world, listener) as two,
                stranger(world, listener) as three,
            ):
                await until(lambda: listener.statistics().connections == 3)
                async with stranger(world, listener) as four:
                    await four.is_dropped()
                assert not any(client.lost for client in (one, two, three))
            await until(lambda: listener.statistics().connections == 0)
            async with stranger(world, listener) as again:
                again.ask(0, DATABASE_EXISTS, exists())
                assert (await again.answer(0, DatabaseExistsResponse)).exists
        assert dropped(metrics) == {"too many connections": 1.0}

    play(main)


def test_calls_that_wait_are_bounded_per_connection() -> None:
    async def main(world: World) -> None:
        futures: list[asyncio.Future[Message]] = []

        def handler(call: Call) -> Any:
            futures.append(asyncio.get_running_loop().create_future())
            return futures[-1]

        limits = ListenerLimits(calls_max=10)
        async with listening(world, handler, limits=limits) as listener, stranger(world, listener) as client:
            for request_id in range(50):
                client.ask(request_id, DATABASE_EXISTS, exists())
            await asyncio.sleep(1.0)
            assert len(futures) == 10
            while len(client.answers) < 50:
                for future in futures:
                    if not future.done():
                        future.set_result(DatabaseExistsResponse(exists=True))
                await asyncio.sleep(0.01)
            assert len(futures) == 50

    in_memory(main)


@everywhere
def test_bytes_in_flight_are_bounded_over_all_connections(play: Play) -> None:
    async def main(world: World) -> None:
        held = asyncio.get_running_loop().create_future()
        most = 0
        budget = Budget(2_000_000)

        async def handler(call: Call) -> Message:
            nonlocal most
            most = max(most, budget.used)
            await asyncio.shield(held)
            return produced()

        async with listening(world, handler, budget=budget) as listener:
            callers = [await _connect(world, listener) for _ in range(6)]
            calls = [
                asyncio.ensure_future(caller.call(PRODUCE_LOG, a_produce(bytes(700_000))))
                for caller in callers
                for _ in range(3)
            ]
            await until(lambda: listener.statistics().calls == 2)
            assert listener.statistics().calls == 2, "two of them fit"
            held.set_result(None)
            await asyncio.gather(*calls)
            assert 1_400_000 <= most <= 2_000_000
            for caller in callers:
                caller.close()
                await caller.wait_closed()

    play(main)


async def _connect(world: World, listener: Any) -> Any:
    from strom.rpc.caller import Caller

    return await Caller.connect(world, "127.0.0.1", listener.port)


def test_a_frame_larger_than_the_budget_passes_when_nothing_else_does() -> None:
    async def main(world: World) -> None:
        async def handler(call: Call) -> Message:
            await asyncio.sleep(0.1)
            return produced()

        limits = ListenerLimits(connection_inflight_bytes_max=100_000, inflight_bytes_max=100_000)
        async with listening(world, handler, limits=limits) as listener, calling(world, listener) as caller:
            calls = [caller.call(PRODUCE_LOG, a_produce(bytes(300_000))) for _ in range(4)]
            assert len(await asyncio.gather(*calls)) == 4

    in_memory(main)


def test_many_frames_of_one_connection_let_others_have_their_turn() -> None:
    async def main(world: World) -> None:
        order: list[int] = []

        def handler(call: Call) -> Message:
            order.append(call.connection_id)
            return yes(call)

        async with (
            listening(world, handler) as listener,
            stranger(world, listener) as greedy,
            stranger(world, listener) as modest,
        ):
            one = b"".join(encode_request(DATABASE_EXISTS.key, 0, 1, exists()))
            greedy.send(one * 1000)
            modest.send(one)
            await until(lambda: len(order) == 1001)
            modest_id = min(set(order), key=order.count)
            assert order.index(modest_id) < 100

    in_memory(main)


def test_calls_that_take_long_let_others_have_their_turn_after_each() -> None:
    async def main(world: World) -> None:
        order: list[int] = []

        def handler(call: Call) -> Message:
            order.append(call.connection_id)
            ends = time.perf_counter() + 2 * TURN_S
            while time.perf_counter() < ends:
                pass
            return yes(call)

        async with (
            listening(world, handler) as listener,
            stranger(world, listener) as greedy,
            stranger(world, listener) as modest,
        ):
            one = b"".join(encode_request(DATABASE_EXISTS.key, 0, 1, exists()))
            greedy.send(one * 30)
            modest.send(one)
            await until(lambda: len(order) == 31)
            modest_id = min(set(order), key=order.count)
            assert order.index(modest_id) < 4

    in_memory(main)


def test_who_keeps_the_loop_for_long_waits_while_others_ask_small_things() -> None:
    budget = Budget(1000)
    slow = SlowCalls(budget)
    assert slow.wait_s(0.1, 10.0) == 0, "nobody is about"
    budget.small_at = 10.0
    assert slow.wait_s(0.001, 10.0) == 0, "that is a moment"
    assert slow.wait_s(0.1, 10.0) == pytest.approx(0.9)
    assert slow.wait_s(0.1, 10.0) == pytest.approx(1.8), "after the other one"
    budget.small_at = 20.0
    assert slow.wait_s(5.0, 20.0) == pytest.approx(20.0), "there is an end to it"
    assert slow.wait_s(0.1, 50.0) == 0


def test_who_only_stood_by_while_others_had_the_core_did_not_have_the_loop() -> None:
    budget, worked = Budget(1000), [7.0]
    slow = SlowCalls(budget, lambda: worked[0])
    budget.small_at = 10.0
    began = slow.begin(9.5)
    assert slow.had_it_s(0.5, began) == 0.5, "by the clock: nobody was slow before"
    slow.wait_s(0.5, 10.0)
    began = slow.begin(10.0)
    worked[0] += 0.002
    assert slow.had_it_s(0.1, began) == pytest.approx(0.002), "it was its turn, and others had the core"
    assert slow.had_it_s(0.001, began) == 0.001


@pytest.mark.parametrize(
    ("ahead", "before"),
    [(1, []), (8, []), (1, [True, False])],
    ids=[
        "one request at a time",
        "many requests ahead",
        "of somebody whose call took long, but not the last one",
    ],
)
def test_a_small_call_waits_for_one_of_those_who_take_long_and_not_for_all(
    ahead: int, before: list[bool]
) -> None:
    def work() -> None:
        ends = time.thread_time() + 2 * TURN_S
        while time.thread_time() < ends:
            pass

    async def main(world: World) -> None:
        order: list[int] = []
        at_work: list[bool] = []
        named: dict[int, Stranger] = {}
        budget = Budget(64_000_000)
        one = b"".join(encode_request(DATABASE_EXISTS.key, 0, 1, exists()))

        def handler(call: Call) -> Message:
            budget.small_at = (
                time.monotonic() + 60
            )  # all the time, however long this process waits for a core
            order.append(call.connection_id)
            if at_work and at_work.pop():
                work()
            if len(named) < 13 or call.connection_id == modest_id:
                return yes(call)
            if len(order) == 30:
                modest.send(one)
            if len(order) < 90:
                named[call.connection_id].send(one)
            work()
            return yes(call)

        async with AsyncExitStack() as stack:
            listener = await stack.enter_async_context(listening(world, handler, budget=budget))
            for _ in range(13):
                somebody = await stack.enter_async_context(stranger(world, listener))
                somebody.send(one)
                await until(lambda: len(order) == 1)
                named[order.pop()] = somebody
            (modest_id, modest), *greedy = named.items()
            for takes_long in before:
                at_work.append(takes_long)
                modest.send(one)
                await until(lambda: len(order) == 1)
                order.clear()
            for _, each in greedy:
                each.send(one * ahead)
            await until(lambda: len(order) >= 90)
            assert order.index(modest_id) - 30 <= 3, "not behind the twelve"

    on_sockets(main)


def test_a_connection_whose_calls_take_long_is_read_again_after_its_rest() -> None:
    async def main(world: World) -> None:
        served: list[float] = []
        budget = Budget(64_000_000)
        loop = asyncio.get_running_loop()

        def handler(call: Call) -> Message:
            served.append(loop.time())
            budget.small_at = (
                time.monotonic() + 60
            )  # all the time, however long this process waits for a core
            ends = time.thread_time() + 0.01
            while time.thread_time() < ends:
                pass
            return yes(call)

        async with (
            listening(world, handler, budget=budget) as listener,
            stranger(world, listener) as client,
        ):
            client.send(b"".join(encode_request(DATABASE_EXISTS.key, 0, 1, exists())) * 3)
            await until(lambda: len(served) == 3)
            pauses = [later - earlier for earlier, later in pairwise(served)]
            assert min(pauses) > 0.06, "nine times what it took, of virtual time"

    in_memory(main)


def test_what_happened_is_counted() -> None:
    async def main(world: World) -> None:
        metrics = Metrics()
        async with (
            listening(world, yes, metrics=metrics) as listener,
            stranger(world, listener) as client,
        ):
            client.ask(0, DATABASE_EXISTS, exists())
            client.send(head(8, key=4711, request_id=1))
            await until(lambda: len(client.answers) == 2)
            found = {one["name"]: one["value"] for one in metrics.samples()}
            assert found["strom_rpc_connections"] == 1
        found = {
            one["name"]: one["value"]
            for one in metrics.samples()
            if one["name"] != "strom_rpc_seconds_bucket"
        }
        assert found["strom_rpc_seconds_count"] == 1
        assert found["strom_rpc_errors_total"] == 1
        assert found["strom_rpc_request_bytes_total"] > 16
        assert found["strom_rpc_response_bytes_total"] > 20
        assert found["strom_rpc_connections"] == 0

    in_memory(main)


def test_what_is_in_flight_is_told_under_its_name() -> None:
    metrics = Metrics()
    traffic = ListenerTraffic("CLIENT", metrics, SystemClock(), Budget(1000))
    traffic.follow(lambda: InFlight(connections=1, calls=2, request_bytes=3, unsent_bytes=4))
    found = {one["name"]: one["value"] for one in metrics.samples()}
    names = ["connections", "calls", "inflight_bytes", "unsent_bytes"]
    assert [found[f"strom_rpc_{name}"] for name in names] == [1, 2, 3, 4]
