"""The embedded store: crashes between its two writes, full and failing disks, other processes."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from strom.errors import Busy, Closed, MetadataCorrupt, NewerFormat, StorageFull, StorageOffline
from strom.metadata import database, layout, second_copy
from strom.metadata.changes import Absent, Delete, Exists, Put
from strom.metadata.embedded import EmbeddedStore
from strom.metadata.sqlite_errors import translated
from strom.metadata.store import Entry
from strom.runtime.files import Bytes, LocalFile, LocalFiles


def open_store(folder: Path, files: LocalFiles | None = None, *, owner: bool = True) -> EmbeddedStore:
    return EmbeddedStore.open(files or LocalFiles(), str(folder), owner=owner)


def values(store: EmbeddedStore) -> dict[str, bytes]:
    return {key: entry.value for key, entry in store.read().entries.items()}


class FaultyFile(LocalFile):
    """A file whose next append or sync fails as told."""

    def __init__(self, path: str, faults: dict[str, Exception]) -> None:
        super().__init__(path, os.O_RDWR)
        self.faults = faults

    def append(self, buffers: Sequence[Bytes]) -> int:
        if "append" in self.faults:
            raise self.faults["append"]
        return super().append(buffers)

    def sync(self) -> None:
        if "sync" in self.faults:
            raise self.faults["sync"]
        super().sync()


class FaultyFiles(LocalFiles):
    """A disk that fails as told."""

    def __init__(self) -> None:
        super().__init__()
        self.faults: dict[str, Exception] = {}

    def open(self, path: str, *, create: bool = False) -> LocalFile:
        return super().open(path, create=True) if create else FaultyFile(path, self.faults)


# --- continuing ----------------------------------------------------------------------------------------------


def test_everything_is_there_after_closing_and_opening(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.commit([], [Put("a", b"x"), Put("b", b"y")])
    store.commit([Exists("b")], [Delete("b")])
    before = store.read()
    store.close()
    store = open_store(tmp_path)
    assert store.read() == before
    assert store.notice is None
    assert store.commit([], [Put("c", b"")]) == 3
    store.close()


def test_what_a_killed_process_announced_goes_when_the_owner_opens_the_folder(tmp_path: Path) -> None:
    store, other = open_store(tmp_path), open_store(tmp_path, owner=False)
    other.announce("alive/1", b"x")
    with closing(open_store(tmp_path, owner=False)) as beside:
        assert values(beside) == {"alive/1": b"x"}, "only the owner may know that nobody else runs"
    with closing(open_store(tmp_path)) as again:
        assert values(again) == {}
        assert again.read().version == 2
    other.close()
    store.close()
    with closing(open_store(tmp_path)) as unused:
        assert unused.read().version == 2, "without announcements nothing is written"


def test_another_view_reads_only_what_is_new_and_still_sees_deletions(tmp_path: Path) -> None:
    store, other = open_store(tmp_path), open_store(tmp_path, owner=False)
    for number in range(5):
        store.commit([], [Put(f"k/{number}", b"v"), Put("counter", b"%d" % number)])
        assert values(other) == values(store)
    store.commit([], [Delete("k/1"), Put("k/1b", b"v")])
    assert values(other) == values(store)
    store.commit([], [Put("k/0", b"again")])
    assert values(other) == values(store)
    assert other.read() == store.read()
    store.close()
    other.close()


def test_a_deletion_is_seen_even_when_checksums_hide_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layout, "entry_crc", lambda key, value, version: 7)
    store, other = open_store(tmp_path), open_store(tmp_path, owner=False)
    store.commit([], [Put("a", b"x"), Put("b", b"x")])
    other.read()
    store.commit([], [Delete("a"), Put("c", b"x")])
    assert values(other) == {"b": b"x", "c": b"x"}
    store.close()
    other.close()


def test_who_is_not_the_owner_creates_nothing(tmp_path: Path) -> None:
    with pytest.raises(StorageOffline):
        open_store(tmp_path, owner=False)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_with_data_but_no_metadata_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MetadataCorrupt, match="missing"):
        EmbeddedStore.open(LocalFiles(), str(tmp_path), owner=True, create=False)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_opened_says_so(tmp_path: Path) -> None:
    (tmp_path / layout.DATABASE_FILE).mkdir()
    (tmp_path / layout.COPY_FILE).mkdir()
    with pytest.raises(StorageOffline, match="permissions"):
        open_store(tmp_path)


# --- crashes between the two writes --------------------------------------------------------------------------


def append_to_copy(folder: Path, version: int, key: str) -> None:
    second_copy.SecondCopy(LocalFiles(), str(folder)).append(version, [Put(key, b"late")])


def test_a_commit_that_reached_only_the_copy_is_completed_at_the_next_start(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.commit([], [Put("a", b"x")])
    store.close()
    append_to_copy(tmp_path, 2, "b")
    store = open_store(tmp_path)
    assert store.read().entries == {"a": Entry(b"x", 1), "b": Entry(b"late", 2)}
    assert store.commit([Exists("b")], [Put("c", b"")]) == 3
    store.close()
    store = open_store(tmp_path)
    assert store.notice is None
    assert store.read().version == 3
    store.close()


def test_a_commit_that_reached_only_the_copy_is_completed_by_the_next_commit(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.commit([], [Put("a", b"x")])
    append_to_copy(tmp_path, 2, "b")
    assert store.commit([Exists("b")], [Put("c", b"")]) == 3
    assert values(store) == {"a": b"x", "b": b"late", "c": b""}
    store.close()


def test_a_torn_end_of_the_copy_is_a_commit_that_never_happened(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.commit([], [Put("a", b"x")])
    with (tmp_path / layout.COPY_FILE).open("ab") as file:
        file.write(second_copy.encode_commit(2, [Put("b", b"y")])[:-3])
    assert store.commit([Absent("b")], [Put("c", b"z")]) == 2
    store.close()
    store = open_store(tmp_path)
    assert values(store) == {"a": b"x", "c": b"z"}
    assert store.notice is None
    store.close()


def test_a_copy_that_was_taken_away_is_written_anew(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.commit([], [Put("a", b"x")])
    (tmp_path / layout.COPY_FILE).unlink()
    store.commit([], [Put("b", b"y")])
    store.close()
    (tmp_path / layout.DATABASE_FILE).unlink()
    store = open_store(tmp_path)
    assert values(store) == {"a": b"x", "b": b"y"}
    assert store.read().version == 2
    store.close()


def test_a_crash_while_restoring_is_survived_at_every_step(tmp_path: Path) -> None:
    class StopsAt(LocalFiles):
        def __init__(self, steps: int) -> None:
            super().__init__()
            self.steps = steps

        def _step(self) -> None:
            self.steps -= 1
            if self.steps < 0:
                raise KeyboardInterrupt

        def rename(self, source: str, target: str) -> None:
            self._step()
            super().rename(source, target)

        def remove(self, path: str) -> None:
            self._step()
            super().remove(path)

    stopped = 0
    for steps in range(20):
        folder = tmp_path / str(steps)
        store = open_store(folder)
        store.commit([], [Put("a", b"x")])
        store.commit([], [Put("b", b"y")])
        store.close()
        (folder / layout.DATABASE_FILE).write_bytes(b"nonsense" * 512)
        try:
            open_store(folder, StopsAt(steps)).close()
        except KeyboardInterrupt:
            stopped += 1
        store = open_store(folder)
        assert store.read().entries == {"a": Entry(b"x", 1), "b": Entry(b"y", 2)}
        store.close()
    assert stopped > 5


# --- disks ---------------------------------------------------------------------------------------------------


def test_a_full_disk_refuses_the_commit_and_leaves_everything_as_it_was(tmp_path: Path) -> None:
    files = FaultyFiles()
    store = open_store(tmp_path, files)
    store.commit([], [Put("a", b"x")])
    files.faults["append"] = StorageFull("no room")
    with pytest.raises(StorageFull):
        store.commit([], [Put("b", b"y")])
    assert values(store) == {"a": b"x"}
    files.faults.clear()
    assert store.commit([Absent("b")], [Put("b", b"z")]) == 2
    store.close()


def test_a_failed_sync_ends_commits_but_not_reads(tmp_path: Path) -> None:
    files = FaultyFiles()
    store = open_store(tmp_path, files)
    store.commit([], [Put("a", b"x")])
    files.faults["sync"] = OSError(5, "Input/output error")
    with pytest.raises(StorageOffline):
        store.commit([], [Put("b", b"y")])
    files.faults.clear()
    with pytest.raises(StorageOffline, match="takes no commits"):
        store.commit([], [Put("b", b"y")])
    assert values(store) == {"a": b"x"}
    store.close()
    store = open_store(tmp_path)
    assert store.commit([Absent("b")], [Put("b", b"y")]) == 2
    store.close()


def refuse_commit(store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch, first: Callable[[], None]) -> None:
    def fail() -> None:
        first()
        raise StorageFull("no room for rows")

    monkeypatch.setattr(store._writer, "commit", fail)
    with pytest.raises(StorageFull):
        store.commit([], [Put("b", b"y")])
    monkeypatch.undo()


def test_rows_that_sqlite_refuses_are_taken_out_of_the_copy_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(tmp_path)
    store.commit([], [Put("a", b"x")])
    refuse_commit(store, monkeypatch, lambda: None)
    refuse_commit(store, monkeypatch, store._writer.roll_back)
    assert values(store) == {"a": b"x"}
    store.close()
    store = open_store(tmp_path)
    assert (store.notice, values(store)) == (None, {"a": b"x"})
    store.close()


def test_a_refused_commit_that_another_process_completed_stays_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, other = open_store(tmp_path), open_store(tmp_path, owner=False)

    def lose_the_lock() -> None:
        store._writer.roll_back()
        other.commit([Exists("b")], [Put("c", b"z")])

    refuse_commit(store, monkeypatch, lose_the_lock)
    assert values(store) == values(other) == {"b": b"y", "c": b"z"}
    store.close()
    other.close()


def test_the_copy_is_written_anew_before_old_commits_fill_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layout, "COPY_BYTES_MIN", 2_000)
    store = open_store(tmp_path)
    sizes = []
    for number in range(200):
        store.commit([], [Put("a", b"%d" % number * 20)])
        sizes.append((tmp_path / layout.COPY_FILE).stat().st_size)
    assert max(sizes) < 2_300
    store.close()
    (tmp_path / layout.DATABASE_FILE).unlink()
    store = open_store(tmp_path)
    assert store.read().entries == {"a": Entry(b"199" * 20, 200)}
    store.close()


# --- errors --------------------------------------------------------------------------------------------------


def test_a_newer_format_is_refused_by_everybody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "FORMAT", 2)
    open_store(tmp_path).close()
    monkeypatch.undo()
    for owner in (True, False):
        with pytest.raises(NewerFormat, match="format 2"):
            open_store(tmp_path, owner=owner)
    (tmp_path / layout.DATABASE_FILE).unlink()
    with pytest.raises(NewerFormat, match="format 2"):
        open_store(tmp_path)


def test_a_lock_held_too_long_is_busy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "BUSY_SECONDS_MAX", 0.05)
    store = open_store(tmp_path)
    connection = sqlite3.connect(tmp_path / layout.DATABASE_FILE, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    with pytest.raises(Busy):
        store.commit([], [Put("a", b"x")])
    assert values(store) == {}
    connection.execute("ROLLBACK")
    connection.close()
    assert store.commit([], [Put("a", b"x")]) == 1
    store.close()


def raised_by_sqlite(code: int) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("so it was")
    error.sqlite_errorcode = code
    return error


@pytest.mark.parametrize(
    ("error", "typed"),
    [
        (raised_by_sqlite(sqlite3.SQLITE_BUSY), Busy),
        (raised_by_sqlite(sqlite3.SQLITE_BUSY_SNAPSHOT), Busy),
        (raised_by_sqlite(sqlite3.SQLITE_FULL), StorageFull),
        (raised_by_sqlite(sqlite3.SQLITE_IOERR_FSYNC), StorageOffline),
        (raised_by_sqlite(sqlite3.SQLITE_CANTOPEN), StorageOffline),
        (raised_by_sqlite(sqlite3.SQLITE_IOERR_SHORT_READ), MetadataCorrupt),
        (raised_by_sqlite(sqlite3.SQLITE_CORRUPT_INDEX), MetadataCorrupt),
        (raised_by_sqlite(sqlite3.SQLITE_NOTADB), MetadataCorrupt),
        (raised_by_sqlite(sqlite3.SQLITE_ERROR), MetadataCorrupt),
        (sqlite3.DatabaseError("could not decode"), MetadataCorrupt),
        (UnicodeDecodeError("utf-8", b"malformed \xc2", 10, 11, "invalid"), MetadataCorrupt),
        (sqlite3.ProgrammingError("Cannot operate on a closed database."), Closed),
        (PermissionError(13, "Permission denied"), StorageOffline),
    ],
)
def test_no_error_of_sqlite_or_the_system_leaves_untyped(error: Exception, typed: type[Exception]) -> None:
    with pytest.raises(typed) as raised, translated("/d/metadata.db"):
        raise error
    if typed is not Closed:
        assert "/d/metadata.db" in str(raised.value)


# --- other processes -----------------------------------------------------------------------------------------

COUNTER = """
import sys
from strom.errors import Conflict
from strom.metadata.changes import Put, Absent, VersionIs
from strom.metadata.embedded import EmbeddedStore
from strom.runtime.files import LocalFiles
store = EmbeddedStore.open(LocalFiles(), sys.argv[1], owner=False)
taken = 0
while taken < int(sys.argv[2]):
    entry = store.read("counters/").entries.get("counters/n")
    number = 0 if entry is None else int(entry.value)
    require = Absent("counters/n") if entry is None else VersionIs("counters/n", entry.version)
    try:
        store.commit([require], [Put("counters/n", b"%d" % (number + 1)), Put(f"taken/{number}", sys.argv[3].encode())])
    except Conflict:
        continue
    print(number, flush=True)
    taken += 1
store.close()
"""


def counting_process(folder: Path, count: int, name: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", COUNTER, str(folder), str(count), name]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_processes_that_take_numbers_at_once_take_each_number_once(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    processes = [counting_process(tmp_path, 60, name) for name in "abc"]
    outputs = [process.communicate()[0].split() for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0]
    assert sorted(int(number) for output in outputs for number in output) == list(range(180))
    taken = {key: entry.value for key, entry in store.read("taken/").entries.items()}
    for name, output in zip(b"abc", outputs, strict=True):
        assert all(taken[f"taken/{number}"] == bytes([name]) for number in output)
    store.close()


@pytest.mark.slow
def test_what_was_acknowledged_before_a_kill_is_there_afterwards(tmp_path: Path) -> None:
    open_store(tmp_path).close()
    acknowledged: list[int] = []
    for round_number in range(6):
        process = counting_process(tmp_path, 10_000, "x")
        assert process.stdout is not None
        acknowledged += [int(process.stdout.readline()) for _ in range(1 + 7 * round_number)]
        process.send_signal(signal.SIGKILL)
        acknowledged += [int(line) for line in process.stdout.read().split("\n")[:-1]]
        process.wait()
        process.stdout.close()
        store = open_store(tmp_path)
        assert store.notice is None or "lacked the last 1 commit" in store.notice
        assert len(set(acknowledged)) == len(acknowledged)
        taken = {int(key.partition("/")[2]) for key in store.read("taken/").entries}
        assert set(acknowledged) <= taken
        assert taken == set(range(len(taken)))
        assert int(store.read().entries["counters/n"].value) == len(taken)
        store.close()


class RecordingFiles(LocalFiles):
    """A disk that tells in which order names came to last."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[tuple[str, str]] = []

    def rename(self, source: str, target: str) -> None:
        super().rename(source, target)
        self.names.append(("rename", os.path.basename(target)))

    def sync_folder(self, path: str) -> None:
        super().sync_folder(path)
        self.names.append(("sync", ""))


def test_a_database_that_was_built_anew_lasts_under_its_name(tmp_path: Path) -> None:
    """Created, or restored from its copy: without the folder's sync a power failure leaves it under another name."""
    created = RecordingFiles()
    with closing(open_store(tmp_path, created)) as store:
        store.commit([Absent("a")], [Put("a", b"1")])
    assert created.names[-2:] == [("rename", layout.DATABASE_FILE), ("sync", "")]
    (tmp_path / layout.DATABASE_FILE).unlink()
    restored = RecordingFiles()
    with closing(open_store(tmp_path, restored)) as store:
        assert values(store) == {"a": b"1"}
    assert restored.names[-2:] == [("rename", layout.DATABASE_FILE), ("sync", "")]


def test_a_commit_is_on_the_disk_when_it_is_answered(tmp_path: Path) -> None:
    with closing(open_store(tmp_path)) as store:
        (found,) = store._writer._rows("PRAGMA synchronous")
        assert found == (2,), "FULL: with NORMAL a power failure takes the last commits of a write-ahead log"


@pytest.mark.parametrize(
    "change",
    [
        "DROP INDEX entries_by_version; CREATE INDEX entries_by_version ON entries (crc)",
        "DROP INDEX entries_by_version",
        "CREATE TABLE more (a INTEGER)",
        "ALTER TABLE summary ADD COLUMN more INTEGER",
        "CREATE TRIGGER kept BEFORE DELETE ON entries BEGIN SELECT RAISE(IGNORE); END",
    ],
)
def test_tables_that_are_not_defined_as_they_were_written_are_damage(tmp_path: Path, change: str) -> None:
    with closing(open_store(tmp_path)) as store:
        store.commit([], [Put("a", b"1")])
    with closing(sqlite3.connect(tmp_path / layout.DATABASE_FILE)) as raw:
        raw.executescript(change)
    with pytest.raises(MetadataCorrupt, match="not defined as they were written"):
        open_store(tmp_path, owner=False)
    with closing(open_store(tmp_path)) as store:
        assert store.notice is not None, "built anew from the second copy"
        assert values(store) == {"a": b"1"}


def test_a_place_where_sqlite_keeps_no_write_ahead_log_is_refused() -> None:
    """As on a file system without shared memory; without that log readers and writers would wait for each other."""
    with (
        closing(database.SqliteFile(":memory:", create=True)) as kept_nowhere,
        pytest.raises(MetadataCorrupt, match="cannot be switched to a write-ahead log"),
    ):
        kept_nowhere.use_write_ahead_log()
