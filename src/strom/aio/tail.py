"""The async face of a tail."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import TYPE_CHECKING

from strom.client.read.tail import Arrived
from strom.client.read.tail import LogTail as Core
from strom.client.read.tail_batch import TailBatch
from strom.runtime.clock import Clock

if TYPE_CHECKING:
    from strom.lake.read.lake_only_log import LakeOnlyLog


class Tail:
    """Live batches of a table, for ever, or until ``timeout`` or ``idle`` seconds have passed.

    >>> async for batch in table.tail(start="earliest", idle=5):
    ...     print(batch.partition, batch.offsets, batch.data)
    """

    def __init__(
        self,
        core: Core,
        clock: Clock,
        *,
        timeout: float | None,
        idle: float | None,
        lake_only: LakeOnlyLog | None = None,
        check: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._core = core
        self._lake_only = lake_only
        """What is read of the lake first."""
        self._past = lake_only is not None
        self._check = check
        """Refuses what cannot be read from its beginning."""
        self._opened = False
        self._clock = clock
        self._idle = idle
        self._timeout = timeout
        self._deadline: float | None = None

    def __repr__(self) -> str:
        return f"Tail({self.positions})"

    @property
    def core(self) -> Core:
        """What the blocking face drives."""
        return self._core

    @property
    def positions(self) -> dict[tuple[str | None, int], int]:
        """Where the reader is, by (partition, bucket): give it to ``start=`` to go on from here."""
        if self._lake_only is None:
            return self._core.positions
        return {**self._lake_only.positions, **({} if self._past else self._core.positions)}

    @property
    def past(self) -> bool:
        """Whether rows of the lake come first, and may still: then ``from_lake`` gives them."""
        return self._past

    async def from_lake(self) -> TailBatch | None:
        """The next rows of the lake; None when there are no more, and the servers are followed from now on, or when the
        time is over (``past`` still)."""
        await self.ready()
        if not self._past:
            return None
        assert self._lake_only is not None
        if self._deadline is not None and self._clock.monotonic() >= self._deadline:
            return None
        batch = await self._lake_only.next()
        if batch is None:
            self._past = False
            await self._core.open(self._lake_only.rest)
        return batch

    async def ready(self) -> Tail:
        """Fix where the tail begins now, not at the first batch."""
        if not self._opened:
            self._opened = True
            if self._check is not None:
                await self._check()
            if self._lake_only is not None:
                await self._lake_only.open()
        if not self._past:
            await self._core.open()
        if self._timeout is not None and self._deadline is None:
            self._deadline = self._clock.monotonic() + self._timeout
        return self

    def now(self) -> float:
        """The clock of ``patience_s``, in seconds."""
        return self._clock.monotonic()

    def patience_s(self) -> float | None:
        """How long to wait for the next batch; None for ever."""
        limits = [] if self._idle is None else [self._idle]
        if self._deadline is not None:
            limits.append(max(self._deadline - self._clock.monotonic(), 0.0))
        return min(limits, default=None)

    async def arrival(self, patience_s: float | None = None) -> Arrived | None:
        """The next batch, not decoded; None at the end, which comes when none did for ``patience_s``."""
        await self.ready()
        arrived = await self._core.arrival(self.patience_s() if patience_s is None else patience_s)
        if arrived is None:
            await self.aclose()
        return arrived

    def __aiter__(self) -> Tail:
        return self

    async def __anext__(self) -> TailBatch:
        if self._past and (batch := await self.from_lake()) is not None:
            return batch
        if self._past:  # the time is over
            await self.aclose()
            raise StopAsyncIteration
        while (arrived := await self.arrival()) is not None:
            batch = self._core.read(arrived)
            if batch is not None:
                return batch
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """Stop following."""
        await self._core.close()

    async def __aenter__(self) -> Tail:
        return await self.ready()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()
