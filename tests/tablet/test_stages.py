"""The stages of a bucket: durable once sealed, bounded, found again, never half."""

from __future__ import annotations

import pytest

from strom.errors import Busy, InvalidRequest, StageNotFound, StorageFull, StorageOffline, StromError
from strom.tablet import stages
from strom.tablet.stages import StagePiece, StageStore
from strom.tablet.staging.stage_file import (
    StagedBatches,
    StageHead,
    StageSeal,
    encode_head,
    encode_piece,
    encode_seal,
)
from strom.tablet.staging.stage_room import StageRoom
from strom.testing.disk import Drawn, FirstBytes, ForgettingDisk, Survival
from tablet.stage_bench import FOLDER, LEASE_MS, START_MS, Bench, batch_of, stage_id

A, B, C = (stage_id(number) for number in range(1, 4))


def test_a_seal_is_acknowledged_once_it_is_durable() -> None:
    bench = Bench("log")
    first = bench.piece(A, 0, bench.rows([1, 2]))
    assert (first.rows, first.deadline_ms, first.seal) == (2, None, 0)
    bench.now_ms += 5
    sealed = bench.piece(A, 1, bench.rows([3]), seal=True)
    assert (sealed.rows, sealed.deadline_ms, sealed.seal) == (3, START_MS + 5 + LEASE_MS, 1)
    store = bench.tablet.stages
    called: list[StromError | None] = []
    store.pending.add(sealed.seal, called.append)
    assert not store.has(A)
    assert called == []
    bench.sync_seals()
    assert store.has(A)
    assert called == [None]
    bench.crash(False)
    assert bench.tablet.stages.has(A)
    assert [piece.rows for piece in bench.tablet.stages.pieces(A)] == [2, 1]


def test_one_sync_makes_many_seals_durable() -> None:
    bench = Bench("log")
    for number in range(5):
        bench.stage(stage_id(number), [number])
    before = len(bench.disk.trace)
    bench.sync_seals()
    assert len(bench.sealed) == 5
    folder_syncs = [one for one in bench.disk.trace[before:] if type(one).__name__ == "FolderSynced"]
    assert len(folder_syncs) == 1
    assert bench.tablet.stages.pending_sync() is None


def test_under_os_a_seal_needs_no_sync_and_survives_kill_9() -> None:
    bench = Bench("log", "os")
    bench.stage(A, [1])
    assert bench.tablet.stages.has(A)
    bench.crash(True)
    assert bench.tablet.stages.has(A)


def test_a_repeated_piece_is_acknowledged_and_not_written_twice() -> None:
    bench = Bench("log")
    rows = bench.rows([1, 2])
    assert bench.piece(A, 0, rows).rows == 2
    assert bench.piece(A, 0, rows).rows == 2
    first = bench.piece(A, 1, rows, seal=True)
    bench.now_ms += 1000
    again = bench.piece(A, 1, rows, seal=True)
    assert (again.rows, again.deadline_ms) == (4, first.deadline_ms)
    assert again.seal == first.seal
    bench.sync_seals()
    assert bench.piece(A, 1, rows, seal=True) == (4, first.deadline_ms, 0)
    assert len(list(bench.tablet.stages.pieces(A))) == 2


def test_a_gap_or_a_piece_after_the_seal_is_refused() -> None:
    bench = Bench("log")
    with pytest.raises(StageNotFound):
        bench.piece(A, 1, bench.rows([1]))
    bench.piece(A, 0, bench.rows([1]))
    with pytest.raises(StageNotFound):
        bench.piece(A, 2, bench.rows([1]))
    bench.piece(A, 1, [], seal=True)
    with pytest.raises(InvalidRequest, match="sealed"):
        bench.piece(A, 1, bench.rows([1]))


@pytest.mark.parametrize(
    "changed",
    [{"stage_id": b"short"}, {"sink": "x" * 2000}, {"lease_ms": 0}, {"lease_ms": 1 << 60}],
    ids=["id", "sink", "no lease", "long lease"],
)
def test_what_cannot_be_staged_is_refused_before_anything_is_written(changed: dict[str, object]) -> None:
    bench = Bench("log")
    piece = StagePiece(A, "sink", 1, LEASE_MS, 0, (), memoryview(batch_of([(1, 1)], keys=False)), False)
    with pytest.raises(InvalidRequest):
        bench.tablet.stage_piece(piece._replace(**changed), form=bench.form, now_ms=1)
    assert len(bench.tablet.stages) == 0


def test_a_stage_that_was_not_sealed_is_gone_after_a_restart_and_its_writer_is_told() -> None:
    bench = Bench("log")
    bench.piece(A, 0, bench.rows([1]))
    bench.stage(B, [2])
    bench.crash(True)
    assert len(bench.tablet.stages) == 0
    assert bench.disk.list(f"{FOLDER}/stages") == []
    with pytest.raises(StageNotFound):
        bench.piece(A, 1, bench.rows([1]))
    assert bench.piece(A, 0, bench.rows([1])).rows == 1


def test_stages_of_a_bucket_are_bounded() -> None:
    bench = Bench("log", bucket_bytes_max=1000)
    with pytest.raises(Busy, match=r"stage\.bucket\.bytes-max"):
        bench.stage(A, *[[1, 2, 3]] * 20)
    held = bench.tablet.stages.bytes
    assert 0 < held <= 1000
    assert bench.tablet.drop_stages([A]) == 1
    assert bench.tablet.stages.bytes == bench.room.bytes == 0
    bench.stage(B, [1])


def test_stages_of_a_server_are_bounded_together() -> None:
    disk, room = ForgettingDisk(), StageRoom(1000)
    limits = stages.StageLimits()
    stores = [StageStore.open(disk, f"b{n}", durable=True, limits=limits, room=room) for n in range(2)]
    piece = StagePiece(A, "sink", 1, LEASE_MS, 0, (), memoryview(bytes(600)), False)
    stores[0].add(piece, 1, 0)
    with pytest.raises(Busy, match=r"stage\.bytes-max"):
        stores[1].add(piece, 1, 0)
    stores[0].drop([A])
    stores[1].add(piece, 1, 0)
    stores[1].close()
    assert room.bytes == 0


def test_stages_may_take_all_the_room_there_is_and_not_a_byte_more() -> None:
    piece = StagePiece(A, "sink", 1, LEASE_MS, 0, (), memoryview(bytes(600)), True)

    def taken(bucket_bytes: int, server_bytes: int) -> int:
        limits = stages.StageLimits(bucket_bytes_max=bucket_bytes)
        store = StageStore.open(
            ForgettingDisk(), "b", durable=False, limits=limits, room=StageRoom(server_bytes)
        )
        store.add(piece, 1, 0)
        return store.bytes

    size = taken(10_000, 10_000)
    assert taken(size, 10_000) == taken(10_000, size) == size
    for room in ((size - 1, 10_000), (10_000, size - 1)):
        with pytest.raises(Busy):
            taken(*room)


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("sealed", [False, True])
def test_a_stage_that_was_dropped_is_gone_from_the_disk(durable: bool, sealed: bool) -> None:
    disk, room, limits = ForgettingDisk(), StageRoom(10_000), stages.StageLimits()
    store = StageStore.open(disk, "b", durable=durable, limits=limits, room=room)
    for one in (A, B):
        store.add(StagePiece(one, "sink", 1, LEASE_MS, 0, (), memoryview(bytes(10)), sealed), 1, 0)
    if (point := store.pending_sync()) is not None:
        point.sync()
        store.synced(point)
    assert store.drop([A]) == 1
    left = disk.list("b/stages")
    assert [name for name in left if A.hex() in name] == []
    assert len([name for name in left if B.hex() in name]) == 1
    store.close()
    again = StageStore.open(disk, "b", durable=durable, limits=limits, room=room)
    assert (again.has(A), again.has(B), len(again)) == (False, sealed, int(sealed))


def test_what_is_found_at_opening_counts() -> None:
    bench = Bench("log")
    bench.stage(A, [1])
    bench.sync_seals()
    size = bench.tablet.stages.bytes
    assert size == bench.disk.size(f"{FOLDER}/stages/{A.hex()}")
    bench.crash()
    assert bench.tablet.stages.bytes == bench.room.bytes == size


def test_the_number_of_stages_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "STAGES_MAX", 2)
    bench = Bench("log")
    bench.stage(A, [1])
    bench.stage(B, [1])
    with pytest.raises(Busy):
        bench.stage(C, [1])


@pytest.mark.parametrize("room", range(0, 500, 40))
def test_a_full_disk_while_staging_leaves_what_was_there(room: int) -> None:
    bench = Bench("log")
    bench.piece(A, 0, first := bench.rows([1]))
    held = bench.tablet.stages.bytes
    bench.disk.fill(room)
    try:
        for number in range(1, 9):
            bench.piece(A, number, bench.rows([number]))
    except StorageFull:
        pass
    else:
        pytest.fail("there was no room")
    bench.disk.fill(None)
    assert bench.tablet.stages.bytes >= held
    pieces = bench.tablet.stages._stages[A].pieces
    bench.piece(A, pieces, bench.rows([7]))
    bench.piece(A, pieces + 1, [], seal=True)
    bench.sync_seals()
    found = list(bench.tablet.stages.pieces(A))
    assert len(found) == pieces + 1
    assert bytes(found[0].records) == bytes(batch_of(first, keys=False))
    assert bench.tablet.stages.bytes == bench.disk.size(f"{FOLDER}/stages/{A.hex()}")


def test_a_disk_that_fails_to_sync_a_seal_takes_the_bucket_offline() -> None:
    bench = Bench("log")
    bench.tablet.stages.on_failure = bench.tablet.fail
    bench.stage(A, [1])
    called: list[StromError | None] = []
    bench.tablet.stages.pending.add(1, called.append)
    bench.disk.fail_next_sync()
    point = bench.tablet.stages.pending_sync()
    assert point is not None
    with pytest.raises(OSError, match="error"):
        point.sync()
    bench.tablet.stages.fail(StorageOffline("the disk failed to sync"))
    assert isinstance(called[0], StorageOffline)
    with pytest.raises(StorageOffline):
        bench.append(1)
    with pytest.raises(StorageOffline):
        bench.stage(B, [1])


def test_late_stages_are_told_and_those_never_sealed_go_by_themselves() -> None:
    bench = Bench("log")
    bench.stage(A, [1])
    bench.now_ms += 1000
    bench.stage(B, [1])
    bench.stage(C, [1], seal=False)
    bench.sync_seals()
    late = START_MS + LEASE_MS
    assert bench.tablet.late_stages(late - 1) == []
    assert [
        (one.stage_id, one.sink, one.epoch, one.deadline_ms) for one in bench.tablet.late_stages(late)
    ] == [(A, "sink", 7, late)]
    assert len(bench.tablet.stages) == 3
    assert [one.stage_id for one in bench.tablet.late_stages(late + 1000)] == [A, B]
    assert len(bench.tablet.stages) == 2
    assert bench.tablet.drop_stages([A, C]) == 1
    assert not bench.tablet.stages.has(A)


def test_a_stage_is_not_dropped_while_its_seal_is_made_durable() -> None:
    bench = Bench("log")
    bench.stage(A, [1])
    assert bench.tablet.drop_stages([A]) == 0
    bench.sync_seals()
    assert bench.tablet.stages.has(A)
    assert bench.tablet.drop_stages([A, A]) == 1


def test_a_damaged_stage_is_kept_and_told() -> None:
    bench = Bench("log")
    bench.stage(A, [1])
    bench.sync_seals()
    path = f"{FOLDER}/stages/{A.hex()}"
    bench.disk.flip(path, 12)
    bench.tablet = bench.open()
    assert bench.tablet.stages.damaged == 1
    assert not bench.tablet.stages.has(A)
    assert bench.tablet.late_stages(1 << 60) == []
    assert bench.disk.exists(path)


def test_other_files_in_the_folder_are_left_alone() -> None:
    bench = Bench("log")
    bench.disk.make_folder(f"{FOLDER}/stages")
    bench.disk.write_whole(f"{FOLDER}/stages/note.txt", b"mine")
    bench.tablet = bench.open()
    assert len(bench.tablet.stages) == 0
    assert bench.disk.exists(f"{FOLDER}/stages/note.txt")


def test_a_tablet_that_is_gone_tells_those_who_wait_for_a_seal() -> None:
    bench = Bench("log")
    bench.stage(A, [1])
    called: list[StromError | None] = []
    bench.tablet.stages.pending.add(1, called.append)
    bench.tablet.retire(StromError("dropped"))
    assert [type(one) for one in called] == [StromError]


@pytest.mark.parametrize("survival", [True, False, FirstBytes(50), *map(Drawn, range(4))], ids=repr)
def test_at_every_crash_a_sealed_stage_is_whole_and_another_is_gone(survival: bool | Survival) -> None:
    bench = Bench("log")
    promised: list[tuple[int, frozenset[bytes]]] = [(0, frozenset())]
    for number in range(1, 5):
        bench.stage(stage_id(number), [1, 2], [3], seal=number != 3)
        if number % 2 == 0:
            bench.sync_seals()
        promised.append((len(bench.disk.trace), frozenset(bench.sealed)))
    moments = 0
    for count, disk in ForgettingDisk.moments(bench.disk.trace, survival):
        again = Bench("log", disk=disk)
        sealed = [one for length, one in promised if length <= count][-1]
        assert all(again.tablet.stages.has(one) for one in sealed)
        assert again.tablet.stages.damaged == 0
        for one in bench.staged:
            if again.tablet.stages.has(one):
                assert [piece.rows for piece in again.tablet.stages.pieces(one)] == [2, 1]
        moments += 1
    assert moments > 20


def test_any_file_can_be_looked_at() -> None:
    disk = ForgettingDisk()
    head = StageHead(A, "sink", 1, LEASE_MS, 1)
    content = encode_head(head)
    content += b"".join(map(bytes, encode_piece(StagedBatches(0, (1, 2), b"rows", 3))))
    content += encode_seal(StageSeal(1, 3, len(content), 99))
    path = f"b/stages/{A.hex()}"
    disk.make_folder("b/stages")
    sound = 0
    for length in range(len(content) + 1):
        disk.write_whole(path, content[:length])
        store = StageStore.open(disk, "b", durable=True, limits=stages.StageLimits(), room=StageRoom(10**6))
        assert len(store) == 1
        sound += store.has(A)
        if store.has(A):
            assert [(piece.columns, bytes(piece.records)) for piece in store.pieces(A)] == [((1, 2), b"rows")]
    assert sound == 1
