"""Deleted keys leave the index once no reader needs them, and their row ids go to new keys."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from kv.test_key_tablet_at_work import KEYS, _check, _looked_up, _open, _rows
from strom.tablet.key_tablet import KeyTablet


def _write(tablet: KeyTablet, ids: np.ndarray, now_ms: int, *, deletes: bool = False) -> None:  # type: ignore[type-arg]
    flags = np.full(len(ids), deletes)
    tablet.upsert(
        _rows(ids, ids), flags, targets=None, schema_id=1, writer_id=-1, batch_sequence=-1, now_ms=now_ms
    )


def _upkeep(tablet: KeyTablet, now_ms: int) -> list[str]:
    done = []
    while (job := tablet.next_job(now_ms)) is not None:
        job.work()
        job.finish()
        done.append(job.name)
    return done


def test_deleted_keys_leave_the_index_and_others_take_their_place(tmp_path: Path) -> None:
    tablet = _open(tmp_path)
    expected = np.full(KEYS, -1, np.int64)
    now_ms, most = 1_000, 0
    rounds = 12
    for start in range(0, KEYS, KEYS // rounds):
        ids = np.arange(start, start + KEYS // rounds)
        _write(tablet, ids, now_ms)
        _write(tablet, ids[:-10], now_ms + 1, deletes=True)
        expected[ids[-10:]] = ids[-10:]
        now_ms += 10
        _upkeep(tablet, now_ms)
        most = max(most, tablet.store.index.keys)
    again = np.arange(10)
    _write(tablet, again, now_ms)
    expected[again] = again
    _upkeep(tablet, now_ms)
    assert tablet.store.index.keys < KEYS // 2, "what was deleted is forgotten"
    assert tablet.store.index.tables.size < KEYS // 2, "and the row ids are given again"
    assert (_looked_up(tablet, np.arange(KEYS)) == expected).all()
    _check(tablet, expected)
    tablet.close()
