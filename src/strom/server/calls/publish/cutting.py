"""Where a bucket is cut for a planned read: the terms of CutBuckets beyond whole decisions.

A tiering round asks for ends that survive power loss, so that the lake never gets ahead of a log; and it tells how far
the lake is, so that a bucket that cannot go on there says so.
"""

from __future__ import annotations

import asyncio

from strom.errors import StorageOffline
from strom.log.sync import SyncPoint
from strom.protocol.messages.stages import CutBucketRequest, CutBucketResponse
from strom.server.background.group_commit import GroupCommit
from strom.tablet.lake import check_lake
from strom.tablet.log_tablet import LogTablet


async def cut_tablet(
    tablet: LogTablet, wanted: CutBucketRequest, *, number: int | None, sync: bool, commit: GroupCommit
) -> CutBucketResponse:
    """The answer for one bucket."""
    grouped = tablet.has_stages or tablet.log.groups.newest > 0
    cut = tablet.cut(number)
    if wanted.lake_offset is not None:
        check_lake(tablet, wanted.lake_offset, wanted.lake_epoch)
    end = cut.end_offset
    if wanted.at_most is not None and not grouped and not tablet.has_keys:
        # Anywhere in the log; a change of a key, or a group, is two records or more that belong together.
        end = max(cut.start_offset, min(end, wanted.at_most))
    if sync and tablet.log.synced_end < end:
        await durable(tablet, commit)
    return CutBucketResponse(
        partition_id=wanted.partition_id,
        bucket_id=wanted.bucket_id,
        offset=end,
        start_offset=cut.start_offset,
        epoch=tablet.epoch_before(end),
        grouped=grouped,
    )


async def durable(tablet: LogTablet, commit: GroupCommit) -> None:
    """Wait until everything that is in the log now survives power loss; raises what took the tablet offline."""
    request = _SyncOnce(tablet)
    commit.request(request)
    await request.done
    tablet.check_online()


class _SyncOnce:
    """One sync of a tablet, which somebody waits for."""

    def __init__(self, tablet: LogTablet) -> None:
        self._tablet = tablet
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def pending_sync(self) -> SyncPoint | None:
        point = self._tablet.pending_sync()
        if point is None:
            self._finish()
        return point

    def synced(self, point: SyncPoint) -> None:
        self._tablet.synced(point)
        self._finish()

    def fail(self, error: StorageOffline) -> None:
        self._tablet.fail(error)
        self._finish()

    def _finish(self) -> None:
        if not self.done.done():
            self.done.set_result(None)
