"""The file ``metadata.db``: entries in SQLite, each with its checksum, and a summary that notices a missing one.

Reads the file and changes it inside a transaction; decides nothing. Everything that is read is checked:

    1. Each entry against its own checksum (over key, value and version).
    2. All entries together against the summary: their number, the sum of their checksums, the newest version.
    3. The summary and the format number against checksums of their own.

SQLite is the only part that opens files itself instead of through ``runtime.files``. Nothing else may open this file in
the same process, because closing it would release SQLite's locks.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any, NamedTuple
from urllib.parse import quote

from strom.errors import MetadataCorrupt, NewerFormat
from strom.metadata import layout
from strom.metadata.changes import VALUE_BYTES_MAX, Put, Update
from strom.metadata.sqlite_errors import damaged, translated
from strom.metadata.store import Delta, Entry

BUSY_SECONDS_MAX = 10.0
"""How long a commit waits for another process's commit, which takes milliseconds."""

_ROW_BYTES_MAX = 2 * VALUE_BYTES_MAX


class Summary(NamedTuple):
    """What the summary row says about all entries."""

    version: int
    deleted_version: int
    entry_count: int
    crc_sum: int


class SqliteFile:
    """One connection to the file. Calls are made inside ``reading()`` or ``writing()``."""

    def __init__(self, path: str, *, create: bool = False) -> None:
        self.path = path
        with translated(path):
            self._connection = sqlite3.connect(
                f"file:{quote(path)}?mode={'rwc' if create else 'rw'}",
                uri=True,
                timeout=BUSY_SECONDS_MAX,
                isolation_level=None,
                check_same_thread=False,
            )
        try:
            self._configure()
        except BaseException:
            self.close()
            raise

    def _configure(self) -> None:
        self._connection.text_factory = bytes
        self._connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _ROW_BYTES_MAX)
        for pragma in ("synchronous=FULL", "fullfsync=ON", "checkpoint_fullfsync=ON", "cell_size_check=ON"):
            self._execute(f"PRAGMA {pragma}")

    def use_write_ahead_log(self) -> None:
        """Let readers proceed while one process writes. The file keeps this mode."""
        if self._rows("PRAGMA journal_mode=WAL") != [(b"wal",)]:
            raise damaged(self.path, "it cannot be switched to a write-ahead log")

    def copy_to(self, path: str) -> None:
        """Copy everything to a new file, as of the last commit."""
        with translated(self.path), closing(sqlite3.connect(path)) as target:
            self._connection.backup(target)

    def close(self) -> None:
        """Close the file; the last one to close it merges the write-ahead log."""
        with translated(self.path):
            self._connection.close()

    # --- transactions ----------------------------------------------------------------------------------------

    @contextmanager
    def reading(self) -> Iterator[None]:
        """A consistent view of the file while this lasts."""
        with translated(self.path):
            self._connection.execute("BEGIN")
            try:
                yield
            finally:
                self.roll_back()

    def begin_writing(self) -> None:
        """Become the only writer among all processes."""
        self._execute("BEGIN IMMEDIATE")

    def commit(self) -> None:
        """Make the transaction durable."""
        self._execute("COMMIT")

    def roll_back(self) -> None:
        """Roll the transaction back; fine if there is none (SQLite rolls back itself on some errors)."""
        if self.is_in_transaction:
            self._execute("ROLLBACK")

    @property
    def is_in_transaction(self) -> bool:
        """Whether a transaction is open on this connection."""
        with translated(self.path):
            return self._connection.in_transaction

    # --- reading ---------------------------------------------------------------------------------------------

    def data_version(self) -> int:
        """A number that changes when another connection commits; costs microseconds."""
        return int(self._rows("PRAGMA data_version")[0][0])

    def check_format(self) -> None:
        """Refuse a newer file, and one whose table definitions are not ours."""
        number = self._format_number()
        if number > layout.FORMAT:
            raise NewerFormat(
                f"{self.path} has format {number}, this version reads up to {layout.FORMAT}: use a newer version",
                path=self.path,
                found=number,
                known=layout.FORMAT,
            )
        found = {name: text for name, text in self._rows("SELECT name, sql FROM sqlite_master") if text}
        if found != {name.encode(): text.encode() for name, text in layout.TABLES.items()}:
            raise damaged(self.path, "its tables are not defined as they were written")

    def check_structure(self) -> None:
        """Let SQLite check its pages, including free space and index, which our checksums do not cover."""
        found = self._rows("PRAGMA integrity_check(1)")
        if found != [(b"ok",)]:
            raise damaged(self.path, _text(found))

    def check_writable(self) -> None:
        """Change a row and roll back: a damaged header can make SQLite treat the file as read-only."""
        self.begin_writing()
        try:
            self._execute("UPDATE summary SET version = version")
        finally:
            self.roll_back()

    def summary(self) -> Summary:
        """The checked summary."""
        rows = self._rows("SELECT version, deleted_version, entry_count, crc_sum, crc FROM summary LIMIT 2")
        if len(rows) != 1 or not all(isinstance(field, int) for field in rows[0]):
            raise damaged(self.path, "its summary is not what was written")
        *facts, crc = rows[0]
        if layout.summary_crc(*facts) != crc:
            raise damaged(self.path, "its summary does not fit its checksum")
        return Summary(*facts)

    def entries(self) -> tuple[Summary, dict[str, Entry]]:
        """Everything, checked."""
        summary = self.summary()
        entries: dict[str, Entry] = {}
        crc_sum = self._take(self._rows("SELECT key, value, version, crc FROM entries"), entries)
        if (len(entries), crc_sum) != (summary.entry_count, summary.crc_sum):
            raise damaged(self.path, "entries are missing, or were written twice")
        return summary, entries

    def readable_entries(self) -> dict[str, Entry]:
        """Every entry of a damaged file with a valid checksum, as far as SQLite can read. For salvage."""
        found: dict[str, Entry] = {}
        try:
            for row in self._connection.execute("SELECT key, value, version, crc FROM entries"):
                try:
                    self._take([row], found)
                except MetadataCorrupt:
                    continue
        except sqlite3.Error:
            return found
        return found

    def news_since(self, known: Summary, entries: Mapping[str, Entry]) -> tuple[Summary, Delta] | None:
        """The delta from the ``entries`` of an older summary to the current one, reading only what is new.

        None if that does not add up: then read everything. Deletions are not recorded, so after one all keys are read,
        but not their values.
        """
        summary = self.summary()
        if not 0 < known.version <= summary.version:
            return None
        put: dict[str, Entry] = {}
        query = "SELECT key, value, version, crc FROM entries WHERE version > ?"
        crc_sum = known.crc_sum + self._take(self._rows(query, (known.version,)), put)
        gone: list[str] = []
        if summary.deleted_version > known.version:
            there = {key for (key,) in self._rows("SELECT key FROM entries")}
            gone = [key for key in entries if key.encode() not in there]
        for key in (*(key for key in put if key in entries), *gone):
            crc_sum -= layout.entry_crc(key.encode(), *entries[key])
        count = len(entries) - len(gone) + sum(key not in entries for key in put)
        if (count, crc_sum % layout.CRC_SUM_MODULUS) != (summary.entry_count, summary.crc_sum):
            return None
        return summary, Delta(known.version, summary.version, put, gone)

    def entries_of(self, keys: Iterable[str]) -> dict[str, Entry]:
        """The entries of these keys, as far as they exist."""
        found: dict[str, Entry] = {}
        for key in keys:
            query = "SELECT key, value, version, crc FROM entries WHERE key = ?"
            self._take(self._rows(query, (key.encode(),)), found)
        return found

    def _take(self, rows: list[Any], into: dict[str, Entry]) -> int:
        """Check rows, add them, and return the sum of their checksums."""
        total = 0
        for key, value, version, crc in rows:
            if not (isinstance(key, bytes) and isinstance(value, bytes) and isinstance(version, int)):
                raise damaged(self.path, "an entry is not of the kind that was written")
            if layout.entry_crc(key, value, version) != crc:
                raise damaged(self.path, f"the entry {_text(key)} does not fit its checksum")
            into[key.decode()] = Entry(value, version)
            total += crc
        return total % layout.CRC_SUM_MODULUS

    def _format_number(self) -> int:
        rows = self._rows("SELECT number, crc FROM format LIMIT 2")
        if len(rows) != 1 or not isinstance(rows[0][0], int) or layout.format_crc(rows[0][0]) != rows[0][1]:
            raise damaged(self.path, "its format number does not fit its checksum")
        return int(rows[0][0])

    # --- writing ---------------------------------------------------------------------------------------------

    def create(self, version: int, entries: Mapping[str, Entry]) -> None:
        """Fill an empty file."""
        for definition in layout.TABLES.values():
            self._execute(definition)
        self._execute("INSERT INTO format VALUES (?, ?)", (layout.FORMAT, layout.format_crc(layout.FORMAT)))
        self._execute("INSERT INTO summary VALUES (0, 0, 0, 0, 0)")
        start = Summary(version=0, deleted_version=0, entry_count=0, crc_sum=0)
        self.replace(start, {}, version, entries)

    def apply(self, summary: Summary, version: int, updates: Sequence[Update]) -> Summary:
        """Apply the updates of one commit; return the new summary."""
        old = self.entries_of(update.key for update in updates)
        puts = {update.key: Entry(update.value, version) for update in updates if isinstance(update, Put)}
        return self._change(summary, version, old, puts)

    def replace(
        self, summary: Summary, old: Mapping[str, Entry], version: int, entries: Mapping[str, Entry]
    ) -> Summary:
        """Replace all of ``old`` by ``entries``; return the new summary."""
        stale = {key: entry for key, entry in old.items() if entries.get(key) != entry}
        puts = {key: entry for key, entry in entries.items() if old.get(key) != entry}
        return self._change(summary, version, stale, puts)

    def _change(
        self, summary: Summary, version: int, old: Mapping[str, Entry], puts: Mapping[str, Entry]
    ) -> Summary:
        """Remove ``old``, write ``puts``, and update the summary. ``old`` contains every replaced entry."""
        deleted = old.keys() - puts.keys()
        crc_sum = summary.crc_sum - sum(layout.entry_crc(key.encode(), *entry) for key, entry in old.items())
        for key in deleted:
            self._execute("DELETE FROM entries WHERE key = ?", (key.encode(),))
        for key, (value, entry_version) in puts.items():
            name = key.encode()
            crc = layout.entry_crc(name, value, entry_version)
            crc_sum += crc
            self._execute(
                "INSERT OR REPLACE INTO entries VALUES (?, ?, ?, ?)", (name, value, entry_version, crc)
            )
        changed = Summary(
            version=version,
            deleted_version=version if deleted else summary.deleted_version,
            entry_count=summary.entry_count - len(old) + len(puts),
            crc_sum=crc_sum % layout.CRC_SUM_MODULUS,
        )
        self._execute(
            "UPDATE summary SET version = ?, deleted_version = ?, entry_count = ?, crc_sum = ?, crc = ?",
            (*changed, layout.summary_crc(*changed)),
        )
        return changed

    def _execute(self, statement: str, values: tuple[object, ...] = ()) -> None:
        with translated(self.path):
            self._connection.execute(statement, values)

    def _rows(self, query: str, values: tuple[object, ...] = ()) -> list[Any]:
        """All rows at once: SQLite may find damage at any row, and its errors are translated here."""
        with translated(self.path):
            return self._connection.execute(query, values).fetchall()


def _text(found: object) -> str:
    """Something read from the file, short and printable."""
    return repr(found)[:200]
