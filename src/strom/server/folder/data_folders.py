"""The data folders of a tablet server in a cluster: one for each disk, each with its own lock and identity.

A folder that cannot be opened is left out: the copies on it are lost to the cluster until it is back, and the others
serve. Its disk is then not registered, so that no copy on it counts as in sync, and new copies are made elsewhere.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from strom.errors import MetadataCorrupt, StorageFull, StorageOffline
from strom.model.bucket import BucketId
from strom.replication.registration import DataDisk
from strom.runtime.clock import Clock
from strom.runtime.files import Files
from strom.runtime.random import Randomness
from strom.server.folder.bucket_folders import BucketFolders
from strom.server.folder.disk_identity import FolderDisk
from strom.server.folder.folder import DataFolder, open_folder
from strom.server.folder.metadata_place import check_place

logger = logging.getLogger(__name__)


class _OpenedFolder(NamedTuple):
    folder: DataFolder
    disk: FolderDisk


class DataFolders:
    """The folders that could be opened, in the order of the settings."""

    def __init__(self, opened: Sequence[_OpenedFolder]) -> None:
        """Use ``open``."""
        self._opened = tuple(opened)

    @classmethod
    def open(
        cls,
        files: Files,
        paths: Sequence[str],
        *,
        cluster_id: str,
        clock: Clock,
        randomness: Randomness,
        registered: Collection[str] | None,
    ) -> DataFolders:
        """Open them; raises if none can be, or if one is of another cluster, foreign, or in use.

        ``registered``: the disks that this server had last (``FolderDisk.open``).
        """
        opened: list[_OpenedFolder] = []
        boot = clock.uptime().boot
        try:
            for path in paths:
                try:
                    folder = open_folder(files, path, randomness, cluster_id)
                    try:
                        check_place(files, folder.path, in_cluster=True)
                        disk = FolderDisk.open(
                            files,
                            folder.path,
                            incarnation=folder.incarnation,
                            boot=boot,
                            randomness=randomness,
                            registered=registered,
                        )
                    except BaseException:
                        folder.close(cleanly=False)
                        raise
                except (OSError, MetadataCorrupt, StorageFull) as error:
                    logger.error("the data folder %s is left out: %s", path, error)
                    continue
                opened.append(_OpenedFolder(folder, disk))
        except BaseException:
            cls(opened).close(cleanly=False)
            raise
        if not opened:
            raise StorageOffline("none of the data folders can be opened (data.dirs); the log says why")
        return cls(opened)

    @property
    def roots(self) -> tuple[str, ...]:
        """The paths."""
        return tuple(one.folder.path for one in self._opened)

    @property
    def disks(self) -> tuple[DataDisk, ...]:
        """What the server registers."""
        return tuple(one.disk.disk for one in self._opened)

    def bucket_folders(
        self, files: Files, named: Callable[[BucketId], Collection[str]]
    ) -> tuple[BucketFolders, Callable[[BucketId], DataDisk]]:
        """Where buckets lie, and on which disk each does.

        ``named``: the disks on which the cluster expects the copy of a bucket.
        """
        disks = {one.folder.path: one.disk.disk for one in self._opened}
        by_disk = {disk.disk: path for path, disk in disks.items()}

        def expected(bucket: BucketId) -> str | None:
            return next((by_disk[disk] for disk in named(bucket) if disk in by_disk), None)

        folders = BucketFolders(files, self.roots, expected)
        return folders, lambda bucket: disks[folders.root_of(bucket)]

    def announce(self, facts: dict[str, object]) -> None:
        """Record which process runs here, for the error that a second server gets."""
        for one in self._opened:
            one.folder.announce(facts)

    def close(self, *, cleanly: bool) -> None:
        """Release them. ``cleanly``: every log was closed; then everything is put on the disks."""
        for folder, disk in self._opened:
            if cleanly:
                try:
                    disk.close_cleanly()
                except (OSError, StorageFull) as error:
                    logger.error("%s may lack what was written last: %s", folder.path, error)
            folder.close(cleanly=cleanly)
