"""Files, passed in as an argument: the only access to the disk.

Everything here is synchronous. What a call promises about a crash is part of the contract
(``tests/contracts/files_contract.py`` runs on the real disk and on the one in ``testing`` that
forgets what was not synced):

    append, truncate         survive kill -9; survive power loss only after ``File.sync``
    create, rename, remove   survive power loss only after ``Files.sync_folder`` of the parent
    make_folder              durable when it returns (folders are rare, and forgetting this would lose files)
    write_whole              all or nothing at any moment, and durable when it returns

Paths are strings with ``/``. A full disk is raised as :class:`strom.errors.StorageFull`; then nothing of
the append is left behind. Other errors are the system's own ``OSError``.

One handle appends to a file. Any number of threads may read it meanwhile, through the same handle or others:
every read and write names its position, so there is no shared cursor. A handle may be closed, or simply
dropped, while another thread reads through it: that read finishes, later calls raise ``ValueError``.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import posixpath
import shutil
import stat
import sys
import threading
from collections.abc import Callable, Sequence
from itertools import count
from typing import Protocol

from strom.errors import Busy, StorageFull

Bytes = bytes | bytearray | memoryview

TEMPORARY_SUFFIX = ".tmp"
"""Suffix of a file that is not complete yet; after a crash one may be left over, and is ignored."""


class File(Protocol):
    """One open file: read anywhere, write at the end."""

    @property
    def path(self) -> str:
        """Where the file was opened."""

    def size(self) -> int:
        """Bytes in the file (the writer's view: includes what was appended but not synced)."""

    def read_at(self, position: int, length: int) -> bytes:
        """Up to ``length`` bytes from ``position``; fewer only at the end of the file."""

    def read_into(self, position: int, rooms: Sequence[memoryview]) -> int:
        """Fill the buffers in order from ``position`` on; return the number of bytes read.

        Fewer than the buffers hold only at the end of the file.
        """

    def append(self, buffers: Sequence[Bytes]) -> int:
        """Append all buffers as one write; return the position where they start.

        On any failure the file is truncated to its former size before the error is raised.
        """

    def truncate(self, size: int) -> None:
        """Truncate the file to ``size`` bytes, at most its current size."""

    def sync(self) -> None:
        """Make everything written so far survive power loss (fdatasync; F_FULLFSYNC on macOS).

        After a failure it always fails on this handle: the system may have dropped the bytes and report success
        the next time.
        """

    def close(self) -> None:
        """Close the handle. Closing twice is fine."""


class FolderLock(Protocol):
    """Held while this process owns a folder; the system releases it when the process dies."""

    def release(self) -> None:
        """Release the folder."""


class Files(Protocol):
    """A disk."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and appending. ``FileNotFoundError`` unless it exists or ``create``."""

    def exists(self, path: str) -> bool:
        """Whether a file or folder exists."""

    def is_folder(self, path: str) -> bool:
        """Whether a folder exists."""

    def list(self, folder: str) -> list[str]:
        """Names in a folder, sorted; empty if it does not exist."""

    def size(self, path: str) -> int:
        """Bytes of a file."""

    def identity(self, path: str) -> tuple[int, int]:
        """Device and inode numbers: a rename keeps both, a copy has others."""

    def make_folder(self, path: str) -> None:
        """Create a folder and its parents, durably; fine when it exists."""

    def remove(self, path: str) -> None:
        """Remove one file; fine when it is gone."""

    def remove_tree(self, path: str) -> None:
        """Remove a folder and all below it; fine when it is gone."""

    def rename(self, source: str, target: str) -> None:
        """Give a file or folder another name in the same folder; a file of that name is replaced."""

    def sync_folder(self, path: str) -> None:
        """Make creations, renames and removals in this folder survive power loss."""

    def read_whole(self, path: str) -> bytes:
        """All bytes of a file."""

    def map(self, path: str) -> memoryview:
        """A read-only memory map of a file that no longer changes.

        Valid as long as anything refers to it, even after the file was removed. A disk error on access, or a
        truncated file, ends the process.
        """

    def write_whole(self, path: str, content: Bytes) -> None:
        """Replace a small file atomically and durably (temporary file, sync, rename, sync folder).

        One writer at a time for one path.
        """

    def write_whole_if_absent(self, path: str, content: Bytes) -> bool:
        """Like ``write_whole``, but only if no such file exists; of concurrent callers one gets True."""

    def narrow(self, path: str) -> bool:
        """Restrict a file or folder to its owner; return whether others had access before. Links are left alone."""

    def free_bytes(self, path: str) -> int:
        """Free bytes for this user on the disk that holds ``path``."""

    def lock(self, path: str) -> FolderLock | None:
        """Take the lock file at ``path``; None if another process holds it."""


# --- The machine's disk --------------------------------------------------------------------------------

FILE_MODE = 0o600
FOLDER_MODE = 0o700
"""Data is for the user who runs the server, whatever the umask."""
BUFFERS_PER_WRITE_MAX = 1024  # IOV_MAX on Linux and macOS
READ_UNCHECKED_BYTES_MAX = 1 << 20


class _Descriptor:
    """An open descriptor that closes when the last thread stops using it.

    References are handed out instead of the number, so that a close in one thread never makes another thread read from
    a descriptor that the system has reused for a different file.
    """

    __slots__ = ("_close", "number")

    def __init__(self, number: int) -> None:
        self.number = number
        self._close: Callable[[int], None] = os.close  # kept: ``os`` may be gone when the interpreter ends

    def __del__(self) -> None:
        self._close(self.number)


def _opened(path: str, flags: int) -> _Descriptor:
    """A descriptor; Busy if the process is at its limit, since others will be closed."""
    try:
        return _Descriptor(os.open(path, flags | os.O_CLOEXEC, FILE_MODE))
    except OSError as error:
        if error.errno not in (errno.EMFILE, errno.ENFILE):
            raise
        raise Busy(
            f"{path} cannot be opened: too many files are open in this process; try again, and raise the limit of open "
            "files (ulimit -n) if it happens often",
            path=path,
        ) from error


class LocalFile:
    """A :class:`File` on the machine's disk."""

    def __init__(self, path: str, flags: int) -> None:
        self._path = path
        self._descriptor: _Descriptor | None = _opened(path, flags)
        self._syncing = threading.Lock()
        self._sync_error: int | None = None

    @property
    def path(self) -> str:
        return self._path

    def _open_descriptor(self) -> _Descriptor:
        descriptor = self._descriptor
        if descriptor is None:
            raise ValueError(f"{self._path} is closed")
        return descriptor

    def size(self) -> int:
        descriptor = self._open_descriptor()
        return os.fstat(descriptor.number).st_size

    def read_at(self, position: int, length: int) -> bytes:
        assert position >= 0
        assert length >= 0
        descriptor = self._open_descriptor()
        if length > READ_UNCHECKED_BYTES_MAX:
            # The system call allocates all of ``length`` first, so a wrong length must not cost memory.
            length = min(length, max(0, os.fstat(descriptor.number).st_size - position))
        found = os.pread(descriptor.number, length, position)
        if len(found) == length or not found:
            return found
        return _read_rest(descriptor.number, position, length, found)

    def read_into(self, position: int, rooms: Sequence[memoryview]) -> int:
        assert position >= 0
        descriptor = self._open_descriptor()
        if len(rooms) <= BUFFERS_PER_WRITE_MAX:  # one call is usually enough
            done = os.preadv(descriptor.number, rooms, position)
            if done == sum(map(len, rooms)):
                return done
        done = 0
        left = list(rooms)
        while left:
            some = left[:BUFFERS_PER_WRITE_MAX]
            count = os.preadv(descriptor.number, some, position + done)
            done += count
            if not count:
                break
            while left and count >= len(left[0]):
                count -= len(left.pop(0))
            if count:  # the system may read less than the buffers hold
                left[0] = left[0][count:]
        return done

    def append(self, buffers: Sequence[Bytes]) -> int:
        descriptor = self._open_descriptor()
        start = os.fstat(descriptor.number).st_size
        try:
            _write_all(descriptor.number, buffers, start)
        except BaseException as error:
            # Also on an interrupt between two writes: half an append must not stay.
            os.ftruncate(descriptor.number, start)
            if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise _full(self._path, sum(len(buffer) for buffer in buffers)) from error
            raise
        return start

    def truncate(self, size: int) -> None:
        descriptor = self._open_descriptor()
        assert 0 <= size <= os.fstat(descriptor.number).st_size
        os.ftruncate(descriptor.number, size)

    def sync(self) -> None:
        descriptor = self._open_descriptor()
        # One at a time: the system may report a failure to only one of two overlapping syncs.
        with self._syncing:
            if self._sync_error is not None:
                raise OSError(self._sync_error, "an earlier sync of this file failed", self._path)
            try:
                _sync(descriptor.number)
            except OSError as error:
                self._sync_error = error.errno
                raise

    def close(self) -> None:
        self._descriptor = None


def _read_rest(descriptor: int, position: int, length: int, found: bytes) -> bytes:
    """The system may read less than requested (at most 2 GB on Linux); only an empty read is the end."""
    parts = [found]
    done = len(found)
    while done < length:
        part = os.pread(descriptor, length - done, position + done)
        if not part:
            break
        parts.append(part)
        done += len(part)
    return b"".join(parts)


def _write_all(descriptor: int, buffers: Sequence[Bytes], position: int) -> None:
    """Write all of ``buffers`` at ``position``, in as many system calls as it takes."""
    index = 0
    while index < len(buffers):
        some = buffers[index : index + BUFFERS_PER_WRITE_MAX]
        size = sum(len(buffer) for buffer in some)
        written = os.pwritev(descriptor, some, position)
        assert written <= size, "a buffer is not a view of single bytes"
        if written < size:
            _write_rest(descriptor, b"".join(some), written, position)
        position += size
        index += len(some)


def _write_rest(descriptor: int, joined: bytes, done: int, position: int) -> None:
    """Continue after a short write. It is rare, so a copy keeps it simple."""
    rest = memoryview(joined)
    while done < len(joined):
        done += os.pwrite(descriptor, rest[done:], position + done)


def _sync(descriptor: int) -> None:
    if sys.platform == "darwin":
        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)  # fsync there leaves the data in the drive's cache
    else:
        os.fdatasync(descriptor)


def _full(path: str, size: int) -> StorageFull:
    return StorageFull(f"no room on the disk for {size} bytes in {path}", path=path, bytes=size)


class LocalFolderLock:
    """A :class:`FolderLock` by flock, which the system releases when the process dies."""

    def __init__(self, descriptor: _Descriptor) -> None:
        self._descriptor: _Descriptor | None = descriptor

    def release(self) -> None:
        self._descriptor = None


class LocalFiles:
    """The machine's disk."""

    def __init__(self) -> None:
        self._temporary = count()

    def open(self, path: str, *, create: bool = False) -> LocalFile:
        return LocalFile(path, os.O_RDWR | os.O_CREAT if create else os.O_RDWR)

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def is_folder(self, path: str) -> bool:
        return os.path.isdir(path)

    def list(self, folder: str) -> list[str]:
        try:
            return sorted(os.listdir(folder))
        except FileNotFoundError:
            return []

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def identity(self, path: str) -> tuple[int, int]:
        found = os.stat(path)
        return found.st_dev, found.st_ino

    def make_folder(self, path: str) -> None:
        if os.path.isdir(path):
            return
        parent = posixpath.dirname(path.rstrip("/"))
        if parent:
            self.make_folder(parent)
        try:
            os.mkdir(path, FOLDER_MODE)
        except FileExistsError:
            if not os.path.isdir(path):
                raise
        self.sync_folder(parent or ".")

    def remove(self, path: str) -> None:
        try:
            os.unlink(path)
        except (FileNotFoundError, NotADirectoryError):
            pass  # it is gone, as requested

    def remove_tree(self, path: str) -> None:
        def raise_unless_gone(_call: object, _path: str, reason: tuple[object, object, object]) -> None:
            if not isinstance(reason[1], FileNotFoundError):
                assert isinstance(reason[1], BaseException)
                raise reason[1]

        shutil.rmtree(path, onerror=raise_unless_gone)

    def rename(self, source: str, target: str) -> None:
        assert posixpath.dirname(source) == posixpath.dirname(target)
        os.replace(source, target)

    def sync_folder(self, path: str) -> None:
        descriptor = _opened(path, os.O_RDONLY | os.O_DIRECTORY)
        os.fsync(descriptor.number)

    def read_whole(self, path: str) -> bytes:
        return self.open(path).read_at(0, self.size(path))

    def map(self, path: str) -> memoryview:
        # Opened like every file, so that a folder is refused here too. The map keeps its own descriptor.
        descriptor = _opened(path, os.O_RDWR)
        size = os.fstat(descriptor.number).st_size
        # An empty file cannot be mapped.
        return memoryview(mmap.mmap(descriptor.number, size, access=mmap.ACCESS_READ) if size else b"")

    def write_whole(self, path: str, content: Bytes) -> None:
        temporary = path + TEMPORARY_SUFFIX
        self._write_temporary(temporary, content)
        os.replace(temporary, path)
        self.sync_folder(posixpath.dirname(path) or ".")

    def write_whole_if_absent(self, path: str, content: Bytes) -> bool:
        # Several processes may try at once, so each uses its own temporary name.
        temporary = f"{path}.{os.getpid()}-{next(self._temporary)}{TEMPORARY_SUFFIX}"
        self._write_temporary(temporary, content)
        try:
            os.link(temporary, path)
        except FileExistsError:
            return False
        finally:
            self.remove(temporary)
        self.sync_folder(posixpath.dirname(path) or ".")
        return True

    def _write_temporary(self, path: str, content: Bytes) -> None:
        file = self.open(path, create=True)
        try:
            file.truncate(0)  # one may be left over from a crash
            file.append([content])
            file.sync()
        except BaseException:
            self.remove(path)
            raise
        finally:
            file.close()

    def narrow(self, path: str) -> bool:
        mode = os.lstat(path).st_mode
        if stat.S_ISLNK(mode) or not mode & 0o077:
            return False
        os.chmod(path, stat.S_IMODE(mode) & 0o700)
        return True

    def free_bytes(self, path: str) -> int:
        while path and not os.path.exists(path):
            path = posixpath.dirname(path.rstrip("/"))
        return shutil.disk_usage(path or ".").free

    def lock(self, path: str) -> LocalFolderLock | None:
        descriptor = _opened(path, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(descriptor.number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return None
        return LocalFolderLock(descriptor)
