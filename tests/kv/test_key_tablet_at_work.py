"""A primary-key tablet with many keys: growth, carry, merges, snapshots and readers while a writer works."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from strom.errors import StorageFull
from strom.kv.definition import KeyDefinition
from strom.kv.instant import live_blocks
from strom.kv.snapshot.manifest import MANIFEST_NAME
from strom.kv.snapshot.snapshot import SnapshotJob
from strom.log.settings import LogSettings
from strom.model.bucket import BucketId
from strom.model.schema import Schema
from strom.record.batch import BatchLimits
from strom.runtime.files import LocalFiles
from strom.tablet import key_scan
from strom.tablet.key_jobs import Job
from strom.tablet.key_scan import ScanRequest
from strom.tablet.key_settings import KeySettings
from strom.tablet.key_tablet import KeyTablet

KEYS = 120_000
BATCH = 8_000
SCHEMA = Schema.from_arrow(
    pa.schema([("id", pa.int64()), ("name", pa.string()), ("value", pa.int64()), ("kind", pa.int32())]),
    primary_key=["id", "name"],
)
SETTINGS = KeySettings(
    segment_bytes=1 << 20, snapshot_bytes=2 << 20, lease_ms=0, merge_files=4, memory_rows_max=100_000
)


def _definition(image: str) -> KeyDefinition:
    return KeyDefinition((SCHEMA,), key=(0, 1), image=image, indexes={"by_kind": (3,)})  # type: ignore[arg-type]


def _open(folder: Path, image: str = "FULL") -> KeyTablet:
    return KeyTablet.open(
        LocalFiles(),
        str(folder / "bucket"),
        BucketId(1, None, 0),
        _definition(image),
        durability="os",
        limits=BatchLimits(),
        log_settings=LogSettings(sync_on_roll=False),
        settings=SETTINGS,
        now_ms=1_000,
    )


def _rows(ids: np.ndarray, values: np.ndarray) -> pa.RecordBatch:  # type: ignore[type-arg]
    names = pa.array(np.char.add("key-", (ids % 977).astype(str)))
    columns = [pa.array(ids), names, pa.array(values), pa.array((values % 50).astype(np.int32))]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA.to_arrow())


class Writer:
    """Random upserts and deletes, and the values that every key must have (-1: none)."""

    def __init__(self, tablet: KeyTablet, seed: int = 1) -> None:
        self.tablet = tablet
        self.expected = np.full(KEYS, -1, np.int64)
        self._rng = np.random.default_rng(seed)
        self._now = 1_000
        self._value = 0

    def write(self, count: int = BATCH) -> None:
        ids = self._rng.integers(0, KEYS, count)
        deletes = self._rng.random(count) < 0.2
        values = self._value + np.arange(count)
        self._value += count
        self._now += 1
        self.tablet.upsert(
            _rows(ids, values),
            deletes,
            targets=None,
            schema_id=1,
            writer_id=-1,
            batch_sequence=-1,
            now_ms=self._now,
        )
        self.expected[ids] = np.where(deletes, -1, values)  # of equal ids the last one stays, as in the table

    def upkeep(self) -> list[str]:
        """All background work that is due."""
        done = []
        while (job := self.tablet.next_job(self._now)) is not None:
            job.work()
            job.finish()
            done.append(job.name)
        return done


def _scanned(tablet: KeyTablet, at: int = -1) -> np.ndarray:  # type: ignore[type-arg]
    found = np.full(KEYS, -1, np.int64)
    cursor = None
    while True:
        piece = tablet.scan(
            ScanRequest(at=at, cursor=cursor, columns=(0, 2), max_bytes=1 << 20), now_ms=1_000
        )
        for _, rows in piece.batches:
            ids = rows.column(0).to_numpy()
            assert (found[ids] == -1).all(), "a key twice"
            found[ids] = rows.column(1).to_numpy()
        if piece.done:
            return found
        cursor = piece.next_cursor


def _looked_up(tablet: KeyTablet, ids: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
    found = tablet.lookup(_rows(ids, ids).select([0, 1]), columns=[2])
    values = np.full(len(ids), -1, np.int64)
    values[found.positions] = found.rows.column(0).to_numpy()
    return values


def _check(tablet: KeyTablet, expected: np.ndarray) -> None:  # type: ignore[type-arg]
    assert (_scanned(tablet) == expected).all()
    assert tablet.live_rows() == (expected >= 0).sum()
    ids = np.arange(KEYS)
    assert (_looked_up(tablet, ids) == expected).all()
    kinds = pa.RecordBatch.from_arrays([pa.array(range(0, 50, 7), pa.int32())], names=["kind"])
    found = tablet.lookup_index("by_kind", kinds, columns=[0, 2])
    wanted = np.flatnonzero((expected >= 0) & (expected % 50 % 7 == 0))
    assert (np.sort(found.rows.column(0).to_numpy()) == wanted).all()


@pytest.mark.slow
@pytest.mark.parametrize("image", ["FULL", "WAL"])
def test_many_keys_stay_right_through_upkeep_and_restarts(tmp_path: Path, image: str) -> None:
    tablet = _open(tmp_path, image)
    writer = Writer(tablet)
    done: set[str] = set()
    for _ in range(4):
        for _ in range(15):
            writer.write()
            done |= set(writer.upkeep())
        tablet.expire(now_ms=2_000, ttl_ms=None, bytes_max=0)
        _check(tablet, writer.expected)
        tablet.close()
        tablet = writer.tablet = _open(tmp_path, image)
        _check(tablet, writer.expected)
    assert {"carry", "merge", "snapshot", "reclaim"} <= done
    assert tablet.log.start_offset > 0, "the changelog's beginning is gone, and the table is whole"


@pytest.mark.slow
def test_a_snapshot_that_failed_is_still_due(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: SnapshotJob) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    tablet = _open(tmp_path)
    writer = Writer(tablet)
    job = None
    while job is None or job.name != "snapshot":
        job = tablet.next_job(10_000)
        if job is None:
            writer.write()
        elif job.name != "snapshot":
            job.work()
            job.finish()
    with monkeypatch.context() as patch:
        patch.setattr(SnapshotJob, "write", full)
        with pytest.raises(OSError, match="no space"):
            job.work()
    job.abandon()
    again = tablet.next_job(10_001)
    assert again is not None
    assert again.name == "snapshot"
    again.work()
    again.finish()
    assert tablet.manifest is not None
    tablet.close()


def test_readers_see_whole_batches_while_everything_else_goes_on(tmp_path: Path) -> None:
    tablet = _open(tmp_path)
    writer = Writer(tablet)
    writer.write(60_000)
    stop = threading.Event()
    problems: list[BaseException] = []
    rounds = [0, 0]

    def guarded(number: int, look: object) -> None:
        try:
            while not stop.is_set():
                look()  # type: ignore[operator]
                rounds[number] += 1
        except BaseException as error:
            problems.append(error)

    def scan() -> None:
        at = tablet.high_watermark
        first = _scanned(tablet, at)
        assert tablet.live_rows(at) == (first >= 0).sum()
        assert (_scanned(tablet, at) == first).all(), "the same instant looks different the second time"

    def lookup() -> None:
        ids = np.random.default_rng(rounds[1]).integers(0, KEYS, 500)
        values = _looked_up(tablet, ids)
        later = _looked_up(tablet, ids)
        assert ((later >= values) | (later < 0)).all(), "a key went back to an older row"

    threads = [threading.Thread(target=guarded, args=(n, f)) for n, f in enumerate((scan, lookup))]
    for thread in threads:
        thread.start()
    try:
        for _ in range(25):
            writer.write()
            if (job := tablet.next_job(1_000)) is not None:
                beside = threading.Thread(target=job.work)
                beside.start()
                while beside.is_alive():
                    writer.write(500)
                job.finish()
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert problems == []
    assert min(rounds) > 0
    _check(tablet, writer.expected)


class _Interrupted:
    """A lock; before it is taken for the second time, something happens."""

    def __init__(self, lock: AbstractContextManager[object], between: Callable[[], object]) -> None:
        self._lock = lock
        self._between = between
        self._taken = 0

    def __enter__(self) -> object:
        self._taken += 1
        if self._taken == 2:
            self._between()
        return self._lock.__enter__()

    def __exit__(self, *error: object) -> bool | None:
        return self._lock.__exit__(*error)  # type: ignore[arg-type]


def test_a_scan_beside_a_truncation_has_the_rows_that_came_back(tmp_path: Path) -> None:
    tablet = _open(tmp_path)
    writer = Writer(tablet)
    writer.write(2_000)
    high, expected = tablet.high_watermark, writer.expected.copy()
    tablet.hold(high)
    writer.write(2_000)
    store, lock = tablet.store, tablet.store.lock

    def cut() -> None:
        store.lock = lock
        tablet.truncate(high)

    store.lock = _Interrupted(lock, cut)
    blocks, _ = live_blocks(store, 0, high, (0, 2), high=high, rows_max=1 << 20, bytes_max=1 << 30)
    found = np.full(KEYS, -1, np.int64)
    for block in blocks:
        rows = block.batch.filter(pa.array(block.live))
        found[rows.column(0).to_numpy()] = rows.column(1).to_numpy()
    assert (found == expected).all()
    assert tablet.store.cuts == 1


@pytest.mark.parametrize("limit", [None, 10**9], ids=["copied", "passing"])
@pytest.mark.parametrize("columns", [(0, 2), (0, 2, 1)], ids=["fixed", "text"])
@pytest.mark.parametrize("size", [1, 700, 9_000])
def test_an_answer_has_so_many_bytes_or_one_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, columns: tuple[int, ...], limit: int | None
) -> None:
    monkeypatch.setattr(key_scan, "BYTES_AT_ONCE_MIN", 1)
    tablet = _open(tmp_path)
    writer = Writer(tablet)
    for _ in range(4):
        writer.write(400)
        writer.upkeep()
    found: list[tuple[int, int]] = []
    cursor, answers = None, 0
    while True:
        request = ScanRequest(cursor=cursor, columns=columns, max_bytes=size, limit=limit)
        piece = tablet.scan(request, now_ms=1_000)
        for _, rows in piece.batches:
            found += zip(rows.column(0).to_pylist(), rows.column(1).to_pylist(), strict=True)
        bytes_sent = sum(rows.nbytes for _, rows in piece.batches)
        assert bytes_sent <= 2 * size or sum(rows.num_rows for _, rows in piece.batches) == 1
        answers += 1
        if piece.done:
            break
        cursor = piece.next_cursor
    wanted = np.flatnonzero(writer.expected >= 0)
    assert sorted(found) == list(zip(wanted.tolist(), writer.expected[wanted].tolist(), strict=True))
    assert answers >= len(wanted) * 16 // (2 * size + 16)


def test_what_a_snapshot_wrote_that_failed_at_its_manifest_does_not_count_as_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shards that only the failed one has written go into the next one: the manifest before knows them as they were."""

    def do(job: Job) -> None:
        job.work()
        job.finish()

    def full(self: LocalFiles, path: str, content: bytes) -> None:
        assert path.endswith(MANIFEST_NAME)
        raise StorageFull("no room for the manifest")

    tablet = _open(tmp_path)
    writer = Writer(tablet)
    for _ in range(12):
        writer.write()
    assert tablet.store.index.shards > 1, "else the one write below brings all of it back"
    do(tablet.upkeep.snapshot_job())
    writer.write()
    do(tablet.upkeep.carry_job(tablet.high_watermark))
    failing = tablet.upkeep.snapshot_job()
    with monkeypatch.context() as patch:
        patch.setattr(LocalFiles, "write_whole", full)
        with pytest.raises(StorageFull):
            failing.work()
    failing.abandon()
    writer.write(1)
    do(tablet.upkeep.snapshot_job())
    tablet.close()
    again = _open(tmp_path)
    _check(again, writer.expected)
    again.close()
