"""asyncio on virtual time: waiting costs nothing, and equal programs run in equal order.

When every task waits for a timer, the clock jumps to it. When every task waits and there is no timer, nothing
can ever happen again: :class:`Deadlock` is raised and names the tasks and where they wait, instead of hanging.

The loop has no selector, so real sockets, pipes, signals and subprocesses are refused; the network is
:class:`strom.testing.network.MemoryNetwork`. Work given to an executor runs immediately, in place: a thread would
finish at an unpredictable time. The rest is up to the code: to keep a run reproducible, take randomness from a seed and
do not iterate over sets of tasks.
"""

from __future__ import annotations

import asyncio
import heapq
import selectors
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from contextvars import Context
from itertools import count
from typing import Any, NamedTuple, TypeVar, TypeVarTuple

Result = TypeVar("Result")
Arguments = TypeVarTuple("Arguments")

CANCELLED_MAX = 200
"""So many cancelled timers may be kept before their turn comes."""
NO_SOCKETS = "a virtual loop has no real sockets; use strom.testing.network.MemoryNetwork"


class Deadlock(Exception):
    """Every task waits and no timer is set."""


class Livelock(Exception):
    """More turns than can be of use: something is tried again and again."""


class _NeverWaiting(selectors.BaseSelector):
    """Replaces the loop's selector: there are no sockets to wait for."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        return []

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        raise NotImplementedError(NO_SOCKETS)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        raise KeyError(fileobj)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return {}


_Timer = tuple[float, int, asyncio.TimerHandle]
"""What is to run at a time; of those of one time the first one set runs first."""


class _Held(NamedTuple):
    """Callbacks that wait until those they belong to go on."""

    belongs: Callable[[Context], bool]
    ready: list[asyncio.Handle]
    timers: list[_Timer]


class VirtualLoop(asyncio.BaseEventLoop):
    """An event loop whose time is a number."""

    _ready: deque[asyncio.Handle]

    # What the base class does at every turn for real input and output is left out here: simulations turn so often
    # that it was a third of their time.

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        # The base class fires timers that are less than this ahead. Its own nanosecond would vanish in the
        # rounding of large times, and a timer that is due would never fire.
        self._clock_resolution = 1e-6
        self._selector = _NeverWaiting()
        self._timers: list[_Timer] = []
        """A heap, the next one first; cancelled ones are dropped when their turn comes, or when they are too many."""
        self._timer_numbers = count()
        self._cancelled = 0
        self._held: list[_Held] = []
        self.turns_left: int | None = None
        """After this many more turns :class:`Livelock` is raised; None: never."""

    def hold(self, belongs: Callable[[Context], bool]) -> Callable[[], None]:
        """Run nothing whose context belongs to somebody who stands still; returns what lets it go on.

        What became due in between runs then, in the order in which it was due.
        """
        held = _Held(belongs, [], [])
        for handle in [one for one in self._ready if belongs(_context(one))]:
            self._ready.remove(handle)
            held.ready.append(handle)
        for timer in [one for one in self._timers if belongs(_context(one[2]))]:
            self._timers.remove(timer)
            held.timers.append(timer)
        heapq.heapify(self._timers)
        self._held.append(held)
        return lambda: self._let_go_on(held)

    def _let_go_on(self, held: _Held) -> None:
        if held in self._held:
            self._held.remove(held)
            self._ready.extend(held.ready)
            for timer in held.timers:
                heapq.heappush(self._timers, timer)

    def call_soon(
        self,
        callback: Callable[[*Arguments], object],
        *args: *Arguments,
        context: Context | None = None,
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        for held in self._held:
            if held.belongs(_context(handle)):
                held.ready.append(handle)
                return handle
        self._ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon  # nobody has to be woken: the loop never sleeps

    def call_at(
        self,
        when: float,
        callback: Callable[[*Arguments], object],
        *args: *Arguments,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        handle._scheduled = True  # type: ignore[attr-defined]
        heapq.heappush(self._timers, (when, next(self._timer_numbers), handle))
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        self._cancelled += handle._scheduled  # type: ignore[attr-defined]
        if self._cancelled > CANCELLED_MAX and 2 * self._cancelled > len(self._timers):
            self._timers = [one for one in self._timers if not one[2].cancelled()]
            heapq.heapify(self._timers)
            self._cancelled = 0

    def _run_once(self) -> None:
        """One turn: what is ready now, then what becomes due; when nothing is, time passes."""
        if self.turns_left is not None:
            self.turns_left -= 1
            if self.turns_left < 0:
                self._too_many_turns()
        timers, ready = self._timers, self._ready
        while timers and timers[0][2]._cancelled:
            heapq.heappop(timers)
            self._cancelled -= 1
        if not ready and not self._stopping:  # type: ignore[attr-defined]
            if not timers:
                raise Deadlock(f"every task waits and no timer is set\n{self.describe_waiting()}")
            # To the timer itself, not by the time left: with large times a small rest may vanish in rounding.
            self._now = max(self._now, timers[0][0])
        end = self._now + self._clock_resolution
        while timers and timers[0][0] < end:
            timer = heapq.heappop(timers)[2]
            timer._scheduled = False  # type: ignore[attr-defined]
            ready.append(timer)
            self._cancelled -= timer._cancelled
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle._cancelled:
                handle._run()

    def _too_many_turns(self) -> None:
        self.turns_left = None  # the tasks must be able to end
        raise Livelock(f"too many turns, the last at {self._now:.6f} s\n{self.describe_waiting()}")

    def time(self) -> float:
        return self._now

    def describe_waiting(self) -> str:
        """One line per task that has not ended, with the place where it waits."""
        tasks = sorted(asyncio.all_tasks(self), key=lambda task: task.get_name())
        return "\n".join(f"  {task.get_name()}: {_place(task)}" for task in tasks)

    def run_in_executor(
        self, executor: Any, func: Callable[[*Arguments], Result], *args: *Arguments
    ) -> asyncio.Future[Result]:
        done: asyncio.Future[Result] = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:
            done.set_exception(error)
        return done

    async def create_connection(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(NO_SOCKETS)

    async def create_server(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(NO_SOCKETS)

    # What BaseEventLoop leaves to loops with real input and output.

    def _process_events(self, event_list: list[Any]) -> None:
        assert not event_list

    def close(self) -> None:
        self._timers.clear()
        super().close()


def _context(handle: asyncio.Handle) -> Context:
    return handle._context  # type: ignore[attr-defined, no-any-return]


def _place(task: asyncio.Task[Any]) -> str:
    """Where the innermost coroutine of a task waits."""
    waiting: Any = task.get_coro()
    frame = getattr(waiting, "cr_frame", None)
    while getattr(inner := getattr(waiting, "cr_await", None), "cr_frame", None) is not None:
        waiting, frame = inner, getattr(inner, "cr_frame", None)
    if frame is None:
        return "unknown"
    return f"{frame.f_code.co_qualname} ({frame.f_code.co_filename}:{frame.f_lineno})"


def run(main: Coroutine[Any, Any, Result]) -> Result:
    """Run ``main`` to its end on a new virtual loop."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)
