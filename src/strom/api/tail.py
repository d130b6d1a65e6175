"""The blocking API of a tail."""

from __future__ import annotations

import queue
import weakref
from collections.abc import Callable

from strom import aio
from strom.client.cluster.blocking import Background
from strom.client.read.tail import Arrived
from strom.client.read.tail_batch import TailBatch
from strom.errors import StromError


class Bell:
    """Wakes one waiting thread."""

    def __init__(self) -> None:
        self._waiting = False
        self._rings: queue.SimpleQueue[None] = queue.SimpleQueue()

    def ring(self) -> None:
        """Wake the waiting thread, if there is one."""
        if self._waiting:
            self._waiting = False
            self._rings.put(None)

    def wait(self, already: Callable[[], bool], timeout_s: float | None) -> bool:
        """Wait for a ring, unless ``already``; False when none came in time."""
        self._waiting = True
        if already():  # checked after ``_waiting`` is set, so that no ring is missed
            self._waiting = False
            return True
        try:
            self._rings.get(timeout=timeout_s)
        except queue.Empty:
            self._waiting = False
            return already()
        return True


class Tail:
    """Live batches of a table: iterate over it. Where it begins is fixed when ``Table.tail`` returns.

    It continues forever, or until ``timeout`` or ``idle`` seconds have passed; Ctrl-C ends the wait. The rows of a
    bucket come in order, each once.

    >>> for batch in table.tail(start="earliest", idle=1.0):
    ...     print(batch.partition, batch.offsets, batch.timestamp, batch.data)
    """

    def __init__(self, background: Background, core: aio.Tail) -> None:
        self._background = background
        self._core = core
        self._bell = Bell()
        core.on_news = self._bell.ring
        core.by_thread = True
        background.run(core.ready())
        # If it is dropped without close(), it must not keep polling the server.
        self._finish = weakref.finalize(self, background.start, core.close)
        self._finish.atexit = False

    def __repr__(self) -> str:
        return repr(self._core)

    @property
    def positions(self) -> dict[tuple[str | None, int], int]:
        """Where you are, by (partition, bucket): give it to ``start=`` to continue from here.

        >>> table.tail(start=tail.positions)
        """
        return self._core.positions

    def __iter__(self) -> Tail:
        return self

    def __next__(self) -> TailBatch:
        core = self._core
        if core.past and (batch := self._background.run(core.from_lake())) is not None:
            return batch
        if core.past:  # the time is over
            self.close()
            raise StopIteration
        while (arrived := self._arrival()) is not None:
            batch = core.read(arrived)
            if batch is not None:
                return batch
        raise StopIteration

    def _arrival(self) -> Arrived | None:
        """The next batch. The wait is without the loop: this thread receives, or the loop's thread wakes it."""
        core = self._core
        patience_s = core.patience_s()
        deadline = None if patience_s is None else core.now() + patience_s
        while True:
            arrived = core.take()
            if core.can_go_on:
                self._background.loop.call_soon_threadsafe(core.go_on)
            if arrived is not None:
                return arrived
            left_s = None if deadline is None else max(deadline - core.now(), 0.0)
            if core.ended or not self._wait(left_s):
                return self._background.run(core.arrival(0.0))

    def _wait(self, left_s: float | None) -> bool:
        """Wait until there may be something; False when the time is over."""
        core = self._core
        if core.direct is None:
            return self._bell.wait(lambda: core.has_news, left_s)
        try:
            return core.direct.receive(left_s)
        except (StromError, LookupError):
            if not core.ended:
                self._background.run(core.follow_by_loop())
            return True

    def close(self) -> None:
        """Stop following; iterating ends.

        >>> tail.close()
        """
        self._finish.detach()
        self._background.run(self._core.close())

    def __enter__(self) -> Tail:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
