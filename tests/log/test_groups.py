"""Groups of a log: visible whole or not at all, through every crash, and counted once."""

from __future__ import annotations

import pytest

from log.workbench import FOLDER, LAYOUT, SMALL, START_MS, append_bytes, batch_bytes, numbers_of
from strom.errors import ChecksumMismatch, Expired, StorageFull, StorageOffline
from strom.log import layout as at
from strom.log.group_file import GROUPS_IN_FILE_MAX
from strom.log.groups import KEPT, Group, Groups, Origin, decode_groups, encode_closed, encode_open
from strom.log.log import Log
from strom.record.batch import Checked, check
from strom.testing.disk import Drawn, FirstBytes, ForgettingDisk, Survival

Rows = list[tuple[int, int]]


class Bench:
    """A log with groups, and what it must hold."""

    def __init__(self, **changed: object) -> None:
        self.disk = ForgettingDisk()
        self.log = open_log(self.disk)
        self.rows: Rows = []
        self.spans: list[tuple[int, int, int]] = []
        """(n, start, end) of every group."""
        self.number = 0
        self.promises: list[tuple[int, int, int]] = []
        """(length of the trace, end, n) of everything that was promised."""

    def append(self, count: int = 2) -> None:
        batch = batch_bytes(self.number, count)
        appended = append_bytes(self.log, batch)
        self._note(appended.base_offset, count)

    def _note(self, base: int, count: int) -> None:
        self.rows += [(base + i, self.number + i) for i in range(count)]
        self.number += count

    def begin(self, n: int, *, overwrite: bool = False) -> None:
        self.log.begin_group(Origin(n, "sink", n, overwrite))

    def put(self, count: int = 2) -> None:
        view = memoryview(batch_bytes(self.number, count))
        checked = Checked(*check(view, layout=LAYOUT), None)
        appended = self.log.append(view, checked, now_ms=START_MS)
        self._note(appended.base_offset, count)

    def close(self) -> Group:
        group = self.log.close_group()
        self.spans.append((group.number, group.start_offset, group.end_offset))
        return group

    def group(self, n: int, *counts: int, overwrite: bool = False) -> Group:
        self.begin(n, overwrite=overwrite)
        for count in counts or (2, 3):
            self.put(count)
        return self.close()

    def sync(self) -> None:
        point = self.log.pending_sync()
        if point is not None:
            point.sync()
            self.log.synced(point)
        self.promises.append(
            (len(self.disk.trace), self.log.synced_end, self.log.groups.applied(self.log.synced_end))
        )

    def crash(self, survival: bool | Survival = False) -> Log:
        self.disk.crash(survival)
        self.log = open_log(self.disk)
        return self.log


def open_log(disk: ForgettingDisk) -> Log:
    return Log.open(disk, FOLDER, SMALL, START_MS)


def rows_of(log: Log) -> Rows:
    offset, rows = log.start_offset, []
    while offset < log.end_offset:
        found = log.read(offset, until=log.end_offset, max_bytes=1500)
        rows += numbers_of(found)
        offset = found.next_offset
    return rows


def test_an_open_group_is_nobodys_but_its_writers() -> None:
    bench = Bench()
    bench.append(3)
    bench.begin(7)
    bench.put(2)
    bench.put(2)
    assert bench.log.end_offset == 3
    bench.sync()
    assert bench.log.synced_end == 3
    assert rows_of(bench.log) == bench.rows[:3]
    assert bench.log.groups.newest == 0
    bench.close()
    assert bench.log.end_offset == 7
    assert bench.log.synced_end == 3
    assert bench.log.groups.applied(6) == 0
    assert bench.log.groups.applied(7) == 7
    assert rows_of(bench.log) == bench.rows


def test_a_group_may_be_larger_than_a_segment() -> None:
    bench = Bench()
    bench.append(3)
    bench.group(1, *[40] * 12)
    bench.append(1)
    assert bench.log.segment_count > 3
    assert rows_of(bench.log) == bench.rows
    assert rows_of(bench.crash(True)) == bench.rows
    assert bench.log.groups.newest == 1


def test_an_open_group_that_filled_segments_is_cut_after_kill_9() -> None:
    bench = Bench()
    bench.append(3)
    bench.begin(1)
    for _ in range(12):
        bench.put(40)
    bench.crash(True)
    assert rows_of(bench.log) == bench.rows[:3]
    assert (bench.log.end_offset, bench.log.groups.newest, bench.log.segment_count) == (3, 0, 1)
    assert bench.log.epochs.latest > 0
    bench.number = 3
    bench.rows = bench.rows[:3]
    bench.group(1)
    assert rows_of(bench.crash(True)) == bench.rows
    assert bench.log.groups.newest == 1


def test_a_batch_that_is_cut_with_the_group_before_it_is_no_duplicate_when_it_comes_again() -> None:
    bench = Bench()
    append_bytes(bench.log, batch_bytes(0, 3, writer_id=5, sequence=0))
    bench.sync()
    bench.group(1)
    append_bytes(bench.log, batch_bytes(20, 2, writer_id=5, sequence=1))
    append_bytes(bench.log, batch_bytes(30, 2, writer_id=6, sequence=0))
    bench.disk.crash(True)
    # The log reached the disk by itself, what tells that the group was closed did not.
    path = f"{FOLDER}/{at.GROUPS_NAME}"
    opened = bench.disk.read_whole(path)[: at.FORMAT_LENGTH + at.GROUP_COPIES * at.GROUP.size]
    bench.disk.write_whole(path, opened)
    log = open_log(bench.disk)
    assert (log.end_offset, log.groups.newest) == (3, 0)
    again = append_bytes(log, batch_bytes(20, 2, writer_id=5, sequence=1))
    other = append_bytes(log, batch_bytes(30, 2, writer_id=6, sequence=0))
    assert not again.duplicate
    assert not other.duplicate
    assert [number for _, number in rows_of(log)] == [0, 1, 2, 20, 21, 30, 31]


def test_an_aborted_group_leaves_nothing() -> None:
    bench = Bench()
    bench.append(3)
    bench.group(1)
    before = list(bench.rows)
    bench.begin(2)
    for _ in range(12):
        bench.put(40)
    assert bench.log.abort_group() == 8
    assert rows_of(bench.log) == before
    bench.rows, bench.number = before, 100
    bench.append(2)
    bench.group(2)
    assert rows_of(bench.log) == bench.rows
    assert rows_of(bench.crash(True)) == bench.rows
    assert [group.number for group in bench.log.groups.closed] == [1, 2]


def test_an_abort_claims_nothing_to_be_durable() -> None:
    bench = Bench()
    bench.append(3)
    bench.group(1)
    bench.begin(2)
    bench.put(2)
    bench.log.abort_group()
    assert bench.log.synced_end == 0


@pytest.mark.parametrize("room", range(0, 3000, 130))
def test_a_full_disk_within_a_group_is_taken_back(room: int) -> None:
    bench = Bench()
    bench.append(3)
    bench.group(1)
    before = list(bench.rows)
    bench.disk.fill(room)
    with pytest.raises(StorageFull):
        bench.group(2, *[20] * 8)
    if bench.log.in_group:
        bench.log.abort_group()
    assert rows_of(bench.log) == before
    bench.disk.fill(None)
    bench.rows, bench.number = before, 100
    bench.append(1)
    bench.group(2)
    assert rows_of(bench.log) == bench.rows
    assert rows_of(bench.crash(True)) == bench.rows


def test_a_truncation_cuts_a_group_whole() -> None:
    bench = Bench()
    bench.append(3)
    bench.group(1, 2, 2)
    bench.append(2)
    bench.group(2, 2, 2)
    assert bench.log.truncate(11) == 9
    assert [group.number for group in bench.log.groups.closed] == [1]
    assert bench.log.truncate(6) == 3
    assert bench.log.groups.newest == 0
    bench.rows, bench.number = bench.rows[:3], 100
    bench.append(1)
    assert rows_of(bench.crash(True)) == bench.rows
    assert bench.log.groups.newest == 0


def test_an_overwriting_group_starts_a_segment_and_what_was_before_goes() -> None:
    bench = Bench()
    bench.append(3)
    bench.group(1)
    group = bench.group(2, 2, 2, overwrite=True)
    assert bench.log.groups.emptied_at(bench.log.end_offset) == group.start_offset == 8
    assert bench.log.drop_before(8) == 1
    assert bench.log.start_offset == 8
    assert rows_of(bench.log) == bench.rows[8:]
    assert rows_of(bench.crash(True)) == bench.rows[8:]
    assert bench.log.groups.newest == 2


@pytest.mark.parametrize("survival", [True, False, FirstBytes(150), Drawn(1)], ids=str)
def test_a_crash_while_what_was_overwritten_goes_forgets_no_writer(survival: bool | Survival) -> None:
    """What it gave lies in segments that go: it must be in a checkpoint before it is nowhere else."""
    bench = Bench()
    for sequence in range(20):
        append_bytes(bench.log, batch_bytes(3 * sequence, 3, writer_id=7, sequence=sequence))
    bench.number = 60
    bench.group(1, overwrite=True)
    bench.sync()
    synced_at = len(bench.disk.trace)
    assert bench.log.drop_before(60) > 1
    for moment, disk in ForgettingDisk.moments(bench.disk.trace, survival):
        if moment >= synced_at:
            log = open_log(disk)
            assert log.duplicate_of(7, 19, now_ms=START_MS) == (57, 60, True)
            assert log.end_offset == 65
            assert rows_of(log)[-5:] == bench.rows


def test_of_many_groups_the_newest_are_remembered_and_the_last_forgotten_can_be_planned_with() -> None:
    """A read that was planned at its number ends where the first one that is remembered starts."""
    closed = tuple(Group(Origin(n, "s", n), 10 * n, 10 * n + 10) for n in range(1, KEPT + 4))
    groups = Groups(closed).trimmed()
    assert groups.closed == closed[3:]
    assert groups.forgotten == 3
    assert groups.first_above(3) == closed[3]
    with pytest.raises(Expired):
        groups.first_above(2)
    assert (groups.applied(45), groups.applied(50), groups.applied(60)) == (3, 4, 5)
    assert (groups.end_of(3), groups.end_of(4), groups.end_of(10**6)) == (0, 50, closed[-1].end_offset)
    assert Groups(closed[:KEPT]).trimmed() == Groups(closed[:KEPT])
    assert decode_groups(groups.encode()).groups == groups


@pytest.mark.parametrize(
    "second", [(2, 5, 15), (1, 10, 20), (2, 10, 10)], ids=["overlapping", "again", "empty"]
)
def test_groups_that_do_not_follow_one_another_are_left_out(second: tuple[int, int, int]) -> None:
    first, last = Group(Origin(1, "s", 1), 0, 10), Group(Origin(3, "s", 3), 20, 30)
    number, start, end = second
    between = Group(Origin(number, "s", number), start, end)
    content = at.GROUPS_FORMAT + b"".join(map(encode_closed, (first, between, last)))
    assert decode_groups(content).groups.closed == (first, last)


def test_numbers_that_were_forgotten_are_still_applied_and_cannot_be_planned_with() -> None:
    bench = Bench()
    for n in range(1, GROUPS_IN_FILE_MAX + 20):
        bench.group(n, 1)
    assert bench.log.groups.newest == GROUPS_IN_FILE_MAX + 19
    assert KEPT <= len(bench.log.groups.closed) <= GROUPS_IN_FILE_MAX
    size = bench.disk.size(f"{FOLDER}/{at.GROUPS_NAME}")
    assert size < (GROUPS_IN_FILE_MAX + 1) * 2 * at.GROUP_COPIES * at.GROUP.size
    before = bench.log.groups
    assert bench.crash(True).groups == before
    with pytest.raises(Expired):
        before.first_above(1)
    newest = before.first_above(before.newest - 1)
    assert newest is not None
    assert newest.number == before.newest


def history() -> Bench:
    """Appends, groups, syncs, an abort, a checkpoint, a restart, an overwrite."""
    bench = Bench()
    bench.append()
    bench.group(1, 2, 3)
    bench.sync()
    bench.append()
    bench.group(3, 30, 30, 30)
    bench.group(4, 1)
    bench.append()
    bench.sync()
    bench.begin(5)
    bench.put(3)
    bench.sync()
    bench.log.abort_group()
    del bench.rows[-3:]
    bench.append(1)
    bench.sync()
    bench.append(1)
    bench.group(5, 2, 2)
    bench.log.checkpoint()
    bench.append()
    bench.group(6, 30, 30)
    bench.sync()
    bench.log.close()
    bench.log = open_log(bench.disk)
    bench.group(9, 2, 2)
    bench.append()
    bench.sync()
    return bench


@pytest.mark.parametrize("survival", [True, False, FirstBytes(100), *map(Drawn, range(4))], ids=repr)
def test_at_every_crash_a_group_is_there_whole_or_not_at_all(survival: bool | Survival) -> None:
    bench = history()
    moments = 0
    for count, disk in ForgettingDisk.moments(bench.disk.trace, survival):
        log = open_log(disk)
        promised = [(end, n) for length, end, n in bench.promises if length <= count] or [(0, 0)]
        assert log.end_offset >= promised[-1][0]
        assert log.groups.newest >= promised[-1][1]
        spans = [(group.number, group.start_offset, group.end_offset) for group in log.groups.closed]
        assert spans == bench.spans[: len(spans)]
        for _, start, end in bench.spans[len(spans) :]:
            assert log.end_offset <= start or end < log.end_offset, "half a group"
        assert rows_of(log) == bench.rows[: log.end_offset]
        again = open_log(disk)
        assert (again.end_offset, again.groups) == (log.end_offset, log.groups)
        moments += 1
    assert moments > 100


def test_a_flipped_byte_in_the_file_costs_nothing() -> None:
    bench = Bench()
    for n in (1, 2, 3):
        bench.group(n)
        bench.append()
    bench.sync()
    bench.log.close()
    path = f"{FOLDER}/{at.GROUPS_NAME}"
    content = bench.disk.read_whole(path)
    for position in range(len(content)):
        bench.disk.flip(path, position, position % 8)
        found = decode_groups(bench.disk.read_whole(path))
        assert found.groups == bench.log.groups
        assert not found.sound
        bench.disk.flip(path, position, position % 8)
    for position in range(0, len(content), 37):
        bench.disk.flip(path, position, position % 8)
        log = open_log(bench.disk)
        assert (log.groups, rows_of(log)) == (bench.log.groups, bench.rows)
        log.close()
        bench.disk.flip(path, position, position % 8)


def test_a_group_whose_closing_record_is_gone_counts_when_it_was_durable() -> None:
    bench = Bench()
    bench.append()
    bench.group(4)
    bench.append()
    bench.sync()
    bench.append()  # its entry tells up to where the log was synced
    path = f"{FOLDER}/{at.GROUPS_NAME}"
    file = bench.disk.open(path)
    file.truncate(file.size() - 2 * at.GROUP.size)
    bench.crash(True)
    assert bench.log.groups.newest == 4
    assert rows_of(bench.log) == bench.rows


def test_a_damaged_record_between_others_is_a_closed_group() -> None:
    first, second = Group(Origin(1, "a", 1), 0, 5), Group(Origin(2, "b", 1), 7, 9)
    damaged = bytearray(encode_closed(first))
    damaged[10] ^= 1
    damaged[at.GROUP.size + 10] ^= 1
    content = b"".join(
        [at.GROUPS_FORMAT, encode_open(*first[:2]), damaged, encode_open(*second[:2]), encode_closed(second)]
    )
    found = decode_groups(content)
    assert found.groups.closed == (first._replace(end_offset=7), second)
    assert found.opened is None
    assert not found.sound


def test_any_bytes_can_be_looked_at() -> None:
    whole = Groups((Group(Origin(1, "ä" * 60, 1), 0, 5), Group(Origin(2, "b", 1), 7, 9))).encode()
    for length in range(len(whole)):
        found = decode_groups(whole[:length])
        assert len(found.groups.closed) <= 2
    assert decode_groups(b"").groups == Groups()
    assert decode_groups(bytes(1000)).groups == Groups()
    assert [len(one.origin.sink) for one in decode_groups(whole).groups.closed] == [32, 1]


def test_a_disk_that_fails_within_a_group_takes_the_log_offline() -> None:
    bench = Bench()
    bench.append()
    bench.disk.fail_next_sync()
    with pytest.raises(StorageOffline):
        bench.begin(1)
    assert bench.log.offline is not None
    bench.crash()
    assert bench.log.groups.newest == 0


def test_a_flipped_byte_within_a_group_is_found_by_its_reader() -> None:
    bench = Bench()
    bench.group(1, 50)
    bench.sync()
    bench.log.checkpoint()
    bench.disk.flip(f"{FOLDER}/{at.segment_name(0)}", 200)
    with pytest.raises(ChecksumMismatch):
        rows_of(bench.log)
