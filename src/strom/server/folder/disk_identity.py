"""Which disk a data folder is, and how often it may have forgotten something (docs/formats/folder.md).

In a cluster, copies in sync are named with the disk they are on. A folder that was made anew, copied or restored is
another disk, because it may lack rows that the one of that name had. The *lineage* of a disk rises when the machine
went down (its boot id changed) without a clean stop: what was written and not synced may be gone then. A killed process
loses nothing that way, since the system keeps what it wrote.

A stop is clean once everything in the folder is on the disk; that includes what an earlier, killed process wrote.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import asdict, dataclass, replace

from strom.replication.registration import DataDisk
from strom.runtime.files import TEMPORARY_SUFFIX, Files
from strom.runtime.random import Randomness
from strom.server.folder.checked_json import decode_checked, encode_checked

DISK_FILE = "disk.json"
DISK_BYTES = 8

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class DiskRecord:
    """The content of the file."""

    disk: str
    lineage: int
    incarnation: str
    """Of the folder (``incarnation.py``): a copied folder brings its file along, and is another disk all the same."""
    boot: str
    """The boot of the machine in which a server last ran here; empty: unknown."""
    clean: bool
    """Whether that server stopped cleanly."""

    def encode(self) -> bytes:
        """The content of the file."""
        return encode_checked(asdict(self))

    @classmethod
    def decode(cls, content: bytes) -> DiskRecord | None:
        """None if it is damaged."""
        facts = decode_checked(content)
        try:
            return None if facts is None else cls(**facts)
        except TypeError:
            return None


class FolderDisk:
    """The disk of one data folder, from a server's start to its stop."""

    def __init__(self, files: Files, path: str, record: DiskRecord) -> None:
        """Use ``open``."""
        self._files = files
        self._path = path
        self._record = record

    @classmethod
    def open(
        cls,
        files: Files,
        path: str,
        *,
        incarnation: str,
        boot: str,
        randomness: Randomness,
        registered: Collection[str] | None,
    ) -> FolderDisk:
        """Find out which disk this is; durable when it returns. The caller holds the folder's lock.

        ``registered``: the disks that this server had last; None: it never had any. A disk that it gave up, because a
        sync failed (R24), is not taken back under its old name.
        """
        name = f"{path}/{DISK_FILE}"
        before = DiskRecord.decode(files.read_whole(name)) if files.exists(name) else None
        record = _next(before, incarnation, boot, randomness, registered, path)
        if record != before:
            files.write_whole(name, record.encode())
        return cls(files, path, record)

    @property
    def disk(self) -> DataDisk:
        """What the server registers."""
        return DataDisk(self._record.disk, self._record.lineage)

    def close_cleanly(self) -> None:
        """Put everything in the folder on the disk, then write down that it is there. Every log is closed."""
        sync_tree(self._files, self._path)
        self._record = replace(self._record, clean=True)
        self._files.write_whole(f"{self._path}/{DISK_FILE}", self._record.encode())


def _next(
    before: DiskRecord | None,
    incarnation: str,
    boot: str,
    randomness: Randomness,
    registered: Collection[str] | None,
    path: str,
) -> DiskRecord:
    new = DiskRecord(randomness.token(DISK_BYTES).hex(), 0, incarnation, boot, clean=False)
    if before is None:
        return new
    if before.incarnation != incarnation:
        logger.warning("%s was copied or restored: its copies are compared with their leaders'", path)
        return new
    if registered is not None and before.disk not in registered:
        logger.warning("%s was given up before: its copies are compared with their leaders'", path)
        return new
    same_boot = before.boot == boot != ""
    if before.clean or same_boot:
        return replace(before, boot=boot, clean=False)
    logger.warning("the machine went down while %s was in use: what was not synced may be lost", path)
    return replace(before, lineage=before.lineage + 1, boot=boot, clean=False)


def sync_tree(files: Files, path: str) -> None:
    """Make everything below a folder survive power loss."""
    for name in files.list(path):
        below = f"{path}/{name}"
        if files.is_folder(below):
            sync_tree(files, below)
        elif not name.endswith(TEMPORARY_SUFFIX):
            file = files.open(below)
            try:
                file.sync()
            finally:
                file.close()
    files.sync_folder(path)
