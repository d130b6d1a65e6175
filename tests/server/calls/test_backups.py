"""A backup of a running server is its state at one instant; what is restored from it works without the original."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import strom
from lake.small_tierer import small_tierer
from lake.union_place import COLUMNS, LAKE, rows
from strom.cli.main import app
from strom.client.admin.backup_admin import BackupAdmin
from strom.errors import ChecksumMismatch, FolderInUse, InvalidRequest, InvalidSetting, StromError
from strom.moving.backup import BACKUP_FILE, copy_folder, read_backup, restore
from strom.runtime.clock import SystemClock
from strom.runtime.files import LocalFiles
from strom.server.calls import backups
from strom.server.calls.backups import Backups
from strom.server.tablets.hold import Hold
from strom.server.tablets.tablet_slot import TabletSlot
from strom.testing.process import ServerProcess
from waiting import pause, until_blocking


def quiet(_: object) -> None:
    """No progress."""


class Writer:
    """Writes to a log and to a table by key, in pairs, and in transactions over both, until it is told to stop."""

    def __init__(self, address: str) -> None:
        self.acknowledged = 0
        """Pairs and transactions."""
        self._address = address
        self._stop = threading.Event()
        self._some = threading.Condition()
        self._thread = threading.Thread(target=self._run)
        self.error: BaseException | None = None

    def __enter__(self) -> Writer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        if self.error is not None:
            raise self.error

    def wait_for(self, more: int) -> int:
        """Until so many more were acknowledged; how many it are."""
        with self._some:
            wanted = self.acknowledged + more
            assert self._some.wait_for(lambda: self.acknowledged >= wanted or self.error is not None, 60)
            return self.acknowledged

    def _run(self) -> None:
        try:
            with strom.connect(self._address) as db:
                log, keyed, first, second = (db.table(name) for name in ("log", "keyed", "first", "second"))
                while not self._stop.is_set():
                    number = self.acknowledged
                    log.append({"id": [number]})
                    log.flush()
                    keyed.upsert({"id": [number % 50], "n": [number]})
                    keyed.flush()
                    with db.transaction("pairs", number + 1) as both:
                        both.append(first, {"id": [number]})
                        both.append(second, {"id": [number]})
                    with self._some:
                        self.acknowledged += 1
                        self._some.notify_all()
        except BaseException as error:
            self.error = error


def make_tables(db: strom.Database) -> None:
    for name in ("log", "first", "second"):
        db.create_table(name, {"id": "BIGINT"}, buckets=3)
    db.create_table("keyed", {"id": "BIGINT", "n": "BIGINT"}, primary_key="id", buckets=3)


def check_state(db: strom.Database, before: int) -> int:
    """The tables hold what a writer had written at one instant, and all that came ``before``."""
    found = sorted(db.table("log").scan().to_arrow()["id"].to_pylist())
    assert found == list(range(len(found)))
    newest: dict[int, int] = {}
    for row in db.table("keyed").scan().to_arrow().to_pylist():
        newest[row["id"]] = row["n"]
    written = max(newest.values()) + 1
    assert newest == {key: max(range(key, written, 50)) for key in range(min(50, written))}
    for key, number in newest.items():
        assert db.table("keyed").lookup({"id": key}) == {"id": key, "n": number}
    pairs = [sorted(db.table(name).scan().to_arrow()["id"].to_pylist()) for name in ("first", "second")]
    assert pairs[0] == pairs[1] == list(range(len(pairs[0])))
    # One after the other: whatever was written later is there only with all that was written before.
    assert before <= len(pairs[0]) <= written <= len(found) <= len(pairs[0]) + 1
    changes = db.table("keyed").changelog().to_arrow().to_pylist()
    for bucket in {row["_bucket"] for row in changes}:
        offsets = [row["_log_offset"] for row in changes if row["_bucket"] == bucket]
        assert offsets == list(range(len(offsets)))
    assert {row["id"]: row["n"] for row in changes} == newest
    return len(pairs[0])


@pytest.mark.parametrize("tablets", [1, 2])
def test_a_backup_while_writes_run_is_the_state_of_one_instant(tmp_path: Path, tablets: int) -> None:
    with ServerProcess(tmp_path / "data", tablets=tablets) as server:
        with strom.connect(server.address) as db:
            make_tables(db)
            with Writer(server.address) as writer:
                before = writer.wait_for(60)
                facts = db.backup(tmp_path / "backup")
                writer.wait_for(5)
        assert not [name for name in (tmp_path / "data").iterdir() if name.name.startswith("backup-")]
    assert facts.files == read_backup(str(tmp_path / "backup")).files
    (tmp_path / "data").rename(tmp_path / "data.gone")
    restore(str(tmp_path / "backup"), str(tmp_path / "new"), quiet)
    with strom.open(tmp_path / "new") as db:
        had = check_state(db, before)
        db.table("log").append({"id": [had]})
        with db.transaction("pairs", had + 1) as both:
            for name in ("first", "second"):
                both.append(db.table(name), {"id": [had]})
        assert sorted(db.table("second").scan().to_arrow()["id"].to_pylist()) == list(range(had + 1))


def test_nothing_is_acknowledged_between_the_first_and_the_last_file_of_a_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    still, do = Backups._still, TabletSlot.do
    arrived, begun = threading.Event(), list[object]()

    def seen(slot: TabletSlot, job: Any, **how: Any) -> Any:
        begun.append(do(slot, job, **how))
        arrived.set()
        return begun[-1]

    with strom.open(tmp_path / "data") as db:
        table = db.create_table("log", {"id": "BIGINT"})
        table.append({"id": [1]})
        table.flush()

        def write() -> None:
            table.append({"id": [2]})
            table.flush()

        writing = threading.Thread(target=write)

        def still_when_a_write_comes(backups: Backups, place: str, lengths: dict[str, int]) -> None:
            monkeypatch.setattr(TabletSlot, "do", seen)
            writing.start()
            assert arrived.wait(30)
            still(backups, place, lengths)
            assert all(isinstance(one, asyncio.Future) and not one.done() for one in begun)

        monkeypatch.setattr(Backups, "_still", still_when_a_write_comes)
        db.backup(tmp_path / "backup")
        writing.join()
        assert table.scan().to_arrow()["id"].to_pylist() == [1, 2]
    restore(str(tmp_path / "backup"), str(tmp_path / "new"), quiet)
    with strom.open(tmp_path / "new") as db:
        assert db.table("log").scan().to_arrow()["id"].to_pylist() == [1]


def test_a_restored_folder_has_its_own_lake_though_the_original_is_gone(tmp_path: Path) -> None:
    with strom.open(tmp_path / "data") as db, small_tierer(db) as tierer:
        table = db.create_table("users", COLUMNS, primary_key=("id",), properties=LAKE)
        for step in range(3):
            table.upsert(rows(*range(step, step + 10)))
            table.delete([{"id": step}])
            tierer.round(table)
        table.upsert(rows(99, name="hot"))
        table.flush()
        expected = sorted(map(repr, table.scan().to_arrow().to_pylist()))
        db.backup(tmp_path / "backup")
        table.upsert(rows(100, name="after"))
        tierer.round(table)
    (tmp_path / "data").rename(tmp_path / "data.gone")
    restore(str(tmp_path / "backup"), str(tmp_path / "new"), quiet)
    with strom.open(tmp_path / "new") as db, small_tierer(db) as tierer:
        table = db.table("users")
        assert sorted(map(repr, table.scan().to_arrow().to_pylist())) == expected
        tierer.round(table)
        assert tierer.compact(table, report=True).files_before
        assert tierer.expire(table).files_removed
        assert sorted(map(repr, table.scan(tier="lake").to_arrow().to_pylist())) == expected
        assert table.lookup({"id": 99}) is not None
        assert table.lookup({"id": 0}) is None


def test_a_start_says_how_the_folder_was_left(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def said(folder: str) -> str:
        caplog.clear()
        with caplog.at_level("INFO"), strom.open(tmp_path / folder) as db:
            db.create_table("log", {"id": "BIGINT"}, if_exists="ignore").append({"id": [1]})
            db.flush()
            if folder == "data" and not (tmp_path / "backup").exists():
                db.backup(tmp_path / "backup")
        (line,) = [one.getMessage() for one in caplog.records if "started version" in one.getMessage()]
        return line

    assert said("data").endswith("0 tables, 1 process; at the last stop there was nothing yet")
    assert said("data").endswith("1 table, 1 process; at the last stop every log in use was closed")
    restore(str(tmp_path / "backup"), str(tmp_path / "new"), quiet)
    assert "the folder is a copy, or was restored, so each bucket reads" in said("new")
    assert "every log in use was closed" in said("new")


def test_folders_of_lake_backup_and_restore_are_private(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with strom.open(tmp_path / "data") as db, small_tierer(db) as tierer:
            table = db.create_table("log", COLUMNS, properties=LAKE)
            table.append(rows(1, 2))
            tierer.round(table)
            db.backup(tmp_path / "backup")
        restore(str(tmp_path / "backup"), str(tmp_path / "new"), quiet)
    finally:
        os.umask(before)
    folders = [one for one in tmp_path.rglob("*") if one.is_dir()]
    assert {"lake", "metadata", "buckets"} <= {one.name for one in folders if tmp_path / "new" in one.parents}
    assert {str(one): oct(one.stat().st_mode & 0o777) for one in folders if one.stat().st_mode & 0o077} == {}


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder on which no server runs."""
    folder = tmp_path_factory.mktemp("stopped") / "data"
    with strom.open(folder) as db:
        db.create_table("log", {"id": "BIGINT"}).append({"id": list(range(100))})
    return folder


@pytest.fixture
def backup(stopped: Path, tmp_path: Path) -> Iterator[Path]:
    copy_folder(LocalFiles(), str(stopped), str(tmp_path / "backup"), SystemClock().now_ms(), quiet)
    return tmp_path / "backup"


def test_a_stopped_folder_is_backed_up_and_restored_by_the_command_line(
    stopped: Path, tmp_path: Path
) -> None:
    told = CliRunner().invoke(app, ["backup", str(tmp_path / "backup"), "--data", str(stopped)])
    assert told.exit_code == 0, told.output
    told = CliRunner().invoke(app, ["restore", str(tmp_path / "backup"), "--data", str(tmp_path / "new")])
    assert told.exit_code == 0, told.output
    with strom.open(tmp_path / "new") as db:
        assert db.table("log").scan().to_arrow().num_rows == 100
    place, before = (json.loads((one / "place.json").read_text()) for one in (tmp_path / "new", stopped))
    assert place["incarnation"] != before["incarnation"]


def test_a_running_server_is_backed_up_by_the_command_line(tmp_path: Path) -> None:
    with strom.open(tmp_path / "data") as db:
        db.create_table("log", {"id": "BIGINT"}).append({"id": [1, 2]})
        server = db.session.target.address
        told = CliRunner().invoke(app, ["--server", server, "backup", str(tmp_path / "backup")])
        assert told.exit_code == 0, told.output
        with pytest.raises(FolderInUse, match="without --data"):
            copy_folder(LocalFiles(), str(tmp_path / "data"), str(tmp_path / "other"), 0, quiet)
    assert read_backup(str(tmp_path / "backup")).size > 0


@pytest.mark.parametrize("harm", ["a byte", "shorter", "missing"])
def test_a_damaged_backup_is_refused(backup: Path, tmp_path: Path, harm: str) -> None:
    (segment,) = (backup / "data" / "buckets").rglob("*.log")
    content = bytearray(segment.read_bytes())
    content[len(content) // 2] ^= 1
    if harm == "missing":
        segment.unlink()
    else:
        segment.write_bytes(content if harm == "a byte" else content[:-1])
    with pytest.raises(ChecksumMismatch):
        restore(str(backup), str(tmp_path / "new"), quiet)
    with pytest.raises(InvalidSetting, match="is not a data folder"):
        strom.open(tmp_path / "new")


def test_only_a_finished_backup_is_restored_and_only_into_an_empty_folder(
    backup: Path, tmp_path: Path
) -> None:
    with pytest.raises(InvalidSetting, match="is not empty"):
        restore(str(backup), str(backup), quiet)
    with pytest.raises(InvalidSetting, match="is not empty"):
        copy_folder(LocalFiles(), str(backup / "data"), str(backup), 0, quiet)
    (backup / BACKUP_FILE).unlink()
    with pytest.raises(InvalidSetting, match="unfinished"):
        restore(str(backup), str(tmp_path / "new"), quiet)
    assert not (tmp_path / "new").exists()


def test_one_backup_at_a_time_and_one_that_nobody_copies_is_forgotten(tmp_path: Path) -> None:
    def ask(work: Any) -> Any:
        return db.session.run(work)

    with strom.open(tmp_path / "data") as db:
        admin = BackupAdmin(db.session.cluster)
        cut = ask(admin.begin())
        assert Path(cut.folder).is_dir()
        with pytest.raises(InvalidRequest, match="already under way"):
            ask(admin.begin())
        ask(admin.renew(cut))
        ask(admin.end(cut))
        assert not Path(cut.folder).exists()
        with pytest.raises(StromError, match="this backup is unknown"):
            ask(admin.renew(cut))
        left = ask(admin.begin())
    assert not Path(left.folder).exists()


def test_a_cut_lives_as_long_as_its_lease_is_renewed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with strom.open(tmp_path / "data") as db:
        admin = BackupAdmin(db.session.cluster)
        monkeypatch.setattr(backups, "LEASE_S", 0.2)
        renewed = db.session.run(admin.begin())
        monkeypatch.setattr(backups, "LEASE_S", 60.0)
        db.session.run(admin.renew(renewed))
        db.session.run(pause(0.3))  # the first lease
        assert Path(renewed.folder).is_dir()
        db.session.run(admin.end(renewed))
        monkeypatch.setattr(backups, "LEASE_S", 0.01)
        forgotten = db.session.run(admin.begin())
        until_blocking(lambda: not Path(forgotten.folder).exists())
        assert "the lease of a backup expired" in caplog.text
        with pytest.raises(StromError, match="its lease has expired"):
            db.session.run(admin.renew(forgotten))
        monkeypatch.setattr(backups, "LEASE_S", 60.0)
        another = db.session.run(admin.begin())
        db.session.run(admin.end(forgotten))  # who was too late ends nothing of somebody else
        assert Path(another.folder).is_dir()
        db.session.run(admin.end(another))


def test_a_cut_during_which_writing_went_on_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pause ends by itself when it takes too long: then the files are not those of one instant."""
    still = Backups._still

    def slowly(self: Backups, place: str, lengths: dict[str, int]) -> None:
        still(self, place, lengths)
        held[0].on = False  # as when its time is over

    held: list[Hold] = []
    engage = Hold.engage

    async def noted(self: Hold) -> None:
        held.append(self)
        await engage(self)

    with strom.open(tmp_path / "data") as db:
        admin = BackupAdmin(db.session.cluster)
        with monkeypatch.context() as patch:
            patch.setattr(Hold, "engage", noted)
            patch.setattr(Backups, "_still", slowly)
            with pytest.raises(InvalidRequest, match="writing went on"):
                db.session.run(admin.begin())
        assert list((tmp_path / "data").glob("backup-*")) == []
        cut = db.session.run(admin.begin())
        assert Path(cut.folder).is_dir(), "the next one is taken"
        db.session.run(admin.end(cut))
