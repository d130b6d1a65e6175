"""Crash at every change the log makes to its disk: what was acknowledged is there, what is there is right.

A history runs on the forgetting disk and notes, at every acknowledgement, how long the trace was. Then, for every
prefix of the trace, the disk as a crash leaves it is opened again.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from log.workbench import (
    FOLDER,
    NUMBERS,
    SMALL,
    START_MS,
    Workbench,
    append_bytes,
    batch_bytes,
    read_everything,
)
from strom.log.log import Log
from strom.testing.disk import Drawn, FirstBytes, ForgettingDisk, Survival, Trace
from strom.testing.disk_state import AppendedBytes

Rows = list[tuple[int, int]]
LOST = "an acknowledged row is lost"
POWER_LOSSES: list[bool | Survival] = [False, FirstBytes(150), *map(Drawn, range(3))]


class History(Workbench):
    """A log at work that remembers what was promised when."""

    def __init__(self, **changed: object) -> None:
        super().__init__(**changed)
        #: (trace length, end offset that must survive from then on)
        self.promises: list[tuple[int, int]] = [(0, 0)]
        #: (trace length, every row that may be there from then on, in offset order)
        self.lines: list[tuple[int, Rows]] = []
        self.starts: list[int] = [0]

    @property
    def trace(self) -> Trace:
        assert isinstance(self.disk, ForgettingDisk)
        return self.disk.trace

    def promise(self, end_offset: int) -> None:
        self.promises.append((len(self.trace), end_offset))

    def cut(self, to_offset: int) -> None:
        """From now on what was behind ``to_offset`` may come back or not; it is promised no longer."""
        self.lines.append((len(self.trace), self.all_rows()))
        self.promise(to_offset)
        self.log.truncate(to_offset)
        self.batches = [batch for batch in self.batches if batch.base_offset < to_offset]
        self.promise(to_offset)

    def expire(self, **limits: object) -> None:
        self.log.expire(**{"now_ms": self.now_ms, "ttl_ms": None, "bytes_max": None, **limits})  # type: ignore[arg-type]
        self.starts.append(self.log.start_offset)

    def all_rows(self) -> Rows:
        return [row for batch in self.batches for row in batch.rows]

    def promised_at(self, moment: int) -> int:
        return [end for length, end in self.promises if length <= moment][-1]


def group_history() -> History:
    """Acknowledged after a sync."""
    history = History()
    for number in range(27):
        history.append(1 + number % 4, writer_id=7, sequence=number)
        if number % 3 == 0:
            history.sync()
            history.promise(history.log.end_offset)
        if number in (9, 22):
            history.log.checkpoint()
        if number == 17:
            history.reopen()
            history.promise(history.log.end_offset)
    return history


def os_history() -> History:
    """Acknowledged after the write; a roll does not wait for the disk."""
    history = History(sync_on_roll=False)
    for number in range(27):
        history.append(1 + number % 4, writer_id=7, sequence=number)
        history.promise(history.log.end_offset)
        if number == 14:
            history.log.checkpoint()
        if number == 20:
            history.reopen()
    return history


def recovered(history: History, disk: ForgettingDisk, moment: int) -> Log:
    """Open what the crash left and hold it against the history."""
    log = Log.open(disk, FOLDER, SMALL, START_MS)
    rows = read_everything(log)
    assert log.report.holes == []
    lines = [line for length, line in history.lines if moment >= length] + [
        history.all_rows(),
        *_lines(history),
    ]
    held = [
        line for line in lines if rows == [row for row in line if log.start_offset <= row[0] < log.end_offset]
    ]
    assert held, "what is there is not what was written"
    assert [offset for offset, _ in rows] == list(range(log.start_offset, log.end_offset))
    assert log.start_offset in history.starts
    assert rows == read_everything(log, projection=NUMBERS)
    assert log.synced_end == log.end_offset
    return log


def _lines(history: History) -> list[Rows]:
    return [line for _, line in history.lines]


def go_on(log: Log, disk: ForgettingDisk) -> None:
    """A recovered log is a good log: it takes rows, and has them after the next start."""
    before = read_everything(log)
    epoch = log.epoch
    appended = append_bytes(log, batch_bytes(900_000, 5))
    assert appended.base_offset == (before[-1][0] + 1 if before else log.start_offset)
    assert log.epochs.epoch_of(appended.base_offset) == epoch
    log.close()
    again = Log.open(disk, FOLDER, SMALL, START_MS)
    assert again.report.clean
    assert again.epoch == epoch + 1
    expected = before + [(appended.base_offset + i, 900_000 + i) for i in range(5)]
    assert read_everything(again) == expected


@pytest.mark.parametrize("survival", POWER_LOSSES, ids=str)
def test_power_loss_at_every_change_loses_nothing_that_was_synced(survival: bool | Survival) -> None:
    history = group_history()
    for moment, disk in ForgettingDisk.moments(history.trace, survival):
        log = recovered(history, disk, moment)
        assert log.end_offset >= history.promised_at(moment), LOST
        if moment % 5 == 0:
            go_on(log, disk)


@pytest.mark.torture
@pytest.mark.parametrize("seed", range(100, 160))
def test_power_loss_many_times_over(seed: int) -> None:
    history = group_history()
    for moment, disk in ForgettingDisk.moments(history.trace, Drawn(seed)):
        log = recovered(history, disk, moment)
        assert log.end_offset >= history.promised_at(moment), LOST
        go_on(log, disk)


def test_kill_9_at_every_change_loses_nothing_that_was_written() -> None:
    history = os_history()
    for moment, disk in ForgettingDisk.moments(history.trace, True):
        log = recovered(history, disk, moment)
        assert log.end_offset >= history.promised_at(moment), LOST
        if moment % 5 == 0:
            go_on(log, disk)


@pytest.mark.parametrize("make", [os_history, group_history])
def test_kill_9_within_a_write_leaves_a_tail_that_is_cut(make: Callable[[], History]) -> None:
    history = make()
    for moment, operation in enumerate(history.trace):
        if not isinstance(operation, AppendedBytes) or len(operation.content) < 2:
            continue
        for part in {1, len(operation.content) // 2, len(operation.content) - 1}:
            disk = torn_disk(history.trace, moment, operation, part)
            log = recovered(history, disk, moment)
            assert log.end_offset >= history.promised_at(moment), LOST


def torn_disk(trace: Trace, moment: int, operation: AppendedBytes, part: int) -> ForgettingDisk:
    state = trace.start()
    for earlier in trace[:moment]:
        state.apply(earlier)
    state.apply(AppendedBytes(operation.file, operation.content[:part]))
    return ForgettingDisk(state=state.after_crash(True))


@pytest.mark.parametrize("survival", POWER_LOSSES, ids=str)
def test_power_loss_without_syncs_leaves_a_log_that_begins_as_it_was_written(
    survival: bool | Survival,
) -> None:
    """Under ``os`` power loss may take rows away; it may not garble what stays, nor the order."""
    history = os_history()
    for _moment, disk in ForgettingDisk.moments(history.trace, survival):
        log = Log.open(disk, FOLDER, SMALL, START_MS)
        rows, offset = [], log.start_offset
        while offset < log.end_offset and not (log.report.batches_damaged or log.report.holes):
            found = log.read(offset, until=log.end_offset, max_bytes=10**6)
            offset = found.next_offset
        if not (log.report.batches_damaged or log.report.holes):
            rows = read_everything(log)
            assert rows == history.all_rows()[: len(rows)]
        append_bytes(log, batch_bytes(0, 1))


@pytest.mark.parametrize("survival", [True, *POWER_LOSSES], ids=str)
def test_a_crash_around_a_truncation_leaves_the_log_cut_or_uncut(survival: bool | Survival) -> None:
    history = History()
    history.append_many(30)
    history.sync()
    history.promise(history.log.end_offset)
    history.cut(39)
    history.append_many(3)
    history.cut(9)
    history.append_many(14)
    history.sync()
    history.promise(history.log.end_offset)
    for moment, disk in ForgettingDisk.moments(history.trace, survival):
        log = recovered(history, disk, moment)
        assert log.end_offset >= history.promised_at(moment), LOST
        if moment % 3 == 0:
            go_on(log, disk)


@pytest.mark.parametrize("survival", [True, *POWER_LOSSES], ids=str)
def test_a_crash_around_retention_leaves_no_gap_and_keeps_the_end(survival: bool | Survival) -> None:
    history = History()
    history.append_many(30)
    history.sync()
    history.promise(history.log.end_offset)
    history.starts.extend((0, *history.log.sealed_ends))
    history.expire(bytes_max=5000)
    history.now_ms += 1000
    history.expire(ttl_ms=1)
    assert history.log.start_offset == history.log.end_offset == 90
    history.append_many(3)
    history.sync()
    history.promise(history.log.end_offset)
    for moment, disk in ForgettingDisk.moments(history.trace, survival):
        assert recovered(history, disk, moment).end_offset >= history.promised_at(moment), LOST


@pytest.mark.parametrize("survival", [True, *POWER_LOSSES], ids=str)
def test_a_crash_around_retention_forgets_no_writer(survival: bool | Survival) -> None:
    """What a writer gave lies in segments that go: it must be in a checkpoint before it is nowhere else."""
    history = History()
    for sequence in range(30):
        history.append(writer_id=7, sequence=sequence)
    history.sync()
    history.promise(history.log.end_offset)
    synced_at = len(history.trace)
    history.now_ms += 1000
    history.log.expire(now_ms=history.now_ms, ttl_ms=1, bytes_max=None)
    assert history.log.start_offset == history.log.end_offset == 90
    history.starts.extend(range(0, 91, 3))
    for moment, disk in ForgettingDisk.moments(history.trace, survival):
        if moment >= synced_at:
            known = recovered(history, disk, moment).duplicate_of(7, 29, now_ms=START_MS)
            assert known == (87, 90, True)


@pytest.mark.parametrize("survival", [True, False, Drawn(0), Drawn(1)], ids=str)
def test_a_crash_during_recovery_is_recovered_from(survival: bool | Survival) -> None:
    history = group_history()
    first = ForgettingDisk.at(history.trace, len(history.trace) - 1, FirstBytes(400))
    promised = history.promised_at(len(history.trace) - 1)
    Log.open(first, FOLDER, SMALL, START_MS).close()
    assert len(first.trace) > 3
    for _moment, disk in ForgettingDisk.moments(first.trace, survival):
        assert recovered(history, disk, len(history.trace)).end_offset >= promised, LOST


def test_an_epoch_and_offset_are_never_given_twice() -> None:
    """Follow one log through power losses; every record ever shown is remembered with its epoch."""
    given: dict[tuple[int, int], int] = {}
    disk = ForgettingDisk()
    number = 0
    for life in range(25):
        log = Log.open(disk, FOLDER, SMALL, START_MS)
        for _ in range(life % 4):
            appended = append_bytes(log, batch_bytes(number, 2))
            for i in range(2):
                key = (log.epochs.epoch_of(appended.base_offset + i), appended.base_offset + i)
                assert key not in given
                given[key] = number + i
            number += 2
        if life % 5 == 1:
            log.truncate(log.start_offset + (log.end_offset - log.start_offset) // 2)
            appended = append_bytes(log, batch_bytes(number, 1))
            key = (log.epochs.epoch_of(appended.base_offset), appended.base_offset)
            assert key not in given
            given[key] = number
            number += 1
        for offset, found in read_everything(log):
            assert given[(log.epochs.epoch_of(offset), offset)] == found
        disk.crash(Drawn(life))
