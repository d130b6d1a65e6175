"""What background work of a primary-key bucket is due, in which order, and what files it leaves."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from kv.snapshot.test_opening import SCHEMA, opened, rows_of, write
from kv.snapshot.test_snapshots_due import NEVER, job_names
from strom.errors import StorageFull
from strom.kv.snapshot.manifest import BASE_PREFIX, MANIFEST_NAME
from strom.kv.snapshot.snapshot import SnapshotJob
from strom.tablet.key_jobs import Job
from strom.tablet.key_scan import ScanRequest
from strom.tablet.key_settings import KeySettings
from strom.tablet.key_tablet import KeyTablet
from strom.tablet.key_upkeep import CLOSING_SHARE, SNAPSHOT_KEY_BYTES

NOW = 10_000
QUIET = KeySettings(segment_bytes=4_000, snapshot_bytes=NEVER, snapshot_ms=NEVER, lease_ms=0)
"""Rows are carried when their segment is sealed, and no snapshot is due."""


def due(tablet: KeyTablet, now_ms: int = NOW) -> Job:
    """The next job, which must be there."""
    job = tablet.next_job(now_ms)
    assert job is not None
    return job


def done(job: Job) -> Job:
    """The job, done."""
    job.work()
    job.finish()
    return job


def snapshot(tablet: KeyTablet) -> None:
    """A snapshot, though none is due."""
    done(tablet.upkeep.snapshot_job())


def delete(tablet: KeyTablet, keys: range) -> None:
    """The rows of these keys."""
    rows = pa.record_batch([list(keys), [""] * len(keys)], schema=SCHEMA.to_arrow())
    gone = [True] * len(keys)
    tablet.upsert(
        rows,
        pa.array(gone).to_numpy(zero_copy_only=False),
        targets=None,
        schema_id=1,
        writer_id=-1,
        batch_sequence=-1,
        now_ms=NOW,
    )


def files(folder: Path) -> set[str]:
    """The files of the store."""
    return {one.name for one in (folder / "kv").iterdir()}


def base_files(folder: Path) -> list[str]:
    """Those with rows, in the order of their offsets."""
    return sorted(name for name in files(folder) if name.startswith(BASE_PREFIX))


def test_rows_are_carried_once_their_segment_is_sealed_and_all_of_them_only_once(tmp_path: Path) -> None:
    tablet = opened(tmp_path, QUIET)
    write(tablet, 0)
    assert tablet.next_job(NOW) is None
    for start in range(50, 400, 50):
        write(tablet, start)
    sealed = max(tablet.log.sealed_ends)
    assert 0 < sealed < tablet.high_watermark
    assert job_names(tablet, NOW) == ["reclaim", "carry"]
    assert tablet.store.rows.carried == sealed
    assert len(base_files(tmp_path)) == 1
    assert job_names(tablet, NOW) == []
    tablet.close()


def test_more_rows_than_memory_should_hold_are_carried_though_their_segment_is_open(tmp_path: Path) -> None:
    settings = KeySettings(
        segment_bytes=NEVER, snapshot_bytes=NEVER, snapshot_ms=NEVER, lease_ms=0, memory_rows_max=50
    )
    tablet = opened(tmp_path, settings)
    write(tablet, 0, 50)
    assert tablet.next_job(NOW) is None, "as many as it may hold"
    write(tablet, 50, 1)
    assert job_names(tablet, NOW) == ["reclaim", "carry"]
    assert tablet.store.rows.carried == tablet.high_watermark == 51
    assert len(rows_of(tablet)) == 51
    tablet.close()


def test_one_job_at_a_time_and_one_that_failed_leaves_no_file_and_comes_again(tmp_path: Path) -> None:
    tablet = opened(tmp_path, QUIET)
    for start in range(0, 400, 50):
        write(tablet, start)
    assert done(due(tablet)).name == "reclaim"
    job = due(tablet)
    assert tablet.next_job(NOW) is None, "one is under way"
    job.work()
    (abandoned,) = base_files(tmp_path)
    job.abandon()
    assert base_files(tmp_path) == []
    names = job_names(tablet, NOW)
    assert names[-1] == job.name == "carry"
    (written,) = base_files(tmp_path)
    assert written != abandoned, "a name is never used again: somebody may still have the file open"
    assert len(rows_of(tablet)) == 400
    tablet.close()


def test_tombstones_that_nobody_needs_are_forgotten_once_before_a_file_is_written(tmp_path: Path) -> None:
    tablet = opened(tmp_path, QUIET)
    for start in range(0, 400, 50):
        write(tablet, start)
        delete(tablet, range(start, start + 50))
    assert job_names(tablet, NOW)[:2] == ["reclaim", "carry"]
    assert job_names(tablet, NOW) == []
    (carried,) = tablet.store.rows.file_facts()
    assert carried.rows == 0, "neither the rows nor their tombstones"
    assert rows_of(tablet) == {}
    tablet.close()


def test_an_instant_that_a_scan_uses_keeps_its_rows_until_its_lease_is_over(tmp_path: Path) -> None:
    settings = KeySettings(
        segment_bytes=4_000, snapshot_bytes=NEVER, snapshot_ms=NEVER, lease_ms=1_000, merge_files=NEVER
    )
    tablet = opened(tmp_path, settings)
    write(tablet, 0)
    tablet.next_job(NOW)
    at = tablet.scan(ScanRequest(), now_ms=NOW).at
    assert at == 50
    for now_ms in (
        NOW + 1_000,
        NOW + 2_000,
    ):  # the second is later than a lease after anything but the first reading
        for number in range(20):
            write(tablet, 0, word=f"{now_ms} {number} ")
        names = job_names(tablet, now_ms)
        assert "carry" in names
        assert "merge" not in names, "it could leave nothing out"
        assert tablet.horizon <= at
        assert dict(rows_at(tablet, at, now_ms)) == {key: f"n{key}" for key in range(50)}
    assert "merge" not in job_names(tablet, NOW + 3_000), "exactly until then"
    assert "merge" in job_names(tablet, NOW + 3_001)
    assert tablet.horizon > at, "nobody has asked for longer than a lease"
    tablet.close()


def rows_at(tablet: KeyTablet, at: int, now_ms: int) -> list[tuple[int, str]]:
    """All rows as of an instant."""
    found = tablet.scan(ScanRequest(at=at), now_ms=now_ms)
    assert found.done
    return [(row["id"], row["name"]) for batch in found.batches for row in batch.rows.to_pylist()]


def test_a_snapshot_leaves_the_files_it_names_and_none_else(tmp_path: Path) -> None:
    settings = KeySettings(
        segment_bytes=4_000, snapshot_bytes=NEVER, snapshot_ms=NEVER, lease_ms=0, merge_files=2
    )
    tablet = opened(tmp_path, settings)
    for number in range(3):
        for start in range(0, 400, 50):
            write(tablet, start, word=f"{number} ")
        job_names(tablet, NOW)
        snapshot(tablet)
        assert tablet.manifest is not None
        assert files(tmp_path) == {MANIFEST_NAME, *tablet.manifest.files()}
        assert tablet.manifest.offset == tablet.high_watermark
        assert tablet.store.series.start == tablet.manifest.series_start, (
            "in memory is only what is not in files"
        )
    assert tablet.store.series.start > 0
    expected = rows_of(tablet)
    tablet.close()
    again = opened(tmp_path, settings)
    assert rows_of(again) == expected
    again.close()


def test_files_of_mostly_dead_rows_are_merged_once_and_then_left_alone(tmp_path: Path) -> None:
    settings = KeySettings(
        segment_bytes=4_000, snapshot_bytes=NEVER, snapshot_ms=NEVER, lease_ms=0, merge_files=NEVER
    )
    tablet = opened(tmp_path, settings)
    for number in range(4):
        for start in range(0, 400, 50):
            write(tablet, start, word=f"{number} ")
        job_names(tablet, NOW)
    facts = tablet.store.rows.file_facts()
    assert all(one.live >= one.rows * (1 - settings.merge_dead_share) for one in facts)
    assert job_names(tablet, NOW) == []
    assert rows_of(tablet) == {key: f"3 {key}" for key in range(400)}
    tablet.close()


def test_a_snapshot_is_not_due_before_the_changelog_is_as_large_as_the_snapshot_of_its_index(
    tmp_path: Path,
) -> None:
    settings = KeySettings(segment_bytes=NEVER, snapshot_bytes=1, snapshot_ms=NEVER, lease_ms=0)
    tablet = opened(tmp_path, settings)
    write(tablet, 0, 2_000)
    snapshot(tablet)
    before = tablet.log.size_bytes
    while tablet.next_job(NOW) is None:
        write(tablet, 0, 1)
        assert tablet.log.size_bytes - before < 2 * SNAPSHOT_KEY_BYTES * 2_000
    assert tablet.log.size_bytes - before >= SNAPSHOT_KEY_BYTES * 2_000
    tablet.close()


@pytest.mark.parametrize("share", [2 * CLOSING_SHARE, 1])
def test_closing_takes_a_snapshot_if_that_saves_enough_of_a_replay(tmp_path: Path, share: int) -> None:
    probe = opened(tmp_path / "probe", QUIET)
    write(probe, 0)
    size = probe.log.size_bytes
    probe.close()
    assert not (tmp_path / "probe" / "kv" / MANIFEST_NAME).exists()
    settings = KeySettings(snapshot_bytes=size * share, snapshot_ms=NEVER, lease_ms=0)
    tablet = opened(tmp_path / "bucket", settings)
    write(tablet, 0)
    tablet.close()
    assert (tmp_path / "bucket" / "kv" / MANIFEST_NAME).exists() == (share < CLOSING_SHARE)


def test_closing_amid_a_job_takes_no_snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = KeySettings(segment_bytes=4_000, snapshot_bytes=8, snapshot_ms=NEVER, lease_ms=0)
    tablet = opened(tmp_path, settings)
    for start in range(0, 400, 50):
        write(tablet, start)
    due(tablet)
    taken: list[object] = []
    monkeypatch.setattr(SnapshotJob, "write", taken.append)
    tablet.close()
    assert taken == []


def test_what_a_new_copy_needs_is_the_manifest_its_files_and_the_log_up_to_it(tmp_path: Path) -> None:
    tablet = opened(tmp_path, QUIET)
    for start in range(0, 400, 50):
        write(tablet, start)
    job_names(tablet, NOW)
    snapshot(tablet)
    write(tablet, 400)
    assert tablet.manifest is not None
    held = tablet.upkeep.held_base(tablet.manifest)
    assert held.base.offset == tablet.manifest.offset == 400
    assert held.identity == (400, tablet.manifest.number)
    sizes = {one.name: one.size for one in held.base.files}
    of_the_store = {f"kv/{MANIFEST_NAME}", *(f"kv/{name}" for name in tablet.manifest.files())}
    assert of_the_store <= set(sizes)
    for name in of_the_store:
        assert sizes[name] == (tmp_path / name).stat().st_size
    assert [name for name in sizes if name.endswith(".log")]
    tablet.close()


def test_rows_leave_memory_before_files_are_tidied(tmp_path: Path) -> None:
    settings = KeySettings(
        segment_bytes=4_000, snapshot_bytes=NEVER, snapshot_ms=NEVER, lease_ms=0, merge_files=2
    )
    tablet = opened(tmp_path, settings)
    for _ in range(2):
        for start in range(0, 400, 50):
            write(tablet, start)
        while (job := due(tablet)).name != "carry":
            done(job)
        done(job)
    assert len(base_files(tmp_path)) == 2, "which could be merged"
    for start in range(0, 400, 50):
        write(tablet, start)
    names = job_names(tablet, NOW)
    assert names.index("carry") < names.index("merge")
    tablet.close()


def test_a_snapshot_by_age_is_as_young_as_the_one_before_it_even_if_rows_came_at_once(tmp_path: Path) -> None:
    settings = KeySettings(snapshot_bytes=NEVER, snapshot_ms=1_000, lease_ms=0)
    tablet = opened(tmp_path, settings)
    write(tablet, 0)
    assert tablet.next_job(NOW) is None
    assert done(due(tablet, NOW + 1_000)).name == "snapshot"
    write(tablet, 50)
    assert tablet.next_job(NOW + 1_001) is None
    assert tablet.next_job(NOW + 2_000) is None
    assert done(due(tablet, NOW + 2_001)).name == "snapshot"
    tablet.close()


def test_what_a_failed_snapshot_was_to_hold_still_counts_when_the_bucket_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tablet = opened(tmp_path, KeySettings(snapshot_bytes=1_000, snapshot_ms=NEVER, lease_ms=0))
    write(tablet, 0, 400)
    with monkeypatch.context() as patch:
        patch.setattr(SnapshotJob, "write", _no_room)
        job = tablet.upkeep.snapshot_job()
        with pytest.raises(StorageFull):
            job.work()
        job.abandon()
    tablet.close()
    assert (tmp_path / "kv" / MANIFEST_NAME).exists()


def _no_room(_: SnapshotJob) -> None:
    raise StorageFull("no room")


def test_retention_wants_a_snapshot_for_a_single_segment_and_none_for_what_is_named_already(
    tmp_path: Path,
) -> None:
    tablet = opened(tmp_path, QUIET)
    while not tablet.log.sealed_ends:
        write(tablet, tablet.high_watermark)
    assert job_names(tablet, NOW) == ["reclaim", "carry"]
    (sealed,) = tablet.log.sealed_ends
    assert tablet.store.rows.carried == sealed
    for expected in (["snapshot"], []):
        tablet.upkeep.expired(tablet.log.sealed_ends)
        assert job_names(tablet, NOW) == expected
    assert tablet.expire(now_ms=10**9, ttl_ms=1, bytes_max=None).start_offset == sealed
    tablet.close()
