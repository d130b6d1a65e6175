"""What is cut from a log is cut whole, or the log lets nothing more in: also when the process runs out of handles."""

from __future__ import annotations

import pytest

from log.test_marks import open_log, rows, sync
from log.workbench import LAYOUT, START_MS, append_bytes, batch_bytes, read_everything
from strom.errors import Busy, StorageFull, StorageOffline
from strom.log.groups import Origin
from strom.record.batch import Checked, check
from strom.testing.disk import ForgettingDisk


def test_a_group_that_cannot_be_taken_back_for_want_of_handles_lets_nothing_more_in() -> None:
    disk = ForgettingDisk()
    log = open_log(disk)
    append_bytes(log, batch_bytes(0, 3))
    sync(log)
    log.begin_group(Origin(1, "sink", 1, False))
    view = memoryview(batch_bytes(3, 3))
    log.append(view, Checked(*check(view, layout=LAYOUT), None), now_ms=START_MS)
    refuse_handles(disk)
    with pytest.raises(StorageOffline):
        log.abort_group()
    with pytest.raises(StorageOffline):
        append_bytes(log, batch_bytes(3, 3))
    disk.crash(keep_unsynced=True)
    del disk.sync_folder
    assert read_everything(open_log(disk)) == rows(0, 3)


def test_a_cut_that_ends_for_want_of_handles_lets_nothing_more_in() -> None:
    disk = ForgettingDisk()
    log = open_log(disk)
    for first in (0, 3):
        append_bytes(log, batch_bytes(first, 3))
    sync(log)
    refuse_handles(disk)
    with pytest.raises(StorageOffline):
        log.truncate(3)
    with pytest.raises(StorageOffline):
        append_bytes(log, batch_bytes(3, 3))


def test_a_cut_that_finds_no_room_lets_nothing_more_in() -> None:
    disk = ForgettingDisk()
    log = open_log(disk)
    for first in (0, 3):
        append_bytes(log, batch_bytes(first, 3))
    sync(log)
    disk.fill(0)
    with pytest.raises((StorageFull, StorageOffline)):
        log.truncate(3)
    disk.fill(None)
    with pytest.raises(StorageOffline):
        append_bytes(log, batch_bytes(100, 3))
    disk.crash(keep_unsynced=True)
    log = open_log(disk)
    assert read_everything(log) == rows(0, log.end_offset)


def refuse_handles(disk: ForgettingDisk) -> None:
    def refuse(path: str) -> None:
        raise Busy("too many files are open")

    disk.sync_folder = refuse  # type: ignore[method-assign]
