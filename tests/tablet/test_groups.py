"""Tablets publish what was decided: whole, once, in order, through crashes at every write."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from strom.errors import (
    ChecksumMismatch,
    Conflict,
    DeletionDisabled,
    Expired,
    MalformedBatch,
    StageNotFound,
    StorageFull,
)
from strom.record.batch import BatchLimits, seal, split
from strom.tablet.key_tablet import KeyTablet
from strom.tablet.stages import StagePiece
from strom.testing.disk import Drawn, FirstBytes, ForgettingDisk, Survival
from tablet.stage_bench import FOLDER, LEASE_MS, Bench, batch_of, stage_id

KINDS = pytest.mark.parametrize("kind", ["log", "keys"])
A, B, C, D = (stage_id(number) for number in range(1, 5))


@KINDS
@pytest.mark.parametrize("durability", ["os", "group"])
def test_staged_rows_are_seen_once_they_are_published_and_durable(kind: str, durability: str) -> None:
    bench = Bench(kind, durability)  # type: ignore[arg-type]
    bench.append(1, 2)
    bench.stage(A, [1, 3], [4])
    bench.stage(B, [5])
    bench.sync_seals()
    bench.sync()
    bench.check()
    assert len(bench.visible) == 1
    commit = bench.commit(A, B)
    bench.apply(commit)
    bench.check()
    assert len(bench.visible) == (2 if durability == "os" else 1)
    bench.sync()
    bench.check()
    assert bench.tablet.applied == 1
    bench.release(commit)
    bench.check()
    assert len(bench.tablet.stages) == 0
    assert bench.room.bytes == 0


@KINDS
def test_a_decision_is_applied_once_however_often_it_comes(kind: str) -> None:
    bench = Bench(kind)
    bench.stage(A, [1])
    bench.stage(B, [2])
    bench.sync_seals()
    first, second = bench.commit(A), bench.commit(B)
    assert bench.apply(first).groups == 1
    assert bench.apply(first, second).groups == 1
    assert bench.apply(first, second).groups == 0
    bench.sync()
    bench.release(first, second)
    assert bench.apply(first, second) == (bench.tablet.end_offset, 0, 0, 0, 0, ())
    bench.check()
    bench.crash()
    assert bench.apply(first, second).groups == 0
    bench.check()


@KINDS
def test_stages_stay_until_their_group_is_durable(kind: str) -> None:
    bench = Bench(kind)
    bench.stage(A, [1])
    bench.sync_seals()
    commit = bench.commit(A)
    bench.apply(commit)
    bench.release(commit)
    assert bench.tablet.stages.has(A)
    bench.crash(False)
    assert bench.units == []
    bench.apply(commit)
    bench.sync()
    bench.release(commit)
    assert not bench.tablet.stages.has(A)
    bench.check()


@KINDS
def test_a_group_that_is_closed_while_a_cut_is_made_is_not_in_it(kind: str) -> None:
    bench = Bench(kind, "os")
    bench.append(1)
    bench.stage(A, [2])
    waiting = [bench.commit(A)]

    class Beside(type(bench.tablet)):  # type: ignore[misc]
        """Its lane publishes whenever the high watermark is read."""

        @property
        def high_watermark(self) -> int:
            if waiting:
                bench.apply(waiting.pop())
            return int(super().high_watermark)

    bench.tablet.__class__ = Beside
    cut = bench.tablet.cut(0)
    assert not waiting
    assert bench.tablet.high_watermark == 2
    assert (cut.start_offset, cut.end_offset) == (0, 1)


@KINDS
def test_decisions_out_of_order_are_refused(kind: str) -> None:
    bench = Bench(kind)
    bench.stage(A, [1])
    bench.sync_seals()
    first, second = bench.commit(A), bench.commit(A)
    with pytest.raises(Conflict):
        bench.apply(second, first)
    with pytest.raises(Conflict):
        bench.apply(first, first)
    bench.check()


@KINDS
def test_a_stage_that_is_not_there_is_never_passed_over(kind: str) -> None:
    bench = Bench(kind)
    bench.stage(A, [1])
    bench.sync_seals()
    commit = bench.commit(A, B)
    with pytest.raises(StageNotFound):
        bench.apply(commit)
    assert bench.tablet.end_offset == 0
    bench.check()


def test_where_power_loss_may_take_a_stage_the_sink_goes_on_without_it() -> None:
    bench = Bench("log", "os")
    bench.stage(A, [1])
    bench.staged[B] = []
    assert bench.apply(bench.commit(A, B)).lost == 1
    bench.check()
    assert [row for unit in bench.visible for row in unit.rows] == [(1, 1)]


@KINDS
@pytest.mark.parametrize("durability", ["os", "group"])
def test_an_overwriting_decision_replaces_what_was_there(kind: str, durability: str) -> None:
    bench = Bench(kind, durability)  # type: ignore[arg-type]
    bench.append(1, 2, 3)
    bench.append(4)
    bench.stage(A, [2, 7])
    bench.sync_seals()
    commit = bench.commit(A, overwrite=True)
    bench.apply(commit)
    bench.sync()
    bench.check()
    bench.release(commit)
    bench.check()
    bench.append(1)
    bench.sync()
    bench.crash()
    bench.check()
    if kind == "log":
        assert bench.tablet.start_offset == 4
    bench.apply(empty := bench.commit(overwrite=True))
    bench.sync()
    bench.release(empty)
    bench.check()
    bench.reopen()
    bench.check()
    if isinstance(bench.tablet, KeyTablet):
        assert bench.tablet.live_rows() == 0
        assert bench.tablet.cut(None).start_offset == 0
    else:
        assert bench.tablet.start_offset == bench.tablet.end_offset, "no offset counts as a row"
    bench.append(3)
    bench.sync()
    bench.check()


def test_a_planned_read_before_an_overwriting_decision_does_not_see_it() -> None:
    bench = Bench("log")
    bench.append(1)
    bench.stage(A, [2])
    bench.sync_seals()
    bench.sync()
    commit = bench.commit(A, overwrite=True)
    bench.apply(commit)
    bench.sync()
    assert bench.tablet.cut(0) == (0, 1)
    assert bench.tablet.cut(1) == (1, 2)
    assert bench.tablet.cut(None) == (1, 2)
    bench.release(commit)
    assert bench.tablet.cut(1) == (1, 2)
    cut = bench.tablet.cut(0)
    assert cut.start_offset == cut.end_offset


@KINDS
def test_a_planned_read_ends_before_the_first_later_decision(kind: str) -> None:
    bench = Bench(kind)
    ends = [0]
    for number, one in enumerate((A, B, C), 1):
        bench.append(10 + number)
        bench.stage(one, [number])
        bench.sync_seals()
        bench.apply(bench.commit(one))
        bench.sync()
        ends.append(bench.tablet.end_offset)
    starts = [group.start_offset for group in bench.tablet.log.groups.closed]
    assert [bench.tablet.cut(number).end_offset for number in range(5)] == [*starts, ends[3], ends[3]]


def test_a_number_that_is_forgotten_cannot_be_planned_with() -> None:
    bench = Bench("log", "os")
    for number in range(1, 600):
        bench.stage(stage_id(number), [number])
        commit = bench.commit(stage_id(number))
        bench.apply(commit)
        bench.release(commit)
    assert bench.tablet.applied == 599
    with pytest.raises(Expired):
        bench.tablet.cut(3)
    assert bench.tablet.cut(598).end_offset == 598


@KINDS
@pytest.mark.parametrize("room", [0, 1, 150, 400, 700, 1000, 1300, 2000, 3000])
def test_a_full_disk_while_applying_changes_nothing(kind: str, room: int) -> None:
    bench = Bench(kind)
    bench.append(*range(8))
    bench.stage(A, *[[key, key + 1] for key in range(6)])
    bench.stage(B, [1], [-2], [3])
    bench.sync_seals()
    bench.sync()
    commits = bench.commit(A), bench.commit(B)
    bench.disk.fill(room)
    try:
        bench.apply(*commits)
    except StorageFull:
        pass
    bench.check()
    bench.disk.fill(None)
    bench.append(5)
    bench.sync()
    bench.check()
    bench.apply(*commits)
    bench.sync()
    bench.release(*commits)
    bench.check()
    assert bench.tablet.applied == 2
    bench.crash(False)
    bench.check()


@KINDS
def test_a_flipped_byte_of_a_stage_keeps_it_from_being_published(kind: str) -> None:
    found = set()
    for position in range(0, 700, 23):
        bench = Bench(kind)
        bench.append(1)
        bench.stage(A, [1, 2], [3])
        bench.sync_seals()
        bench.sync()
        path = f"{FOLDER}/stages/{A.hex()}"
        if position >= bench.disk.size(path):
            break
        bench.disk.flip(path, position, position % 8)
        if position % 2:
            bench.tablet = bench.open()
        bench.sealed.clear()
        try:
            bench.apply(bench.commit(A))
        except (ChecksumMismatch, StageNotFound) as error:
            found.add(type(error))
            assert bench.tablet.end_offset == 1
        else:
            bench.sync()
            assert len(bench.visible) == 2  # one copy of the seal was enough
        bench.check()
    assert found == {ChecksumMismatch, StageNotFound}


def test_images_are_computed_when_rows_are_published_not_when_they_are_staged() -> None:
    bench = Bench("keys")
    bench.append(1)
    bench.stage(A, [1, -2])
    bench.sync_seals()
    bench.append(1, 2)
    bench.append(-1)
    bench.apply(bench.commit(A))
    bench.append(1)
    bench.sync()
    bench.check()
    assert bench.scanned() == {1: 7}


def test_what_a_table_refuses_is_refused_when_it_is_staged() -> None:
    bench = Bench("keys", properties={"table.delete.behavior": "disable"})
    with pytest.raises(DeletionDisabled):
        bench.stage(A, [-1])
    log = Bench("log")
    records = memoryview(batch_of([(1, 1)], keys=True))
    with pytest.raises(MalformedBatch, match="appends only"):
        log.tablet.stage_piece(
            StagePiece(A, "s", 1, LEASE_MS, 0, (), records, False), form=log.form, now_ms=1
        )
    records = memoryview(batch_of([(1, 1)], keys=False))
    seal(records, writer_id=4, batch_sequence=0)
    with pytest.raises(MalformedBatch, match="must not have a writer"):
        log.tablet.stage_piece(
            StagePiece(A, "s", 1, LEASE_MS, 0, (), records, False), form=log.form, now_ms=1
        )
    assert len(bench.tablet.stages) == len(log.tablet.stages) == 0


def test_a_table_that_refuses_deletes_can_be_overwritten() -> None:
    bench = Bench("keys", properties={"table.delete.behavior": "disable"})
    bench.append(1, 2)
    bench.stage(A, [2, 3])
    bench.sync_seals()
    bench.apply(bench.commit(A, overwrite=True))
    bench.sync()
    bench.check()
    assert bench.scanned() == {2: 3, 3: 4}
    bench.crash()
    bench.check()
    assert bench.scanned() == {2: 3, 3: 4}


def test_changes_that_are_too_many_for_one_batch_become_several() -> None:
    bench = Bench("keys")
    bench.stage(A, list(range(1, 8)))
    bench.sync_seals()
    bench.tablet.limits = BatchLimits(batch_bytes_max=160)
    bench.apply(bench.commit(A))
    bench.sync()
    bench.check()
    assert len(list(split(b"".join(bench.tablet.read(0, max_bytes=10**6).buffers)))) > 1


def test_a_decision_that_empties_more_than_a_batch_can_show_is_published_in_several() -> None:
    bench = Bench("keys")
    bench.append(*range(1, 8))
    bench.stage(A, [3])
    bench.sync_seals()
    bench.sync()
    bench.tablet.limits = BatchLimits(batch_bytes_max=160)
    bench.apply(bench.commit(A, overwrite=True))
    bench.sync()
    bench.check()
    assert len(list(split(b"".join(bench.tablet.read(7, max_bytes=10**6).buffers)))) > 2
    bench.crash(False)
    bench.check()


def test_a_table_keeps_the_rows_that_its_changelog_gave_up() -> None:
    """Marks of damage are for readers of the changelog: opening replays what lies below them as it was written."""
    bench = Bench("keys")
    bench.append(1, 2)
    bench.append(3)
    bench.sync()
    rows = bench.scanned()
    bench.tablet.mark_damaged(0, 1, schema_id=1, take_back=False, now_ms=bench.now_ms)
    bench.crash()
    assert bench.tablet.log.damage
    assert bench.scanned() == rows


# --- every write -----------------------------------------------------------------------------------------------------


class History(Bench):
    """A bench that notes what was promised when."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self.promised: list[tuple[int, int, int, frozenset[bytes]]] = []
        """(length of the trace, high watermark, applied, sealed stages)"""

    def promise(self) -> None:
        tablet = self.tablet
        self.promised.append(
            (len(self.disk.trace), tablet.high_watermark, tablet.applied, frozenset(self.sealed))
        )


def history(kind: str) -> tuple[History, list[object]]:
    bench = History(kind)
    steps: list[Callable[[], object]] = []
    commits = []

    def publish(*stages: bytes, overwrite: bool = False) -> None:
        commit = bench.commit(*stages, overwrite=overwrite)
        commits.append(commit)
        bench.apply(commit)

    steps = [
        lambda: bench.append(1, 2),
        lambda: bench.stage(A, [1, 3], [2, -1]),
        lambda: bench.stage(B, [4]),
        bench.sync_seals,
        bench.sync,
        lambda: publish(A),
        lambda: bench.append(3),
        bench.sync,
        lambda: bench.release(*commits),
        lambda: publish(B),
        lambda: bench.stage(C, [5, 6], [-3], [7]),
        bench.sync,
        lambda: bench.release(*commits),
        bench.sync_seals,
        lambda: bench.append(1),
        lambda: publish(C),
        lambda: bench.stage(D, [0]),
        bench.sync_seals,
        lambda: publish(D),
        bench.sync,
        lambda: bench.release(*commits),
    ]
    for step in steps:
        bench.promise()
        step()
        bench.promise()
    return bench, commits  # type: ignore[return-value]


@KINDS
@pytest.mark.parametrize("survival", [True, False, FirstBytes(60), Drawn(1), Drawn(2)], ids=repr)
def test_at_every_crash_what_was_decided_can_be_published_once(kind: str, survival: bool | Survival) -> None:
    bench, commits = history(kind)
    every = 1 if kind == "log" else 3
    moments = 0
    for count, disk in ForgettingDisk.moments(bench.disk.trace, survival):
        if count % every:
            continue
        again = Bench(kind, disk=disk)
        high, applied, sealed = next(
            (one[1:] for one in reversed(bench.promised) if one[0] <= count), (0, 0, frozenset())
        )
        after = next((one[3] for one in bench.promised if one[0] >= count), frozenset())
        assert again.tablet.high_watermark >= high
        assert again.tablet.applied >= applied
        again.units = [unit for unit in bench.units if unit.end <= again.tablet.end_offset]
        again.number = bench.number
        again.sealed = set(sealed & after)
        again.check()
        there = [
            commit
            for commit in commits
            if all(again.tablet.stages.has(one) for one in commit.stages)  # type: ignore[attr-defined]
            or commit.origin.number <= again.tablet.applied  # type: ignore[attr-defined]
        ]
        again.staged = dict(bench.staged)
        again.apply(*there)  # type: ignore[arg-type]
        again.sync()
        again.release(*there)  # type: ignore[arg-type]
        again.check()
        moments += 1
    assert moments > 30
