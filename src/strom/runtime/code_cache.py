"""A cache of machine code on disk, shared between processes. The code is executed, so it is read only from places that
nobody else can write to.

There are two places, in this order: beside the source, like Python's bytecode, trusted like the source itself even if
we cannot write there (compiled when an image was built, say); and a private folder of this user, for an installation
that is not theirs. ``NUMBA_CACHE_DIR`` names another place instead of both.

The writer names a file after everything its code depends on, so an existing file never becomes stale: an upgrade finds
what it did not change, and two versions can share the cache.
"""

from __future__ import annotations

import fcntl
import logging
import os
import stat
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path

from strom.errors import InvalidSetting
from strom.runtime.private_folder import private_folder

VERSIONS_KEPT = 4
"""Versions per kernel, so that a folder does not grow forever."""
OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH

logger = logging.getLogger(__name__)


class CodeCache:
    """The places for the code of one folder of sources."""

    def __init__(self, sources: Path, environment: Mapping[str, str] | None = None) -> None:
        self._environment = dict(os.environ if environment is None else environment)
        chosen = self._environment.get("NUMBA_CACHE_DIR")
        self._beside = sources / "__pycache__"
        self._sources = sources
        self._chosen = None if not chosen else Path(chosen) / "strom-kernels"

    def find(self, name: str) -> Path | None:
        """The file of this name, if there is a trusted one."""
        for place in self._readable():
            path = place / name
            with suppress(OSError):
                if _is_trusted(path.lstat(), self._trusted_owners()):
                    return path
        return None

    def read(self, name: str) -> bytes | None:
        """The content stored under this name."""
        path = self.find(name)
        try:
            return None if path is None else path.read_bytes()
        except OSError:
            return None

    def write(self, family: str, name: str, content: bytes) -> None:
        """Store content under a name, atomically, and remove the oldest others of its family.

        Without a place nothing is stored, and the next process compiles it again.
        """
        place = self._writable()
        if place is None:
            return
        try:
            with tempfile.NamedTemporaryFile(dir=place, delete=False) as file:
                file.write(content)
            Path(file.name).replace(place / name)
        except OSError:
            return  # a full disk, say
        versions = sorted(place.glob(f"{family}-*"), key=_written_at, reverse=True)
        for old in versions[VERSIONS_KEPT:]:
            with suppress(OSError):
                old.unlink()

    @contextmanager
    def alone(self) -> Iterator[bool]:
        """Whether no other process holds this now; without a place there is nobody to share with."""
        place = self._writable()
        if place is None:
            yield True
            return
        with (place / "compiling.lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                yield False
            else:
                yield True

    @property
    def keeps(self) -> bool:
        """Whether there is a place to store code."""
        return self._writable() is not None

    def _readable(self) -> Sequence[Path]:
        if self._chosen is not None:
            return [self._chosen] if _is_private(self._chosen) else []
        found = [self._beside] if self._trusts_beside() else []
        return found if self._may_write_beside() or self._own is None else [*found, self._own]

    def _writable(self) -> Path | None:
        if self._chosen is not None:
            return self._chosen if _make_private(self._chosen) else None
        with suppress(OSError):
            self._beside.mkdir(exist_ok=True)
        return self._beside if self._may_write_beside() else self._own

    def _may_write_beside(self) -> bool:
        return self._trusts_beside() and os.access(self._beside, os.W_OK | os.X_OK)

    @cached_property
    def _own(self) -> Path | None:
        """A private folder of this user."""
        try:
            return private_folder("kernels", self._environment)
        except InvalidSetting as error:
            logger.warning("compiled kernels are not kept: %s", error.message)
            return None

    def _trusts_beside(self) -> bool:
        """Whether the place beside the source is as protected as the source."""
        try:
            source, beside = self._sources.stat(), self._beside.lstat()
        except OSError:
            return False
        opened = beside.st_mode & OTHERS_MAY_WRITE & ~source.st_mode
        return (
            stat.S_ISDIR(beside.st_mode) and not opened and beside.st_uid in {os.getuid(), 0, source.st_uid}
        )

    def _trusted_owners(self) -> set[int]:
        owners = {os.getuid(), 0}
        if self._chosen is None:
            with suppress(OSError):
                owners.add(self._sources.stat().st_uid)
        return owners


def _is_trusted(file: os.stat_result, owners: set[int]) -> bool:
    return stat.S_ISREG(file.st_mode) and file.st_uid in owners and not file.st_mode & stat.S_IWOTH


def _is_private(folder: Path) -> bool:
    """Whether a folder is ours and nobody else can write to it."""
    try:
        found = folder.lstat()
    except OSError:
        return False
    return (
        stat.S_ISDIR(found.st_mode)
        and found.st_uid == os.getuid()
        and not found.st_mode & OTHERS_MAY_WRITE
        and os.access(folder, os.W_OK | os.X_OK)
    )


def _make_private(folder: Path) -> bool:
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
    except OSError:
        return False
    return _is_private(folder)


def _written_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
