"""The async face of a tail."""

from __future__ import annotations

from types import TracebackType

from strom.client.tail import Arrived, TailBatch
from strom.client.tail import Tail as Core
from strom.runtime.clock import Clock


class Tail:
    """Live batches of a table, for ever, or until ``timeout`` or ``idle`` seconds have passed.

    >>> async for batch in table.tail(start="earliest", idle=5):
    ...     print(batch.partition, batch.offsets, batch.data)
    """

    def __init__(self, core: Core, clock: Clock, *, timeout: float | None, idle: float | None) -> None:
        self._core = core
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
        return self._core.positions

    async def ready(self) -> Tail:
        """Fix where the tail begins now, not at the first batch."""
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
