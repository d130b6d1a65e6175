"""Bringing the two files of an embedded store into one state before it is used.

Only the owner does this: the process that holds the lock of the data folder, before others may open the store.
``recovery.py`` decides; this module acts, in an order that survives a crash at any step: the copy stays intact until
the new database is in place.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from strom.errors import MetadataCorrupt
from strom.metadata import layout
from strom.metadata.database import SqliteFile
from strom.metadata.recovery import Action, Condition, decide, refusal
from strom.metadata.second_copy import CopyState, SecondCopy
from strom.metadata.sqlite_errors import translated
from strom.metadata.store import Entry
from strom.runtime.files import Files

LOG = logging.getLogger("strom.metadata")


@dataclass(frozen=True, slots=True)
class _Found:
    condition: Condition
    entries: dict[str, Entry]


def condition_of(copy: CopyState) -> Condition:
    """A second copy's state, for the decision."""
    return Condition(copy.found, copy.version, copy.damage)


def prepare(files: Files, folder: str, *, create: bool) -> str | None:
    """Create, check, complete or restore; return a notice of anything unusual."""
    path = f"{folder}/{layout.DATABASE_FILE}"
    second = SecondCopy(files, folder)
    with translated(path):
        found = _examine(files, path)
        copy = second.load()
        decision = decide(found.condition, condition_of(copy))
        match decision.action:
            case Action.KEEP:
                return None
            case Action.REFUSE:
                raise refusal(path, second.path, decision.notice)
            case Action.CREATE:
                _create(files, folder, second, create=create)
                return None
            case Action.REWRITE_COPY:
                second.rewrite(found.condition.version, found.entries)
            case Action.ROLL_FORWARD:
                _roll_forward(path, copy)
            case Action.RESTORE:
                build(files, folder, copy.version, copy.entries)
    LOG.log(logging.WARNING if decision.loud else logging.INFO, "%s: %s", path, decision.notice)
    return decision.notice


def _examine(files: Files, path: str) -> _Found:
    """Read and check everything in the database."""
    if not files.exists(path):
        return _Found(Condition(found=False), {})
    try:
        database = SqliteFile(path)
        try:
            with database.reading():
                database.check_format()
                database.check_structure()
                summary, entries = database.entries()
            database.use_write_ahead_log()
            database.check_writable()
        finally:
            database.close()
    except MetadataCorrupt as error:
        return _Found(Condition(found=True, damage=str(error.facts["reason"])), {})
    return _Found(Condition(found=True, version=summary.version), entries)


def _create(files: Files, folder: str, second: SecondCopy, *, create: bool) -> None:
    if not create:
        raise MetadataCorrupt(
            f"{folder}/{layout.DATABASE_FILE} and {second.path} are missing, but the folder holds data: put them "
            f"back from a backup, or start on an empty folder",
            path=folder,
            reason="missing",
        )
    files.make_folder(folder)
    second.rewrite(0, {})
    build(files, folder, 0, {})


def _roll_forward(path: str, copy: CopyState) -> None:
    database = SqliteFile(path)
    try:
        database.begin_writing()
        summary, entries = database.entries()
        database.replace(summary, entries, copy.version, copy.entries)
        database.commit()
    finally:
        database.close()


def build(files: Files, folder: str, version: int, entries: dict[str, Entry]) -> None:
    """Write a new database beside the old one, move the old one aside, and put the new one in its place."""
    building = f"{folder}/{layout.BUILDING_FILE}"
    for suffix in ("", "-journal", "-wal", "-shm"):
        files.remove(building + suffix)
    files.open(
        building, create=True
    ).close()  # with the permissions of our files; SQLite would make it world-readable
    database = SqliteFile(building, create=True)
    try:
        database.begin_writing()
        database.create(version, entries)
        database.commit()
        database.use_write_ahead_log()
    finally:
        database.close()
    path = f"{folder}/{layout.DATABASE_FILE}"
    damaged_path = f"{folder}/{layout.DAMAGED_FILE}"
    # The old write-ahead log goes first: SQLite would apply it to the new file.
    for suffix in ("-wal", "-journal", "-shm", ""):
        files.remove(damaged_path + suffix)
        if files.exists(path + suffix):
            files.rename(path + suffix, damaged_path + suffix)
    files.rename(building, path)
    files.sync_folder(folder)
