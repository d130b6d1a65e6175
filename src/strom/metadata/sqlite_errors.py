"""SQLite's errors as ours: each says what the caller can do."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from strom.errors import Busy, Closed, MetadataCorrupt, StorageFull, StorageOffline, StromError

_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL}
_OFFLINE = {sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH}
_DAMAGE_INSIDE_IOERR = {sqlite3.SQLITE_IOERR_SHORT_READ, sqlite3.SQLITE_IOERR_CORRUPTFS}


@contextmanager
def translated(path: str) -> Iterator[None]:
    """Translate every error of SQLite and of the operating system."""
    try:
        yield
    except sqlite3.ProgrammingError as error:
        if "closed" not in str(error):
            raise AssertionError(f"SQLite was called wrongly: {error}") from error
        raise Closed("this metadata store was closed", path=path) from error
    except sqlite3.Error as error:
        raise _typed(path, error) from error
    except UnicodeDecodeError as error:
        # SQLite quotes a damaged definition in its message, which the sqlite3 module then cannot decode.
        raise damaged(path, f"SQLite's complaint about it is not text ({error.object[:200]!r})") from error
    except OSError as error:
        raise StorageOffline(
            f"{path}: {error}. Check the disk and the folder's permissions", path=path
        ) from error


def _typed(path: str, error: sqlite3.Error) -> StromError:
    # Errors of the sqlite3 module itself have no code: it could not read a value, so the value is damaged.
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT)
    primary = code & 0xFF
    if primary in _BUSY:
        return Busy(f"{path} is held by another process for too long: try again", path=path)
    if primary == sqlite3.SQLITE_FULL:
        return StorageFull(f"no room to write {path}: free some disk space and try again", path=path)
    if primary in _OFFLINE and code not in _DAMAGE_INSIDE_IOERR:
        return StorageOffline(f"{path}: {error}. Check the disk and the folder's permissions", path=path)
    return damaged(path, str(error))


def damaged(path: str, reason: str) -> MetadataCorrupt:
    """The error for a damaged metadata file."""
    return MetadataCorrupt(
        f"{path} is damaged: {reason}. Stop every server on this folder and start again: the start restores the "
        f"file from its second copy, or says why it cannot (docs/formats/metadata.md)",
        path=path,
        reason=reason,
    )
