"""A disk in memory that forgets what was not synced.

It is a :class:`strom.runtime.files.Files` and keeps the same promises, no more: ``crash()`` is power loss and takes
away file contents that were not synced and creations, renames and removals whose folder was not synced;
``crash(keep_unsynced=True)`` is kill -9, which loses nothing. ``crash(FirstBytes(n))`` and ``crash(Drawn(seed))``
let a part through, torn in the middle.

Every change is recorded in ``trace``. To crash at every write::

    disk = ForgettingDisk()
    ... run the store on it, noting len(disk.trace) when something is acknowledged ...
    for count, crashed in ForgettingDisk.moments(disk.trace):
        ... recover on ``crashed``, the disk after the first ``count`` changes and power loss ...

It also fails on demand: ``fill`` for a full disk, ``fail_next_sync``, ``flip`` for a bit that changed on the medium.
"""

from __future__ import annotations

import errno
import posixpath
import threading
from collections.abc import Iterator, Sequence

from strom.errors import StorageFull
from strom.runtime.files import TEMPORARY_SUFFIX, Bytes
from strom.testing.disk_state import (
    AppendedBytes,
    Crashed,
    Created,
    DiskState,
    Drawn,
    FileNode,
    FirstBytes,
    Flipped,
    FolderCreated,
    FolderNode,
    FolderSynced,
    Nothing,
    Operation,
    Removed,
    Renamed,
    Survival,
    Synced,
    SyncFailed,
    Trace,
    Truncated,
    problem,
    split,
)

__all__ = [
    "Drawn",
    "FirstBytes",
    "ForgettingDisk",
    "ForgettingFile",
    "Nothing",
    "Operation",
    "Survival",
    "Trace",
]

DEVICE = 1
UNLIMITED_BYTES = 1 << 50


class ForgettingFile:
    """A :class:`strom.runtime.files.File` on a :class:`ForgettingDisk`."""

    def __init__(self, disk: ForgettingDisk, path: str, node: FileNode) -> None:
        self._disk = disk
        self._path = path
        self._node = node
        self._run = disk.run
        self._closed = False
        self._sync_failed = False

    @property
    def path(self) -> str:
        return self._path

    def _check_open(self) -> None:
        if self._closed:
            raise ValueError(f"{self._path} is closed")
        if self._run != self._disk.run:
            raise ValueError(f"{self._path} was opened before the crash")

    def size(self) -> int:
        self._check_open()
        return len(self._node.content)

    def read_at(self, position: int, length: int) -> bytes:
        assert position >= 0
        assert length >= 0
        self._check_open()
        # A slice, not a view: a view would keep other threads from appending.
        return bytes(self._node.content[position : position + length])

    def read_into(self, position: int, rooms: Sequence[memoryview]) -> int:
        found = memoryview(self.read_at(position, sum(map(len, rooms))))
        done = 0
        for room in rooms:
            part = found[done : done + len(room)]
            room[: len(part)] = part
            done += len(part)
        return done

    def append(self, buffers: Sequence[Bytes]) -> int:
        self._check_open()
        return self._disk._append(self._path, self._node, b"".join(buffers))

    def truncate(self, size: int) -> None:
        self._check_open()
        assert 0 <= size <= len(self._node.content)
        self._disk._perform(Truncated(self._node.number, size))

    def sync(self) -> None:
        self._check_open()
        if self._sync_failed:
            raise problem(errno.EIO, self._path)
        try:
            self._disk._sync(self._path, self._node)
        except OSError:
            self._sync_failed = True
            raise

    def close(self) -> None:
        self._closed = True


class ForgettingLock:
    """A :class:`strom.runtime.files.FolderLock` on a :class:`ForgettingDisk`."""

    def __init__(self, held: set[str], path: str) -> None:
        self._held = held
        self._path = path

    def release(self) -> None:
        self._held.discard(self._path)


class ForgettingDisk:
    """A disk in memory; see the module's opening."""

    def __init__(self, *, record: bool = True, state: DiskState | None = None) -> None:
        self._state = state or DiskState()
        self.trace = Trace(self._state)
        self.run = 0
        self._record = record
        self._mutex = threading.RLock()
        self._locks: set[str] = set()
        self._capacity_bytes: int | None = None
        self._syncs_to_fail = 0

    # --- Crashes, past and present

    def crash(self, keep_unsynced: bool | Survival = False) -> None:
        """Power loss (True: kill -9). Open files and locks are gone; the trace continues."""
        with self._mutex:
            self._perform(Crashed(keep_unsynced))
            self._locks = set()
            self.run += 1

    @classmethod
    def at(cls, trace: Trace, count: int, keep_unsynced: bool | Survival = False) -> ForgettingDisk:
        """The disk after the first ``count`` changes and a crash."""
        state = trace.start()
        for operation in trace[:count]:
            state.apply(operation)
        return cls(state=state.after_crash(keep_unsynced))

    @classmethod
    def moments(
        cls, trace: Trace, keep_unsynced: bool | Survival = False, *, first: int = 0
    ) -> Iterator[tuple[int, ForgettingDisk]]:
        """``at(trace, count)`` for every count from ``first`` to the end, without starting over each time."""
        state = trace.start()
        for count in range(len(trace) + 1):
            if count:
                state.apply(trace[count - 1])
            if count >= first:
                yield count, cls(state=state.after_crash(keep_unsynced))

    def durable_at(self, path: str, position: int, length: int) -> bytes:
        """What surely remains of these bytes of a file after power loss; empty if its name would be lost."""
        node: FileNode | FolderNode | None = self._state.root
        for part in split(path):
            node = node.synced.get(part) if isinstance(node, FolderNode) else None
        return bytes(node.synced[position : position + length]) if isinstance(node, FileNode) else b""

    # --- Faults

    def fill(self, free_bytes: int | None) -> None:
        """Leave only this much space; None for unlimited."""
        with self._mutex:
            self._capacity_bytes = None if free_bytes is None else self._used_bytes() + free_bytes

    def fail_next_sync(self, count: int = 1) -> None:
        """The next ``count`` file syncs raise ``OSError``, and what they should have synced is lost for good."""
        self._syncs_to_fail = count

    def flip(self, path: str, position: int, bit: int = 0) -> None:
        """Change one bit of a file on the medium."""
        with self._mutex:
            self._perform(Flipped(self._state.file(path).number, position, bit))

    # --- Files

    def open(self, path: str, *, create: bool = False) -> ForgettingFile:
        with self._mutex:
            if create and self._state.find(path) is None:
                self._perform(Created(path))
            return ForgettingFile(self, path, self._state.file(path))

    def exists(self, path: str) -> bool:
        return self._state.find(path) is not None

    def is_folder(self, path: str) -> bool:
        return isinstance(self._state.find(path), FolderNode)

    def size(self, path: str) -> int:
        return len(self._state.file(path).content)

    def make_folder(self, path: str) -> None:
        with self._mutex:
            parts = split(path)
            for depth in range(1, len(parts) + 1):
                made = "/".join(parts[:depth])
                found = self._state.find(made)
                if isinstance(found, FileNode):
                    raise problem(errno.EEXIST, made)
                if found is None:
                    self._perform(FolderCreated(made))
                    self._perform(FolderSynced("/".join(parts[: depth - 1])))

    def remove(self, path: str) -> None:
        with self._mutex:
            found = self._state.find(path)
            if isinstance(found, FolderNode):
                raise problem(errno.EISDIR, path)
            if found is not None:
                self._perform(Removed(path))

    def remove_tree(self, path: str) -> None:
        with self._mutex:
            try:
                self._state.folder(path)
            except FileNotFoundError:
                return
            # One by one, leaves first, as the system does: a crash in between leaves a part.
            for name in self.list(path):
                inner = f"{path}/{name}"
                if self.is_folder(inner):
                    self.remove_tree(inner)
                else:
                    self._perform(Removed(inner))
            self._perform(Removed(path))

    def rename(self, source: str, target: str) -> None:
        assert posixpath.dirname(source) == posixpath.dirname(target)
        with self._mutex:
            moved, replaced = self._state.node(source), self._state.find(target)
            if isinstance(replaced, FolderNode):
                raise problem(errno.EISDIR if isinstance(moved, FileNode) else errno.ENOTEMPTY, target)
            if isinstance(replaced, FileNode) and isinstance(moved, FolderNode):
                raise problem(errno.ENOTDIR, target)
            self._perform(Renamed(source, target))

    def sync_folder(self, path: str) -> None:
        with self._mutex:
            self._state.folder(path)
            self._perform(FolderSynced(path))

    def read_whole(self, path: str) -> bytes:
        return bytes(self._state.file(path).content)

    def map(self, path: str) -> memoryview:
        # A copy: a view would forbid to change the content, and flips after the fact are not what maps are tested with.
        return memoryview(bytes(self._state.file(path).content))

    def write_whole(self, path: str, content: Bytes) -> None:
        with self._mutex:
            temporary = path + TEMPORARY_SUFFIX
            file = self.open(temporary, create=True)
            try:
                file.truncate(0)
                file.append([content])
                file.sync()
            except BaseException:
                self.remove(temporary)
                raise
            self.rename(temporary, path)
            self.sync_folder(posixpath.dirname(path))

    def write_whole_if_absent(self, path: str, content: Bytes) -> bool:
        with self._mutex:
            if self.exists(path):
                return False
            self.write_whole(path, content)
            return True

    def identity(self, path: str) -> tuple[int, int]:
        found = self._state.node(path)
        return DEVICE, found.number if isinstance(found, FileNode) else 0

    def narrow(self, path: str) -> bool:
        return False  # this disk has one user

    def free_bytes(self, path: str) -> int:
        with self._mutex:
            capacity = UNLIMITED_BYTES if self._capacity_bytes is None else self._capacity_bytes
            return max(0, capacity - self._used_bytes())

    def lock(self, path: str) -> ForgettingLock | None:
        with self._mutex:
            self.open(path, create=True)
            if path in self._locks:
                return None
            self._locks.add(path)
            return ForgettingLock(self._locks, path)

    # --- The one way to change anything

    def _perform(self, operation: Operation) -> None:
        with self._mutex:
            self._state.apply(operation)
            if self._record:
                self.trace.append(operation)

    def _append(self, path: str, node: FileNode, content: bytes) -> int:
        with self._mutex:
            if self._capacity_bytes is not None and len(content) > self.free_bytes(path):
                raise StorageFull(
                    f"no room on the disk for {len(content)} bytes in {path}", path=path, bytes=len(content)
                )
            start = len(node.content)
            self._perform(AppendedBytes(node.number, content))
            return start

    def _sync(self, path: str, node: FileNode) -> None:
        with self._mutex:
            if self._syncs_to_fail:
                self._syncs_to_fail -= 1
                self._perform(SyncFailed(node.number))
                raise problem(errno.EIO, path)
            self._perform(Synced(node.number))

    def _used_bytes(self) -> int:
        return sum(len(node.content) for node in self._state.nodes())

    def list(self, folder: str) -> list[str]:
        """Last, because the name hides the type from here on."""
        with self._mutex:
            try:
                return sorted(self._state.folder(folder).entries)
            except FileNotFoundError:
                return []
