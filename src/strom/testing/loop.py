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
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextvars import Context
from typing import Any, NamedTuple, TypeVar, TypeVarTuple

Result = TypeVar("Result")
Arguments = TypeVarTuple("Arguments")

NO_SOCKETS = "a virtual loop has no real sockets; use strom.testing.network.MemoryNetwork"


class Deadlock(Exception):
    """Every task waits and no timer is set."""


class _NeverWaiting(selectors.BaseSelector):
    """Replaces the loop's selector: instead of waiting for sockets it advances the clock."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise Deadlock(f"every task waits and no timer is set\n{self._loop.describe_waiting()}")
        if timeout > 0:
            self._loop.skip_to_next_timer()
        return []

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        raise NotImplementedError(NO_SOCKETS)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        raise KeyError(fileobj)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return {}


class _Held(NamedTuple):
    """Callbacks that wait until those they belong to go on."""

    belongs: Callable[[Context], bool]
    ready: list[asyncio.Handle]
    timers: list[asyncio.TimerHandle]


class VirtualLoop(asyncio.BaseEventLoop):
    """An event loop whose time is a number."""

    _scheduled: list[asyncio.TimerHandle]  # the base class's heap of timers, the next one first
    _ready: deque[asyncio.Handle]

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        # The base class fires timers that are less than this ahead. Its own nanosecond would vanish in the
        # rounding of large times, and a timer that is due would never fire.
        self._clock_resolution = 1e-6
        self._selector = _NeverWaiting(self)
        self._held: list[_Held] = []

    def hold(self, belongs: Callable[[Context], bool]) -> Callable[[], None]:
        """Run nothing whose context belongs to somebody who stands still; returns what lets it go on.

        What became due in between runs then, in the order in which it was due.
        """
        held = _Held(belongs, [], [])
        for handle in [one for one in self._ready if belongs(_context(one))]:
            self._ready.remove(handle)
            held.ready.append(handle)
        for timer in [one for one in self._scheduled if belongs(_context(one))]:
            self._scheduled.remove(timer)
            held.timers.append(timer)
        heapq.heapify(self._scheduled)
        self._held.append(held)
        return lambda: self._let_go_on(held)

    def _let_go_on(self, held: _Held) -> None:
        if held in self._held:
            self._held.remove(held)
            self._ready.extend(held.ready)
            for timer in held.timers:
                heapq.heappush(self._scheduled, timer)

    def _call_soon(
        self, callback: Callable[..., object], args: Sequence[Any], context: Context | None
    ) -> asyncio.Handle:
        handle: asyncio.Handle = super()._call_soon(callback, args, context)  # type: ignore[misc]
        for held in self._held:
            if held.belongs(_context(handle)):
                self._ready.pop()
                held.ready.append(handle)
                break
        return handle

    def time(self) -> float:
        return self._now

    def skip_to_next_timer(self) -> None:
        """Let the time until the next timer pass."""
        # To the timer itself, not by the time left: with large times a small rest may vanish in rounding.
        self._now = max(self._now, self._scheduled[0].when())

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

    def _write_to_self(self) -> None:
        """Nobody has to be woken: the loop never sleeps."""


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
