"""Marks of damage hide what they were made for and nothing that is written later, through every crash."""

from __future__ import annotations

from log.workbench import FOLDER, SMALL, START_MS, append_bytes, batch_bytes, read_everything
from strom.log.grouped_log import GroupedLog
from strom.testing.disk import ForgettingDisk


def open_log(disk: ForgettingDisk) -> GroupedLog:
    return GroupedLog.open(disk, FOLDER, SMALL, START_MS)


def sync(log: GroupedLog) -> None:
    point = log.pending_sync()
    assert point is not None
    point.sync()
    log.synced(point)


def rows(first: int, count: int) -> list[tuple[int, int]]:
    return [(number, number) for number in range(first, first + count)]


def test_what_is_written_in_the_place_of_rows_that_a_crash_took_is_read() -> None:
    disk = ForgettingDisk()
    log = open_log(disk)
    append_bytes(log, batch_bytes(0, 3))
    sync(log)
    append_bytes(log, batch_bytes(3, 3))
    log.mark_damaged(0, 6, schema_id=1, now_ms=START_MS)
    disk.crash()  # the second batch was not durable, its mark is
    log = open_log(disk)
    assert log.end_offset == 3
    append_bytes(log, batch_bytes(3, 3))
    sync(log)
    assert read_everything(log) == rows(3, 3)
    disk.crash()
    assert read_everything(open_log(disk)) == rows(3, 3)


def test_a_crash_amid_a_cut_leaves_no_mark_over_what_comes_next() -> None:
    disk = ForgettingDisk()
    log = open_log(disk)
    for first in (0, 3):
        append_bytes(log, batch_bytes(first, 3))
    log.checkpoint()
    log.mark_damaged(3, 6, schema_id=1, now_ms=START_MS)
    begun = len(disk.trace)
    log.truncate(3)
    for count in range(begun, len(disk.trace) + 1):
        other = ForgettingDisk.at(disk.trace, count)
        found = open_log(other)
        assert found.end_offset in (3, 6)
        if found.end_offset == 6:
            found.truncate(3)
        append_bytes(found, batch_bytes(3, 3))
        sync(found)
        other.crash()
        assert read_everything(open_log(other)) == rows(0, 6)
