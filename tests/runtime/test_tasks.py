"""Threads for what blocks, and background tasks that are not forgotten."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
import weakref

import pytest

from strom.errors import ServerStopping
from strom.runtime.loops import run
from strom.runtime.tasks import InlineOffload, Offload, Tasks, ThreadOffload
from strom.runtime.world import World
from strom.testing.loop import run as run_virtual


@pytest.fixture(params=["threads", "inline"])
def offload(request: pytest.FixtureRequest) -> Offload:
    return ThreadOffload(2) if request.param == "threads" else InlineOffload()


def test_offloaded_work_gives_its_result_or_its_error(offload: Offload) -> None:
    async def main() -> None:
        assert await offload.run(divmod, 7, 2) == (3, 1)
        with pytest.raises(ZeroDivisionError):
            await offload.run(divmod, 1, 0)
        offload.close()

    run(main())


def test_the_loop_goes_on_while_a_thread_works() -> None:
    async def main() -> None:
        offload = ThreadOffload(1)
        release = threading.Event()
        work = asyncio.ensure_future(offload.run(release.wait, 10))
        for _ in range(10):
            await asyncio.sleep(0)
        assert not work.done()
        release.set()
        assert await work
        offload.close()

    run(main())


def test_others_get_a_turn_before_inline_work() -> None:
    async def main() -> None:
        order: list[str] = []
        other = asyncio.ensure_future(asyncio.sleep(0))
        other.add_done_callback(lambda _: order.append("other"))
        asyncio.get_running_loop().call_soon(order.append, "soon")
        await InlineOffload().run(order.append, "work")
        assert order[:2] == ["soon", "work"]
        await other

    run_virtual(main())


def test_tasks_are_named_and_forgotten_when_they_end() -> None:
    async def main() -> None:
        tasks = Tasks()
        task = tasks.spawn(asyncio.sleep(1, "done"), "sleeper")
        assert (task.get_name(), len(tasks)) == ("sleeper", 1)
        assert await task == "done"
        await asyncio.sleep(0)
        assert len(tasks) == 0
        await tasks.close()

    run_virtual(main())


def test_closing_cancels_every_task_and_waits_for_its_end(caplog: pytest.LogCaptureFixture) -> None:
    ended: list[int] = []

    async def stubborn(number: int) -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(1)
            ended.append(number)

    async def main() -> None:
        tasks = Tasks()
        for number in range(3):
            tasks.spawn(stubborn(number), f"stubborn {number}")
        await asyncio.sleep(0)
        await tasks.close()
        await tasks.close()
        assert sorted(ended) == [0, 1, 2]
        assert len(tasks) == 0

    run_virtual(main())
    assert caplog.records == [], "an end that was asked for is no crash, of the task or of the loop"


def test_a_task_may_close_its_own_owner() -> None:
    async def main() -> None:
        tasks = Tasks()
        other = tasks.spawn(asyncio.sleep(3600), "other")
        closing = tasks.spawn(tasks.close(), "closing")
        await closing
        assert other.cancelled()
        assert not closing.cancelled()

    run_virtual(main())


def test_a_closed_owner_takes_no_task() -> None:
    async def main() -> None:
        tasks = Tasks()
        await tasks.close()
        with pytest.raises(ServerStopping):
            tasks.spawn(asyncio.sleep(0), "late")
        assert len(tasks) == 0

    run_virtual(main())


def test_a_crash_is_logged_once_with_the_tasks_name(caplog: pytest.LogCaptureFixture) -> None:
    async def crash() -> None:
        raise RuntimeError("broken")

    async def main() -> None:
        tasks = Tasks()
        task = tasks.spawn(crash(), "fragile")
        await asyncio.wait([task])
        await asyncio.sleep(0)
        await tasks.close()

    with caplog.at_level(logging.ERROR):
        run_virtual(main())
    assert [record.getMessage() for record in caplog.records] == ["background task 'fragile' crashed"]
    assert "broken" in caplog.text


def test_the_systems_world_is_complete() -> None:
    async def main() -> None:
        world = World.system(offload_threads=1)
        assert await world.offload.run(world.files.exists, "/")
        assert world.clock.now_ms() > 0
        assert len(world.randomness.token(4)) == 4
        listening = await world.network.listen("127.0.0.1", 0, asyncio.Protocol)
        assert listening.port > 0
        listening.close()
        await listening.wait_closed()
        world.offload.close()

    run(main())


def test_the_loop_is_uvloop_where_it_is_installed() -> None:
    async def main() -> str:
        return type(asyncio.get_running_loop()).__module__

    assert run(main()) == "uvloop"


def test_work_for_every_thread_is_done_in_each_of_them() -> None:
    async def main() -> None:
        offload = ThreadOffload(3)
        seen: list[int] = []
        await offload.everywhere(lambda: seen.append(threading.get_ident()))
        assert len(set(seen)) == 3
        assert threading.get_ident() not in seen
        held = threading.Event()
        busy = asyncio.ensure_future(offload.run(held.wait))
        seen.clear()
        two = threading.Event()

        def note() -> None:
            seen.append(threading.get_ident())
            if len(seen) == 2:
                two.set()

        everywhere = asyncio.ensure_future(offload.everywhere(note))
        assert await asyncio.to_thread(two.wait, 10), "one thread is busy, and the others do not wait for it"
        held.set()
        await busy
        await everywhere
        offload.close()

    asyncio.run(main())


def test_work_that_fails_leaves_nothing_behind_but_its_error() -> None:
    """Without the garbage collector, which a server lets run rarely."""

    class Rows:
        """Something large."""

    held: list[weakref.ref[Rows]] = []

    def work() -> None:
        rows = Rows()
        held.append(weakref.ref(rows))
        raise ValueError("expected")

    async def main() -> None:
        offload = ThreadOffload(1)
        ring = asyncio.get_running_loop().create_future()
        try:
            await offload.run(work)
        except ValueError as error:
            ring.set_exception(error)
        assert ring.exception() is not None
        assert held[0]() is None
        offload.close()

    gc.disable()
    try:
        run(main())
    finally:
        gc.enable()
