"""Calls between the servers of a cluster: they arrive, they fail alone, they end with the other side, and nobody
without the secret gets an answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from rpc.scene import in_memory, silenced, stranger
from strom.coordinator.catalog import ListenerAddress
from strom.errors import AuthenticationFailed, Disconnected, InvalidRequest, RequestTimeout, StromError
from strom.protocol.api_keys import APPLY_STAGES, HOLD_BUCKETS, INNER_APIS, SERVER_METRICS, Api
from strom.protocol.error_codes import code_of
from strom.protocol.message import Message
from strom.protocol.messages import stages as messages
from strom.protocol.messages.inner import (
    HoldBucketsRequest,
    HoldBucketsResponse,
    RegisterServerRequest,
    ReportFailedStartRequest,
    ServerMetricsRequest,
)
from strom.rpc.call import Answer, Call
from strom.rpc.listener import Listener
from strom.runtime.world import World
from strom.server.background.decision_rollout import BUCKETS_AT_ONCE
from strom.server.links.inner_link import InnerLink, open_inner_listener
from strom.server.process.supervisor import TabletProcess
from waiting import until

SECRET = "of this cluster"
TASKS = 2_000

CallHandler = Callable[[Call], Answer]


class Group:
    """Answers as a test says."""

    def __init__(self, handlers: Mapping[Api[Any, Any], CallHandler]) -> None:
        self._handlers = handlers

    def handlers(self) -> Mapping[Api[Any, Any], CallHandler]:
        return self._handlers


@asynccontextmanager
async def opened(world: World, handlers: Mapping[Api[Any, Any], CallHandler]) -> AsyncIterator[Listener]:
    listener = await open_inner_listener(world, SECRET, [Group(handlers)])
    try:
        yield listener
    finally:
        await listener.close(0)


@asynccontextmanager
async def linked(
    world: World, handlers: Mapping[Api[Any, Any], CallHandler]
) -> AsyncIterator[tuple[InnerLink, Listener]]:
    async with opened(world, handlers) as listener:
        link = InnerLink(world, SECRET, "tablet server 1", at(listener))
        try:
            yield link, listener
        finally:
            link.close()


def at(listener: Listener) -> ListenerAddress:
    return ListenerAddress(listener.host, listener.port)


def large_request() -> messages.ApplyStagesRequest:
    ids = [number.to_bytes(16, "big") for number in range(200_000)]
    commit = messages.ApplyCommit(number=1, sink="s", epoch=1, overwrite=False, stage_ids=ids)
    bucket = messages.ApplyStagesBucketRequest(table_id=1, bucket_id=0, commits=[commit])
    return messages.ApplyStagesRequest(buckets_req=[bucket])


def same(call: Call) -> Message:
    return HoldBucketsResponse(held=call.request.on)


async def never(call: Call) -> Message:
    await asyncio.get_running_loop().create_future()
    raise AssertionError


def test_many_calls_at_once_are_each_answered_on_one_connection() -> None:
    async def main(world: World) -> None:
        async with linked(world, {HOLD_BUCKETS: same}) as (link, listener):
            answers = await asyncio.gather(
                *(link.call(HOLD_BUCKETS, HoldBucketsRequest(on=n % 2 == 0)) for n in range(40))
            )
            assert [answer.held for answer in answers] == [n % 2 == 0 for n in range(40)]
            assert listener.statistics().connections == 1

    in_memory(main)


def test_a_failing_answer_fails_only_its_call(caplog: pytest.LogCaptureFixture) -> None:
    silenced(caplog)

    def fails_when_on(call: Call) -> Message:
        if call.request.on:
            raise InvalidRequest("no such thing")
        return same(call)

    async def main(world: World) -> None:
        async with linked(world, {HOLD_BUCKETS: fails_when_on}) as (link, _):
            with pytest.raises(InvalidRequest, match="no such thing"):
                await link.call(HOLD_BUCKETS, HoldBucketsRequest(on=True))
            assert not (await link.call(HOLD_BUCKETS, HoldBucketsRequest(on=False))).held

    in_memory(main)


def test_a_call_that_is_not_answered_times_out() -> None:
    async def main(world: World) -> None:
        async with linked(world, {HOLD_BUCKETS: never}) as (link, _):
            with pytest.raises(RequestTimeout, match="HoldBuckets"):
                await link.call(HOLD_BUCKETS, HoldBucketsRequest(on=True), timeout_s=0.02)

    in_memory(main)


def test_a_server_that_reads_nothing_times_out_too() -> None:
    """The bytes of an earlier call fill the connection: the next one cannot even be sent."""

    async def main(world: World) -> None:
        async with linked(world, {HOLD_BUCKETS: same, APPLY_STAGES: never}) as (link, listener):
            await link.call(HOLD_BUCKETS, HoldBucketsRequest(on=True))
            for connection in list(listener._connections):
                connection._transport.pause_reading()
            stuck = asyncio.ensure_future(link.call(APPLY_STAGES, large_request(), timeout_s=1000))
            await asyncio.sleep(1)
            with pytest.raises(RequestTimeout, match="HoldBuckets"):
                await link.call(HOLD_BUCKETS, HoldBucketsRequest(on=True), timeout_s=2)
            stuck.cancel()

    in_memory(main)


def test_guesses_of_others_delay_a_link_and_do_not_end_it(caplog: pytest.LogCaptureFixture) -> None:
    silenced(caplog)

    async def main(world: World) -> None:
        async with opened(world, {HOLD_BUCKETS: same}) as listener:
            wrong = InnerLink(world, "a guess", "tablet server 1", at(listener))
            for _ in range(12):
                with pytest.raises(AuthenticationFailed):
                    await wrong.call(HOLD_BUCKETS, HoldBucketsRequest(on=True))
            link = InnerLink(world, SECRET, "tablet server 1", at(listener))
            assert (await link.call(HOLD_BUCKETS, HoldBucketsRequest(on=True))).held
            link.close()

    in_memory(main)


def test_the_end_of_the_other_side_ends_every_call_and_a_new_port_is_found() -> None:
    async def main(world: World) -> None:
        async with linked(world, {HOLD_BUCKETS: never}) as (link, _):
            waiting = asyncio.ensure_future(link.call(HOLD_BUCKETS, HoldBucketsRequest(on=True)))
            await asyncio.sleep(0.01)
            link.point_to(None)
            with pytest.raises(Disconnected, match="tablet server 1 ended"):
                await waiting
            with pytest.raises(Disconnected, match="tablet server 1 is not running"):
                await link.call(HOLD_BUCKETS, HoldBucketsRequest(on=True))
            async with opened(world, {HOLD_BUCKETS: same}) as again:
                link.point_to(at(again))
                assert (await link.call(HOLD_BUCKETS, HoldBucketsRequest(on=True))).held

    in_memory(main)


def test_a_connection_to_where_the_server_was_is_not_used() -> None:
    async def main(world: World) -> None:
        async with linked(world, {HOLD_BUCKETS: same}) as (link, listener):
            connecting = asyncio.ensure_future(link.connect(5.0))
            await asyncio.sleep(0)
            link.point_to(None)
            with pytest.raises(Disconnected, match="tablet server 1 is not running"):
                await connecting
            assert not link.is_connected
            await until(lambda: listener.statistics().connections == 0)

    in_memory(main)


def test_a_link_connects_again_when_its_connection_broke() -> None:
    async def main(world: World) -> None:
        async with linked(world, {HOLD_BUCKETS: same}) as (link, listener):
            await link.call(HOLD_BUCKETS, HoldBucketsRequest(on=True))
            for connection in list(listener._connections):
                connection.abort()
            await asyncio.sleep(0.01)
            assert (await link.call(HOLD_BUCKETS, HoldBucketsRequest(on=True))).held

    in_memory(main)


def test_a_link_that_is_not_used_for_a_day_still_works() -> None:
    async def main(world: World) -> None:
        async with linked(world, {HOLD_BUCKETS: same}) as (link, listener):
            await link.call(HOLD_BUCKETS, HoldBucketsRequest(on=True))
            await asyncio.sleep(24 * 3600)
            assert listener.statistics().connections == 1
            assert (await link.call(HOLD_BUCKETS, HoldBucketsRequest(on=True))).held

    in_memory(main)


def test_a_decision_of_many_tasks_in_many_buckets_reaches_them() -> None:
    ids = [number.to_bytes(16) for number in range(TASKS)]
    commit = messages.ApplyCommit(number=1, sink="sink", epoch=1, stage_ids=ids, overwrite=False)
    request = messages.ApplyStagesRequest(
        buckets_req=[
            messages.ApplyStagesBucketRequest(table_id=1, bucket_id=bucket, commits=[commit])
            for bucket in range(BUCKETS_AT_ONCE)
        ]
    )
    found: list[int] = []

    def apply(call: Call) -> Message:
        found.extend(len(one.commits[0].stage_ids) for one in call.request.buckets_req)
        return messages.ApplyStagesResponse()

    async def main(world: World) -> None:
        async with linked(world, {APPLY_STAGES: apply}) as (link, _):
            await link.call(APPLY_STAGES, request)

    in_memory(main)
    assert found == [TASKS] * BUCKETS_AT_ONCE


# --- the secret ------------------------------------------------------------------------------------------------


def test_before_the_secret_is_proved_no_inner_call_is_answered() -> None:
    performed: list[Call] = []

    async def main(world: World) -> None:
        async with (
            opened(world, dict.fromkeys(INNER_APIS, performed.append)) as listener,  # type: ignore[arg-type]
            stranger(world, listener) as asker,
        ):
            for number, api in enumerate(INNER_APIS):
                asker.ask(number, api, ServerMetricsRequest())
                assert await asker.error(number) == code_of(AuthenticationFailed(""))

    in_memory(main)
    assert not performed


def test_another_clusters_secret_does_not_open_a_listener(caplog: pytest.LogCaptureFixture) -> None:
    silenced(caplog)

    async def main(world: World) -> None:
        async with opened(world, {HOLD_BUCKETS: same}) as listener:
            for secret in ("of another cluster", "", SECRET + "x"):
                link = InnerLink(world, secret, "tablet server 1", at(listener))
                with pytest.raises(AuthenticationFailed):
                    await link.call(HOLD_BUCKETS, HoldBucketsRequest(on=True))

    in_memory(main)


def test_a_process_that_is_not_the_running_one_cannot_register() -> None:
    async def main(world: World) -> None:
        link = InnerLink(world, SECRET, "tablet server 1")
        process = TabletProcess(1, {"ports": [1]}, link, lambda server_id, ports: None)
        with pytest.raises(InvalidRequest, match="process 77 is not tablet server 1"):
            process.registered(
                RegisterServerRequest(server_id=1, process_id=77, ports=[1234], inner_port=1235)
            )
        with pytest.raises(InvalidRequest, match="process 77 is not tablet server 1"):
            process.failed(ReportFailedStartRequest(server_id=1, process_id=77, error_message="no"))
        with pytest.raises(StromError, match="not running"):
            await link.call(SERVER_METRICS, ServerMetricsRequest())

    in_memory(main)
