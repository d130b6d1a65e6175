"""The metadata of one machine: SQLite, opened by every server process of the data folder at once.

The owner (the process with the folder's lock) opens first, and creates or repairs the files; the others only open.
Every process may read and commit. Reads and ``changed_since`` use a separate connection, so that they never wait for
the disk of a commit.

A commit happens under SQLite's write lock, in this order: check the requirements, change the rows, write and sync
the second copy, commit the rows. The copy is the point of no return: a process that finds it one ahead of the
database completes the commit. Format: docs/formats/metadata.md. Damage: ``recovery.py``.

Announcements are rows like all others: they end when they or their store are closed. The end of a process is not
noticed here; what a killed one left is removed when the owner opens the folder the next time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from strom.errors import Closed, Conflict, StorageOffline, StromError
from strom.metadata import layout
from strom.metadata.changes import (
    ANNOUNCED,
    Delete,
    Put,
    Requirement,
    Update,
    VersionIs,
    check_announced,
    check_commit,
    check_requirements,
)
from strom.metadata.database import SqliteFile, Summary
from strom.metadata.deltas import RecentDeltas, delta_of
from strom.metadata.opening import LOG, condition_of, prepare
from strom.metadata.recovery import Action, Condition, decide, refusal
from strom.metadata.second_copy import SecondCopy
from strom.metadata.sqlite_errors import translated
from strom.metadata.store import Announcement, Delta, Entry, Snapshot, Watcher, Watchers
from strom.runtime import trees
from strom.runtime.files import Files

_NOTHING = Summary(version=0, deleted_version=0, entry_count=0, crc_sum=0)
_NO_ENTRY = Entry(b"", -1)


class EmbeddedStore:
    """The store in ``<folder>/metadata.db`` and its second copy in ``<folder>/metadata.copy``."""

    hears = False

    def __init__(self, files: Files, folder: str, notice: str | None = None) -> None:
        """Use ``open``."""
        self.path = f"{folder}/{layout.DATABASE_FILE}"
        self.notice = notice
        """Anything unusual when the owner opened the store, to show to users."""
        self._copy = SecondCopy(files, folder)
        self._watchers = Watchers()
        self._announced: dict[str, int] = {}
        """Of every key announced here, the version of its entry."""
        self._closed = False
        self._offline: StromError | None = None
        self._writing = threading.Lock()
        self._writer = SqliteFile(self.path)
        self._reading = threading.Lock()
        self._reader = SqliteFile(self.path)
        self._data_version = -1
        self._summary = _NOTHING
        self._recent = RecentDeltas()

    @classmethod
    def open(cls, files: Files, folder: str, *, owner: bool, create: bool = True) -> EmbeddedStore:
        """Open the store and check all of it.

        ``owner``: this process holds the folder's lock and opens before the others; it creates and repairs.
        ``create``: whether an empty folder may become a store. False where data would be orphaned by that.
        """
        notice = prepare(files, folder, create=create) if owner else None
        store = cls(files, folder, notice)
        try:
            with store._reader.reading():
                store._reader.check_format()
            left = store.read(ANNOUNCED).entries
            if owner and left:
                store._write([], [Delete(key) for key in left])
        except BaseException:
            store.close()
            raise
        return store

    # --- reading ---------------------------------------------------------------------------------------------

    def read(self, prefix: str = "") -> Snapshot:
        with self._reading:
            self._check_open()
            self._refresh()
            known = self._recent.known
        self._watchers.tell(known.version)
        return Snapshot(known.version, known.entries.below(prefix))

    def changed_since(self, version: int) -> bool:
        with self._reading:
            self._check_open()
            if self._reader.data_version() == self._data_version:
                return self._summary.version != version
            with self._reader.reading():
                found = self._reader.summary().version
        self._watchers.tell(found)
        return found != version

    def changes_since(self, version: int) -> Delta | None:
        with self._reading:
            self._check_open()
            self._refresh()
            delta, found = self._recent.since(version), self._recent.known.version
        self._watchers.tell(found)
        return delta

    def watch(self, callback: Watcher) -> Callable[[], None]:
        return self._watchers.add(callback)

    def _refresh(self) -> None:
        """Update the entries in memory, by the delta if possible."""
        if self._reader.data_version() == self._data_version:
            return
        with self._reader.reading():
            data_version = self._reader.data_version()
            news = self._reader.news_since(self._summary, self._recent.known.entries)
            if news is None:
                summary, entries = self._reader.entries()
                self._recent.start_over(summary.version, entries)
            else:
                summary, delta = news
                if delta.version != delta.since:
                    self._recent.advance(delta)
        self._data_version, self._summary = data_version, summary

    def _remember(self, summary: Summary, updates: Sequence[Update]) -> None:
        """Apply our own commit in memory without reading it back, unless another one came first."""
        with self._reading:
            known = self._recent.known
            if known.version == summary.version - 1:
                self._recent.advance(delta_of(summary.version, updates, known.entries))
                self._summary = summary

    # --- committing ------------------------------------------------------------------------------------------

    def commit(self, requirements: Sequence[Requirement], updates: Sequence[Update]) -> int:
        check_commit(requirements, updates)
        return self._write(requirements, updates)

    def announce(self, key: str, value: bytes) -> Announcement:
        check_announced(key)
        own = self._announced[key] = self._write([], [Put(key, value)])
        return Announcement(key, end=lambda: self._end(key, own), stands=lambda: self._is_there(key, own))

    def _is_there(self, key: str, version: int) -> bool:
        return not self._closed and self.read(key).entries.get(key, _NO_ENTRY).version == version

    def _end(self, key: str, version: int) -> None:
        if self._closed:
            return
        try:
            self._write([VersionIs(key, version)], [Delete(key)])
        except Conflict:
            pass  # it was taken back already, or somebody else announced the key

    def _write(self, requirements: Sequence[Requirement], updates: Sequence[Update]) -> int:
        with self._writing, translated(self.path):
            self._check_open()
            if self._offline is not None:
                raise StorageOffline(
                    f"{self.path} failed and takes no commits: {self._offline}", path=self.path
                )
            self._writer.begin_writing()
            try:
                summary = self._commit(requirements, updates)
            finally:
                self._writer.roll_back()
            if updates:
                self._remember(summary, updates)
        self._watchers.tell(summary.version)
        return summary.version

    def _commit(self, requirements: Sequence[Requirement], updates: Sequence[Update]) -> Summary:
        summary = self._agreed_summary()
        required = self._writer.entries_of(requirement.key for requirement in requirements)
        check_requirements(requirements, {key: entry.version for key, entry in required.items()})
        if not updates:
            return summary
        version = summary.version + 1
        changed = self._writer.apply(summary, version, updates)
        try:
            position = self._copy.append(version, updates)
            self._commit_rows(position, version)
        except (StorageOffline, OSError) as error:
            # After a failed sync the state of the disk is unknown; a retry would only appear to succeed.
            self._offline = error if isinstance(error, StromError) else StorageOffline(str(error))
            raise
        return changed

    def _commit_rows(self, position: int, version: int) -> None:
        try:
            self._writer.commit()
        except BaseException:
            self._take_back(position, version)
            raise

    def _take_back(self, position: int, version: int) -> None:
        """The database refused the rows (a full disk): remove them from the copy too."""
        try:
            if (
                not self._writer.is_in_transaction
            ):  # SQLite gave up the lock: another process may have gone on.
                self._writer.begin_writing()
            if self._copy.end_version() == version:
                self._copy.cut_back(position)
        except (StromError, OSError) as error:
            LOG.warning(
                "%s: version %d is in the copy but not in the database (%s)", self.path, version, error
            )

    def _agreed_summary(self) -> Summary:
        """The summary, after checking that copy and database agree. Called under the write lock."""
        summary = self._writer.summary()
        if self._copy.end_version() == summary.version:
            if self._copy.is_overgrown():
                self._copy.rewrite(summary.version, self._writer.entries()[1])
            return summary
        return self._reconcile(summary)

    def _reconcile(self, summary: Summary) -> Summary:
        """Repair after a process died between the two writes, or the copy was removed."""
        copy = self._copy.load()
        decision = decide(Condition(found=True, version=summary.version), condition_of(copy))
        if decision.action is Action.REFUSE:
            raise refusal(self.path, self._copy.path, decision.notice)
        summary, entries = self._writer.entries()
        if decision.action is Action.ROLL_FORWARD:
            self._writer.replace(summary, entries, copy.version, copy.entries)
            self._writer.commit()
            self._writer.begin_writing()
            return self._agreed_summary()
        self._copy.rewrite(summary.version, entries)
        LOG.warning("%s: %s", self.path, decision.notice)
        return summary

    def copy_into(self, folder: str) -> list[str]:
        """Copy both files between two commits; return their names."""
        with self._writing, translated(self.path):
            self._check_open()
            self._writer.begin_writing()
            try:
                self._agreed_summary()
                with self._reading:
                    self._reader.copy_to(f"{folder}/{layout.DATABASE_FILE}")
                trees.copy(self._copy.path, f"{folder}/{layout.COPY_FILE}")
            finally:
                self._writer.roll_back()
        return [layout.DATABASE_FILE, layout.COPY_FILE]

    # --- the end ---------------------------------------------------------------------------------------------

    def close(self) -> None:
        if not self._closed:
            self._end_announcements()
        self._closed = True
        with self._writing:
            self._writer.close()
        with self._reading:
            self._reader.close()

    def _end_announcements(self) -> None:
        try:
            for key, version in self._announced.items():
                self._end(key, version)
        except StromError as error:
            LOG.warning("%s: an announcement stays until the next start: %s", self.path, error.message)

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("this metadata store was closed", path=self.path)
