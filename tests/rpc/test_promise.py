"""Promises: settled once, told at once."""

from __future__ import annotations

import asyncio
import logging

import pytest

from strom.errors import RequestTimeout
from strom.rpc.promise import Promise


def test_callbacks_are_called_within_the_settling_and_in_order() -> None:
    promise: Promise[int] = Promise()
    seen: list[tuple[str, int]] = []
    promise.add_done_callback(lambda one: seen.append(("first", one.result())))
    promise.add_done_callback(lambda one: seen.append(("second", one.result())))
    promise.set_result(7)
    assert seen == [("first", 7), ("second", 7)]
    promise.add_done_callback(lambda one: seen.append(("late", one.result())))
    assert seen[-1] == ("late", 7)


def test_only_the_first_settling_is_heard() -> None:
    promise: Promise[int] = Promise()
    calls: list[Promise[int]] = []
    promise.add_done_callback(calls.append)
    promise.cancel()
    promise.set_result(1)
    promise.set_exception(ValueError())
    assert calls == [promise]
    assert promise.cancelled()
    with pytest.raises(asyncio.CancelledError):
        promise.result()


def test_what_a_callback_raises_is_logged_and_reaches_nobody_else(caplog: pytest.LogCaptureFixture) -> None:
    promise: Promise[int] = Promise()
    seen: list[int] = []

    def breaks(_: Promise[int]) -> None:
        raise ValueError("broken")

    promise.add_done_callback(breaks)
    promise.add_done_callback(lambda one: seen.append(one.result()))
    with caplog.at_level(logging.ERROR):
        promise.set_result(3)
    assert seen == [3]
    assert "broken" in caplog.text


def test_it_can_be_awaited_before_and_after() -> None:
    async def main() -> None:
        kept: Promise[int] = Promise()
        asyncio.get_running_loop().call_soon(kept.set_result, 5)
        assert await kept == 5
        assert await kept == 5
        failed: Promise[int] = Promise()
        failed.set_exception(RequestTimeout("too late"))
        with pytest.raises(RequestTimeout, match="too late"):
            await failed
        gone: Promise[int] = Promise()
        gone.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gone

    asyncio.run(main())


def test_who_stops_waiting_leaves_the_promise_to_others() -> None:
    async def main() -> None:
        promise: Promise[int] = Promise()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(_await(promise), 0.001)
        assert not promise.done()
        promise.set_result(2)
        assert await promise == 2

    asyncio.run(main())


async def _await(promise: Promise[int]) -> int:
    return await promise
