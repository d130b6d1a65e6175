"""A flipped byte anywhere in the metadata files: detected or harmless, and nothing is lost.

Each test takes the files of a store, flips one byte, and opens them. Every n-th byte in ``make test``, all or
most in ``make torture``.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from strom.errors import MetadataCorrupt, StorageOffline
from strom.metadata import layout, salvage
from strom.metadata.changes import Delete, Put
from strom.metadata.embedded import EmbeddedStore
from strom.metadata.store import Snapshot
from strom.runtime.files import LocalFiles

WAL_FILE = layout.DATABASE_FILE + "-wal"
SHM_FILE = layout.DATABASE_FILE + "-shm"
HEADER_BYTES = 100
"""The first bytes of each file are flipped one by one even in the short run: that is where the modes are."""


def fill(store: EmbeddedStore) -> Snapshot:
    for number in range(12):
        store.commit(
            [], [Put(f"tables/{number}", b"t%d" % number * 150), Put("counters/table", b"%d" % number)]
        )
    store.commit([], [Delete("tables/3"), Delete("tables/4")])
    return store.read()


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def lay_out(folder: Path, files: dict[str, bytes]) -> None:
    folder.mkdir(exist_ok=True)
    for path in folder.iterdir():
        path.unlink()
    for name, content in files.items():
        (folder / name).write_bytes(content)


def flipped(content: bytes, position: int) -> bytes:
    return content[:position] + bytes([content[position] ^ (1 << position % 8)]) + content[position + 1 :]


def positions(size: int, step: int) -> Iterator[int]:
    yield from range(min(size, HEADER_BYTES))
    yield from range(HEADER_BYTES, size, step)


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Thousands of loud restores: keep none of what they say."""
    caplog.set_level(logging.CRITICAL, logger="strom.metadata")


@pytest.fixture
def closed(quick_path: Path) -> tuple[dict[str, bytes], Snapshot]:
    """The files of a store that was closed."""
    store = EmbeddedStore.open(LocalFiles(), str(quick_path / "made"), owner=True)
    snapshot = fill(store)
    store.close()
    return files_of(quick_path / "made"), snapshot


@pytest.fixture
def killed(quick_path: Path) -> Iterator[tuple[dict[str, bytes], Snapshot]]:
    """The files of a store whose process was killed: the newest commits are only in the write-ahead log."""
    folder = quick_path / "made"
    store = EmbeddedStore.open(LocalFiles(), str(folder), owner=True)
    yield_snapshot = fill(store)
    yield files_of(folder), yield_snapshot
    store.close()


def open_and_read(folder: Path) -> tuple[Snapshot, str | None]:
    store = EmbeddedStore.open(LocalFiles(), str(folder), owner=True)
    try:
        return store.read(), store.notice
    finally:
        store.close()


def open_and_commit(folder: Path) -> tuple[Snapshot, str | None]:
    """What was there, after many commits were possible on top of it."""
    store = EmbeddedStore.open(LocalFiles(), str(folder), owner=True)
    try:
        before = store.read()
        store.commit([], [Put("later/1", b"x" * 5_000), Delete("tables/0"), Put("tables/1", b"y" * 9_000)])
        entries = store.read().entries
        assert entries.keys() ^ before.entries.keys() == {"later/1", "tables/0"}
        return before, store.notice
    finally:
        store.close()


def check_every_flip_is_repaired(
    folder: Path, files: dict[str, bytes], expected: Snapshot, name: str, step: int
) -> int:
    """Return how many flips were noticed."""
    noticed = 0
    for position in positions(len(files[name]), step):
        lay_out(folder, {**files, name: flipped(files[name], position)})
        snapshot, notice = open_and_read(folder)
        assert snapshot == expected, f"flip at {position} of {name}"
        noticed += notice is not None
        # And it stays repaired, and can be changed.
        assert open_and_commit(folder) == (expected, None), f"flip at {position} of {name}"
    return noticed


@pytest.mark.slow
@pytest.mark.parametrize("name", [layout.DATABASE_FILE, layout.COPY_FILE])
def test_a_flip_in_a_closed_store_is_repaired(
    closed: tuple[dict[str, bytes], Snapshot], quick_path: Path, name: str
) -> None:
    files, expected = closed
    assert set(files) == {layout.DATABASE_FILE, layout.COPY_FILE}
    assert check_every_flip_is_repaired(quick_path / "flipped", files, expected, name, step=211) > 40


@pytest.mark.slow
@pytest.mark.parametrize("name", [layout.DATABASE_FILE, WAL_FILE, SHM_FILE, layout.COPY_FILE])
def test_a_flip_in_a_killed_store_is_repaired(
    killed: tuple[dict[str, bytes], Snapshot], quick_path: Path, name: str
) -> None:
    files, expected = killed
    noticed = check_every_flip_is_repaired(quick_path / "flipped", files, expected, name, step=2_003)
    if name == WAL_FILE:
        assert noticed > 20  # SQLite drops the rest of its log without a word; the copy has it.


@pytest.mark.torture
@pytest.mark.timeout(7_200)
@pytest.mark.parametrize("name", [layout.DATABASE_FILE, layout.COPY_FILE])
def test_a_flip_of_every_byte_of_a_closed_store_is_repaired(
    closed: tuple[dict[str, bytes], Snapshot], quick_path: Path, name: str
) -> None:
    files, expected = closed
    assert check_every_flip_is_repaired(quick_path / "flipped", files, expected, name, step=1) > 1_000


@pytest.mark.torture
@pytest.mark.timeout(7_200)
@pytest.mark.parametrize("name", [layout.DATABASE_FILE, WAL_FILE])
def test_a_flip_of_every_third_byte_of_a_killed_store_is_repaired(
    killed: tuple[dict[str, bytes], Snapshot], quick_path: Path, name: str
) -> None:
    files, expected = killed
    assert check_every_flip_is_repaired(quick_path / "flipped", files, expected, name, step=3) > 0


@pytest.mark.slow
def test_without_the_copy_a_flip_is_detected_or_harmless(
    closed: tuple[dict[str, bytes], Snapshot], quick_path: Path
) -> None:
    files, expected = closed
    database = files[layout.DATABASE_FILE]
    folder = quick_path / "flipped"
    messages: list[str] = []
    for position in positions(len(database), 211):
        lay_out(folder, {layout.DATABASE_FILE: flipped(database, position)})
        try:
            assert open_and_read(folder)[0] == expected, f"flip at {position}"
        except MetadataCorrupt as error:
            messages.append(error.message)
    assert len(messages) > 40
    assert all(str(folder / layout.DATABASE_FILE) in message for message in messages)


@pytest.mark.slow
def test_who_is_not_the_owner_detects_a_flip_and_repairs_nothing(
    closed: tuple[dict[str, bytes], Snapshot], quick_path: Path
) -> None:
    files, expected = closed
    database = files[layout.DATABASE_FILE]
    folder = quick_path / "flipped"
    messages: list[str] = []
    for position in positions(len(database), 211):
        lay_out(folder, {**files, layout.DATABASE_FILE: flipped(database, position)})
        try:
            store = EmbeddedStore.open(LocalFiles(), str(folder), owner=False)
        except MetadataCorrupt as error:
            messages.append(error.message)
            continue
        assert store.read() == expected, f"flip at {position}"
        store.close()
    assert len(messages) > 20
    assert all("start again" in message for message in messages)


@pytest.mark.slow
def test_a_flip_under_a_running_store_loses_nothing_that_was_acknowledged(quick_path: Path) -> None:
    refused = 0
    for position in range(40, 28_000, 997):
        folder = quick_path / str(position)
        store = EmbeddedStore.open(LocalFiles(), str(folder), owner=True)
        expected = fill(store)
        store.close()
        store = EmbeddedStore.open(LocalFiles(), str(folder), owner=True)
        path = folder / layout.DATABASE_FILE
        with path.open("r+b") as file:  # Closing it gives up SQLite's locks, but nobody else is here.
            file.seek(position)
            byte = file.read(1)
            file.seek(position)
            file.write(bytes([byte[0] ^ 0x10]))
        try:
            store.commit([], [Put("tables/0", b"new"), Put("counters/table", b"99")])
            expected = Snapshot(
                expected.version + 1,
                {
                    **expected.entries,
                    "tables/0": expected.entries["tables/0"]._replace(
                        value=b"new", version=expected.version + 1
                    ),
                    "counters/table": expected.entries["counters/table"]._replace(
                        value=b"99", version=expected.version + 1
                    ),
                },
            )
        except (MetadataCorrupt, StorageOffline):
            refused += 1
        store.close()
        assert open_and_read(folder)[0] == expected, f"flip at {position}"
    assert refused < 28


@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM entries WHERE key = CAST('tables/5' AS BLOB)",
        "INSERT INTO entries SELECT CAST('tables/99' AS BLOB), value, version, crc FROM entries LIMIT 1",
        "UPDATE entries SET value = CAST('x' AS BLOB) WHERE key = CAST('tables/5' AS BLOB)",
        "UPDATE entries SET version = version + 1 WHERE key = CAST('tables/5' AS BLOB)",
        "UPDATE entries SET value = 'text' WHERE key = CAST('tables/5' AS BLOB)",
        "UPDATE summary SET version = 3",
        "UPDATE summary SET crc_sum = 'x'",
        "DELETE FROM summary",
        "INSERT INTO summary SELECT * FROM summary",
        "UPDATE format SET number = 2",
        "DELETE FROM format",
        "DROP INDEX entries_by_version",
        "CREATE TABLE more (x)",
        "DROP TABLE entries",
    ],
)
def test_damage_that_sqlite_itself_would_not_notice_is_repaired(
    closed: tuple[dict[str, bytes], Snapshot], quick_path: Path, damage: str
) -> None:
    files, expected = closed
    folder = quick_path / "flipped"
    lay_out(folder, files)
    connection = sqlite3.connect(folder / layout.DATABASE_FILE)
    connection.execute(damage)
    connection.commit()
    connection.close()
    with pytest.raises(MetadataCorrupt):
        EmbeddedStore.open(LocalFiles(), str(folder), owner=False)
    snapshot, notice = open_and_read(folder)
    assert snapshot == expected
    assert notice is not None
    assert open_and_read(folder) == (expected, None)


def test_an_index_that_contradicts_its_rows_is_repaired(
    closed: tuple[dict[str, bytes], Snapshot], quick_path: Path
) -> None:
    """Every entry has its checksum, and the index has none: a delta would lack what it does not name."""
    files, expected = closed
    folder = quick_path / "flipped"
    lay_out(folder, files)
    with closing(sqlite3.connect(folder / layout.DATABASE_FILE)) as raw:
        ((page,),) = raw.execute("SELECT rootpage FROM sqlite_master WHERE name = 'entries_by_version'")
        ((size,),) = raw.execute("PRAGMA page_size")
    content = files[layout.DATABASE_FILE]
    at = content.index(b"tables/7", (page - 1) * size, page * size)
    lay_out(folder, {**files, layout.DATABASE_FILE: content[:at] + b"tables/x" + content[at + 8 :]})
    snapshot, notice = open_and_read(folder)
    assert snapshot == expected
    assert notice is not None
    assert "restored from the second copy" in notice
    assert open_and_read(folder) == (expected, None)


def test_two_damaged_files_are_refused_and_left_as_they_are(
    closed: tuple[dict[str, bytes], Snapshot], quick_path: Path
) -> None:
    files, _ = closed
    folder = quick_path / "flipped"
    broken = {name: content[:-100] for name, content in files.items()}
    broken[layout.DATABASE_FILE] = b"x" * 5_000
    lay_out(folder, broken)
    with pytest.raises(MetadataCorrupt, match="Neither file is provably the newest"):
        open_and_read(folder)
    assert files_of(folder) == broken


def test_the_damaged_file_is_kept_for_a_look(
    closed: tuple[dict[str, bytes], Snapshot], quick_path: Path
) -> None:
    files, expected = closed
    folder = quick_path / "flipped"
    broken = b"x" * 5_000
    lay_out(folder, {**files, layout.DATABASE_FILE: broken})
    snapshot, notice = open_and_read(folder)
    assert snapshot == expected
    assert notice is not None
    assert "restored from the second copy" in notice
    assert (folder / layout.DAMAGED_FILE).read_bytes() == broken


def test_salvage_keeps_what_can_be_read_and_raises_every_counter(
    closed: tuple[dict[str, bytes], Snapshot], quick_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files, expected = closed
    folder = quick_path / "flipped"
    middle = files[layout.DATABASE_FILE].index(b"t7t7t7")
    broken = {
        layout.DATABASE_FILE: flipped(files[layout.DATABASE_FILE], middle),
        layout.COPY_FILE: files[layout.COPY_FILE][:-10],
    }
    lay_out(folder, broken)
    with pytest.raises(MetadataCorrupt):
        open_and_read(folder)
    assert salvage.main([str(folder)]) == 0
    assert "kept 13 entries" in capsys.readouterr().out
    snapshot, notice = open_and_read(folder)
    assert notice is None
    assert snapshot.version == max(entry.version for entry in expected.entries.values()) + salvage.GAP
    assert snapshot.entries["counters/table"].value == b"%d" % (11 + salvage.GAP)
    # Version 13 dropped two tables; the copy lost that commit, the database lost one entry, and together
    # they know all that were put.
    assert {key: entry.value for key, entry in snapshot.entries.items() if key.startswith("tables/")} == {
        f"tables/{number}": b"t%d" % number * 150 for number in range(12)
    }
    assert (folder / layout.DAMAGED_COPY_FILE).read_bytes() == broken[layout.COPY_FILE]


def test_salvage_of_nothing_says_so(quick_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert salvage.main([str(quick_path)]) == 1
    assert "can be read" in capsys.readouterr().err
    for arguments in ([], [str(quick_path), "another"]):
        assert salvage.main(arguments) == 2
        assert "usage" in capsys.readouterr().err
    (quick_path / layout.DATABASE_FILE).write_bytes(b"x" * 5_000)
    assert salvage.main([str(quick_path)]) == 1
