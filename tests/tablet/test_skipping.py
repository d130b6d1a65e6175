"""A decision whose stage is lost or refused blocks its bucket until an operator has it skipped."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from strom.errors import ChecksumMismatch, RecordTooLarge, StageNotFound, StorageOffline
from strom.log.chain_writer import ChainWriter
from strom.record.batch import BatchLimits
from strom.record.layout import CHANGE_DELETE, CHANGE_INSERT
from strom.tablet.key_tablet import KeyTablet
from strom.tablet.publishing import Commit
from strom.testing.disk import ForgettingDisk
from tablet.stage_bench import FOLDER, Bench, stage_id

KINDS = pytest.mark.parametrize("kind", ["log", "keys"])
A, B, C = (stage_id(number) for number in range(1, 4))


def skipping(bench: Bench, *stages: bytes) -> Commit:
    return bench.commit(*stages)._replace(skip_lost=True)


def lose(bench: Bench, stage: bytes) -> None:
    """The stage's rows are not expected any more."""
    bench.sealed.discard(stage)
    bench.staged[stage] = []


def damage(bench: Bench, stage: bytes) -> None:
    """Flip a bit of its last piece: its head and seal are well."""
    path = f"{FOLDER}/stages/{stage.hex()}"
    bench.disk.flip(path, bench.disk.size(path) - 100, 3)


@KINDS
def test_a_lost_stage_is_skipped_when_it_is_said_and_named(kind: str) -> None:
    bench = Bench(kind)
    bench.stage(A, [1, 2])
    bench.sync_seals()
    commit = bench.commit(A, B)
    with pytest.raises(StageNotFound):
        bench.apply(commit)
    bench.staged[B] = []
    done = bench.apply(commit._replace(skip_lost=True))
    assert [one.stage_id for one in done.skipped] == [B]
    assert "not there" in done.skipped[0].reason
    bench.sync()
    bench.release(commit)
    bench.check()
    assert bench.tablet.applied == 1
    bench.stage(C, [3])
    bench.sync_seals()
    bench.apply(bench.commit(C))
    bench.sync()
    bench.check()
    bench.crash()
    bench.check()


@KINDS
def test_a_damaged_stage_is_skipped_whole_and_kept_aside(kind: str) -> None:
    bench = Bench(kind)
    bench.append(1)
    bench.stage(A, [1], [2], [3])
    bench.stage(B, [4])
    bench.sync_seals()
    bench.sync()
    damage(bench, A)
    commit = bench.commit(A, B)
    with pytest.raises(ChecksumMismatch):
        bench.apply(commit)
    lose(bench, A)
    done = bench.apply(commit._replace(skip_lost=True))
    assert [one.stage_id for one in done.skipped] == [A]
    bench.sync()
    bench.release(commit)
    bench.check()
    assert bench.room.bytes == 0
    assert bench.disk.list(f"{FOLDER}/stages") == [f"{A.hex()}.skipped"]
    bench.reopen()
    bench.check()
    assert len(bench.tablet.stages) == 0


@KINDS
def test_a_stage_that_an_opening_found_damaged_is_skipped_and_kept_aside(kind: str) -> None:
    bench = Bench(kind)
    bench.stage(A, [1], [2])
    bench.stage(B, [3])
    bench.sync_seals()
    bench.disk.flip(f"{FOLDER}/stages/{A.hex()}", 20, 3)
    bench.reopen()
    assert bench.tablet.stages.damaged == 1
    commit = bench.commit(A, B)
    with pytest.raises(StageNotFound, match="cannot read"):
        bench.apply(commit)
    lose(bench, A)
    done = bench.apply(commit._replace(skip_lost=True))
    assert [(one.stage_id, one.reason) for one in done.skipped] == [(A, "it cannot be read")]
    bench.sync()
    bench.release(commit)
    bench.check()
    assert bench.tablet.stages.damaged == 0
    assert bench.disk.list(f"{FOLDER}/stages") == [f"{A.hex()}.skipped"]
    bench.reopen()
    bench.check()


@KINDS
def test_skipping_what_is_well_skips_nothing(kind: str) -> None:
    bench = Bench(kind)
    bench.stage(A, [1])
    bench.stage(B, [2], [-1])
    bench.sync_seals()
    done = bench.apply(skipping(bench, A, B))
    assert done.skipped == ()
    bench.sync()
    bench.check()


@KINDS
@pytest.mark.parametrize("survival", [True, False])
def test_a_crash_while_skipping_loses_nothing_else(kind: str, survival: bool) -> None:
    bench = Bench(kind)
    bench.stage(A, [1], [2])
    bench.stage(B, [3, 4])
    bench.sync_seals()
    damage(bench, A)
    lose(bench, A)
    before = len(bench.disk.trace)
    bench.apply(skipping(bench, A, B))
    moments = [disk for count, disk in ForgettingDisk.moments(bench.disk.trace, survival) if count >= before]
    assert moments
    for disk in moments:
        again = Bench(kind, disk=disk)
        again.staged = {A: [], B: bench.staged[B]}
        again.number = 0
        again.apply(skipping(again, A, B))
        again.sync()
        again.units = bench.units
        again.check()
        assert again.tablet.applied == 1


def test_a_gone_file_is_a_lost_stage_and_not_a_broken_disk() -> None:
    bench = Bench("log")
    bench.stage(A, [1])
    bench.sync_seals()
    bench.disk.remove(f"{FOLDER}/stages/{A.hex()}")
    with pytest.raises(StageNotFound):
        bench.apply(bench.commit(A))
    assert bench.tablet.online


def test_a_row_whose_images_are_too_large_for_one_batch_is_written_as_two() -> None:
    bench = Bench("keys")
    bench.append(1, 2)
    bench.stage(A, [1])
    bench.sync_seals()
    bench.sync()
    bench.tablet.limits = BatchLimits(batch_bytes_max=_one_image(bench))
    bench.apply(bench.commit(A))
    bench.sync()
    assert list(_kinds(bench)) == [CHANGE_INSERT, CHANGE_INSERT, CHANGE_DELETE, CHANGE_INSERT]
    bench.check()
    bench.crash(False)
    bench.check()


def test_a_row_that_fits_no_batch_can_be_skipped() -> None:
    bench = Bench("keys")
    bench.append(1)
    bench.stage(A, [1])
    bench.stage(B, [2])
    bench.sync_seals()
    bench.sync()
    limits = bench.tablet.limits
    bench.tablet.limits = BatchLimits(batch_bytes_max=10)
    commit = bench.commit(A)
    with pytest.raises(RecordTooLarge):
        bench.apply(commit)
    bench.check()
    lose(bench, A)
    bench.tablet.limits = BatchLimits(batch_bytes_max=10)
    assert [one.stage_id for one in bench.apply(commit._replace(skip_lost=True)).skipped] == [A]
    bench.tablet.limits = limits
    bench.apply(bench.commit(B))
    bench.sync()
    bench.check()


@KINDS
def test_a_disk_that_fails_after_a_group_is_closed_takes_the_bucket_offline(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(kind)
    bench.append(1)
    bench.sync()

    def broken(*_: object) -> None:
        error = StorageOffline("the disk is gone")
        bench.tablet.log.fail(error)
        raise error

    commit = bench.commit(overwrite=True)
    begin = bench.tablet.log.begin_group

    def begun(origin: object) -> int:
        start = begin(origin)  # type: ignore[arg-type]
        monkeypatch.setattr(ChainWriter, "roll", broken)
        return start

    monkeypatch.setattr(bench.tablet.log, "begin_group", begun)
    if kind == "log":
        with pytest.raises(StorageOffline):
            bench.tablet.apply([commit], form=bench.form, now_ms=bench.now_ms)
    else:
        bench.tablet.apply(
            [commit], form=bench.form, now_ms=bench.now_ms
        )  # its rows are deletes: nothing rolls
    assert bench.tablet.online is (kind == "keys")


def _one_image(bench: Bench) -> int:
    """Half of a batch with one record, so that two images do not fit (a batch may be twice the limit)."""
    tablet = bench.tablet
    assert isinstance(tablet, KeyTablet)
    one = Bench("keys")
    one.append(1)
    return (one.tablet.log.bytes_from(0) + 8) // 2


def _kinds(bench: Bench) -> Iterator[int]:
    from strom.record.batch import split
    from strom.record.decode import changes

    found = bench.tablet.read(0, max_bytes=10**6)
    for header, view in split(b"".join(found.buffers)):
        kinds = changes(view, header)
        assert kinds is not None
        yield from kinds.tolist()
