"""Backups: a copy of a data folder with the sizes and checksums of its files, and the way back.

    DIR/backup.json      what is in it; written last, so a folder without it is not a backup
    DIR/data/…           the files, as they lie in a data folder

A backup is taken of a cut that a running server made (``server/calls/backups.py``), or of a folder without a server. It
has no ``place.json``: what is restored from it is a new incarnation of the cluster.
"""

from __future__ import annotations

import errno
import json
import os
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from strom.errors import (
    ChecksumMismatch,
    FolderInUse,
    InvalidSetting,
    MetadataCorrupt,
    NewerFormat,
    StorageFull,
)
from strom.model.document import Document
from strom.runtime import trees
from strom.runtime.files import TEMPORARY_SUFFIX, Files

FORMAT = 1
BACKUP_FILE = "backup.json"
CONTENTS_FILE = "contents.json"
DATA_FOLDER = "data"
FORMAT_FILE = "strom.json"
LOCK_FILE = "lock"
_LEFT_OUT = (LOCK_FILE, "running.json", "place.json", "metadata.db-shm")
_SIZE_MAX = 2**63 - 1

Progress = Callable[["Copied"], None]


class Copied(NamedTuple):
    """Progress of a backup or a restore."""

    files: int
    files_total: int
    size: int
    size_total: int


@dataclass(frozen=True)
class BackupFacts:
    """A backup."""

    cluster_id: str
    taken_ms: int
    files: Mapping[str, tuple[int, int]]
    """Size and CRC-32 by name, relative to the data folder."""

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(size for size, _ in self.files.values())


def is_part(name: str) -> bool:
    """Whether a file belongs to the data and is not just being written."""
    return not name.endswith(TEMPORARY_SUFFIX) and f"{TEMPORARY_SUFFIX}/" not in name


def copy_cut(cut: str, target: str, now_ms: int, progress: Progress) -> BackupFacts:
    """Copy a cut of a running server into an empty folder."""
    try:
        doc = Document.parse(trees.read(f"{cut}/{CONTENTS_FILE}"), cut, MetadataCorrupt)
    except OSError as problem:
        raise InvalidSetting(
            f"the server put the files to copy into {cut}, which cannot be read here ({problem.strerror}): run "
            "`strom backup` on the server's machine, as a user who may read its data folder",
            folder=cut,
        ) from None
    found = doc.document("files")
    lengths = {name: found.integer(name, low=0, high=_SIZE_MAX) for name in found.value}
    return _copy(f"{cut}/{DATA_FOLDER}", lengths, target, doc.text("cluster_id"), now_ms, progress)


def copy_folder(files: Files, folder: str, target: str, now_ms: int, progress: Progress) -> BackupFacts:
    """Copy a data folder on which no server runs; FolderInUse when one does."""
    if not os.path.exists(f"{folder}/{FORMAT_FILE}"):
        raise InvalidSetting(
            f"{folder} is not a data folder of Strom: it has no {FORMAT_FILE}", folder=folder
        )
    lock = files.lock(f"{folder}/{LOCK_FILE}")
    if lock is None:
        raise FolderInUse(
            f"a server runs on {folder}: back it up through the server, `strom backup {target}` without --data",
            folder=folder,
        )
    try:
        cluster_id = str(json.loads(trees.read(f"{folder}/{FORMAT_FILE}"))["cluster_id"])
        lengths = {one.name: one.size for one in trees.walk(folder) if _is_data(one.name)}
        return _copy(folder, lengths, target, cluster_id, now_ms, progress)
    finally:
        lock.release()


def restore(source: str, target: str, progress: Progress) -> BackupFacts:
    """Restore a backup to a data folder, every byte checked. A failed restore leaves no data folder."""
    facts = read_backup(source)
    _refuse_unless_empty(target, "--data")
    copied = size = 0
    os.makedirs(target, mode=0o700, exist_ok=True)
    names = sorted(
        facts.files, key=lambda name: (name == FORMAT_FILE, name)
    )  # the last one makes it a data folder
    for name in names:
        found = _copied(f"{source}/{DATA_FOLDER}/{name}", f"{target}/{name}", None)
        if found != facts.files[name]:
            raise ChecksumMismatch(
                f"{source}/{DATA_FOLDER}/{name} is not what was backed up: the backup is damaged. {target} is "
                "incomplete; remove it",
                path=f"{source}/{DATA_FOLDER}/{name}",
            )
        copied, size = copied + 1, size + found[0]
        progress(Copied(copied, len(names), size, facts.size))
    trees.make_folders(f"{target}/buckets")
    trees.sync_folders(target)
    return facts


def read_backup(source: str) -> BackupFacts:
    """Read a backup's description."""
    name = f"{source}/{BACKUP_FILE}"
    if not os.path.exists(name):
        raise InvalidSetting(
            f"{source} has no {BACKUP_FILE}: it is not a backup, or an unfinished one", folder=source
        )
    doc = Document.parse(trees.read(name), name, MetadataCorrupt)
    if doc.integer("format", low=1) > FORMAT:
        raise NewerFormat(f"{name} has a newer format than this version of Strom reads: install a newer one")
    body = {key: value for key, value in doc.value.items() if key != "crc"}
    if doc.value.get("crc") != _crc(body):
        raise MetadataCorrupt(f"{name} is damaged; take another backup", path=name)
    files = {str(one): (int(size), int(crc)) for one, size, crc in body["files"]}
    if any(one.startswith("/") or ".." in one.split("/") for one in files):
        raise MetadataCorrupt(f"{name} names files outside the folder", path=name)
    return BackupFacts(doc.text("cluster_id"), doc.integer("taken_ms", low=0, high=_SIZE_MAX), files)


def _copy(
    source: str, lengths: Mapping[str, int], target: str, cluster_id: str, now_ms: int, progress: Progress
) -> BackupFacts:
    _refuse_unless_empty(target, "DIR")
    os.makedirs(target, mode=0o700, exist_ok=True)
    total, done = sum(lengths.values()), 0
    files: dict[str, tuple[int, int]] = {}
    for number, (name, length) in enumerate(sorted(lengths.items()), 1):
        found = _copied(f"{source}/{name}", f"{target}/{DATA_FOLDER}/{name}", length)
        if found[0] != length:
            raise ChecksumMismatch(
                f"{name} has become shorter since the backup began: {found[0]:,} of {length:,} bytes. Remove {target} "
                "and take it again",
                path=name,
            )
        files[name] = found
        done += length
        progress(Copied(number, len(lengths), done, total))
    trees.sync_folders(target)
    body = {
        "format": FORMAT,
        "cluster_id": cluster_id,
        "taken_ms": now_ms,
        "files": [[name, *found] for name, found in files.items()],
    }
    trees.write(f"{target}/{BACKUP_FILE}", json.dumps({**body, "crc": _crc(body)}).encode())
    return BackupFacts(cluster_id, now_ms, files)


def _crc(body: Mapping[str, object]) -> int:
    return zlib.crc32(json.dumps(body, sort_keys=True).encode())


def _copied(source: str, target: str, length: int | None) -> tuple[int, int]:
    try:
        return trees.copy(source, target, length)
    except FileNotFoundError as error:
        raise ChecksumMismatch(f"{source} is missing from the folder that is copied", path=source) from error
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StorageFull(f"no room on the disk for {target}", path=target) from error
        raise


def _is_data(name: str) -> bool:
    top = name.partition("/")[0]
    locks = top.startswith("tablet-") and top.endswith(".lock")
    return is_part(name) and top not in _LEFT_OUT and not locks and not top.startswith("backup-")


def _refuse_unless_empty(folder: str, what: str) -> None:
    if os.path.exists(folder) and (not os.path.isdir(folder) or os.listdir(folder)):
        raise InvalidSetting(f"{folder} is not empty: name a new folder as {what}", folder=folder)
