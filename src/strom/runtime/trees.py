"""Whole folder trees, for copies of a data folder: walk, link, copy with a checksum, replace.

Everything else on the disk goes through ``files.py``. Other programs read some of these trees, so a replaced file keeps
its mode.
"""

from __future__ import annotations

import os
import stat
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from strom.runtime.files import TEMPORARY_SUFFIX

CHUNK_BYTES = 1 << 20
_FILE_MODE = 0o640


class TreeFile(NamedTuple):
    """A file in a tree."""

    name: str
    """Relative to the tree's root."""
    size: int
    inode: int


def walk(root: str) -> Iterator[TreeFile]:
    """Every file below a folder, by name; none if there is no folder. Links are neither followed nor listed."""
    pending = [""]
    while pending:
        folder = pending.pop()
        try:
            found = sorted(os.scandir(f"{root}/{folder}"), key=lambda one: one.name)
        except (FileNotFoundError, NotADirectoryError):
            continue
        for one in found:
            name = f"{folder}{one.name}"
            if one.is_dir(follow_symlinks=False):
                pending.append(f"{name}/")
            elif one.is_file(follow_symlinks=False):
                try:
                    seen = one.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue  # removed meanwhile
                yield TreeFile(name, seen.st_size, seen.st_ino)


def make_folders(path: str) -> None:
    """Create a folder and its missing parents, each with the permissions of its parent.

    So what is created inside a data folder stays private, and a lake elsewhere keeps its setup.
    """
    if os.path.isdir(path):
        return
    above = os.path.dirname(path.rstrip("/"))
    if above and above != path:
        make_folders(above)
    try:
        os.mkdir(path, 0o700 | stat.S_IMODE(os.stat(above or ".").st_mode) & 0o777)
    except FileExistsError:
        if not os.path.isdir(path):
            raise


def link(source: str, target: str) -> bool:
    """Hard-link a file into a tree on the same file system; False if it is gone."""
    make_folders(os.path.dirname(target))
    try:
        os.link(source, target)
    except FileNotFoundError:
        return False
    except FileExistsError:
        pass
    return True


def copy(source: str, target: str, length: int | None = None) -> tuple[int, int]:
    """Copy and sync the first ``length`` bytes of a file (default: all); return their number and CRC-32."""
    make_folders(os.path.dirname(target))
    left = length
    crc = size = 0
    with open(source, "rb", buffering=0) as found, open(target, "xb", buffering=0, opener=_opener) as made:
        room = memoryview(bytearray(CHUNK_BYTES))
        while left is None or left:
            count = found.readinto(room if left is None else room[: min(left, CHUNK_BYTES)])
            if not count:
                break
            crc = zlib.crc32(room[:count], crc)
            _write_all(made.fileno(), room[:count])
            size += count
            left = None if left is None else left - count
        os.fchmod(made.fileno(), stat.S_IMODE(os.fstat(found.fileno()).st_mode))
        os.fsync(made.fileno())
    return size, crc


def replacement(path: str, suffix: str, content: bytes) -> None:
    """Write a file beside another, with its mode, synced; ``rename`` puts it in the other's place."""
    with open(path + suffix, "wb") as file:
        if os.path.exists(path):
            os.fchmod(file.fileno(), stat.S_IMODE(os.stat(path).st_mode))
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def write(path: str, content: bytes) -> None:
    """Replace a whole file, atomically and durably."""
    replacement(path, TEMPORARY_SUFFIX, content)
    os.replace(path + TEMPORARY_SUFFIX, path)
    sync_folder(os.path.dirname(path))


def read(path: str) -> bytes:
    """A whole file."""
    with open(path, "rb") as file:
        return file.read()


def move(source: str, target: str) -> None:
    """Move a file or folder into another folder of the same file system, durably."""
    os.rename(source, target)
    for folder in {os.path.dirname(source), os.path.dirname(target)}:
        sync_folder(folder)


def sync_folder(path: str) -> None:
    """Make what was created and renamed in a folder survive power loss."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_folders(root: str) -> None:
    """The same for a folder and all below it."""
    for folder, _, _ in os.walk(root):
        sync_folder(folder)


def _opener(path: str, flags: int) -> int:
    return os.open(path, flags, _FILE_MODE)


def _write_all(handle: int, content: memoryview) -> None:
    while len(content):
        content = content[os.write(handle, content) :]
