"""Secondary indexes built while rows are truncated, and the number of files of a snapshot's index."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from kv.test_key_tablet_at_work import Writer, _check, _definition, _looked_up, _open, _rows
from strom.errors import IndexBuilding
from strom.kv.snapshot.snapshot import INDEX_FILES_MAX
from strom.tablet.key_jobs import Job
from strom.tablet.key_tablet import KeyTablet

KIND = pa.RecordBatch.from_arrays([pa.array([7], pa.int32())], names=["kind"])


def _made(folder: Path) -> KeyTablet:
    """A bucket whose index is gone: the next definition brings it back, to be built."""
    tablet = _open(folder)
    tablet.redefine(replace(_definition("FULL"), indexes={}))
    return tablet


def _build_job(tablet: KeyTablet) -> Job:
    tablet.redefine(_definition("FULL"))
    job = tablet.next_job(1_000)
    while job is not None and job.name != "build index":
        job.work()
        job.finish()
        job = tablet.next_job(1_000)
    assert job is not None
    return job


@pytest.mark.parametrize("when", ["before its work", "after its work", "after its end"])
def test_an_index_that_was_built_while_the_log_was_cut_has_the_rows_that_came_back(
    tmp_path: Path, when: str
) -> None:
    tablet = _made(tmp_path)
    writer = Writer(tablet)
    writer.write()
    high, expected = tablet.high_watermark, writer.expected.copy()
    tablet.hold(high)
    writer.write()
    job = _build_job(tablet)
    if when == "before its work":
        tablet.truncate(high)
    job.work()
    if when == "after its work":
        tablet.truncate(high)
    job.finish()
    if when == "after its end":
        tablet.truncate(high)
    with pytest.raises(IndexBuilding):
        tablet.lookup_index("by_kind", KIND)
    tablet.hold(None)
    writer.upkeep()
    _check(tablet, expected)
    tablet.close()


def test_an_index_built_above_the_high_watermark_waits_for_it(tmp_path: Path) -> None:
    tablet = _made(tmp_path)
    writer = Writer(tablet)
    writer.write()
    tablet.hold(tablet.high_watermark)
    writer.write()
    job = _build_job(tablet)
    job.work()
    job.finish()
    with pytest.raises(IndexBuilding):
        tablet.lookup_index("by_kind", KIND)
    tablet.hold(None)
    tablet.advance()
    _check(tablet, writer.expected)
    tablet.close()


def test_however_many_snapshots_were_taken_their_index_lies_in_few_files(tmp_path: Path) -> None:
    tablet = _open(tmp_path)
    keys, rng = 600_000, np.random.default_rng(1)

    def write(ids: np.ndarray) -> None:  # type: ignore[type-arg]
        tablet.upsert(
            _rows(ids, ids), None, targets=None, schema_id=1, writer_id=-1, batch_sequence=-1, now_ms=1_001
        )

    for part in np.array_split(np.arange(keys), 12):
        write(part)
    assert tablet.store.index.shards > INDEX_FILES_MAX, "else there are not that many to write one by one"
    most = 0
    for _ in range(3 * INDEX_FILES_MAX):
        job = tablet.upkeep.snapshot_job()
        job.work()
        job.finish()
        assert tablet.manifest is not None
        most = max(most, len({ref.file for ref in tablet.manifest.shards}))
        write(rng.integers(0, keys, 1))
    assert most == INDEX_FILES_MAX
    tablet.close()
    again = _open(tmp_path)
    assert again.live_rows() == keys
    asked = rng.integers(0, keys, 1_000)
    assert (_looked_up(again, asked) == asked).all()
    again.close()
