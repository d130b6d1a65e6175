"""A bucket's place on this server: its tablet, once it is opened, and the lane its work goes through.

A log is opened at the first touch, in the lane, so the first call comes first. A slot whose log cannot be opened
answers with the reason and tries again after a pause, unless the disk itself failed; a slot of a dropped bucket refuses
everything. While a primary-key bucket cannot be opened because kernels are being compiled, calls get that error
(``Gate``); nobody waits in a thread.

A bucket with copies on several servers has a role here (``copy_role.py``). What is done for clients is refused with
NotLeader unless this server leads the bucket, and reads wait until it serves; upkeep is done whatever the role.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from functools import partial
from typing import Any, TypeVar

from strom.errors import StorageOffline, StromError, UnknownBucket
from strom.model.bucket import BucketId
from strom.runtime.clock import Clock
from strom.server.tablets.bucket_lane import Lane
from strom.server.tablets.copy_role import CopyRole
from strom.server.tablets.kernels import Gate
from strom.tablet.tablet import Tablet

T = TypeVar("T")

REOPEN_PAUSE_S = 5.0


class TabletSlot:
    """One bucket on this server."""

    def __init__(
        self,
        bucket: BucketId,
        lane: Lane,
        open_tablet: Callable[[], Tablet],
        clock: Clock,
        gate: Gate | None = None,
    ) -> None:
        self.bucket = bucket
        self.tablet: Tablet | None = None
        self.readers = 0
        self.checkpoint: asyncio.Task[None] | None = None
        """A checkpoint under way: the log is neither closed nor removed beside it."""
        self.job: asyncio.Task[None] | None = None
        """Upkeep of a primary-key bucket, likewise."""
        self.empty = False
        """Whether upkeep found nothing to do and closed the log: it need not be opened for upkeep again."""
        self.last_known: Any = None
        """What the status page showed last; kept while the log is closed."""
        self.defined_by: object = None
        """The version of its table that a primary-key bucket has."""
        self.series_from: int | None = None
        """From where on a primary-key bucket keeps what died, for readers of the lake."""
        self.touched_at = clock.monotonic()
        self.role: CopyRole | None = None
        """Its part among the copies of the bucket; None when there are no others."""
        self.gate = gate
        """What work on the tablet waits for; None for nothing."""
        self._lane = lane
        self._open_tablet = open_tablet
        self._clock = clock
        self._failure: StromError | None = None
        self._failed_at = 0.0
        self._dropped = False

    @property
    def quiet(self) -> bool:
        """Whether nobody uses the tablet or waits for it. An offline one stays: reopened, it would look healthy.

        One with stages stays too: they are tended until they are published or their leases expire. So does a copy: it
        follows, or is followed.
        """
        if self.role is not None:
            return False
        tablet = self.tablet
        unused = tablet is None or (not len(tablet.pending) and tablet.online and not tablet.has_stages)
        return self._lane.idle and self.readers == 0 and unused

    @property
    def lane_idle(self) -> bool:
        """Whether nothing is being done on the tablet."""
        return self._lane.idle

    @property
    def held_up(self) -> bool:
        """Whether work on the tablet has to wait for kernels."""
        return self.gate is not None and not self.gate.open

    def do(
        self,
        job: Callable[[Tablet], T],
        *,
        small: bool,
        bulk: bool = False,
        stays: Callable[[], bool] | None = None,
        patient: bool = False,
        memory: Callable[[], Awaitable[None]] | None = None,
        any_role: bool = False,
    ) -> T | asyncio.Future[T]:
        """Change the tablet: at once when the job is small and nothing is before it, else in its turn.

        ``bulk``: other buckets' small work goes first. ``stays``: asked in its turn, whether it is small by then.
        ``patient``: wait for kernels, however long they take; else raise KernelsCompiling. ``memory``: takes what the
        job needs, in its turn. ``any_role``: also if another server leads the bucket.
        """
        self._check(any_role)
        first = _one_after_the_other(self._first(patient), memory)
        self.touched_at = self._clock.monotonic()
        if small and self.tablet is not None and self._lane.idle and first is None:
            return job(self.tablet)
        return self._lane.submit(lambda: job(self._opened()), bulk=bulk, stays=stays, first=first)

    def opened(self, *, patient: bool = False, any_role: bool = False) -> Tablet | Awaitable[Tablet]:
        """The tablet, opened if necessary; for a client, once this server serves the bucket.

        ``any_role``: also if another server leads it.
        """
        self._check(any_role)
        first = self._first(patient)
        self.touched_at = self._clock.monotonic()
        if self.role is not None and not any_role and not self.role.serves:
            return _WhenServing(self.role, lambda: self._lane.submit(self._opened, first=first))
        if self.tablet is not None and first is None:
            return self.tablet
        return self._lane.submit(self._opened, first=first)

    def pinned(self, cut: int) -> Tablet | Awaitable[Tablet]:
        """The tablet for a read up to a cut that was taken before: any copy that has reached it will do (R11)."""
        role = self.role
        if role is None or role.leads:
            return self.opened()
        self._check(any_role=True)
        return role.standby(cut)

    @property
    def follows(self) -> bool:
        """Whether another server leads the bucket."""
        return self.role is not None and not self.role.leads

    async def close(self) -> None:
        """Close the log after everything before it; the next touch opens it again."""
        await self._checkpointed()
        await self._lane.submit(self._close)

    async def reopen(self, away: StromError, between: Callable[[], None]) -> None:
        """Close the log, change its files, and open it at the next touch. Waiting callers get ``away``."""
        tablet = self.tablet
        if tablet is not None:
            tablet.retire(away)
        await self._checkpointed()

        def change() -> None:
            self._close()
            between()

        await self._lane.submit(change)

    def retire(self) -> None:
        """The bucket is gone: everyone who waits for it, or comes, gets that error. ``remove`` does the rest."""
        self._dropped = True
        if self.tablet is not None:
            self.tablet.retire(self._unknown())

    async def remove(self, remove: Callable[[], None]) -> None:
        """After ``retire``: release the files and remove what was stored."""
        await self._checkpointed()

        def let_go_and_remove() -> None:
            tablet, self.tablet = self.tablet, None
            if tablet is not None:
                tablet.abandon()
            remove()

        await self._lane.submit(let_go_and_remove)

    async def _checkpointed(self) -> None:
        """Wait for what runs beside the lane, including what began just as that ended."""
        while under_way := [
            task for task in (self.checkpoint, self.job) if task is not None and not task.done()
        ]:
            await asyncio.wait(under_way)

    def _first(self, patient: bool) -> Callable[[], Awaitable[None]] | None:
        """What the lane has to wait for first; raises KernelsCompiling when that takes long."""
        gate = self.gate
        if gate is None:
            return None
        if gate.open:
            self.gate = None
            return None
        refusal = gate.refusal()
        if refusal is not None and not patient:
            raise refusal
        return partial(gate.passed, patient=patient)

    def _check(self, any_role: bool) -> None:
        if self._dropped:
            raise self._unknown()
        if self.role is not None and not any_role:
            self.role.check_leads()
        if self._failure is not None and self._clock.monotonic() - self._failed_at < REOPEN_PAUSE_S:
            raise self._failure

    def _unknown(self) -> UnknownBucket:
        return UnknownBucket(f"bucket {self.bucket} was dropped", bucket=str(self.bucket))

    def _opened(self) -> Tablet:
        """Runs in the lane."""
        if self._dropped:
            raise self._unknown()
        if self.tablet is None:
            try:
                self.tablet, self.empty = self._open_tablet(), False
                self._failure = None
            except (StromError, OSError) as error:
                # A disk that failed is not asked again: if it succeeded the second time, that would mean nothing.
                final = isinstance(error, StorageOffline | OSError)
                self._failed_at = float("inf") if final else self._clock.monotonic()
                self._failure = StorageOffline(f"bucket {self.bucket} cannot be opened: {error}")
                raise self._failure from error
        return self.tablet

    def _close(self) -> None:
        tablet, self.tablet = self.tablet, None
        if tablet is not None:
            tablet.close()


class _WhenServing:
    """A tablet, once its server serves the bucket. Nothing happens unless somebody awaits it."""

    def __init__(self, role: CopyRole, opened: Callable[[], asyncio.Future[Tablet]]) -> None:
        self._role = role
        self._opened = opened

    def __await__(self) -> Generator[Any, None, Tablet]:
        return self._wait().__await__()

    async def _wait(self) -> Tablet:
        await self._role.wait_to_serve()
        return await self._opened()


def _one_after_the_other(
    one: Callable[[], Awaitable[None]] | None, two: Callable[[], Awaitable[None]] | None
) -> Callable[[], Awaitable[None]] | None:
    if one is None or two is None:
        return one or two

    async def both() -> None:
        await one()
        await two()

    return both


async def in_lane(
    slot: TabletSlot,
    job: Callable[[Tablet], T],
    *,
    small: bool = False,
    bulk: bool = False,
    memory: Callable[[], Awaitable[None]] | None = None,
    any_role: bool = False,
) -> T:
    """Change a tablet in its turn. When the disk fails, the tablet goes offline, on the loop."""
    try:
        result = slot.do(job, small=small, bulk=bulk, memory=memory, any_role=any_role)
        return await result if isinstance(result, asyncio.Future) else result
    except (OSError, StorageOffline) as error:
        if isinstance(error, OSError):
            error = StorageOffline(f"the disk failed in bucket {slot.bucket}: {error}")
        if slot.tablet is not None:
            slot.tablet.fail(error)
        raise error from None
