"""Memory is held for what has come, not for what was announced; and who holds some and does nothing gives way."""

from __future__ import annotations

import asyncio
import gc
import struct
import subprocess
import sys
import weakref
from contextlib import AsyncExitStack
from itertools import pairwise
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
    on_sockets,
    produced,
    stranger,
    yes,
)
from strom.errors import Busy, LimitExceeded
from strom.protocol.api_keys import AUTHENTICATE, DATABASE_EXISTS, FETCH_LOG, PRODUCE_LOG
from strom.protocol.message import Message
from strom.protocol.messages.connection import AuthenticateRequest
from strom.protocol.messages.databases import DatabaseExistsResponse
from strom.protocol.messages.log import FetchLogBucketResponse, FetchLogResponse, FetchLogTableResponse
from strom.rpc.budget import Budget
from strom.rpc.call import Call
from strom.rpc.call_memory import WAIT_S, BudgetShare
from strom.rpc.limits import ListenerLimits
from strom.rpc.sasl import Sasl, plain_token
from strom.runtime.metrics import Metrics
from strom.runtime.world import World
from strom.server.background.memory_return import MemoryReturn
from strom.server.calls.log.heavy_reads import HeavyReads
from waiting import until

Play = Any
MIB = 1024 * 1024
HUGE = 100_000_000


def head(length: int) -> bytes:
    return struct.pack(">ihhi", length, PRODUCE_LOG.key, 0, 9)


def dropped(metrics: Metrics) -> dict[str, float]:
    samples = [one for one in metrics.samples() if one["family"] == "strom_rpc_dropped_total"]
    return {one["labels"]["reason"]: one["value"] for one in samples}


def takes(call: Call) -> Message:
    return produced() if call.api is PRODUCE_LOG else yes(call)


@everywhere
def test_frames_that_are_announced_and_do_not_come_hold_up_nobody(play: Play) -> None:
    async def main(world: World) -> None:
        budget = Budget(64 * MIB)
        async with listening(world, takes, budget=budget) as listener, AsyncExitStack() as stack:
            for _ in range(12):
                client = await stack.enter_async_context(stranger(world, listener))
                client.send(head(HUGE) + b"x" * 100)
            await until(lambda: listener.statistics().request_bytes > 0)
            caller = await stack.enter_async_context(calling(world, listener))
            began = asyncio.get_running_loop().time()
            for _ in range(3):
                assert (await caller.call(PRODUCE_LOG, a_produce(bytes(20 * MIB)))).buckets_resp
            assert asyncio.get_running_loop().time() - began < 10, (
                "three frames of 20 MB took their time only"
            )
            assert budget.used < 12 * budget.trial_bytes + MIB, "twelve announcements hold twelve beginnings"

    play(main)


def test_a_frame_that_came_in_part_gives_way_to_those_who_wait() -> None:
    async def main(world: World) -> None:
        metrics = Metrics()
        budget = Budget(64 * MIB)
        async with (
            listening(world, takes, budget=budget, metrics=metrics) as listener,
            stranger(world, listener) as idle,
            stranger(world, listener) as slow,
            calling(world, listener) as caller,
        ):
            for client in (idle, slow):
                client.send(head(HUGE // 4), bytes(MIB))
            await until(lambda: listener.statistics().request_bytes >= 40 * MIB)
            loop = asyncio.get_running_loop()
            for _ in range(100):  # nobody waits for memory: nobody has to go
                slow.send(bytes(1000))
                await asyncio.sleep(0.1)
            assert not slow.lost
            assert not idle.lost
            began = loop.time()
            assert (await caller.call(PRODUCE_LOG, a_produce(bytes(20 * MIB)))).buckets_resp
            assert loop.time() - began < 4.0
            assert idle.lost, "the slowest goes first"
        assert "slow while memory is short" in dropped(metrics)

    in_memory(main)


def test_a_frame_that_gets_on_stays_however_many_wait() -> None:
    async def main(world: World) -> None:
        budget = Budget(64 * MIB)
        async with (
            listening(world, takes, budget=budget) as listener,
            stranger(world, listener) as steady,
            calling(world, listener) as caller,
        ):
            steady.send(head(40 * MIB + 8))
            loop = asyncio.get_running_loop()
            began = loop.time()
            others = None
            for _ in range(40):
                steady.send(bytes(MIB))
                await asyncio.sleep(0.2)
                others = others or asyncio.ensure_future(caller.call(PRODUCE_LOG, a_produce(bytes(30 * MIB))))
            assert others is not None
            await others
            assert loop.time() - began >= 8.0
            assert not steady.lost

    in_memory(main)


def test_answers_that_nobody_reads_give_way_too() -> None:
    async def main(world: World) -> None:
        budget = Budget(64 * MIB)
        metrics = Metrics()

        async def handler(call: Call) -> Message:
            if call.api is not FETCH_LOG:
                return takes(call)
            await call.share.need(20 * MIB)
            bucket = FetchLogBucketResponse(bucket_id=0, records=bytes(20 * MIB))
            return FetchLogResponse(tables_resp=[FetchLogTableResponse(table_id=1, buckets_resp=[bucket])])

        async with (
            listening(world, handler, budget=budget, metrics=metrics) as listener,
            stranger(world, listener) as one,
            stranger(world, listener) as two,
            calling(world, listener) as caller,
        ):
            for client in (one, two):
                client.transport.pause_reading()
                client.ask(1, FETCH_LOG, a_fetch())
            await until(lambda: listener.statistics().unsent_bytes >= 39 * MIB)
            began = asyncio.get_running_loop().time()
            assert (await caller.call(PRODUCE_LOG, a_produce(bytes(20 * MIB)))).buckets_resp
            assert asyncio.get_running_loop().time() - began < 4.0
        assert "slow while memory is short" in dropped(metrics)

    in_memory(main)


def test_small_calls_wait_for_nobody_however_full_it_is() -> None:
    async def main(world: World) -> None:
        budget = Budget(16 * MIB)
        never = asyncio.get_running_loop().create_future()

        def handler(call: Call) -> Any:
            return asyncio.shield(never) if call.api is PRODUCE_LOG else yes(call)

        async with listening(world, handler, budget=budget) as listener, AsyncExitStack() as stack:
            for _ in range(8):
                client = await stack.enter_async_context(stranger(world, listener))
                client.ask(1, PRODUCE_LOG, a_produce(bytes(10 * MIB)))
            await until(lambda: budget.large.waiting)
            client = await stack.enter_async_context(stranger(world, listener))
            began = asyncio.get_running_loop().time()
            client.ask(1, DATABASE_EXISTS, exists())
            assert (await client.answer(1, DatabaseExistsResponse)).exists
            client.ask(2, DATABASE_EXISTS, exists("x" * 100_000))
            assert (await client.answer(2, DatabaseExistsResponse)).exists
            assert asyncio.get_running_loop().time() - began < 0.5
            never.set_result(produced())
            await asyncio.sleep(1.0)

    in_memory(main)


def test_calls_that_only_wait_are_asked_to_let_go() -> None:
    """A call that waits for something else holds its frame; somebody waits for that memory."""

    async def main(world: World) -> None:
        budget = Budget(64 * MIB)
        waiting: list[asyncio.Future[Message]] = []

        def relieve() -> None:
            for one in waiting:
                if not one.done():
                    one.set_result(produced())

        def handler(call: Call) -> Any:
            if len(waiting) == 2:
                return takes(call)
            waiting.append(asyncio.get_running_loop().create_future())
            return waiting[-1]

        budget.relief.append(relieve)
        async with listening(world, handler, budget=budget) as listener, AsyncExitStack() as stack:
            for number in (1, 2):
                client = await stack.enter_async_context(stranger(world, listener))
                client.ask(1, PRODUCE_LOG, a_produce(bytes(20 * MIB)))
                await until(lambda number=number: len(waiting) == number)
            caller = await stack.enter_async_context(calling(world, listener))
            assert (await caller.call(PRODUCE_LOG, a_produce(bytes(20 * MIB)))).buckets_resp
            assert all(one.done() for one in waiting)

    in_memory(main)


# --- shares --------------------------------------------------------------------------------------------------


def test_a_share_is_taken_before_the_memory_is_made_and_given_back_with_the_answer() -> None:
    async def main(world: World) -> None:
        budget = Budget(64 * MIB)
        most = 0

        async def handler(call: Call) -> Message:
            nonlocal most
            await call.share.need(20 * MIB)
            most = max(most, budget.used)
            await asyncio.sleep(0.1)
            return FetchLogResponse()

        async with listening(world, handler, budget=budget) as listener, AsyncExitStack() as stack:
            for _ in range(9):
                client = await stack.enter_async_context(stranger(world, listener))
                client.ask(1, FETCH_LOG, a_fetch())
            await until(lambda: budget.used == 0 and most > 0)
            assert 40 * MIB < most <= 48 * MIB + MIB, "two at a time"

    in_memory(main)


def test_who_finds_no_memory_in_time_is_told_to_come_again() -> None:
    async def main(world: World) -> None:
        loop = asyncio.get_running_loop()
        budget = Budget(64 * MIB)
        budget.large.add(budget.large.limit)
        share, behind = BudgetShare(budget), BudgetShare(budget)
        began = loop.time()
        with pytest.raises(Busy):
            await share.need(20 * MIB)
        assert WAIT_S <= loop.time() - began < WAIT_S + 1
        waiting = asyncio.ensure_future(behind.wait(20 * MIB, 100.0))
        await asyncio.sleep(0.1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert (share.amount, behind.amount) == (0, 0)
        assert not budget.large.waiting
        budget.large.give(budget.large.limit)
        assert budget.used == 0

    in_memory(main)


def test_what_the_parts_of_a_call_hold_is_counted_once_and_given_back_with_it() -> None:
    async def main(world: World) -> None:
        budget = Budget(64 * MIB)
        whole = BudgetShare(budget)
        parts = [whole.part() for _ in range(3)]
        for part in parts[:2]:
            await part.need(10 * MIB)
        for part in parts:
            whole.join(part)
        assert budget.used == whole.amount == 20 * MIB
        assert [part.amount for part in parts] == [0, 0, 0]
        whole.keep(MIB)
        assert budget.used == MIB
        whole.close()
        whole.close()
        assert budget.used == 0

    in_memory(main)


def test_a_share_that_comes_too_late_goes_to_the_next() -> None:
    async def main(world: World) -> None:
        budget = Budget(64 * MIB)
        budget.large.add(40 * MIB)
        first, second = BudgetShare(budget), BudgetShare(budget)
        large = asyncio.ensure_future(first.wait(20 * MIB, 1.0))
        await asyncio.sleep(0)
        small = asyncio.ensure_future(second.wait(5 * MIB, 10.0))
        assert not await large, "the first in line waits in vain"
        assert await small, "and who stands behind goes on when it leaves"
        second.keep(MIB)
        assert budget.large.used == 41 * MIB
        second.close()
        budget.large.give(40 * MIB)

    in_memory(main)


def test_an_answer_that_no_frame_holds_is_an_error_that_says_so() -> None:
    async def main(world: World) -> None:
        nothing = memoryview(bytes(1 << 20))

        def handler(call: Call) -> Message:
            if call.api is not FETCH_LOG:
                return yes(call)
            bucket = FetchLogBucketResponse(bucket_id=0, records=[nothing] * 2049)
            return FetchLogResponse(tables_resp=[FetchLogTableResponse(table_id=1, buckets_resp=[bucket])])

        async with listening(world, handler) as listener, calling(world, listener) as caller:
            with pytest.raises(LimitExceeded, match="ask for less"):
                await caller.call(FETCH_LOG, a_fetch())
            assert (await caller.call(DATABASE_EXISTS, exists())).exists

    in_memory(main)


# --- giving back ---------------------------------------------------------------------------------------------


def test_memory_goes_back_to_the_system_once_when_a_rush_is_over() -> None:
    async def main(world: World) -> None:
        budget = Budget(512 * MIB)
        given: list[int] = []
        back = MemoryReturn(budget, (), lambda: given.append(budget.used))
        running = asyncio.ensure_future(back.run())
        budget.large.add(10 * MIB)
        await asyncio.sleep(60.0)
        assert not given, "so little is not worth it"
        budget.large.add(300 * MIB)
        await asyncio.sleep(60.0)
        assert not given, "it is in use"
        budget.large.give(305 * MIB)
        await asyncio.sleep(60.0)
        assert given == [5 * MIB], "once"
        budget.large.add(300 * MIB)
        budget.large.give(305 * MIB)
        await asyncio.sleep(60.0)
        assert given == [5 * MIB, 0], "and again after the next one"
        running.cancel()

    in_memory(main)


def test_a_rush_is_over_when_it_is_quiet_at_two_looks_in_a_row() -> None:
    budget = Budget(512 * MIB)
    back = MemoryReturn(budget, (), lambda: None)
    budget.large.add(300 * MIB)
    assert not back.is_over()
    budget.large.give(290 * MIB)
    assert not back.is_over(), "the next call may come at any moment"
    budget.large.add(290 * MIB)
    assert not back.is_over()
    budget.large.give(300 * MIB)
    assert [back.is_over() for _ in range(4)] == [False, True, False, False]


def test_memory_that_nobody_counted_goes_back_too() -> None:
    async def main(world: World) -> None:
        resident = [300 * MIB]
        given: list[int] = []

        def give_back() -> None:
            given.append(resident[0])
            resident[0] = max(resident[0] - 50 * MIB, 0)

        back = MemoryReturn(Budget(512 * MIB), (), give_back, lambda: resident[0])
        running = asyncio.ensure_future(back.run())
        await asyncio.sleep(60.0)
        assert not given
        resident[0] = 400 * MIB
        await asyncio.sleep(60.0)
        assert given == [400 * MIB], "once: what is left is in use"
        running.cancel()

    in_memory(main)


def test_memory_beyond_the_budget_goes_back_while_the_rush_goes_on() -> None:
    async def main(world: World) -> None:
        budget = Budget(512 * MIB)
        resident, given = [100 * MIB], []

        def give_back() -> None:
            given.append(resident[0])
            resident[0] = 100 * MIB + budget.used

        back = MemoryReturn(budget, (), give_back, lambda: resident[0])
        running = asyncio.ensure_future(back.run())
        budget.large.add(300 * MIB)
        resident[0] = 670 * MIB
        await asyncio.sleep(60.0)
        assert not given, "the budget may be used"
        resident[0] = 680 * MIB
        await asyncio.sleep(0.3)
        assert given == [680 * MIB], "300 MB are in use, at once, and not when the rush is over"
        resident[0] = 680 * MIB
        await asyncio.sleep(0.3)
        assert len(given) == 2, "and again"
        running.cancel()

    in_memory(main)


def test_a_process_that_has_grown_for_good_is_left_alone() -> None:
    async def main(world: World) -> None:
        resident, given = [100 * MIB], []
        back = MemoryReturn(Budget(512 * MIB), (), lambda: given.append(resident[0]), lambda: resident[0])
        running = asyncio.ensure_future(back.run())
        resident[0] = 5_000 * MIB
        await asyncio.sleep(60.0)
        assert len(given) == 1, "tables are in use, nothing of it goes back"
        running.cancel()

    in_memory(main)


def test_heavy_reads_come_one_at_a_time_and_rest_while_others_ask_small_things() -> None:
    async def main(world: World) -> None:
        loop = asyncio.get_running_loop()
        about = [True]
        heavy = HeavyReads(lambda: about[0])
        begun: list[float] = []

        async def read() -> None:
            async with heavy.turn():
                begun.append(loop.time())
                await asyncio.sleep(0.5)

        await asyncio.gather(*(read() for _ in range(3)))
        assert [later - earlier for earlier, later in pairwise(begun)] == pytest.approx([5.0, 5.0], abs=0.1)
        about[0] = False
        await asyncio.gather(*(read() for _ in range(2)))
        assert begun[4] - begun[3] == pytest.approx(0.5, abs=0.1), "nobody else is there"

    in_memory(main)


def test_freed_memory_is_given_back() -> None:
    """Through the allocators themselves: what was touched and freed leaves the process."""
    code = (
        "import pyarrow as pa, numpy as np\n"
        "from strom.runtime.memory import give_back, keep_freed_blocks\n"
        "def resident(): return int(open('/proc/self/statm').read().split()[1]) * 4096\n"
        "keep_freed_blocks()\n"
        "def use():\n"
        "    a = [pa.allocate_buffer(1 << 20) for _ in range(200)]\n"
        "    for b in a: np.frombuffer(b, np.uint8)[:] = 1\n"
        "    return a, [bytearray(10_000) for _ in range(20_000)]\n"
        "before = resident(); held = use(); full = resident(); del held\n"
        "give_back()\n"
        "print(before, full, resident())\n"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    before, full, after = map(int, found.split())
    assert full - before > 350 * MIB
    assert after - before < 60 * MIB


# --- before login --------------------------------------------------------------------------------------------

USERS = Sasl({"admin": "admin-secret"})


CONNECTIONS = 9  # each failed login takes longer than the one before


def test_a_connection_is_free_the_moment_it_is_lost() -> None:
    """Without the garbage collector, which a server lets run rarely: rings of references would stay for hours."""

    async def main(world: World) -> None:
        seen: list[weakref.ref[Any]] = []
        async with listening(world, yes, authentication=USERS) as listener:
            made = listener._made
            listener._made = lambda one: seen.append(weakref.ref(one)) or made(one)  # type: ignore[method-assign,func-returns-value]
            for number in range(CONNECTIONS):
                async with stranger(world, listener) as client:
                    if number % 3 == 1:
                        client.send(b"\0\0\0")
                    if number % 3 == 2:
                        client.ask(
                            0,
                            AUTHENTICATE,
                            AuthenticateRequest(protocol="PLAIN", token=plain_token("admin", "x")),
                        )
                        await client.error(0)
                    await until(lambda number=number: len(seen) == number + 1)
            await until(lambda: listener.statistics().connections == 0)
            await until(lambda: not any(one() for one in seen), 1)
            assert [one() for one in seen] == [None] * CONNECTIONS

    gc.collect()
    gc.disable()
    try:
        on_sockets(main)
    finally:
        gc.enable()


def test_before_the_login_a_connection_has_next_to_no_memory() -> None:
    async def main(world: World) -> None:
        async with (
            listening(world, yes, authentication=USERS) as listener,
            stranger(world, listener) as client,
        ):
            client.send(b"\0\0")
            await until(lambda: listener.statistics().connections == 1)
            (connection,) = listener._connections
            await until(lambda: connection._reader.bytes == 2)
            assert len(connection._reader._area) <= 2048
            client.transport.abort()
            await client.is_dropped()

    in_memory(main)


def test_of_too_many_strangers_from_one_address_the_oldest_goes() -> None:
    async def main(world: World) -> None:
        metrics = Metrics()
        limits = ListenerLimits(connections_before_login_max=5)
        options = {"authentication": USERS, "limits": limits, "metrics": metrics}
        async with listening(world, yes, **options) as listener, AsyncExitStack() as stack:
            known = await stack.enter_async_context(
                calling(world, listener, user="admin", password="admin-secret")
            )
            strangers = [await stack.enter_async_context(stranger(world, listener)) for _ in range(20)]
            await until(lambda: sum(one.lost for one in strangers) == 15)
            assert [one.lost for one in strangers] == [True] * 15 + [False] * 5
            assert (await known.call(DATABASE_EXISTS, exists())).exists, "who is logged in does not count"
            async with calling(world, listener, user="admin", password="admin-secret") as another:
                assert (await another.call(DATABASE_EXISTS, exists())).exists, "and others come in"
        assert dropped(metrics)["too many before login"] == 16.0

    in_memory(main)
