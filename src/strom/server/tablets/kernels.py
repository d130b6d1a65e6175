"""The compiled kernels of primary-key tables: prepared in the background as soon as there is such a table.

A server of log tables never loads them. Loading takes about a second. What was never compiled here (a new installation,
or an upgrade) takes some seconds more, in separate processes; only what the existing tables need is compiled. Log
tables, metadata and the status page never wait for any of it. Buckets of primary-key tables answer KernelsCompiling
meanwhile, with the progress, and no thread waits with them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress

from strom.errors import COMPILING, KernelsCompiling, ServerStopping
from strom.kv.kernels.kernel_needs import PEER_ROWS, in_order, needs_of
from strom.model.table import TableEntry
from strom.runtime.clock import Clock
from strom.runtime.compiling import Compiling
from strom.runtime.tasks import Offload, Tasks
from strom.server.tablets.catalog_view import CatalogChange, CatalogView

TRY_AGAIN_S = 5.0
"""The pause after a failure, such as a full disk; calls meanwhile get the failure."""

logger = logging.getLogger(__name__)


class Kernels:
    """Prepares the kernels that tables need, and answers calls that come too early."""

    def __init__(
        self, make: Callable[[], Compiling] | None, offload: Offload, tasks: Tasks, clock: Clock
    ) -> None:
        """``make``: None where nothing ever waits, as in a simulation. ``offload``: a thread of its own."""
        self._make = make
        self._compiling: Compiling | None = None
        self._offload = offload
        self._tasks = tasks
        self._clock = clock
        self._wanted: set[str] = set()
        self._ready: set[str] = set()
        self._moved = asyncio.Event()
        self._progress: str | None = None
        """The progress of compiling; None while it is not known yet whether anything has to be compiled."""
        self._working = False
        self._failure: Exception | None = None
        self._again_at = 0.0
        self.stopping = False

    def follow(self, view: CatalogView) -> None:
        """Prepare what the catalog's tables need, now and in the future."""
        view.watch(self._changed)
        self._look(view.catalog.all_tables())

    def gate(self, table: TableEntry) -> Gate:
        """What the buckets of a primary-key table wait for."""
        return Gate(self, needs_of(table))

    def check_peer_rows(self) -> None:
        """For the peer's calls on an open bucket: raises KernelsCompiling if their rows cannot be read yet."""
        if not self.has((PEER_ROWS,)):
            raise self.refusal((PEER_ROWS,)) or KernelsCompiling(
                f"{COMPILING}, for rows as this call has them"
            )

    def has(self, needs: Collection[str]) -> bool:
        """Whether all of these are ready."""
        return self._make is None or self._ready.issuperset(needs)

    def refusal(self, needs: Collection[str]) -> KernelsCompiling | None:
        """The error for a call that needs these; None when they are ready, or will be in a moment."""
        if self.has(needs):
            return None
        self.want(needs)
        if self._failure is not None:
            return KernelsCompiling(
                f"{COMPILING} failed: {self._failure!r}; the server's log has the details"
            )
        if self._progress is None:
            return None
        return KernelsCompiling(f"{COMPILING}{self._progress}")

    async def moved(self) -> None:
        """Wait until something changed."""
        await self._moved.wait()

    def want(self, needs: Collection[str]) -> None:
        """Prepare these; from the loop."""
        self._wanted |= {*needs, PEER_ROWS} - self._ready
        if self._make is None or self._working or not self._wanted:
            return
        if self._failure is not None and self._clock.monotonic() < self._again_at:
            return
        with suppress(ServerStopping):
            self._tasks.spawn(self._work(self._make), "kernels of primary-key tables")
            self._working = True

    def stop(self) -> None:
        """Compile no more: the server is stopping, and waiting calls get that error instead of waiting forever."""
        self.stopping = True
        if self._compiling is not None:
            self._compiling.stop()
        self._tell()

    def _changed(self, change: CatalogChange) -> None:
        self._look(table for one in change.tables if (table := change.catalog.table_by_id(one)) is not None)

    def _look(self, tables: Iterable[TableEntry]) -> None:
        for table in tables:
            if table.schema.primary_key and not self.has(needs := needs_of(table)):
                self.want(needs)

    async def _work(self, make: Callable[[], Compiling]) -> None:
        self._failure = None
        try:
            if (compiling := self._compiling) is None:
                compiling = self._compiling = await self._offload.run(make)
            while self._wanted:
                await self._prepare(compiling)
        except Exception as error:
            self._failure, self._again_at = error, self._clock.monotonic() + TRY_AGAIN_S
            # Patient callers ask again then.
            asyncio.get_running_loop().call_later(TRY_AGAIN_S, self._tell)
            raise
        finally:
            self._working = False
            self._tell()

    async def _prepare(self, compiling: Compiling) -> None:
        """One step: everything at once if it only has to be loaded, else what tables need before the rest."""
        began, wanted = self._clock.monotonic(), in_order(self._wanted)
        if await self._offload.run(compiling.missing, wanted):
            if wanted != [PEER_ROWS]:
                wanted = [one for one in wanted if one != PEER_ROWS]
            await self._compile(compiling, wanted)
        await self._offload.run(compiling.load, wanted)
        self._ready.update(wanted)
        self._wanted -= self._ready
        self._progress = None
        self._tell()
        took = self._clock.monotonic() - began
        logger.info("kernels of primary-key tables (%s) are ready after %.1f s", ", ".join(wanted), took)

    async def _compile(self, compiling: Compiling, wanted: Collection[str]) -> None:
        logger.info("%s (%s): once, in the background", COMPILING, ", ".join(wanted))
        loop = asyncio.get_running_loop()

        def progress(done: int, total: int) -> None:
            loop.call_soon_threadsafe(self._heard, f": {done} of {total}")

        self._heard("")
        await self._offload.run(compiling.compile, wanted, progress)

    def _heard(self, progress: str) -> None:
        self._progress = progress
        self._tell()

    def _tell(self) -> None:
        self._moved.set()
        self._moved = asyncio.Event()


class Gate:
    """The wait of one table's buckets, without a thread."""

    def __init__(self, kernels: Kernels, needs: frozenset[str]) -> None:
        self._kernels = kernels
        self._needs = needs

    @property
    def open(self) -> bool:
        """Whether there is nothing to wait for."""
        return self._kernels.has(self._needs)

    def refusal(self) -> KernelsCompiling | None:
        """The error for a client now; None when it may wait here, briefly."""
        return self._kernels.refusal(self._needs)

    async def passed(self, *, patient: bool) -> None:
        """Wait. Without patience, raise KernelsCompiling as soon as it is clear that it takes long."""
        while not self.open:
            if self._kernels.stopping:
                raise ServerStopping("the server is going down")
            refusal = self.refusal()
            if refusal is not None and not patient:
                raise refusal
            await self._kernels.moved()
