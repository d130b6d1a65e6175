"""One sync of a bucket that somebody waits for, among those of the group commit."""

from __future__ import annotations

import asyncio

from strom.errors import StorageOffline
from strom.log.sync import SyncPoint
from strom.server.background.group_commit import GroupCommit
from strom.tablet.tablet import Tablet


async def durable(tablet: Tablet, commit: GroupCommit) -> None:
    """Wait until everything now in the log survives power loss; raises what took the tablet offline."""
    request = _SyncOnce(tablet)
    commit.request(request)
    await request.done
    tablet.check_online()


class _SyncOnce:
    """One sync of a tablet, with a future to wait for."""

    def __init__(self, tablet: Tablet) -> None:
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
