"""asyncio on virtual time: waiting is free, order is kept, and a standstill is noticed."""

from __future__ import annotations

import asyncio

import pytest

from strom.runtime.sockets import TcpNetwork
from strom.testing.loop import Deadlock, Livelock, VirtualLoop, run


def test_waiting_takes_virtual_time_only() -> None:
    async def main() -> float:
        start = asyncio.get_running_loop().time()
        await asyncio.sleep(365 * 24 * 3600)
        return asyncio.get_running_loop().time() - start

    assert run(main()) == 365 * 24 * 3600


def test_timers_fire_in_the_order_of_their_times() -> None:
    async def main() -> list[tuple[float, str]]:
        seen: list[tuple[float, str]] = []

        async def wait(delay: float, name: str) -> None:
            await asyncio.sleep(delay)
            seen.append((asyncio.get_running_loop().time(), name))

        await asyncio.gather(wait(2, "b"), wait(1, "a"), wait(3.5, "d"), wait(3, "c"))
        return seen

    assert run(main()) == [(1, "a"), (2, "b"), (3, "c"), (3.5, "d")]


def test_a_tiny_delay_at_a_large_time_still_passes() -> None:
    async def main() -> None:
        await asyncio.sleep(1e9)
        for _ in range(3):
            await asyncio.sleep(1e-9)
        assert asyncio.get_running_loop().time() >= 1e9

    run(main())


def test_a_timeout_strikes_at_its_time() -> None:
    async def main() -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await asyncio.Event().wait()
        return asyncio.get_running_loop().time()

    assert run(main()) == 5


def test_a_deadlock_is_named_with_its_tasks_and_where_they_wait() -> None:
    async def wait_for_nothing() -> None:
        await asyncio.Event().wait()

    async def main() -> None:
        await asyncio.gather(*(asyncio.create_task(wait_for_nothing(), name=name) for name in ("one", "two")))

    with pytest.raises(Deadlock) as caught:
        run(main())
    assert "one: Event.wait" in str(caught.value)
    assert "two: Event.wait" in str(caught.value)
    assert "main" in str(caught.value)


def test_what_is_tried_again_and_again_is_named_after_so_many_turns() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        loop.turns_left = 1_000
        await asyncio.sleep(1)  # few turns, whatever the time
        for _ in range(10_000):
            await asyncio.sleep(0)

    with pytest.raises(Livelock, match=r"the last at 1.000000 s\n.*sleep"):
        run(main())


def test_timers_that_are_cancelled_are_not_kept_and_the_others_fire_in_order() -> None:
    async def main() -> list[int]:
        loop, fired = asyncio.get_running_loop(), list[int]()
        assert isinstance(loop, VirtualLoop)
        timers = [loop.call_later(1 + number // 10, fired.append, number) for number in range(2_000)]
        for number, timer in enumerate(timers):
            if number % 100:
                timer.cancel()
        assert len(loop._timers) < 500
        await asyncio.sleep(1_000)
        return fired

    assert run(main()) == list(range(0, 2_000, 100))


def test_threads_are_replaced_by_work_in_place() -> None:
    async def main() -> None:
        assert await asyncio.to_thread(divmod, 7, 2) == (3, 1)
        with pytest.raises(ZeroDivisionError):
            await asyncio.get_running_loop().run_in_executor(None, divmod, 1, 0)

    run(main())


def test_real_sockets_are_refused() -> None:
    async def main() -> None:
        with pytest.raises(NotImplementedError, match="MemoryNetwork"):
            await TcpNetwork().connect("127.0.0.1", 9, asyncio.Protocol)
        with pytest.raises(NotImplementedError, match="MemoryNetwork"):
            await TcpNetwork().listen("127.0.0.1", 0, asyncio.Protocol)

    run(main())
