"""Changes of in-sync sets, proposed by leaders: who has all of it joins, who lags leaves.

A proposal counts from the moment before it is committed until the entry's version has moved past the one it requires,
whatever the answer was (R7). Many buckets share a commit.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping

from strom.errors import StromError
from strom.model.bucket import BucketId
from strom.replication.bucket_entry import BucketEntry
from strom.replication.registration import Registrations
from strom.runtime.clock import Clock
from strom.server.replicas.bucket_replica import BucketReplica

AT_ONCE_MAX = 500
"""Buckets in one commit."""
LOOK_EVERY_S = 0.1

logger = logging.getLogger(__name__)

Proposed = Mapping[BucketId, tuple[BucketEntry, int]]
"""By bucket: the entry as it shall be, and the version that it replaces."""


class Proposals:
    """Proposes for all buckets that this server leads. Belongs to the loop."""

    def __init__(
        self,
        led: Callable[[], Iterable[BucketReplica]],
        registrations: Callable[[], Registrations],
        commit: Callable[[Proposed], Awaitable[int]],
        heard_at: Callable[[int], float],
        asks: Callable[[int], bool],
        clock: Clock,
        *,
        lag_s: float,
    ) -> None:
        """``commit`` changes those entries whose versions are the ones given, and returns how many; after an error
        nobody knows what happened.

        ``asks``: whether a server's questions stand here now. One whose connection ended is not let in: it would hold
        up everything that is written until it counts as late.
        """
        self._asks = asks
        self._led = led
        self._registrations = registrations
        self._commit = commit
        self._heard_at = heard_at
        self._clock = clock
        self._lag_s = lag_s

    async def run(self) -> None:
        """Propose what is due, forever."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            await self.round()

    async def round(self) -> int:
        """Look at every bucket once; how many proposals were committed."""
        due = self._due()
        done = 0
        buckets = list(due)
        for begin in range(0, len(buckets), AT_ONCE_MAX):
            some = {bucket: due[bucket] for bucket in buckets[begin : begin + AT_ONCE_MAX]}
            done += await self._offer(some)
        return done

    def _due(self) -> dict[BucketId, tuple[BucketEntry, int]]:
        registrations, now = self._registrations(), self._clock.monotonic()
        found: dict[BucketId, tuple[BucketEntry, int]] = {}
        for replica in self._led():
            leading = replica.leading
            if leading is None:
                continue
            entry, version = replica.entry
            late = leading.late(entry, now - self._lag_s, self._heard_at)
            proposal = leading.leadership.proposal(
                entry,
                registrations,
                journal_end=leading.journal.end,
                lagging=[member.server_id for member in late if member in entry.in_sync],
                silent=[*late, *(one for one in leading.heard if not self._asks(one.server_id))],
            )
            if proposal is not None:
                # R7: from now on, whatever becomes of it.
                leading.leadership.offered(proposal, version)
                found[replica.bucket] = (proposal, version)
        return found

    async def _offer(self, proposed: Proposed) -> int:
        try:
            return await self._commit(proposed)
        except StromError as error:
            logger.warning("nobody knows whether %d in-sync sets changed: %s", len(proposed), error)
            return 0
