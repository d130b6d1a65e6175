"""Syncs, checkpoints, full disks and failing ones."""

from __future__ import annotations

import pytest

from log.workbench import START_MS, Workbench, append_bytes, batch_bytes
from strom.errors import StorageFull, StorageOffline
from strom.log import layout as at
from strom.log.epochs import LEAP, Epochs, EpochStart, decode_epochs
from strom.testing.disk import ForgettingDisk
from strom.testing.disk_state import Synced


def disk_of(bench: Workbench) -> ForgettingDisk:
    assert isinstance(bench.disk, ForgettingDisk)
    return bench.disk


def test_the_synced_end_follows_syncs_not_appends() -> None:
    bench = Workbench()
    bench.append_many(3)
    assert bench.log.synced_end == 0
    point = bench.log.pending_sync()
    bench.append()
    assert point is not None
    point.sync()
    bench.log.synced(point)
    assert (bench.log.synced_end, bench.log.end_offset) == (9, 12)
    bench.sync()
    assert bench.log.synced_end == 12
    assert bench.log.pending_sync() is None


def test_points_may_be_handed_back_in_any_order() -> None:
    bench = Workbench()
    bench.append()
    first = bench.log.pending_sync()
    bench.append()
    second = bench.log.pending_sync()
    assert first is not None
    assert second is not None
    for point in (second, first):
        point.sync()
        bench.log.synced(point)
    assert bench.log.synced_end == 6


def test_a_sync_covers_every_segment_since_the_last_one() -> None:
    bench = Workbench(sync_on_roll=False)
    bench.append_many(40)
    assert bench.log.segment_count > 3
    bench.sync()
    bench.crash(False)
    assert bench.log.end_offset == 120
    bench.check()


def test_a_point_taken_before_a_truncation_says_nothing_about_what_came_after() -> None:
    bench = Workbench()
    bench.append_many(3)
    point = bench.log.pending_sync()
    assert point is not None
    bench.log.truncate(3)
    bench.batches = bench.batches[:1]
    bench.append_many(2)
    point.sync()
    bench.log.synced(point)
    assert bench.log.synced_end == 3


def test_a_closed_log_is_durable() -> None:
    bench = Workbench(sync_on_roll=False)
    bench.append_many(40)
    bench.log.close()
    bench.crash(False)
    assert bench.log.report.bytes_scanned == 0
    bench.check()


def test_closing_a_log_that_did_not_change_writes_nothing() -> None:
    bench = Workbench()
    bench.append()
    bench.reopen()
    changes = len(disk_of(bench).trace)
    bench.check()
    bench.log.close()
    bench.log.close()
    assert len(disk_of(bench).trace) == changes


def test_a_checkpoint_bounds_what_the_next_opening_reads() -> None:
    bench = Workbench(segment_bytes=10**6)
    bench.append_many(50)
    bench.log.checkpoint()
    bench.append_many(3)
    size = len(batch_bytes(0, 3))
    bench.crash()
    assert not bench.log.report.clean
    assert bench.log.report.bytes_scanned == 3 * size
    bench.crash()
    assert bench.log.report.clean
    bench.check()


def test_a_checkpoint_is_due_by_bytes_and_written_elsewhere() -> None:
    size = len(batch_bytes(0, 3))
    bench = Workbench(checkpoint_bytes=5 * size, segment_bytes=10**6)
    bench.append_many(4)
    assert bench.log.pending_checkpoint() is None
    bench.append()
    pending = bench.log.pending_checkpoint()
    assert pending is not None
    assert bench.log.pending_checkpoint() is None
    bench.append()
    pending.write()
    bench.log.checkpointed(pending)
    assert bench.log.synced_end == 15
    bench.crash()
    assert bench.log.report.bytes_scanned == size
    bench.check()


def test_a_checkpoint_syncs_only_what_came_since_the_last_one() -> None:
    bench = Workbench()
    bench.append_many(60)
    assert bench.log.segment_count > 5
    bench.log.checkpoint()
    bench.append()
    for life in range(2):
        before = sum(isinstance(change, Synced) for change in disk_of(bench).trace)
        bench.log.checkpoint()
        after = sum(isinstance(change, Synced) for change in disk_of(bench).trace)
        assert after - before == 3, "the active segment, its sidecar, the checkpoint"
        if not life:
            bench.crash()
            bench.append()


@pytest.mark.parametrize("sync_on_roll", [True, False])
def test_what_was_found_after_kill_9_is_durable_once_the_log_is_open(sync_on_roll: bool) -> None:
    """Its rows are shown from then on, so power loss must not take them."""
    bench = Workbench(sync_on_roll=sync_on_roll)
    bench.append_many(40)
    bench.crash(True)
    assert bench.log.synced_end == bench.log.end_offset == 120
    sidecars = {name: bench.disk.size(bench.path(name)) for name in bench.names(at.SIDECAR_SUFFIX)}
    disk_of(bench).crash()
    assert {name: bench.disk.size(bench.path(name)) for name in bench.names(at.SIDECAR_SUFFIX)} == sidecars
    bench.log = bench._open()
    assert bench.log.end_offset == 120
    bench.check()


def test_one_checkpoint_at_a_time_and_no_expiry_meanwhile() -> None:
    bench = Workbench(checkpoint_bytes=1)
    bench.append_many(30)
    pending = bench.log.pending_checkpoint()
    assert pending is not None
    bench.append()
    assert bench.log.pending_checkpoint() is None
    assert bench.log.expire(now_ms=START_MS, ttl_ms=None, bytes_max=0).segments == 0
    pending.write()
    bench.log.checkpointed(pending)
    assert bench.log.expire(now_ms=START_MS, ttl_ms=None, bytes_max=0).segments > 0
    bench.crash()
    bench.check()


def test_opening_is_clean_after_a_close_and_only_then() -> None:
    bench = Workbench()
    assert bench.log.report.clean
    bench.append_many(20)
    assert not bench.crash().report.clean
    bench.append_many(2)
    assert bench.reopen().report.clean


def test_a_clean_opening_reads_no_batch_and_opens_no_segment() -> None:
    bench = Workbench()
    bench.append_many(40)
    bench.reopen()
    assert all(segment.files is None for segment in bench.log._chain.segments)
    assert bench.log._chain._sealed_open == {}


# --- a full disk


def test_a_full_disk_refuses_the_append_and_changes_nothing() -> None:
    bench = Workbench(segment_bytes=10**6)
    bench.append_many(3)
    sizes = {name: bench.disk.size(bench.path(name)) for name in bench.names()}
    size = len(batch_bytes(0, 3))
    for free in (0, 10, size, size + 10, size + at.ENTRY_SIZE - 1):
        disk_of(bench).fill(free)
        with pytest.raises(StorageFull):
            bench.append()
        assert {name: bench.disk.size(bench.path(name)) for name in bench.names()} == sizes
        assert bench.log.end_offset == 9
        bench.check()
    disk_of(bench).fill(None)
    assert bench.append().base_offset == 9
    bench.check()
    bench.reopen()
    bench.check()


def test_a_full_disk_at_a_roll_is_survived() -> None:
    bench = Workbench(segment_bytes=1500)
    bench.append_many(3)
    disk_of(bench).fill(0)
    for _ in range(3):
        with pytest.raises(StorageFull):
            bench.append()
    assert len(bench.names(at.LOG_SUFFIX)) == 1
    disk_of(bench).fill(None)
    bench.append_many(3)
    bench.check()
    bench.crash()
    bench.check()


def test_a_full_disk_at_the_very_first_append_is_survived() -> None:
    bench = Workbench()
    disk_of(bench).fill(20)
    with pytest.raises(StorageFull):
        bench.append()
    disk_of(bench).fill(None)
    assert bench.append().base_offset == 0
    bench.crash()
    bench.check()


def test_a_log_on_a_full_disk_can_be_closed_opened_and_read() -> None:
    bench = Workbench()
    bench.append_many(20)
    disk_of(bench).fill(0)
    bench.reopen()
    bench.check()
    bench.crash()
    bench.check()
    with pytest.raises(StorageFull):
        bench.append()
    disk_of(bench).fill(None)
    bench.append()
    bench.check()


# --- a failing disk


def test_a_failed_sync_takes_the_log_offline_for_good() -> None:
    bench = Workbench()
    bench.append()
    point = bench.log.pending_sync()
    assert point is not None
    disk_of(bench).fail_next_sync()
    with pytest.raises(OSError, match="Input/output"):
        point.sync()
    offline = StorageOffline("the disk failed")
    bench.log.fail(offline)
    for call in (
        bench.append,
        bench.log.pending_sync,
        bench.log.checkpoint,
        bench.read,
        lambda: bench.log.roll_if_due(START_MS),
        lambda: bench.log.truncate(0),
    ):
        with pytest.raises(StorageOffline):
            call()
    changes = len(disk_of(bench).trace)
    bench.log.close()
    assert len(disk_of(bench).trace) == changes, "nothing is written to a disk that failed"


def test_a_failed_sync_at_a_roll_takes_the_log_offline() -> None:
    bench = Workbench(segment_bytes=1500)
    bench.append_many(3)
    disk_of(bench).fail_next_sync()
    with pytest.raises(StorageOffline):
        bench.append()
    with pytest.raises(StorageOffline):
        bench.append()
    bench.crash(True)
    bench.check()
    bench.append()
    bench.check()


def test_what_a_failed_sync_lost_is_noticed_after_the_restart() -> None:
    bench = Workbench(segment_bytes=10**6)
    bench.append_many(2)
    bench.sync()
    bench.append_many(2)
    disk_of(bench).fail_next_sync()
    point = bench.log.pending_sync()
    assert point is not None
    with pytest.raises(OSError, match="Input/output"):
        point.sync()
    bench.crash(False)
    assert bench.log.end_offset == 6
    bench.batches = bench.batches[:2]
    bench.check()


def test_a_file_that_was_taken_away_is_said_to_be_missing() -> None:
    bench = Workbench()
    bench.append()
    bench.reopen()
    bench.disk.remove(bench.path(bench.names(at.LOG_SUFFIX)[0]))
    for call in (
        bench.read,
        lambda: bench.log.tail_rows(1, until=3),
        lambda: bench.log.offset_at(0),
        bench.append,
    ):
        with pytest.raises(StorageOffline, match="No such file"):
            call()


def test_a_sync_asked_for_after_closing_has_nothing_to_do() -> None:
    bench = Workbench()
    bench.append()
    bench.log.close()
    assert bench.log.pending_sync() is None


def test_a_roll_waits_for_the_disk_only_when_told_to() -> None:
    for sync_on_roll in (True, False):
        bench = Workbench(segment_bytes=1500, sync_on_roll=sync_on_roll)
        bench.append_many(3)
        before = sum(isinstance(change, Synced) for change in disk_of(bench).trace)
        bench.append()
        after = sum(isinstance(change, Synced) for change in disk_of(bench).trace)
        assert bench.log.segment_count == 2
        assert after - before == int(sync_on_roll)


def test_an_interrupted_append_is_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Workbench()
    bench.append()
    files = bench.log._chain.active.files
    assert files is not None
    sidecar = files.sidecar
    with monkeypatch.context() as patch:
        patch.setattr(sidecar, "append", _interrupt)
        with pytest.raises(KeyboardInterrupt):
            bench.append()
    append_bytes(bench.log, batch_bytes(50, 1))
    assert bench.read() == [*bench.rows, (3, 50)]


def _interrupt(_buffers: object) -> int:
    raise KeyboardInterrupt


def test_after_damage_of_its_file_an_epoch_is_far_from_any_that_was_given_before() -> None:
    """Lines of it may be lost: the next number could be one that readers know with other rows."""
    known = Epochs((EpochStart(3, 0),), 3)
    assert known.begin(10).latest == 4
    content = known.encode()
    damaged = decode_epochs(content + content[-4:])
    assert damaged.damaged
    assert damaged.begin(10).latest == 3 + LEAP
