"""The open files of stages that are being written: few, however many stages there are.

A stage needs its file only while a piece is appended. A bucket keeps the files open that it wrote to last, as long as
the server has handles left for stages; beyond that a file is opened for one piece and closed again. Where seals are
durable, a file is synced before it is closed, because a failed sync is reported only while the file is open.

All of it runs in the bucket's lane; only the handle of a finished seal is released from the loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from strom.runtime.files import Bytes, File, Files
from strom.runtime.locks import new_lock

HANDLES_MAX = 256
"""Open files of stages, in all buckets of a server."""


class Writable(Protocol):
    """A stage that has a file."""

    file: File | None


class HandleRoom:
    """How many files of stages are open, in all buckets of a server. Used from several lanes, and the loop."""

    def __init__(self, handles_max: int = HANDLES_MAX) -> None:
        self.handles_max = handles_max
        self.open = 0
        self._lock = new_lock()

    def keep(self, stage: Writable, file: File) -> bool:
        """Keep a stage's file open, if there is a handle left for it."""
        with self._lock:
            if self.open >= self.handles_max:
                return False
            self.open += 1
            stage.file = file
            return True

    def give_back(self, stage: Writable) -> None:
        """Release a stage's file, if it is open. It closes once nobody uses it: a sync may be under way."""
        with self._lock:
            if stage.file is not None:
                stage.file = None
                self.open -= 1


class StageHandles:
    """The files of one bucket's stages."""

    def __init__(self, files: Files, room: HandleRoom, *, durable: bool) -> None:
        self._files = files
        self._room = room
        self._durable = durable
        self._written: dict[str, Writable] = {}
        """Stages that take pieces and whose files are open, by path, the one written last at the end."""

    def create(self, stage: Writable, path: str, content: Bytes) -> None:
        """Begin a file; one left from an earlier attempt is emptied."""
        file = self._files.open(path, create=True)
        file.truncate(0)
        self._append(stage, path, file, [content])

    def take(self, stage: Writable, file: File) -> None:
        """Keep a file that was written elsewhere until its seal is durable; without a handle left it is synced now."""
        if not self._room.keep(stage, file):
            self._settle(file)
            file.close()

    def append(self, stage: Writable, path: str, buffers: Sequence[Bytes]) -> None:
        """Add to a stage's file, all of it or nothing."""
        file = stage.file if stage.file is not None else self._files.open(path)
        self._append(stage, path, file, buffers)

    def _append(self, stage: Writable, path: str, file: File, buffers: Sequence[Bytes]) -> None:
        file.append(buffers)
        self._written.pop(path, None)
        if stage.file is None and not self._room.keep(stage, file) and not self._swap(stage, file):
            self._settle(file)
            file.close()
            return
        self._written[path] = stage

    def _swap(self, stage: Writable, file: File) -> bool:
        """Close the file that was not written for longest, in favor of this one."""
        if not self._written:
            return False
        longest = next(iter(self._written))
        given_up = self._written.pop(longest)
        if given_up.file is not None:
            self._settle(given_up.file)
        self._room.give_back(given_up)
        return self._room.keep(stage, file)

    def _settle(self, file: File) -> None:
        if self._durable:
            file.sync()

    def complete(self, path: str) -> None:
        """The stage accepts no more pieces. Its file stays open until its seal is durable."""
        self._written.pop(path, None)

    def close(self, stage: Writable, path: str) -> None:
        """A stage is gone."""
        self._written.pop(path, None)
        self._room.give_back(stage)
