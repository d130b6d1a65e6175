"""When a snapshot of a primary-key bucket is due: by bytes, by age, or because retention waits for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kv.snapshot.test_opening import opened, rows_of, upkeep, write
from strom.errors import StorageFull, StorageOffline
from strom.kv.snapshot.snapshot import SnapshotJob
from strom.log.sync import SyncPoint
from strom.tablet.key_settings import KeySettings
from strom.tablet.key_tablet import KeyTablet

NEVER = 1 << 40
SETTINGS = KeySettings(segment_bytes=4_000, snapshot_bytes=NEVER, snapshot_ms=NEVER, lease_ms=0)


def job_names(tablet: KeyTablet, now_ms: int) -> list[str]:
    """Everything that is due, done."""
    names = []
    while (job := tablet.next_job(now_ms)) is not None:
        names.append(job.name)
        job.work()
        job.finish()
    return names


def tried_in_vain(tablet: KeyTablet, now_ms: int) -> str:
    """The next snapshot, after any work queued before it, finds no room on the disk."""
    while (job := tablet.next_job(now_ms)) is not None and job.name != "snapshot":
        job.work()
        job.finish()
    assert job is not None, "no snapshot is due"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SnapshotJob, "write", _no_room)
        with pytest.raises(StorageFull):
            job.work()
    job.abandon()
    return job.name


def _no_room(_: SnapshotJob) -> None:
    raise StorageFull("no room")


def test_retention_that_waits_for_a_manifest_gets_one_however_often_that_fails(tmp_path: Path) -> None:
    tablet = opened(tmp_path, SETTINGS)
    for start in range(0, 400, 50):
        write(tablet, start)
    upkeep(tablet)
    assert job_names(tablet, 10_000) == [], "neither by bytes nor by age"
    assert tablet.expire(now_ms=10**9, ttl_ms=1, bytes_max=None).segments == 0, (
        "no manifest names the rows yet"
    )
    for _ in range(3):
        assert tried_in_vain(tablet, 10_000) == "snapshot"
    assert job_names(tablet, 10_000) == ["snapshot"]
    assert job_names(tablet, 10_000) == []
    assert tablet.expire(now_ms=10**9, ttl_ms=1, bytes_max=None).segments > 0
    tablet.close()


def test_a_snapshot_is_due_by_age_once_something_was_written(tmp_path: Path) -> None:
    tablet = opened(tmp_path, KeySettings(snapshot_bytes=NEVER, snapshot_ms=1_000, lease_ms=0))
    assert job_names(tablet, 10_000) == []
    assert job_names(tablet, 99_000) == [], "there is nothing to write"
    write(tablet, 0)
    assert job_names(tablet, 99_999) == []
    assert job_names(tablet, 100_000) == ["snapshot"]
    assert job_names(tablet, 200_000) == []
    write(tablet, 50)
    assert job_names(tablet, 200_999) == []
    assert job_names(tablet, 201_000) == ["snapshot"]
    tablet.close()


def test_a_snapshot_is_due_by_bytes_and_a_failed_one_still_is(tmp_path: Path) -> None:
    tablet = opened(tmp_path, KeySettings(snapshot_bytes=4_000, snapshot_ms=NEVER, lease_ms=0))
    write(tablet, 0)
    assert job_names(tablet, 10_000) == []
    for start in range(50, 250, 50):
        write(tablet, start)
    assert tried_in_vain(tablet, 10_000) == "snapshot"
    assert job_names(tablet, 10_000) == ["snapshot"]
    assert job_names(tablet, 10_000) == []
    tablet.close()


def test_a_bucket_whose_log_could_not_be_synced_for_a_snapshot_is_served_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is unknown what the disk has of it; reopening shows it."""
    tablet = opened(tmp_path, KeySettings(snapshot_bytes=1, snapshot_ms=NEVER, lease_ms=0))
    write(tablet, 0)
    job = tablet.next_job(10_000)
    assert job is not None

    def fail(_: SyncPoint) -> None:
        raise OSError("input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(SyncPoint, "sync", fail)
        with pytest.raises(OSError, match="input/output"):
            job.work()
    with pytest.raises(StorageOffline):
        job.abandon()
    with pytest.raises(StorageOffline):
        tablet.live_rows()
    tablet.close()
    again = opened(tmp_path)
    assert again.live_rows() == 50
    again.close()


@pytest.mark.parametrize("error", [StorageFull("no room"), StorageOffline("gone"), OSError(5, "the disk")])
def test_a_last_snapshot_that_fails_does_not_keep_a_bucket_from_closing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    tried = []

    def fail(_: SnapshotJob) -> None:
        tried.append(error)
        raise error

    settings = KeySettings(snapshot_bytes=1_000, snapshot_ms=NEVER, lease_ms=0)
    tablet = opened(tmp_path, settings)
    write(tablet, 0, 400)
    expected = rows_of(tablet)
    with monkeypatch.context() as patch:
        patch.setattr(SnapshotJob, "write", fail)
        tablet.close()
    assert tried == [error]
    again = opened(tmp_path, settings)
    assert rows_of(again) == expected, "replayed from the log"
    again.close()
    once_more = opened(tmp_path, settings)
    assert rows_of(once_more) == expected
    once_more.close()
