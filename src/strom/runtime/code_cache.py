"""Machine code on disk, kept from one process for the next. A file of it is run, so it is read only where nobody else
could have put it.

There are two places, in this order. Beside the source, as Python keeps its bytecode: trusted like the source itself,
also when it is not ours to write (compiled when an image was built, say). And a folder of this user alone, for an
installation that is not theirs. ``NUMBA_CACHE_DIR`` names another place instead of both.

A file is named after all that its code is made of (whoever writes it does that), so a name that is there is right for
good: an upgrade finds what it did not change, and two versions side by side do not disturb each other.
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
"""Of one kernel, so that a folder does not grow for ever."""
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
        """The file of this name, if there is one to be trusted."""
        for place in self._readable():
            path = place / name
            with suppress(OSError):
                if _is_trusted(path.lstat(), self._trusted_owners()):
                    return path
        return None

    def read(self, name: str) -> bytes | None:
        """What was kept under this name."""
        path = self.find(name)
        try:
            return None if path is None else path.read_bytes()
        except OSError:
            return None

    def write(self, family: str, name: str, content: bytes) -> None:
        """Keep something under a name, whole or not at all; the oldest others of its family go.

        Without a place for it nothing is kept: it is made again by the next process.
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
        """Whether no other process has this right now; without a place there is nobody to share with."""
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
        """Whether there is a place for what is made here."""
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
        """A folder of this user alone."""
        try:
            return private_folder("kernels", self._environment)
        except InvalidSetting as error:
            logger.warning("compiled kernels are not kept: %s", error.message)
            return None

    def _trusts_beside(self) -> bool:
        """Whether only those can write beside the source who can write the source."""
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
    """Whether a folder is ours, and nobody else may write to it."""
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
