"""Remote logs of tables and partitions that were dropped are removed, and once more a week later (C10).

What is to be removed is written down first, in the data folder of the server that led the bucket: a store that is down,
or a restart, delays it. Only drops that this server saw happen count: a bucket that the metadata merely does not know
may be of a table that is newer than they are.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from typing import NamedTuple

from strom.coordinator.catalog import Catalog
from strom.errors import StromError
from strom.model.bucket import BucketId
from strom.remote.dropping import drop_chain
from strom.runtime.clock import Clock
from strom.runtime.files import Files
from strom.server.remote.remote_logs import RemoteLogs
from strom.server.tablets.catalog_view import CatalogChange, CatalogView
from strom.server.tablets.tablets import led_by, led_in

AGAIN_MS = 7 * 24 * 60 * 60 * 1000
LOOK_EVERY_S = 5.0
LOOK_EVERY_S_MAX = 300.0

logger = logging.getLogger(__name__)


class RemoteDrop(NamedTuple):
    """A remote log that is to be removed."""

    table_id: int
    partition_id: int | None
    bucket: int
    due_ms: int
    last: bool
    """Whether it was removed before, and what landed late is looked for."""


class RemoteDrops:
    """Of one server. Belongs to its loop."""

    def __init__(
        self,
        remote: RemoteLogs,
        view: CatalogView,
        files: Files,
        path: str,
        server_id: int,
        clock: Clock,
        new_id: Callable[[], str],
    ) -> None:
        """``path``: of the file with what is to be done."""
        self._remote, self._files, self._path = remote, files, path
        self._server_id, self._clock, self._new_id = server_id, clock, new_id
        self._drops = _read(files, path)
        self._new = asyncio.Event()
        view.watch(self._changed)

    async def run(self) -> None:
        """Remove what is due, forever."""
        pause_s = LOOK_EVERY_S
        while True:
            due = [one for one in self._drops if one.due_ms <= self._clock.now_ms()]
            done = [await self._remove(one) for one in due]
            pause_s = min(2 * pause_s, LOOK_EVERY_S_MAX) if due and not all(done) else LOOK_EVERY_S
            try:
                async with asyncio.timeout(pause_s if due else LOOK_EVERY_S_MAX):
                    await self._new.wait()
            except TimeoutError:
                pass
            self._new.clear()

    def _changed(self, change: CatalogChange) -> None:
        """On the loop, after the change: note what this server led and is gone."""
        gone = [bucket for bucket in self._led(change) if not change.catalog.has_bucket(bucket)]
        if not gone:
            return
        now_ms = self._clock.now_ms()
        known = {(one.table_id, one.partition_id, one.bucket) for one in self._drops}
        self._drops += [
            RemoteDrop(one.table_id, one.partition_id, one.bucket, now_ms, last=False)
            for one in gone
            if (one.table_id, one.partition_id, one.bucket) not in known
        ]
        self._write()
        self._new.set()

    def _led(self, change: CatalogChange) -> list[BucketId]:
        before: Catalog = change.before
        found: dict[BucketId, None] = {}
        for table_id in sorted(change.tables):
            table = before.table_by_id(table_id)
            if table is not None and change.catalog.table_by_id(table_id) is None:
                found.update(dict.fromkeys(led_by(self._server_id, table, before)))
        for one in sorted(change.partitions):
            table, partition = before.table_by_id(one.table_id), before.partition_by_id(one.partition_id)
            if table is not None and partition is not None and partition.table_id == one.table_id:
                found.update(dict.fromkeys(led_in(self._server_id, table, one.partition_id, before)))
        return list(found)

    async def _remove(self, drop: RemoteDrop) -> bool:
        bucket = BucketId(drop.table_id, drop.partition_id, drop.bucket)
        chain = self._remote.of(bucket).chain
        try:
            if not await self._remote.loop.run(drop_chain(chain, self._new_id)):
                return False
        except (StromError, OSError) as error:
            logger.warning("the remote log of the dropped bucket %s stays for now: %s", bucket, error)
            return False
        self._remote.forget(bucket)
        again = [] if drop.last else [drop._replace(due_ms=self._clock.now_ms() + AGAIN_MS, last=True)]
        self._drops = [one for one in self._drops if one is not drop] + again
        self._write()
        return True

    def _write(self) -> None:
        try:
            self._files.write_whole(self._path, json.dumps(self._drops).encode())
        except (StromError, OSError) as error:
            logger.warning("what is to be removed from the object store cannot be written down: %s", error)


def _read(files: Files, path: str) -> list[RemoteDrop]:
    """What an earlier process left to do."""
    if not files.exists(path):
        return []
    try:
        return [RemoteDrop(*one) for one in json.loads(files.read_whole(path))]
    except (ValueError, TypeError) as error:
        logger.error("%s cannot be read, so remote logs of dropped tables stay: %r", path, error)
        return []
