"""Marks of damage hide what they were made for and nothing that is written later, through every crash."""

from __future__ import annotations

from log.workbench import FOLDER, SMALL, START_MS, append_bytes, batch_bytes, read_everything
from strom.log.log import Log
from strom.testing.disk import ForgettingDisk


def open_log(disk: ForgettingDisk) -> Log:
    return Log.open(disk, FOLDER, SMALL, START_MS)


def sync(log: Log) -> None:
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


def read_slices(log: Log) -> list[tuple[int, int, int]]:
    """(from, until, rows) of every slice, as a reader from the beginning gets them."""
    found, offset = [], 0
    while offset < log.end_offset:
        one = log.read(offset, until=log.end_offset, max_bytes=1)
        found.append((offset, one.next_offset, one.rows))
        offset = one.next_offset
    return found


def test_marks_are_as_wide_as_all_that_was_given_up_and_go_only_where_they_are_taken_back() -> None:
    disk = ForgettingDisk()
    log = open_log(disk)
    for first in range(0, 18, 3):
        append_bytes(log, batch_bytes(first, 3))
    log.mark_damaged(3, 12, schema_id=1, now_ms=START_MS)
    log.mark_damaged(6, 7, schema_id=1, now_ms=START_MS)  # inside of what is given up already
    expected = [(0, 3, 3), (3, 12, 0), (12, 15, 3), (15, 18, 3)]
    assert read_slices(log) == expected
    assert log.read(0, until=18, max_bytes=10**6).next_offset == 3, "a read ends before what is given up"
    log.close()
    log = open_log(disk)
    assert read_slices(log) == expected
    log.mark_damaged(15, 18, schema_id=1, now_ms=START_MS)
    assert log.unmark_damaged(0, 3) == log.unmark_damaged(12, 15) == 0, "nothing of it is marked"
    assert log.unmark_damaged(11, 13) == 9
    assert read_slices(log) == [*((first, first + 3, 3) for first in range(0, 15, 3)), (15, 18, 0)]
    assert log.unmark_damaged(15, 16) == 3
    log.close()
    assert read_everything(open_log(disk)) == rows(0, 18)
