"""Rolling decisions forward: every bucket gets the pending commits that list it, in order, until it has applied them.

Only the coordinator does this: at once after a decision, at its start, and when a tablet server returns. It may be done
twice or by halves without harm: a bucket passes over what it has. What a bucket was heard to have applied is
remembered here; it saves questions and decides nothing.

What each bucket is sent comes from ONE catalog and holds all its pending commits: a bucket could not tell
otherwise whether one with a lower number is still to come.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from strom.coordinator.catalog import Catalog
from strom.coordinator.sink_rows import SinkRow
from strom.errors import StromError
from strom.model.bucket import BucketId
from strom.protocol.messages.stages import (
    ApplyCommit,
    ApplyStagesBucketRequest,
    ApplyStagesBucketResponse,
    ApplyStagesRequest,
    ApplyStagesResponse,
)
from strom.runtime.tasks import Tasks
from strom.server.catalog_view import CatalogView

BUCKETS_AT_ONCE = 64
"""In one call: what was applied is known the sooner."""
PAUSE_FIRST_S = 0.02
PAUSE_MAX_S = 1.0

logger = logging.getLogger(__name__)

Apply = Callable[[int, ApplyStagesRequest], Awaitable[ApplyStagesResponse]]
"""Asks a tablet server, by its id."""


class Settles(Protocol):
    """Who can be waited for."""

    async def settled(self, row: SinkRow, timeout_s: float) -> bool:
        """Wait until a row's decision is applied wherever its buckets still exist; False when it takes too long."""


class Publishing:
    """Brings decisions to the buckets."""

    def __init__(self, view: CatalogView, apply: Apply, tasks: Tasks) -> None:
        self._view = view
        self._apply = apply
        self._tasks = tasks
        self._applied: dict[BucketId, int] = {}
        self._done: dict[str, int] = {}
        """By sink: the number of the decision that is known to be applied everywhere."""
        self._working: set[int] = set()
        self._moved = asyncio.Event()

    def kick(self) -> None:
        """Look for work at every server that nobody works for."""
        for server_id in self._servers_with_work(self._view.catalog):
            if server_id not in self._working:
                self._working.add(server_id)
                self._tasks.spawn(self._work(server_id), f"publish at tablet server {server_id}")

    def server_returned(self, server_id: int) -> None:
        """Ask it again for everything that is pending: it may have lost what it had not synced."""
        catalog = self._view.catalog
        for bucket in [one for one in self._applied if catalog.leader_of(one) in (None, server_id)]:
            del self._applied[bucket]
        self._done.clear()
        self.kick()

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
        """Wait until a row's decision is applied wherever its buckets still exist; False when it takes too long."""
        if not self.pending(self._view.catalog, row):
            return True
        self.kick()
        try:
            async with asyncio.timeout(timeout_s):
                while self.pending(self._view.catalog, row):
                    await self._moved.wait()
        except TimeoutError:
            return False
        return True

    def forget(self, names: Sequence[str]) -> None:
        """These sinks are gone."""
        for name in names:
            self._done.pop(name, None)

    def tidy(self) -> None:
        """Forget what is remembered of buckets and sinks that do not exist any more."""
        catalog = self._view.catalog
        self._applied = {one: number for one, number in self._applied.items() if catalog.has_bucket(one)}
        self._done = {name: number for name, number in self._done.items() if name in catalog.sinks}
        self._moved_on()

    async def _work(self, server_id: int) -> None:
        pause_s = PAUSE_FIRST_S
        try:
            while requests := self._requests(self._view.catalog, server_id):
                if await self._send(server_id, requests):
                    pause_s = PAUSE_FIRST_S
                else:
                    await asyncio.sleep(pause_s)
                    pause_s = min(2 * pause_s, PAUSE_MAX_S)
        finally:
            self._working.discard(server_id)

    async def _send(self, server_id: int, requests: Sequence[ApplyStagesBucketRequest]) -> bool:
        """Whether everything that was sent is applied now."""
        try:
            response = await self._apply(server_id, ApplyStagesRequest(buckets_req=requests))
        except StromError as error:
            logger.warning("tablet server %s does not publish: %s", server_id, error)
            return False
        wanted = {_bucket_of(one): one.commits[-1].number for one in requests}
        for answer in response.buckets_resp:
            self._hear(answer)
        self._moved_on()
        return all(self._applied.get(bucket, 0) >= number for bucket, number in wanted.items())

    def _hear(self, answer: ApplyStagesBucketResponse) -> None:
        bucket = _bucket_of(answer)
        if answer.error_code:
            if self._view.catalog.has_bucket(bucket):
                logger.warning("bucket %s does not publish: %s", bucket, answer.error_message)
        elif answer.applied is not None:
            self._applied[bucket] = max(answer.applied, self._applied.get(bucket, 0))

    def _requests(self, catalog: Catalog, server_id: int) -> list[ApplyStagesBucketRequest]:
        """ALL pending commits of some buckets of a server, in order."""
        commits: dict[BucketId, list[ApplyCommit]] = {}
        for row in sorted(self._open_rows(catalog), key=lambda row: row.number):
            for bucket in self.pending(catalog, row):
                if catalog.leader_of(bucket) == server_id:
                    commits.setdefault(bucket, []).append(_commit(row, bucket))
        return [
            ApplyStagesBucketRequest(
                table_id=bucket.table_id,
                partition_id=bucket.partition_id,
                bucket_id=bucket.bucket,
                commits=listed,
            )
            for bucket, listed in list(commits.items())[:BUCKETS_AT_ONCE]
        ]

    def _open_rows(self, catalog: Catalog) -> list[SinkRow]:
        """Those that are not known to be applied: few, however many sinks there are."""
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
    )


def _bucket_of(one: ApplyStagesBucketRequest | ApplyStagesBucketResponse) -> BucketId:
    return BucketId(one.table_id, one.partition_id, one.bucket_id)
