"""A private folder of this user, for files with names that others can guess.

In a folder that everybody can write to, anybody could put a file of that name there first, and we would run or trust
it. So the files are in the user's cache or, failing that, in our own folder below the system's temporary one. The
folder must not be a link, must belong to us and must be closed to others; otherwise it is not used.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from strom.errors import InvalidSetting

PRIVATE_MODE = 0o700


def private_folder(name: str, environment: Mapping[str, str] | None = None) -> Path:
    """The folder of this name, created if needed; the same for every process of this user and environment."""
    complaints = []
    for parent in _parents(os.environ if environment is None else environment):
        try:
            parent.parent.mkdir(parents=True, exist_ok=True)
            return _private(_private(parent) / name)
        except OSError as error:
            complaints.append(str(error))
        except InvalidSetting as error:
            complaints.append(error.message)
    raise InvalidSetting(
        f"there is no place for files of this user alone: {'; '.join(complaints)}. Remove what is in the way, or set "
        "XDG_CACHE_HOME or TMPDIR to a folder that only this user may write to"
    )


def _parents(environment: Mapping[str, str]) -> Iterator[Path]:
    cache = environment.get("XDG_CACHE_HOME") or (
        f"{environment['HOME']}/.cache" if environment.get("HOME") else None
    )
    if cache is not None and Path(cache).is_absolute():
        yield Path(cache) / "strom"
    yield Path(environment.get("TMPDIR") or tempfile.gettempdir()) / f"strom-{os.getuid()}"


def _private(folder: Path) -> Path:
    """Create a folder, or check that the existing one is private."""
    try:
        folder.mkdir(mode=PRIVATE_MODE)
    except FileExistsError:
        pass
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise InvalidSetting(f"{folder} is not a folder (a link is not followed)")
    if found.st_uid != os.getuid():
        raise InvalidSetting(f"{folder} belongs to another user ({found.st_uid})")
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise InvalidSetting(f"others may write to {folder}")
    if stat.S_IMODE(found.st_mode) != PRIVATE_MODE:
        folder.chmod(PRIVATE_MODE)
    return folder
