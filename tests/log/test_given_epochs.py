"""A log that is given its epochs begins none itself, and nothing that it takes back comes again."""

from __future__ import annotations

import pytest

from strom.errors import StaleEpoch, StorageFull
from strom.log.epochs import Epochs, EpochStart
from strom.log.groups import Origin
from strom.log.log import Log
from strom.testing.disk import Drawn, ForgettingDisk

from .workbench import FOLDER, SMALL, START_MS, append_bytes, batch_bytes, read_everything


def open_copy(disk: ForgettingDisk) -> Log:
    return Log.open(disk, FOLDER, SMALL, START_MS, own_epochs=False)


def led(disk: ForgettingDisk, epoch: int = 3) -> Log:
    log = open_copy(disk)
    log.begin_epoch(epoch)
    return log


def synced(log: Log) -> None:
    point = log.pending_sync()
    assert point is not None
    point.sync()
    log.synced(point)


def test_opening_cutting_and_aborting_begin_no_epoch() -> None:
    disk = ForgettingDisk()
    log = led(disk)
    for number in range(4):
        append_bytes(log, batch_bytes(3 * number, 3))
    log.begin_group(Origin(1, "sink", 1))
    append_bytes(log, batch_bytes(12, 3))
    log.abort_group()
    append_bytes(log, batch_bytes(12, 1))
    assert log.epochs.starts == ((3, 0),)
    assert log.truncate(6) == 6
    assert log.epochs.starts == ((3, 0),)
    log.close()
    assert open_copy(disk).epochs.starts == ((3, 0),)


def test_the_epochs_of_what_was_cut_are_gone_for_good() -> None:
    disk = ForgettingDisk()
    log = led(disk, 3)
    append_bytes(log, batch_bytes(0, 3))
    log.begin_epoch(5)
    append_bytes(log, batch_bytes(3, 3))
    log.truncate(3)
    assert log.epochs.latest == 3
    with pytest.raises(StaleEpoch):
        log.begin_epoch(3)
    log.begin_epoch(4)
    append_bytes(log, batch_bytes(3, 3))
    disk.crash(True)
    assert open_copy(disk).epochs.starts == ((3, 0), (4, 3))


@pytest.mark.parametrize("seed", range(30))
def test_what_found_no_room_never_comes_back_in_the_place_of_what_did(seed: int) -> None:
    """Both have the same epoch and offset; only one of them was ever seen."""
    disk = ForgettingDisk()
    log = led(disk)
    append_bytes(log, batch_bytes(0, 3))
    synced(log)
    batch = batch_bytes(100, 3)
    disk.fill(len(batch) + 10)  # enough for the batch, not for its entry
    with pytest.raises(StorageFull):
        append_bytes(log, batch)
    disk.fill(None)
    append_bytes(log, batch_bytes(3, 3))
    disk.crash(Drawn(seed))
    assert [number for _, number in read_everything(open_copy(disk))] in ([0, 1, 2], [0, 1, 2, 3, 4, 5])


@pytest.mark.parametrize("seed", range(12))
def test_an_index_of_an_aborted_group_is_not_taken_for_one_of_what_follows(seed: int) -> None:
    """Batches of the same sizes follow, later: an old index would lead to wrong times."""
    disk = ForgettingDisk()
    log = led(disk)
    append_bytes(log, batch_bytes(0, 3))
    synced(log)
    log.begin_group(Origin(1, "sink", 1))
    for number in range(40):  # more than a segment: the first ones are sealed, with an index
        append_bytes(log, batch_bytes(103 + 2 * number, 2), now_ms=START_MS + 10)
    log.abort_group()
    for number in range(40):
        append_bytes(log, batch_bytes(3 + 2 * number, 2), now_ms=START_MS + 20 + number)
    log.checkpoint()
    disk.crash(Drawn(seed))
    log = open_copy(disk)
    assert [number for _, number in read_everything(log)] == list(range(83))
    assert [log.offset_at(START_MS + 20 + number) for number in range(40)] == [3 + 2 * n for n in range(40)]


def test_timestamps_go_back_with_what_is_cut() -> None:
    """Other batches follow, of a leader whose clock may be behind."""
    disk = ForgettingDisk()
    log = led(disk)
    append_bytes(log, batch_bytes(0, 3), now_ms=START_MS)
    append_bytes(log, batch_bytes(3, 3), now_ms=START_MS + 1000)
    log.truncate(3)
    log.begin_epoch(4)
    append_bytes(log, batch_bytes(3, 3), now_ms=START_MS + 5)
    assert log._chain.newest_timestamp_ms == START_MS + 5
    log.begin_group(Origin(1, "sink", 1))
    append_bytes(log, batch_bytes(6, 3), now_ms=START_MS + 9000)
    disk.crash(True)
    assert open_copy(disk)._chain.newest_timestamp_ms == START_MS + 5


def test_a_cut_leaves_to_a_writer_what_it_gave_before_also_if_its_segments_are_gone() -> None:
    disk = ForgettingDisk()
    log = led(disk)
    for sequence in range(40):
        append_bytes(log, batch_bytes(3 * sequence, 3, writer_id=7, sequence=sequence))
    append_bytes(log, batch_bytes(120, 3, writer_id=8, sequence=0))
    log.expire(now_ms=START_MS + 1, ttl_ms=0, bytes_max=None, keep_from=123)
    assert log.start_offset == 123
    for sequence in range(1, 9):
        append_bytes(log, batch_bytes(120 + 3 * sequence, 3, writer_id=8, sequence=sequence))
    append_bytes(log, batch_bytes(147, 3, writer_id=9, sequence=0))
    assert log.truncate(126) == 126
    assert log.duplicate_of(7, 39, now_ms=START_MS) == (117, 120, True)
    assert log.duplicate_of(8, 1, now_ms=START_MS) == (123, 126, True)
    assert log.duplicate_of(9, 0, now_ms=START_MS) is None


def test_the_epoch_of_the_record_before_the_log_stays_known() -> None:
    epochs = Epochs().given(2, 0).given(5, 10).given(6, 20, log_start=10)
    assert epochs.starts == (EpochStart(2, 0), EpochStart(5, 10), EpochStart(6, 20))
    assert epochs.given(7, 30, log_start=11).starts == ((5, 10), (6, 20), (7, 30))
    assert epochs.given(6, 20).starts == epochs.starts
    assert epochs.given(5, 20).starts == ((2, 0), (5, 10))
    with pytest.raises(StaleEpoch):
        epochs.given(5, 21)
    assert epochs.until(20).latest == 5
