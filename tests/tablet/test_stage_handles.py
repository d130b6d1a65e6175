"""Stages share a few open files, in the bucket and among buckets, and lose nothing by it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from strom.errors import Busy
from strom.runtime.files import LocalFiles
from strom.tablet.stages import STAGES_FOLDER, StageLimits, StagePiece, StageStore
from strom.tablet.staging.stage_room import StageRoom
from tablet.stage_bench import LEASE_MS, START_MS, batch_of, stage_id

ROWS = memoryview(batch_of([(1, 1)], keys=False))


def _store(folder: Path, room: StageRoom, *, durable: bool = False, **limits: int) -> StageStore:
    return StageStore.open(
        LocalFiles(), str(folder), durable=durable, limits=StageLimits(**limits), room=room
    )


def _piece(
    number: int, sequence: int = 0, *, seal: bool = False, sink: str = "s", lease_ms: int = LEASE_MS
) -> StagePiece:
    return StagePiece(stage_id(number), sink, 1, lease_ms, sequence, (), ROWS, seal)


def _make_durable(store: StageStore) -> None:
    point = store.pending_sync()
    assert point is not None
    point.sync()
    store.synced(point)


def _open_stage_files(folder: Path) -> int:
    found = 0
    for one in os.listdir("/proc/self/fd"):
        try:
            found += os.readlink(f"/proc/self/fd/{one}").startswith(f"{folder}/")
        except OSError:
            continue
    return found


@pytest.mark.parametrize("durable", [False, True])
def test_hundreds_of_stages_that_are_not_sealed_hold_a_few_files_open(tmp_path: Path, durable: bool) -> None:
    room = StageRoom(1 << 30)
    room.handles.handles_max = 5
    stores = [_store(tmp_path / name, room, durable=durable) for name in ("a", "b")]
    for number in range(100):
        for store in stores:
            store.add(_piece(number), 1, START_MS)
    assert _open_stage_files(tmp_path) <= 5
    for number in range(100):
        for store in stores:
            store.add(_piece(number, 1, seal=True), 1, START_MS)
    if durable:
        for store in stores:
            _make_durable(store)
    assert _open_stage_files(tmp_path) == room.handles.open == 0
    for store in stores:
        assert all(
            [piece.rows for piece in store.pieces(stage_id(number))] == [1, 1] for number in (0, 50, 99)
        )
    found = _store(tmp_path / "a", StageRoom(1 << 30))
    assert len(found) == 100


def test_a_file_is_synced_before_it_is_closed_where_seals_are_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = StageRoom(1 << 30)
    room.handles.handles_max = 1
    store = _store(tmp_path, room, durable=True)
    synced: list[int] = []
    monkeypatch.setattr(os, "fdatasync", synced.append)
    store.add(_piece(1), 1, START_MS)
    assert len(synced) == 0
    store.add(_piece(2), 1, START_MS)
    assert len(synced) == 1  # of the first, which makes room
    store.add(_piece(1, 1), 1, START_MS)
    assert len(synced) == 2  # of the second


def test_stages_are_bounded_in_all_and_one_sink_leaves_room_for_others(tmp_path: Path) -> None:
    room = StageRoom(1 << 30, number_max=6)
    first, second = _store(tmp_path / "a", room), _store(tmp_path / "b", room)
    for number in range(3):
        first.add(_piece(number), 1, START_MS)
    for store in (first, second):
        with pytest.raises(Busy, match=r"stage\.number-max"):
            store.add(_piece(3), 1, START_MS)
    first.add(_piece(0, 1), 1, START_MS)  # one that is there goes on
    second.add(_piece(4, sink="other"), 1, START_MS)
    first.drop([stage_id(0)])
    second.add(_piece(3), 1, START_MS)
    second.add(_piece(5, sink="other"), 1, START_MS)
    second.add(_piece(6, sink="other"), 1, START_MS)
    with pytest.raises(Busy):
        second.add(_piece(7, sink="third"), 1, START_MS)
    for store in (first, second):
        store.close()
    assert (room.number, room.bytes, room.handles.open) == (0, 0, 0)


def test_a_stage_that_is_left_alone_goes_long_before_its_lease_is_over(tmp_path: Path) -> None:
    week_ms = 7 * 24 * 3_600_000
    store = _store(tmp_path, StageRoom(1 << 30), idle_ms_max=3_600_000)
    for number in (1, 2, 3):
        store.add(_piece(number, lease_ms=week_ms), 1, START_MS)
    store.add(_piece(2, 1, lease_ms=week_ms), 1, START_MS + 3_000_000)
    store.add(_piece(3, 1, lease_ms=week_ms, seal=True), 1, START_MS)
    assert store.drop_unsealed(START_MS + 3_600_000 - 1) == 0
    assert store.drop_unsealed(START_MS + 3_600_000) == 1
    assert not store.has(stage_id(1))
    assert store.has(stage_id(3))
    assert store.drop_unsealed(START_MS + 6_600_000) == 1


def test_too_many_open_files_is_something_to_try_again_and_no_failure_of_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = StageRoom(1 << 30, number_max=2)
    store = _store(tmp_path, room)
    opened = os.open

    def too_many(path: str, flags: int, mode: int = 0o777) -> int:
        if "/stages/" in path:
            raise OSError(24, "Too many open files", path)
        return opened(path, flags, mode)

    monkeypatch.setattr(os, "open", too_many)
    for _ in range(5):
        with pytest.raises(Busy, match="open files"):
            store.add(_piece(1), 1, START_MS)
        assert (room.number, room.bytes, store.bytes) == (0, 0, 0), "what could not begin takes no room"
    monkeypatch.undo()
    assert store.add(_piece(1), 1, START_MS).rows == 1
    assert (room.number, room.bytes) == (1, store.bytes)


def test_a_stage_for_which_there_is_no_room_counts_for_nothing(tmp_path: Path) -> None:
    room = StageRoom(100, number_max=2)
    store = _store(tmp_path, room)
    for number in range(1, 6):
        with pytest.raises(Busy, match="bytes"):
            store.add(_piece(number, sink="s" * 90), 1, START_MS)
        assert (room.number, room.bytes, store.bytes) == (0, 0, 0)
    assert _open_stage_files(tmp_path) == 0


def test_a_bucket_that_cannot_be_opened_counts_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = _store(tmp_path, StageRoom(1 << 30))
    for number in (1, 2):
        store.add(_piece(number, seal=True), 1, START_MS)
    store.close()
    room, opened = StageRoom(1 << 30), os.open

    def too_many(path: str, flags: int, mode: int = 0o777) -> int:
        if stage_id(2).hex() in path:
            raise OSError(24, "Too many open files", path)
        return opened(path, flags, mode)

    monkeypatch.setattr(os, "open", too_many)
    with pytest.raises(Busy, match="open files"):
        _store(tmp_path, room)
    monkeypatch.undo()
    assert (room.number, room.bytes) == (0, 0)


def test_a_seal_is_synced_also_when_its_bucket_is_closed_before_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = StageRoom(1 << 30)
    store = _store(tmp_path, room, durable=True)
    synced: list[int] = []
    monkeypatch.setattr(os, "fdatasync", synced.append)
    store.add(_piece(1, seal=True), 1, START_MS)
    store.close()
    assert synced == []
    _make_durable(store)
    assert len(synced) == 1
    assert (room.number, room.bytes, room.handles.open) == (0, 0, 0)


def test_a_server_that_takes_one_stage_takes_one(tmp_path: Path) -> None:
    room = StageRoom(1 << 30, number_max=1)
    store = _store(tmp_path, room)
    store.add(_piece(1), 1, START_MS)
    with pytest.raises(Busy, match=r"takes 1 \(stage\.number-max\)"):
        store.add(_piece(2, sink="other"), 1, START_MS)
    store.drop([stage_id(1)])
    store.add(_piece(2, sink="other"), 1, START_MS)


def test_what_an_earlier_attempt_left_in_a_stages_file_is_not_in_the_stage(tmp_path: Path) -> None:
    store = _store(tmp_path, StageRoom(1 << 30))
    store.add(_piece(1), 1, START_MS)
    (begun,) = (tmp_path / STAGES_FOLDER).iterdir()
    store.drop([stage_id(1)])
    begun.write_bytes(b"left of a stage that could not be begun" * 100)
    store.add(_piece(1), 1, START_MS)
    store.add(_piece(1, 1, seal=True), 1, START_MS)
    assert [piece.rows for piece in store.pieces(stage_id(1))] == [1, 1]
    store.close()
    again = _store(tmp_path, StageRoom(1 << 30))
    assert again.has(stage_id(1))
