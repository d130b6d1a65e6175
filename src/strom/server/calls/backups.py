"""Cuts for backups: everything that the data folder holds at one instant, as hard links in the folder itself.

The order makes it the state of one instant. All tablet servers pause; the files of buckets are linked (with their
lengths, since they only grow); then the metadata is copied, and after it the lake's catalog. Nothing is acknowledged
meanwhile, so the buckets have all rows that the metadata or the lake refer to. Then writing goes on. The client copies
from there, renews the lease as long as that takes, and ends it.

    backup-<id>/contents.json    {"files": {"buckets/1/-/0/….log": length, …}}
    backup-<id>/data/…           the links
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sqlite3
from collections.abc import Awaitable, Callable, Mapping
from contextlib import closing
from typing import Any

from strom.errors import InvalidRequest, StorageOffline
from strom.metadata.embedded import EmbeddedStore
from strom.model.file_uri import local_path
from strom.model.lake.lake import LakeConfig
from strom.moving.backup import CONTENTS_FILE, DATA_FOLDER, is_part
from strom.protocol.api_keys import BACKUP, Api
from strom.protocol.message import Message
from strom.protocol.messages import own
from strom.runtime import trees
from strom.runtime.tasks import Tasks
from strom.runtime.world import World
from strom.server.calls.dispatch import CallHandler
from strom.server.folder.folder import BUCKETS_FOLDER, FORMAT_FILE, DataFolder

PREFIX = "backup-"
LEASE_S = 60.0
TRIES = 20
"""Attempts to list a bucket whose files change by themselves: upkeep sometimes replaces some."""

logger = logging.getLogger(__name__)

HoldAll = Callable[[bool], Awaitable[bool]]
"""Pause all tablet servers (True) or let them go on (False); whether they were paused until then."""


class Backups:
    """The cuts of one data folder, one at a time."""

    def __init__(
        self, world: World, folder: DataFolder, lake: LakeConfig, store: EmbeddedStore, hold: HoldAll
    ) -> None:
        self._world, self._folder, self._lake, self._store = world, folder, lake, store
        self._hold = hold
        self._tasks = Tasks()
        self._current: str | None = None
        self._until = 0.0
        self._busy = False

    def sweep(self) -> None:
        """Remove what an earlier run left."""
        for name in self._world.files.list(self._folder.path):
            if name.startswith(PREFIX):
                self._world.files.remove_tree(f"{self._folder.path}/{name}")

    async def close(self) -> None:
        """Stop, and remove the links."""
        await self._tasks.close()
        if self._current is not None:
            await self._world.offload.run(self.sweep)

    def handlers(self) -> Mapping[Api[Any, Any], CallHandler]:
        return {BACKUP: lambda call: self._answer(call.request)}

    async def _answer(self, request: own.BackupRequest) -> Message:
        match request.action, request.backup_id:
            case "begin", None:
                name, place = await self.begin()
                return own.BackupResponse(backup_id=name, folder=place)
            case "renew", str(name):
                self.renew(name)
            case "end", str(name):
                await self.end(name)
            case other, _:
                raise InvalidRequest(f"a backup has no action {other[:50]!r}: begin, renew and end it")
        return own.BackupResponse()

    async def begin(self) -> tuple[str, str]:
        """Take a cut; returns its id and its folder."""
        if self._busy or (self._current is not None and self._world.clock.monotonic() < self._until):
            raise InvalidRequest("a backup of this server is already under way: wait until it is done")
        self._busy = True
        try:
            await self._world.offload.run(self.sweep)
            name = self._world.randomness.token(8).hex()
            place = f"{self._folder.path}/{PREFIX}{name}"
            await self._cut(place)
        except BaseException:
            await self._world.offload.run(self.sweep)
            raise
        finally:
            self._busy = False
        self._current = name
        self.renew(name)
        self._tasks.spawn(self._expire(name), "end of a backup's lease")
        return name, place

    def renew(self, name: str) -> None:
        """The lease is renewed: the copier is alive."""
        if name != self._current:
            raise InvalidRequest("this backup is unknown: its lease has expired, or the server was restarted")
        self._until = self._world.clock.monotonic() + LEASE_S

    async def end(self, name: str) -> None:
        """The copy is done, or given up."""
        if name == self._current:
            self._current = None
            await self._world.offload.run(self.sweep)

    async def _expire(self, name: str) -> None:
        while name == self._current:
            left = self._until - self._world.clock.monotonic()
            if left <= 0:
                logger.warning("the lease of a backup expired; removing what was kept for it")
                await self.end(name)
                return
            await asyncio.sleep(left)

    # --- one cut ----------------------------------------------------------------------------------------------

    async def _cut(self, place: str) -> None:
        run, lengths = self._world.offload.run, dict[str, int]()
        await run(self._link_lake, place, lengths)
        held = False
        try:
            await self._hold(True)
            await run(self._still, place, lengths)
        finally:
            held = await self._hold(False)
        if not held:
            raise InvalidRequest("writing went on before all files of a backup were noted: try again")
        await run(self._link_lake, place, lengths)
        content = json.dumps({"cluster_id": self._folder.cluster_id, "files": lengths}).encode()
        await run(trees.write, f"{place}/{CONTENTS_FILE}", content)

    def _still(self, place: str, lengths: dict[str, int]) -> None:
        """Link and copy everything that must be of one instant."""
        data = f"{place}/{DATA_FOLDER}"
        buckets = f"{self._folder.path}/{BUCKETS_FOLDER}"
        trees.make_folders(f"{data}/{BUCKETS_FOLDER}")
        for bucket in _bucket_folders(buckets):
            self._link_bucket(bucket, data, lengths)
        trees.copy(f"{self._folder.path}/{FORMAT_FILE}", f"{data}/{FORMAT_FILE}")
        lengths[FORMAT_FILE] = os.path.getsize(f"{data}/{FORMAT_FILE}")
        for name in self._store.copy_into(data):
            lengths[name] = os.path.getsize(f"{data}/{name}")
        catalog = self._inside(self._lake.catalog_uri) if self._lake.catalog == "sqlite" else None
        if catalog is not None and os.path.exists(self._lake.catalog_uri):
            trees.make_folders(os.path.dirname(f"{data}/{catalog}"))
            with (
                closing(sqlite3.connect(self._lake.catalog_uri)) as source,
                closing(sqlite3.connect(f"{data}/{catalog}")) as target,
            ):
                source.backup(target)
            lengths[catalog] = os.path.getsize(f"{data}/{catalog}")

    def _link_bucket(self, bucket: str, data: str, lengths: dict[str, int]) -> None:
        """A bucket's files at one moment: nothing changed between two looks."""
        root = self._folder.path
        below = bucket.removeprefix(root + "/")
        for _ in range(TRIES):
            seen = [one for one in trees.walk(bucket) if is_part(one.name)]
            linked = all(trees.link(f"{bucket}/{one.name}", f"{data}/{below}/{one.name}") for one in seen)
            if linked and seen == [one for one in trees.walk(bucket) if is_part(one.name)]:
                lengths.update({f"{below}/{one.name}": one.size for one in seen})
                return
            self._world.files.remove_tree(f"{data}/{below}")
        raise StorageOffline(f"the files of {bucket} keep changing while nothing is written: try again")

    def _link_lake(self, place: str, lengths: dict[str, int]) -> None:
        """The lake in the folder. Its files never change; the catalog says which ones count."""
        root = local_path(self._lake.warehouse)
        if not self._lake.home or root is None:
            return
        below = self._inside(root)
        catalog = os.path.relpath(self._lake.catalog_uri, root)
        for one in trees.walk(root):
            name = f"{below}/{one.name}"
            if one.name.startswith(catalog) or not is_part(one.name) or name in lengths:
                continue
            if trees.link(f"{root}/{one.name}", f"{place}/{DATA_FOLDER}/{name}"):
                lengths[name] = os.path.getsize(f"{place}/{DATA_FOLDER}/{name}")

    def _inside(self, path: str) -> str | None:
        """A path relative to the data folder; None when it is outside."""
        found = os.path.relpath(path, self._folder.path)
        return None if found.startswith("..") else found


def _bucket_folders(root: str) -> list[str]:
    """<table>/<partition>/<bucket>."""
    found = [root]
    for _ in range(3):
        found = [one.path for folder in found for one in _folders(folder)]
    return sorted(found)


def _folders(folder: str) -> list[os.DirEntry[str]]:
    try:
        return [one for one in os.scandir(folder) if one.is_dir(follow_symlinks=False)]
    except FileNotFoundError:
        return []  # dropped meanwhile
