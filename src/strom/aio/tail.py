"""A tail for asyncio: rows that only the lake has, then the servers' log, until a time limit."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from strom.client.plan.log_place import Place
from strom.client.plan.partition_choice import PartitionChoice
from strom.client.read.source import Source
from strom.client.read.tail import Arrived, LogTail
from strom.client.read.tail_batch import TailBatch
from strom.model.filters.predicate import Predicate

if TYPE_CHECKING:
    from strom.lake.read.lake_only_log import LakeOnlyLog


class Tail(LogTail):
    """Live batches of a table, forever, or until ``timeout`` or ``idle`` seconds have passed.

    >>> async for batch in table.tail(start="earliest", idle=5):
    ...     print(batch.partition, batch.offsets, batch.data)
    """

    def __init__(
        self,
        source: Source,
        *,
        start: Place,
        partitions: PartitionChoice | Sequence[PartitionChoice] | None = None,
        predicate: Predicate | None = None,
        timeout: float | None = None,
        idle: float | None = None,
        lake_only: LakeOnlyLog | None = None,
        check: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        super().__init__(source, start=start, partitions=partitions, predicate=predicate)
        self._lake_only = lake_only
        """Read first, before the servers' log."""
        self.past = lake_only is not None
        """Whether rows of the lake may still come: then ``from_lake`` gives them."""
        self._check = check
        """Raises if the table cannot be read from the start."""
        self._checked = False
        self.now = source.cluster.world.clock.monotonic
        """The clock of ``patience_s``, in seconds."""
        self._idle = idle
        self._timeout = timeout
        self._deadline: float | None = None

    def __repr__(self) -> str:
        return f"Tail({self.positions})"

    @property
    def positions(self) -> dict[tuple[str | None, int], int]:
        """Where the reader is, by (partition, bucket): give it to ``start=`` to continue from here."""
        if self._lake_only is None:
            return super().positions
        return {**self._lake_only.positions, **({} if self.past else super().positions)}

    async def from_lake(self) -> TailBatch | None:
        """The next rows of the lake. None after the last ones, when the servers are followed, or when the time is over
        (``past`` still)."""
        await self.ready()
        if not self.past:
            return None
        assert self._lake_only is not None
        if self._deadline is not None and self.now() >= self._deadline:
            return None
        batch = await self._lake_only.next()
        if batch is None:
            self.past = False
            await self.open(self._lake_only.rest)
        return batch

    async def ready(self) -> Tail:
        """Fix where the tail begins now, not at the first batch."""
        if not self._checked:
            self._checked = True
            if self._check is not None:
                await self._check()
            if self._lake_only is not None:
                await self._lake_only.open()
        if not self.past:
            await self.open()
        if self._timeout is not None and self._deadline is None:
            self._deadline = self.now() + self._timeout
        return self

    def patience_s(self) -> float | None:
        """How long to wait for the next batch; None: forever."""
        limits = [] if self._idle is None else [self._idle]
        if self._deadline is not None:
            limits.append(max(self._deadline - self.now(), 0.0))
        return min(limits, default=None)

    async def arrival(self, timeout_s: float | None = None) -> Arrived | None:
        """The next batch, not decoded; None at the end, which comes when none did in time."""
        await self.ready()
        arrived = await super().arrival(self.patience_s() if timeout_s is None else timeout_s)
        if arrived is None:
            await self.close()
        return arrived

    def __aiter__(self) -> Tail:
        return self

    async def __anext__(self) -> TailBatch:
        if self.past and (batch := await self.from_lake()) is not None:
            return batch
        if self.past:  # the time is over
            await self.close()
            raise StopAsyncIteration
        if (batch := await self.next()) is not None:
            return batch
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """Stop following."""
        await self.close()

    async def __aenter__(self) -> Tail:
        return await self.ready()

    async def __aexit__(self, *_: object) -> None:
        await self.close()
