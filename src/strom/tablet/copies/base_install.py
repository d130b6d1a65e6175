"""Building a copy of a bucket from a base, file by file; then it takes the place of what was there, all or nothing.

    <folder>.copying    the files that have arrived, and ``base.json``: which base it is. The name of a file that is not
                        whole ends in ``.part``, until its bytes are durable
    <folder>.copied     a base that is whole. Opening the bucket first puts it in its place (``install_copied``), and
                        does so again after a crash in between

A copy goes on where it ended, also after a restart (then with the file it was at), as long as the base is the same;
another one begins anew. Stages are not part of a base: those that are here stay, since the leader was told of them, and
others come from its journal.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from strom.errors import ChecksumMismatch, InvalidRequest, OffsetOutOfRange
from strom.record.checksum import crc32c
from strom.runtime.files import Bytes, File, Files
from strom.tablet.copies.base_copy import BaseCopy, CopyFile
from strom.tablet.stages import STAGES_FOLDER

COPYING: Final = ".copying"
COPIED: Final = ".copied"
PART: Final = ".part"
DESCRIPTION: Final = "base.json"
MOVED_BYTES: Final = 1024 * 1024
"""Read at a time of a stage that stays."""
_NAME = re.compile(r"(kv/)?[a-z0-9][a-z0-9-]*(\.log|\.sidecar)?")


class WantedPiece(NamedTuple):
    """Some bytes of a base that are not here yet."""

    file: int
    """By its place in the list."""
    position: int
    size: int


class BaseInstall:
    """A base on its way. In one thread at a time; nothing of the bucket needs to be open."""

    def __init__(self, files: Files, folder: str, base: BaseCopy) -> None:
        """Go on with a copy of this base, or begin one and throw away any other."""
        self.base = base
        self._files = files
        self._target = folder
        self._folder = folder + COPYING
        self._number = 0
        self._part: File | None = None
        for file in base.files:
            if not _NAME.fullmatch(file.name) or file.size < 0:
                raise InvalidRequest(f"a base has no file {file.name!r}", name=file.name)
        files.remove_tree(folder + COPIED)
        description = json.dumps([base.offset, *([file.name, file.size] for file in base.files)]).encode()
        path = f"{self._folder}/{DESCRIPTION}"
        if not files.exists(path) or files.read_whole(path) != description:
            files.remove_tree(self._folder)
            files.make_folder(self._folder)
            files.write_whole(path, description)
        self._go_on()

    @property
    def wanted(self) -> tuple[int, int] | None:
        """The file (by its place in the list) and the position of the next bytes; None when all of it is there."""
        if self._number == len(self.base.files):
            return None
        return self._number, 0 if self._part is None else self._part.size()

    def pieces(self, max_bytes: int) -> Iterator[WantedPiece]:
        """All that is not here now, in the order in which ``add`` takes it."""
        if self.wanted is None:
            return
        first, position = self.wanted
        for number, known in enumerate(self.base.files[first:], first):
            for begin in range(position, known.size, max_bytes):
                yield WantedPiece(number, begin, min(max_bytes, known.size - begin))
            position = 0

    def add(self, file: int, position: int, content: Bytes, crc: int) -> None:
        """Add the bytes that are wanted. ChecksumMismatch: they are not what was sent, ask for them again."""
        if (file, position) != self.wanted:
            raise OffsetOutOfRange(
                f"bytes from {position} of file {file} of a base came, but {self.wanted} is wanted",
                offset=position,
            )
        if crc32c(content) != crc:
            raise ChecksumMismatch(f"bytes from {position} of file {file} of a base are not what was sent")
        known = self.base.files[file]
        if not 0 < len(content) <= known.size - position:
            raise OffsetOutOfRange(
                f"{len(content)} bytes from {position} on came of {known.name}, which has {known.size}",
                offset=position,
            )
        part = self._opened(known)
        part.append([content])
        if part.size() == known.size:
            self._finish_file(known)
            self._go_on()

    def finish(self) -> None:
        """The base is whole: from now on the bucket opens with it."""
        assert self.wanted is None
        files = self._files
        self._keep_stages()
        files.remove(f"{self._folder}/{DESCRIPTION}")
        files.sync_folder(self._folder)
        files.rename(self._folder, self._target + COPIED)
        files.sync_folder(_parent(self._target))
        install_copied(files, self._target)

    def _keep_stages(self) -> None:
        """Copy the stages of the closed bucket: there is no moment without them."""
        here, there = (f"{folder}/{STAGES_FOLDER}" for folder in (self._target, self._folder))
        names = self._files.list(here) if self._files.is_folder(here) else []
        if not names:
            return
        self._files.make_folder(there)
        for name in names:
            source, kept = (
                self._files.open(f"{here}/{name}"),
                self._files.open(f"{there}/{name}", create=True),
            )
            kept.truncate(0)
            for position in range(0, source.size(), MOVED_BYTES):
                kept.append([source.read_at(position, MOVED_BYTES)])
            kept.sync()
            kept.close()
            source.close()
        self._files.sync_folder(there)

    def give_up(self) -> None:
        """Throw away what has arrived."""
        self._part = None
        self._files.remove_tree(self._folder)

    def _go_on(self) -> None:
        """Go to the first file that is not there; one without bytes is made at once."""
        while self._number < len(self.base.files):
            known = self.base.files[self._number]
            if not self._files.exists(f"{self._folder}/{known.name}"):
                if known.size:
                    return
                self._opened(known)
                self._finish_file(known)
            self._number += 1

    def _opened(self, known: CopyFile) -> File:
        if self._part is None:
            path = f"{self._folder}/{known.name}"
            self._files.make_folder(_parent(path))
            self._part = self._files.open(path + PART, create=True)
            self._part.truncate(0)  # what a stop has left of it is not known to be durable
        return self._part

    def _finish_file(self, known: CopyFile) -> None:
        assert self._part is not None
        path = f"{self._folder}/{known.name}"
        self._part.sync()
        self._part.close()
        self._part = None
        self._files.rename(path + PART, path)
        self._files.sync_folder(_parent(path))


def install_copied(files: Files, folder: str) -> bool:
    """Put a base that was copied whole in the place of a closed bucket; False when there is none."""
    copied = folder + COPIED
    if not files.is_folder(copied):
        return False
    files.remove_tree(folder)
    files.rename(copied, folder)
    files.sync_folder(_parent(folder))
    return True


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or "."
