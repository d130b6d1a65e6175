"""Where the data folder lies, and therefore which *incarnation* of its cluster it is (docs/formats/folder.md).

A copy of a folder has the same cluster id, tables and offsets, and must not write where the original writes. So a
folder remembers its place. When it is found in another place, it was copied or restored: a new incarnation. A folder
that was renamed within its file system keeps its incarnation, because its inodes are the same.

What cannot be told from its original is a disk that was cloned block by block and is mounted at the same path of a
machine with the same id, or with none.
"""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass

from strom.errors import StorageFull
from strom.runtime.files import Files
from strom.runtime.machine import machine_id
from strom.runtime.random import Randomness
from strom.server.folder.checked_json import decode_checked, encode_checked

PLACE_FILE = "place.json"
INCARNATION_BYTES = 8

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class FolderPlace:
    """Where a folder was when it was last opened, and its incarnation there."""

    incarnation: str
    path: str
    device: int
    inode: int
    lock: int
    """The inode of the lock file: two disks that are mounted whole have equal inodes for their root folders."""
    machine: str | None = None

    def is_at(self, other: FolderPlace) -> bool:
        """Whether both are the same folder, at most renamed."""
        unknown = self.machine is None or other.machine is None
        same = (self.inode, self.lock) == (other.inode, other.lock)
        # A device's number may change when the machine restarts; the path is the same then.
        near = self.path == other.path or self.device == other.device
        return same and near and (unknown or self.machine == other.machine)

    def encode(self) -> bytes:
        """The content of the file."""
        return encode_checked(asdict(self))

    @classmethod
    def decode(cls, content: bytes) -> FolderPlace | None:
        """None if it is damaged."""
        facts = decode_checked(content)
        try:
            return None if facts is None else cls(**facts)
        except TypeError:
            return None


def incarnation_of(files: Files, path: str, lock: str, randomness: Randomness) -> str:
    """The incarnation of the folder, whose lock this process holds; stored from now on."""
    name = f"{path}/{PLACE_FILE}"
    device, inode = files.identity(path)
    here = FolderPlace("", path, device, inode, files.identity(lock)[1], machine_id())
    before = FolderPlace.decode(files.read_whole(name)) if files.exists(name) else None
    if before is not None and before.is_at(here):
        incarnation = before.incarnation
    else:
        incarnation = randomness.token(INCARNATION_BYTES).hex()
        if before is not None:
            logger.warning(
                "%s was copied or restored from %s: it is a cluster of its own from now on, and does not write to a "
                "lake outside of this folder until `strom lake take-over`",
                path,
                before.path,
            )
    found = FolderPlace(incarnation, path, device, inode, here.lock, here.machine)
    if found != before:
        try:
            files.write_whole(name, found.encode())
        except StorageFull as error:
            logger.warning("the disk is full; the folder's place is recorded later: %s", error)
    return incarnation
