"""Rolling decisions forward: every bucket gets the pending commits that list it, in order, until it has applied them.

Only the coordinator does this: right after a decision, at its start, and when a tablet server returns. Repeating it, or
doing half of it, is harmless: a bucket skips what it has. What a bucket reported as applied is remembered here; that
saves calls and decides nothing.

What each bucket is sent comes from ONE catalog and holds all its pending commits; otherwise a bucket could not know
whether one with a lower number is still to come.

A bucket that fails is retried after a pause of its own, which grows; the others do not wait for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from strom.coordinator.catalog import Catalog
from strom.coordinator.sink_rows import SinkRow
from strom.errors import COMPILING, NotCoordinator, StromError
from strom.model.bucket import BucketId
from strom.protocol.messages.stages import (
    ApplyCommit,
    ApplyStagesBucketRequest,
    ApplyStagesBucketResponse,
    ApplyStagesRequest,
    ApplyStagesResponse,
    WireSkippedStage,
)
from strom.runtime.tasks import Tasks
from strom.server.tablets.catalog_view import CatalogChange, CatalogView

BUCKETS_AT_ONCE = 64
"""In one call: small, so that what was applied is known early."""
PAUSE_FIRST_S = 0.02
PAUSE_MAX_S = 1.0

logger = logging.getLogger(__name__)

Apply = Callable[[int, ApplyStagesRequest], Awaitable[ApplyStagesResponse]]
"""Calls a tablet server, by its id."""


@dataclass(slots=True)
class _Trouble:
    """A bucket that fails to publish: why, and when to retry it."""

    reason: str
    pause_s: float
    again_at: float


class DecisionRollout:
    """Delivers decisions to the buckets."""

    def __init__(self, view: CatalogView, apply: Apply, tasks: Tasks) -> None:
        self._view = view
        self._apply = apply
        self._tasks = tasks
        self._applied: dict[BucketId, int] = {}
        self._done: dict[str, int] = {}
        """By sink: the number of the decision that is known to be applied everywhere."""
        self._working: dict[int, asyncio.Event] = {}
        """By server that has a worker: set when there may be new work."""
        self._troubles: dict[BucketId, _Trouble] = {}
        self._skipped: dict[int, list[WireSkippedStage]] = {}
        """By decision: what buckets reported as left out."""
        self._moved = asyncio.Event()
        self._ended = False

    def end(self) -> None:
        """Another coordinator does this from now on: whoever waits here waits for nothing."""
        self._ended = True
        self._moved_on()

    def kick(self) -> None:
        """Start a worker for every server that has work and no worker."""
        if self._ended:
            return
        for server_id in self._servers_with_work(self._view.catalog):
            woken = self._working.get(server_id)
            if woken is not None:
                woken.set()
            else:
                self._working[server_id] = asyncio.Event()
                self._tasks.spawn(self._work(server_id), f"publish at tablet server {server_id}")

    def server_returned(self, server_id: int) -> None:
        """Send it everything pending again: it may have lost what it had not synced."""
        catalog = self._view.catalog
        for bucket in [one for one in self._applied if catalog.leader_of(one) in (None, server_id)]:
            del self._applied[bucket]
        self._done.clear()
        self.hurry()

    def follow(self, change: CatalogChange) -> None:
        """Other servers lead some buckets: publish there what is pending, and again where rows were declared lost."""
        buckets = change.touched.buckets
        if not buckets:
            return
        for bucket in buckets:
            before, after = change.before.replicas.get(bucket), change.catalog.replicas.get(bucket)
            if before is None or after is None or before.losses != after.losses:
                self._applied.pop(bucket, None)
                self._done.clear()
        self.hurry()

    def hurry(self) -> None:
        """Retry failed buckets at once: something has changed."""
        for trouble in self._troubles.values():
            trouble.pause_s, trouble.again_at = PAUSE_FIRST_S, 0.0
        self.kick()

    def problem(self, row: SinkRow) -> str | None:
        """Why a row's decision is not applied everywhere, according to one of its buckets."""
        for bucket in self.pending(self._view.catalog, row):
            if bucket in self._troubles:
                return f"bucket {bucket}: {self._troubles[bucket].reason}"
        return None

    def compiling(self, row: SinkRow) -> str | None:
        """Progress of a server that has to compile kernels before it can publish; None when something else is wrong
        too."""
        pending = self.pending(self._view.catalog, row)
        reasons = [self._troubles[bucket].reason for bucket in pending if bucket in self._troubles]
        return reasons[-1] if reasons and all(one.startswith(COMPILING) for one in reasons) else None

    def skipped(self, number: int) -> list[WireSkippedStage]:
        """What was left out of a decision, as far as it was reported."""
        return self._skipped.get(number, [])

    def pending(self, catalog: Catalog, row: SinkRow) -> list[BucketId]:
        """The buckets where a row's decision may not be applied yet."""
        if self._done.get(row.name, 0) >= row.number:
            return []
        found = [
            bucket
            for bucket in row.stages
            if self._applied.get(bucket, 0) < row.number and catalog.has_bucket(bucket)
        ]
        if not found:
            self._done[row.name] = row.number
        return found

    async def settled(self, row: SinkRow, timeout_s: float) -> bool:
        """Wait until a row's decision is applied wherever its buckets still exist; False when it takes too long.

        NotCoordinator: somebody else rolls it out now.
        """
        if not self.pending(self._view.catalog, row):
            return True
        self.kick()
        try:
            async with asyncio.timeout(timeout_s):
                while self.pending(self._view.catalog, row):
                    await self._moved.wait()
                    if self._ended:
                        raise NotCoordinator("this coordinator publishes nothing any longer; another does")
        except TimeoutError:
            return False
        return True

    def forget(self, names: Sequence[str]) -> None:
        """Forget these sinks."""
        for name in names:
            self._done.pop(name, None)

    def tidy(self) -> None:
        """Forget buckets and sinks that no longer exist."""
        catalog = self._view.catalog
        self._applied = {one: number for one, number in self._applied.items() if catalog.has_bucket(one)}
        self._done = {name: number for name, number in self._done.items() if name in catalog.sinks}
        self._troubles = {one: why for one, why in self._troubles.items() if catalog.has_bucket(one)}
        living = {row.number for row in catalog.sinks.values()}
        self._skipped = {number: what for number, what in self._skipped.items() if number in living}
        self._moved_on()

    async def _work(self, server_id: int) -> None:
        woken, now = self._working[server_id], asyncio.get_running_loop().time
        try:
            while waiting := self._waiting(self._view.catalog, server_id):
                due = [bucket for bucket in waiting if self._again_at(bucket) <= now()]
                if due:
                    await self._send(server_id, self._requests(waiting, due))
                    continue
                woken.clear()
                try:
                    async with asyncio.timeout_at(min(map(self._again_at, waiting))):
                        await woken.wait()
                except TimeoutError:
                    pass
        finally:
            del self._working[server_id]

    def _again_at(self, bucket: BucketId) -> float:
        trouble = self._troubles.get(bucket)
        return 0.0 if trouble is None else trouble.again_at

    async def _send(self, server_id: int, requests: Sequence[ApplyStagesBucketRequest]) -> None:
        try:
            response = await self._apply(server_id, ApplyStagesRequest(buckets_req=requests))
        except StromError as error:
            logger.warning("tablet server %s cannot publish: %s", server_id, error)
            for one in requests:
                self._failed(_bucket_of(one), f"its tablet server does not answer: {error.message}")
            return
        for answer in response.buckets_resp:
            self._hear(answer)
        for one in requests:
            bucket = _bucket_of(one)
            if self._applied.get(bucket, 0) >= one.commits[-1].number:
                self._troubles.pop(bucket, None)
            else:
                self._failed(bucket, None)
        self._moved_on()

    def _hear(self, answer: ApplyStagesBucketResponse) -> None:
        bucket = _bucket_of(answer)
        for one in answer.skipped:
            logger.error(
                "bucket %s: decision %d was published WITHOUT the rows of stage %s, as an operator asked: %s",
                bucket,
                one.number,
                bytes(one.stage_id).hex(),
                one.reason,
            )
            skipped = WireSkippedStage(
                number=one.number,
                stage_id=bytes(one.stage_id),
                reason=one.reason,
                table_id=bucket.table_id,
                partition_id=bucket.partition_id,
                bucket_id=bucket.bucket,
            )
            self._skipped.setdefault(one.number, []).append(skipped)
        if answer.error_code:
            if self._view.catalog.has_bucket(bucket):
                known = self._troubles.get(bucket)
                again = known is not None and known.reason.startswith(COMPILING)
                if known is None or (
                    known.reason != answer.error_message and not again
                ):  # not at every attempt
                    logger.warning("bucket %s cannot publish: %s", bucket, answer.error_message)
                self._failed(bucket, answer.error_message)
        elif answer.applied is not None:
            self._applied[bucket] = max(answer.applied, self._applied.get(bucket, 0))

    def _failed(self, bucket: BucketId, reason: str | None) -> None:
        """Retry later. Without a reason, the previous one stays."""
        known, now = self._troubles.get(bucket), asyncio.get_running_loop().time()
        if reason is None:
            if known is not None and known.again_at > now:
                return
            reason = "it does not say why" if known is None else known.reason
        soon = known is None or reason.startswith(COMPILING)
        pause_s = PAUSE_FIRST_S if soon or known is None else min(2 * known.pause_s, PAUSE_MAX_S)
        self._troubles[bucket] = _Trouble(reason, pause_s, now + pause_s)

    def _waiting(self, catalog: Catalog, server_id: int) -> dict[BucketId, list[ApplyCommit]]:
        """ALL pending commits of the buckets of a server, in order."""
        commits: dict[BucketId, list[ApplyCommit]] = {}
        for row in sorted(self._open_rows(catalog), key=lambda row: row.number):
            for bucket in self.pending(catalog, row):
                if catalog.leader_of(bucket) == server_id:
                    commits.setdefault(bucket, []).append(_commit(row, bucket))
        return commits

    def _requests(
        self, waiting: dict[BucketId, list[ApplyCommit]], due: Sequence[BucketId]
    ) -> list[ApplyStagesBucketRequest]:
        """Longest waiting first, so that many failing buckets cannot starve the others."""
        return [
            ApplyStagesBucketRequest(
                table_id=bucket.table_id,
                partition_id=bucket.partition_id,
                bucket_id=bucket.bucket,
                commits=waiting[bucket],
            )
            for bucket in sorted(due, key=self._again_at)[:BUCKETS_AT_ONCE]
        ]

    def _open_rows(self, catalog: Catalog) -> list[SinkRow]:
        """The rows that are not known to be applied: few, however many sinks there are."""
        done = self._done
        return [row for row in catalog.sinks.values() if done.get(row.name, 0) < row.number]

    def _servers_with_work(self, catalog: Catalog) -> set[int]:
        found = set()
        for row in self._open_rows(catalog):
            for bucket in self.pending(catalog, row):
                leader = catalog.leader_of(bucket)
                if leader is not None:
                    found.add(leader)
        return found

    def _moved_on(self) -> None:
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()


def _commit(row: SinkRow, bucket: BucketId) -> ApplyCommit:
    return ApplyCommit(
        number=row.number,
        sink=row.name,
        epoch=row.epoch,
        stage_ids=row.stages[bucket],
        overwrite=bucket in row.emptied_buckets,
        skip_lost=row.skip_lost or None,
    )


def _bucket_of(one: ApplyStagesBucketRequest | ApplyStagesBucketResponse) -> BucketId:
    return BucketId(one.table_id, one.partition_id, one.bucket_id)
