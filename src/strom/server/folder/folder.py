"""The data folder: who holds it, and which format it has.

    strom.json        the format's number, the cluster's id, a checksum (docs/formats/folder.md)
    place.json        where the folder lies, so that a copy knows that it is one
    lock              held by the server that runs on the folder
    tablet-N.lock     held by the process of tablet server N, where there are several processes
    running.json      the running process and its address; written when ready, removed at a clean stop
    metadata.*        what the cluster remembers (docs/formats/metadata.md)
    buckets/          one folder per bucket, named by ids: table / partition / bucket

The locks belong to processes and vanish with them, so a killed server leaves nothing to clean up. Opening never
changes a foreign folder: one that holds other things, or was written by a newer version.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from typing import Any

from strom.errors import FolderInUse, InvalidSetting, MetadataCorrupt, NewerFormat, StorageFull
from strom.model.bucket import BucketId
from strom.model.lake.lake_owner import LakeOwner
from strom.runtime.files import Files, FolderLock
from strom.runtime.random import Randomness
from strom.server.folder.checked_json import decode_checked, encode_checked
from strom.server.folder.incarnation import PLACE_FILE, incarnation_of

FORMAT = 1
FORMAT_FILE = "strom.json"
LOCK_FILE = "lock"
RUNNING_FILE = "running.json"
BUCKETS_FOLDER = "buckets"


logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class DataFolder:
    """A data folder whose lock this process holds."""

    files: Files
    path: str
    cluster_id: str
    stopped_cleanly: bool
    lock: FolderLock
    incarnation: str = ""
    """The cluster's incarnation in this place (``incarnation.py``)."""
    copied: bool = False
    """Whether it holds tables but was not in this place before, so no clean stop happened here."""

    @property
    def owner(self) -> LakeOwner:
        """The owner that writes to the lake from here."""
        return LakeOwner(self.cluster_id, self.incarnation)

    @property
    def empty(self) -> bool:
        """Whether no bucket was ever stored here, so that missing metadata is no loss."""
        return not self.files.list(buckets_path(self.path))

    def announce(self, facts: dict[str, object]) -> None:
        """Record which process runs here, for the error that a second server gets. A full disk must not prevent
        reading."""
        try:
            self.files.write_whole(f"{self.path}/{RUNNING_FILE}", json.dumps(facts).encode())
        except StorageFull as error:
            logger.warning("the disk is full; writes are refused until there is room: %s", error)

    def close(self, *, cleanly: bool) -> None:
        """Release the folder. ``cleanly``: every log was closed, so the next start has nothing to recover."""
        if cleanly:
            self.files.remove(f"{self.path}/{RUNNING_FILE}")
        self.lock.release()


def buckets_path(path: str) -> str:
    """The folder of all buckets below the data folder ``path``."""
    return f"{path}/{BUCKETS_FOLDER}"


def bucket_path(path: str, bucket: BucketId) -> str:
    """The folder of one bucket below the data folder ``path``."""
    partition = "-" if bucket.partition_id is None else str(bucket.partition_id)
    return f"{path}/{BUCKETS_FOLDER}/{bucket.table_id}/{partition}/{bucket.bucket}"


class StillHeld(FolderInUse):
    """The tablet servers of an earlier start are still ending; they follow their supervisor within moments."""


def open_folder(files: Files, path: str, randomness: Randomness, cluster_id: str | None = None) -> DataFolder:
    """Take the folder, creating it if necessary. After StillHeld, try again shortly.

    ``cluster_id``: of the cluster that the folder belongs to, or will; None: the folder says it, or draws one.
    """
    _refuse_foreign(files, path)
    files.make_folder(path)
    lock = files.lock(f"{path}/{LOCK_FILE}")
    if lock is None:
        raise _in_use(files, path)
    try:
        _keep_private(files, path)
        found_id = _read_or_write_format(files, path, cluster_id or randomness.token(16).hex())
        if cluster_id not in (None, found_id):
            raise InvalidSetting(
                f"{path} belongs to another cluster ({found_id}), this is {cluster_id}: choose an empty folder, or "
                "check which cluster the settings name",
                folder=path,
            )
        held = _held_tablet_lock(files, path)
        if held is not None:
            raise StillHeld(
                f"a tablet server of an earlier start still holds {path}/{held}; "
                "wait for it to end or stop it, then start again",
                folder=path,
                lock=held,
            )
        known = files.read_whole(f"{path}/{PLACE_FILE}") if files.exists(f"{path}/{PLACE_FILE}") else b""
        incarnation = incarnation_of(files, path, f"{path}/{LOCK_FILE}", randomness)
        copied = incarnation.encode() not in known and bool(files.list(buckets_path(path)))
        stopped_cleanly = not files.exists(f"{path}/{RUNNING_FILE}")
    except BaseException:
        lock.release()
        raise
    return DataFolder(files, path, found_id, stopped_cleanly, lock, incarnation, copied)


def _keep_private(files: Files, path: str) -> None:
    """Let nobody but the server's user read the folder: it holds every row, and the names of users and places."""
    try:
        # Change the folder itself, not a link to it: the path may be a link.
        open_to_others = files.narrow(f"{path}/.")
        inside = [name for name in files.list(path) if files.narrow(f"{path}/{name}")]
    except OSError as error:
        logger.warning("other users of this machine may read %s, and changing that failed: %s", path, error)
        return
    if open_to_others:  # what is readable inside a private folder was out of reach for others
        logger.warning(
            "other users of this machine could read %s; now only this user can (changed: %d)",
            path,
            1 + len(inside),
        )


def lock_tablet(files: Files, path: str, server_id: int) -> FolderLock:
    """The lock that a tablet server's process holds while it may write to buckets."""
    lock = files.lock(f"{path}/tablet-{server_id}.lock")
    if lock is None:
        raise FolderInUse(
            f"another tablet server {server_id} runs on {path}; stop it first",
            folder=path,
            server_id=server_id,
        )
    return lock


def _refuse_foreign(files: Files, path: str) -> None:
    names = set(files.list(path))
    if FORMAT_FILE in names or names <= {LOCK_FILE}:
        return
    raise InvalidSetting(
        f"{path} is not empty and holds no {FORMAT_FILE}, so it is not a data folder of Strom; "
        "choose an empty folder with --data",
        folder=path,
        found=sorted(names)[:5],
    )


def _in_use(files: Files, path: str) -> FolderInUse:
    try:
        facts = json.loads(files.read_whole(f"{path}/{RUNNING_FILE}"))
        who = f" (process {facts['process']}, {facts['address']})"
    except (OSError, ValueError, KeyError, TypeError):
        who = ""
    return FolderInUse(
        f"another server{who} runs on the data folder {path}; "
        "stop it, connect to it, or choose another folder with --data",
        folder=path,
    )


def _held_tablet_lock(files: Files, path: str) -> str | None:
    for name in files.list(path):
        if name.startswith("tablet-") and name.endswith(".lock"):
            lock = files.lock(f"{path}/{name}")
            if lock is None:
                return name
            lock.release()
    return None


def _read_or_write_format(files: Files, path: str, cluster_id: str) -> str:
    """The id of the cluster whose folder this is; of a new one, the given id."""
    name = f"{path}/{FORMAT_FILE}"
    if not files.exists(name):
        files.make_folder(buckets_path(path))
        files.write_whole(name, encode_checked({"format": FORMAT, "cluster_id": cluster_id}))
        return cluster_id
    facts = decode_format(files.read_whole(name), name)
    if facts["format"] > FORMAT:
        raise NewerFormat(
            f"{path} has format {facts['format']}, this version of Strom reads formats up to {FORMAT}; "
            "start a newer version on it, or choose another folder with --data",
            folder=path,
            found=facts["format"],
            supported=FORMAT,
        )
    return str(facts["cluster_id"])


def decode_format(content: bytes, name: str) -> dict[str, Any]:
    """The facts of a format file, or MetadataCorrupt."""
    facts = decode_checked(content) or {}
    if type(facts.get("format")) is not int or type(facts.get("cluster_id")) is not str:
        raise MetadataCorrupt(
            f"{name} is damaged; restore it from a backup, or from another folder of the same version "
            "(it holds only the format's number and the cluster's id)",
            path=name,
        )
    return facts
