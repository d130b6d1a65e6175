"""What a disk holds, seen twice: as the system shows it now, and as it is after power loss.

A file has its content and the changes that are not synced yet; a folder has its entries and the changes that are
not synced yet. Every change is an :class:`Operation`, and ``DiskState.apply`` is the only way to make one, so that
a recorded list of operations rebuilds the same state.

After power loss a file holds what was synced plus what a :class:`Survival` lets through of the rest: nothing,
the first bytes, or a part drawn from a seed, torn in the middle or with a hole of zeros.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Protocol
from weakref import WeakValueDictionary

# --- Operations: what a trace is made of ----------------------------------------------------------------------


@dataclass(frozen=True)
class Created:
    """An empty file; files are numbered in the order of their creation."""

    path: str


@dataclass(frozen=True)
class FolderCreated:
    path: str


@dataclass(frozen=True)
class AppendedBytes:
    file: int
    content: bytes


@dataclass(frozen=True)
class Truncated:
    file: int
    size: int


@dataclass(frozen=True)
class Synced:
    file: int


@dataclass(frozen=True)
class SyncFailed:
    """The system dropped these pages: readers still see them, the disk never will."""

    file: int


@dataclass(frozen=True)
class Renamed:
    source: str
    target: str


@dataclass(frozen=True)
class Removed:
    """A file, or an empty folder."""

    path: str


@dataclass(frozen=True)
class FolderSynced:
    path: str


@dataclass(frozen=True)
class Flipped:
    """A bit changed on the medium."""

    file: int
    position: int
    bit: int


@dataclass(frozen=True)
class Crashed:
    """Power loss, or (True) only the end of the process."""

    keep_unsynced: bool | Survival


Operation = (
    Created
    | FolderCreated
    | AppendedBytes
    | Truncated
    | Synced
    | SyncFailed
    | Renamed
    | Removed
    | FolderSynced
    | Flipped
    | Crashed
)

# --- Files and folders ----------------------------------------------------------------------------------------

FileChange = bytes | int
"""Appended bytes, or the size the file was truncated to."""


def _change(content: bytearray, change: FileChange) -> None:
    if isinstance(change, int):
        del content[change:]
    else:
        content += change


@dataclass(eq=False)
class FileNode:
    """One file."""

    number: int
    content: bytearray = field(default_factory=bytearray)
    synced: bytearray = field(default_factory=bytearray)
    unsynced: list[FileChange] = field(default_factory=list)

    def change(self, change: FileChange) -> None:
        _change(self.content, change)
        self.unsynced.append(change)

    def sync(self) -> None:
        for change in self.unsynced:
            _change(self.synced, change)
        self.unsynced.clear()

    def sync_failed(self) -> None:
        """The written pages count as clean but are lost: later syncs leave a hole where they were."""
        self.unsynced = [
            change if isinstance(change, int) else bytes(len(change)) for change in self.unsynced
        ]

    def flip(self, position: int, bit: int) -> None:
        self.sync()
        self.content[position] ^= 1 << bit
        self.synced[position] ^= 1 << bit

    def copy(self) -> FileNode:
        return FileNode(self.number, bytearray(self.content), bytearray(self.synced), list(self.unsynced))

    def after_power_loss(self, survivors: Survivors) -> FileNode:
        content = survivors.content(self.synced, self.unsynced)
        return FileNode(self.number, content, bytearray(content))


FolderChange = Mapping[str, "Node | None"]
"""New entries by name; None removes one. A rename is one change, so it is atomic."""


def _change_entries(entries: dict[str, Node], change: FolderChange) -> None:
    for name, node in change.items():
        if node is None:
            entries.pop(name, None)
        else:
            entries[name] = node


@dataclass(eq=False)
class FolderNode:
    """One folder."""

    entries: dict[str, Node] = field(default_factory=dict)
    synced: dict[str, Node] = field(default_factory=dict)
    unsynced: list[FolderChange] = field(default_factory=list)

    def change(self, change: FolderChange) -> None:
        _change_entries(self.entries, change)
        self.unsynced.append(change)

    def sync(self) -> None:
        for change in self.unsynced:
            _change_entries(self.synced, change)
        self.unsynced.clear()

    def copy(self, copies: dict[int, Node]) -> FolderNode:
        """A deep copy; ``copies`` keeps a node that several entries mean one node."""
        return FolderNode(
            {name: _copied(node, copies) for name, node in self.entries.items()},
            {name: _copied(node, copies) for name, node in self.synced.items()},
            [
                {name: node and _copied(node, copies) for name, node in change.items()}
                for change in self.unsynced
            ],
        )

    def after_power_loss(self, survivors: Survivors) -> FolderNode:
        entries = dict(self.synced)
        for change in self.unsynced[: survivors.entries(len(self.unsynced))]:
            _change_entries(entries, change)
        found = {name: node.after_power_loss(survivors) for name, node in sorted(entries.items())}
        return FolderNode(found, dict(found))


Node = FileNode | FolderNode


def _copied(node: Node, copies: dict[int, Node]) -> Node:
    if id(node) not in copies:
        copies[id(node)] = node.copy() if isinstance(node, FileNode) else node.copy(copies)
    return copies[id(node)]


# --- What survives --------------------------------------------------------------------------------------------


class Survival(Protocol):
    """Decides what of the unsynced changes is on the disk after power loss."""

    def begin(self) -> Survivors:
        """For one power loss; equal disks lose equal parts each time."""


class Survivors(Protocol):
    """One power loss at work."""

    def content(self, synced: bytearray, unsynced: list[FileChange]) -> bytearray:
        """A file's content."""

    def entries(self, count: int) -> int:
        """How many of a folder's ``count`` unsynced changes happened, counted from the oldest."""


@dataclass(frozen=True)
class Nothing:
    """Only what was synced survives."""

    def begin(self) -> Survivors:
        return self

    def content(self, synced: bytearray, unsynced: list[FileChange]) -> bytearray:
        return bytearray(synced)

    def entries(self, count: int) -> int:
        return 0


@dataclass(frozen=True)
class FirstBytes:
    """The first ``count`` unsynced bytes of every file, and all changes of folders."""

    count: int

    def begin(self) -> Survivors:
        return self

    def content(self, synced: bytearray, unsynced: list[FileChange]) -> bytearray:
        content = bytearray(synced)
        left = self.count
        for change in unsynced:
            if isinstance(change, int):
                _change(content, change)
                continue
            _change(content, change[:left])
            left -= min(left, len(change))
            if not left:
                break
        return content

    def entries(self, count: int) -> int:
        return count


@dataclass(frozen=True)
class Drawn:
    """A part drawn from a seed, for each file and folder: some changes, the last one torn, at times a hole."""

    seed: int

    def begin(self) -> Survivors:
        return _Draw(random.Random(self.seed))


class _Draw:
    def __init__(self, source: random.Random) -> None:
        self._random = source

    def content(self, synced: bytearray, unsynced: list[FileChange]) -> bytearray:
        content = bytearray(synced)
        old_bytes = len(synced)
        kept = self._random.randint(0, len(unsynced))
        for change in unsynced[:kept]:
            _change(content, change)
            old_bytes = min(old_bytes, len(content))
        if kept < len(unsynced) and self._random.random() < 0.5:
            torn = unsynced[kept]
            if not isinstance(torn, int):
                _change(content, torn[: self._random.randint(0, len(torn))])
        if old_bytes < len(content) and self._random.random() < 0.25:
            self._punch(content, old_bytes)
        return content

    def _punch(self, content: bytearray, start: int) -> None:
        """Zeros where a block was not written although the file's size was."""
        begin = self._random.randrange(start, len(content))
        end = self._random.randint(begin + 1, len(content))
        content[begin:end] = bytes(end - begin)

    def entries(self, count: int) -> int:
        return self._random.randint(0, count)


# --- The whole disk -------------------------------------------------------------------------------------------


@lru_cache(maxsize=1 << 14)
def split(path: str) -> tuple[str, ...]:
    """The parts of a path; the disk has one root, so ``/a`` and ``a`` are the same."""
    parts = tuple(part for part in path.split("/") if part not in ("", "."))
    assert ".." not in parts, path
    return parts


def problem(number: int, path: str) -> OSError:
    """The ``OSError`` of the right kind (FileNotFoundError and so on), as the system raises it."""
    return OSError(number, os.strerror(number), path)


class DiskState:
    """All files and folders of a disk."""

    def __init__(self) -> None:
        self.root = FolderNode()
        # Removed files can still be written through open handles; without handles they are gone.
        self.files: WeakValueDictionary[int, FileNode] = WeakValueDictionary()
        self.files_created = 0

    def node(self, path: str) -> Node:
        """What is there; ``FileNotFoundError`` or ``NotADirectoryError`` otherwise."""
        node: Node = self.root
        for part in split(path):
            if isinstance(node, FileNode):
                raise problem(errno.ENOTDIR, path)
            found = node.entries.get(part)
            if found is None:
                raise problem(errno.ENOENT, path)
            node = found
        return node

    def find(self, path: str) -> Node | None:
        """What is there, or None."""
        node: Node | None = self.root
        for part in split(path):
            node = node.entries.get(part) if isinstance(node, FolderNode) else None
        return node

    def file(self, path: str) -> FileNode:
        node = self.node(path)
        if isinstance(node, FolderNode):
            raise problem(errno.EISDIR, path)
        return node

    def folder(self, path: str) -> FolderNode:
        node = self.node(path)
        if isinstance(node, FileNode):
            raise problem(errno.ENOTDIR, path)
        return node

    def parent(self, path: str) -> tuple[FolderNode, str]:
        *parents, name = split(path)
        return self.folder("/".join(parents)), name

    def nodes(self, folder: FolderNode | None = None) -> Iterator[FileNode]:
        """All files that have a name."""
        for node in (folder or self.root).entries.values():
            if isinstance(node, FileNode):
                yield node
            else:
                yield from self.nodes(node)

    def apply(self, operation: Operation) -> None:
        """Make one change."""
        match operation:
            case Created(path):
                folder, name = self.parent(path)
                node = FileNode(self.files_created)
                self.files_created += 1
                self.files[node.number] = node
                folder.change({name: node})
            case FolderCreated(path):
                folder, name = self.parent(path)
                folder.change({name: FolderNode()})
            case Renamed(source, target):
                folder, name = self.parent(source)
                folder.change({name: None, split(target)[-1]: folder.entries[name]})
            case Removed(path):
                folder, name = self.parent(path)
                folder.change({name: None})
            case FolderSynced(path):
                self.folder(path).sync()
            case Crashed(keep_unsynced):
                after = self.after_crash(keep_unsynced)
                self.root, self.files = after.root, after.files
            case _:
                self._apply_to_file(operation)

    def _apply_to_file(self, operation: AppendedBytes | Truncated | Synced | SyncFailed | Flipped) -> None:
        node = self.files.get(operation.file)
        if node is None:
            return  # a file without a name and without handles: nobody can see the difference
        match operation:
            case AppendedBytes(_, content):
                node.change(content)
            case Truncated(_, size):
                node.change(size)
            case Synced():
                node.sync()
            case SyncFailed():
                node.sync_failed()
            case Flipped(_, position, bit):
                node.flip(position, bit)

    def copy(self) -> DiskState:
        """An independent copy."""
        return self.after_crash(True)

    def after_crash(self, keep_unsynced: bool | Survival) -> DiskState:
        """What a process finds after a restart; this state is unchanged."""
        state = DiskState()
        state.files_created = self.files_created
        if keep_unsynced is True:
            state.root = self.root.copy({})
        else:
            survival = Nothing() if keep_unsynced is False else keep_unsynced
            state.root = self.root.after_power_loss(survival.begin())
        for node in state.nodes():
            state.files[node.number] = node
        return state


class Trace(list[Operation]):
    """Every change of a disk since its creation, and its initial content."""

    def __init__(self, start: DiskState) -> None:
        super().__init__()
        self._start = start.copy()

    def start(self) -> DiskState:
        """A copy of what the disk held before the first change."""
        return self._start.copy()
