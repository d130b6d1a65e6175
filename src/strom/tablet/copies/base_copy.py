"""The base of a bucket for followers that have nothing, or lack what its log starts with (R18): files of one offset C.

    log table           nothing but facts as of the log's start: the last epoch, the newest group's number, the writers
    primary-key table   the files of the newest manifest, and the log up to its offset

Whoever copies a base holds it: its files stay readable, and the log is kept from C on, until it says that it is done.
A holder that asks again gets the base that it holds, so a copy goes on where it ended; another C begins anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from strom.errors import Expired, OffsetOutOfRange
from strom.log.copies.base_files import PinnedFile
from strom.record.checksum import crc32c


class CopyFile(NamedTuple):
    """A file of a base: its name in the bucket's folder."""

    name: str
    size: int


class BaseCopy(NamedTuple):
    """A base that can be copied. The log goes on at ``offset``."""

    offset: int
    files: tuple[CopyFile, ...]


class CopyPiece(NamedTuple):
    """Some bytes of a file of a base."""

    content: bytes
    crc: int
    """CRC-32C of the bytes."""


class HeldBase:
    """The open files of one base."""

    def __init__(self, offset: int, number: int, files: Sequence[PinnedFile]) -> None:
        """``number``: of the manifest; bases of the same offset and number are the same."""
        self.identity = offset, number
        self.base = BaseCopy(offset, tuple(CopyFile(file.name, file.size) for file in files))
        self._files = files

    def read(self, file: int, position: int, max_bytes: int) -> CopyPiece:
        """Some bytes of a file, by its place in the list."""
        if not 0 <= file < len(self._files) or not 0 <= position <= self._files[file].size:
            raise OffsetOutOfRange(
                f"the base at {self.base.offset} has no byte {position} of file {file}", offset=position
            )
        content = self._files[file].read(position, max_bytes)
        return CopyPiece(content, crc32c(content))


class BaseCopies:
    """Who copies which base of one bucket. ``begin`` and ``end`` belong to the lane; ``read`` to any thread."""

    def __init__(self) -> None:
        self._held: dict[int, HeldBase] = {}

    @property
    def keep_from(self) -> int | None:
        """The log is kept from here on while somebody copies."""
        return min((held.base.offset for held in list(self._held.values())), default=None)

    def begin(self, holder: int, take: Callable[[], HeldBase]) -> BaseCopy:
        """The base that a holder copies; the newest one if it holds none."""
        held = self._held.get(holder)
        if held is None:
            held = take()
            same = (one for one in self._held.values() if one.identity == held.identity)
            held = self._held[holder] = next(same, held)
        return held.base

    def read(self, holder: int, file: int, position: int, max_bytes: int) -> CopyPiece:
        """Some bytes of a file of the base that a holder copies; Expired when it holds none: begin again."""
        held = self._held.get(holder)
        if held is None:
            raise Expired("the base is not held any more: begin the copy again", holder=holder)
        return held.read(file, position, max_bytes)

    def end(self, holder: int) -> None:
        """A holder needs its base no more."""
        self._held.pop(holder, None)

    def end_all(self) -> None:
        """Nobody copies from here any more."""
        self._held = {}
