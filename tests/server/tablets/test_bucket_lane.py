"""A lane runs its work one at a time, in order, and survives failures of single jobs."""

from __future__ import annotations

import asyncio
import threading
from functools import partial

import pytest

from strom.errors import RequestTimeout, ServerStopping
from strom.runtime.tasks import InlineOffload, Tasks, ThreadOffload
from strom.server.tablets.bucket_lane import Lane
from strom.server.tablets.hold import Hold


def test_jobs_run_in_the_order_they_came_and_one_at_a_time() -> None:
    async def main() -> list[int]:
        offload, tasks = ThreadOffload(4), Tasks()
        lane = Lane("test", offload, tasks)
        seen: list[int] = []
        inside = threading.Lock()

        def job(number: int) -> int:
            assert inside.acquire(blocking=False), "two jobs at once"
            seen.append(number)
            inside.release()
            return number

        assert lane.idle
        futures = [lane.submit(lambda number=number: job(number)) for number in range(200)]
        assert not lane.idle
        results = await asyncio.gather(*futures)
        await asyncio.sleep(0)
        assert lane.idle
        offload.close()
        assert results == seen
        return seen

    assert asyncio.run(main()) == list(range(200))


def test_work_that_is_small_by_its_turn_is_done_on_the_loop_and_in_order() -> None:
    async def main() -> None:
        offload, tasks = ThreadOffload(2), Tasks()
        lane = Lane("test", offload, tasks)
        seen: list[tuple[int, bool]] = []
        loop = threading.get_ident()
        small = [False, True, False, True]

        def job(number: int) -> None:
            seen.append((number, threading.get_ident() == loop))

        def turn(number: int) -> bool:
            assert len(seen) == number, "asked before its turn"
            return small[number]

        await asyncio.gather(*(lane.submit(partial(job, one), stays=partial(turn, one)) for one in range(4)))
        offload.close()
        assert seen == list(enumerate(small))

    asyncio.run(main())


def test_a_failing_job_fails_alone() -> None:
    async def main() -> None:
        lane = Lane("test", InlineOffload(), Tasks())

        def boom() -> None:
            raise ValueError("no")

        failed, fine = lane.submit(boom), lane.submit(lambda: "fine")
        with pytest.raises(ValueError, match="no"):
            await failed
        assert await fine == "fine"

    asyncio.run(main())


def test_a_job_whose_asker_went_away_still_runs() -> None:
    async def main() -> None:
        lane = Lane("test", InlineOffload(), Tasks())
        seen: list[str] = []
        first, second = lane.submit(lambda: seen.append("first")), lane.submit(lambda: seen.append("second"))
        first.cancel()
        await second
        assert seen == ["first", "second"]

    asyncio.run(main())


def test_closing_cancels_what_waits_and_refuses_what_comes() -> None:
    async def main() -> None:
        tasks = Tasks()
        lane = Lane("test", InlineOffload(), tasks)
        waiting = [lane.submit(lambda: None) for _ in range(3)]
        await tasks.close()
        assert all(future.done() for future in waiting)
        with pytest.raises(ServerStopping):
            lane.submit(lambda: None)

    asyncio.run(main())


def test_a_hold_waits_for_what_runs_and_nothing_begins_until_it_is_over() -> None:
    async def main() -> None:
        offload, tasks, hold = ThreadOffload(2), Tasks(), Hold()
        lanes = [Lane(name, offload, tasks, hold=hold) for name in "ab"]
        began, go, seen = threading.Event(), threading.Event(), list[str]()

        def long() -> None:
            began.set()
            assert go.wait(30)
            seen.append("long")

        running = lanes[0].submit(long)
        assert await asyncio.to_thread(began.wait, 30)
        holding = asyncio.ensure_future(hold.engage())
        await asyncio.sleep(0)
        later = [lane.submit(partial(seen.append, "later")) for lane in lanes]
        assert not any(lane.idle for lane in lanes), "small work must not overtake"
        assert not holding.done()
        go.set()
        await holding
        await running
        seen.append("held")
        await asyncio.sleep(0)
        assert hold.release()
        await asyncio.gather(*later)
        assert seen == ["long", "held", "later", "later"]
        await asyncio.sleep(0)
        assert all(lane.idle for lane in lanes)
        assert not hold.release(), "it was over already"
        offload.close()

    asyncio.run(main())


def test_a_hold_that_nobody_ends_ends_by_itself_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strom.server.tablets.hold.HELD_S_MAX", 0.0)

    async def main() -> None:
        hold, offload = Hold(), ThreadOffload(1)
        await hold.engage()
        await Lane("a", offload, Tasks(), hold=hold).submit(lambda: None)
        assert not hold.release()
        offload.close()

    asyncio.run(main())


def test_a_hold_that_work_does_not_let_come_is_given_up_and_work_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("strom.server.tablets.hold.ENGAGE_S_MAX", 0.01)

    async def main() -> None:
        hold, offload = Hold(), ThreadOffload(2)
        lanes = [Lane(name, offload, Tasks(), hold=hold) for name in "ab"]
        began, go = threading.Event(), threading.Event()
        running = lanes[0].submit(lambda: began.set() or go.wait(30))
        assert await asyncio.to_thread(began.wait, 30)
        with pytest.raises(RequestTimeout, match="try again"):
            await hold.engage()
        await asyncio.wait_for(lanes[1].submit(lambda: None), 10)
        go.set()
        assert await running
        assert not hold.release(), "it was never held"
        offload.close()

    asyncio.run(main())


def test_what_a_job_waits_for_first_takes_no_thread_and_keeps_no_hold_from_coming() -> None:
    async def main() -> None:
        offload, tasks, hold = ThreadOffload(1), Tasks(), Hold()
        waiting, other = (Lane(name, offload, tasks, hold=hold) for name in ("waiting", "other"))
        ready = asyncio.Event()

        async def first() -> None:
            await ready.wait()

        async def never() -> None:
            raise ServerStopping("it does not come")

        done = waiting.submit(lambda: "done", first=first)
        behind = waiting.submit(lambda: "behind")
        refused = waiting.submit(lambda: "never", first=never)
        assert await other.submit(lambda: "other") == "other"
        await asyncio.wait_for(hold.engage(), 10)
        hold.release()
        assert not done.done()
        ready.set()
        assert await done == "done"
        assert await behind == "behind"
        with pytest.raises(ServerStopping):
            await refused
        await tasks.close()
        offload.close()

    asyncio.run(main())


def test_a_job_that_waits_first_is_cancelled_with_its_lane() -> None:
    async def main() -> None:
        tasks = Tasks()
        lane = Lane("test", InlineOffload(), tasks)

        async def first() -> None:
            await asyncio.Event().wait()

        waiting = lane.submit(lambda: None, first=first)
        await asyncio.sleep(0)
        await tasks.close()
        assert waiting.cancelled()

    asyncio.run(main())
