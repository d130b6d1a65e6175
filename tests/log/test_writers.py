"""Idempotent writers: a repeated batch is answered, not stored again; their memory outlives the process."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from log.workbench import START_MS, Workbench, append_bytes, batch_bytes
from strom.errors import MalformedBatch, OutOfOrderSequence, UnknownWriter
from strom.log.writers import SEQUENCE_MAX, WRITERS_MAX, WriterBatch, Writers
from strom.testing.disk import ForgettingDisk


def with_five(bench: Workbench, writer_id: int = 7) -> None:
    for sequence in range(6):
        bench.append(2, writer_id=writer_id, sequence=sequence)


def test_a_repeated_batch_gets_the_offsets_it_had() -> None:
    bench = Workbench()
    with_five(bench)
    for sequence in range(1, 6):
        assert bench.append(2, writer_id=7, sequence=sequence) == (2 * sequence, 2 * sequence + 2, True)
    assert bench.log.end_offset == 12
    bench.check()


@pytest.mark.parametrize("sequence", [0, 7, 100])
def test_a_batch_that_is_neither_next_nor_remembered_is_out_of_order(sequence: int) -> None:
    bench = Workbench()
    with_five(bench)
    with pytest.raises(OutOfOrderSequence):
        bench.append(2, writer_id=7, sequence=sequence)
    assert bench.append(2, writer_id=7, sequence=6).base_offset == 12


def test_a_repeated_sequence_with_other_rows_is_not_taken_for_a_repeat() -> None:
    bench = Workbench()
    with_five(bench)
    with pytest.raises(OutOfOrderSequence):
        bench.append(3, writer_id=7, sequence=5)


def test_an_unknown_writer_begins_at_zero() -> None:
    bench = Workbench()
    with pytest.raises(UnknownWriter):
        bench.append(writer_id=7, sequence=5)
    assert bench.append(writer_id=7, sequence=0) == (0, 3, False)


@pytest.mark.parametrize("sequence", [1, 4])
def test_a_writer_whose_first_batch_may_still_come_is_only_too_early(sequence: int) -> None:
    bench = Workbench()
    with pytest.raises(OutOfOrderSequence):
        bench.append(writer_id=7, sequence=sequence)
    assert bench.append(writer_id=7, sequence=0) == (0, 3, False)


def test_a_writer_without_a_sequence_is_malformed() -> None:
    bench = Workbench()
    with pytest.raises(MalformedBatch):
        bench.append(writer_id=7, sequence=-1)


def test_batches_without_a_writer_are_never_repeats() -> None:
    bench = Workbench()
    batch = bytes(batch_bytes(0, 2))
    assert append_bytes(bench.log, bytearray(batch)).base_offset == 0
    assert append_bytes(bench.log, bytearray(batch)).base_offset == 2


def test_writers_do_not_disturb_each_other() -> None:
    bench = Workbench()
    for sequence in range(4):
        for writer_id in (1, 2, 3):
            bench.append(writer_id=writer_id, sequence=sequence)
    assert bench.append(writer_id=2, sequence=3).duplicate
    assert not bench.append(writer_id=3, sequence=4).duplicate


@pytest.mark.parametrize("stop", ["close", "kill", "power loss"])
@pytest.mark.parametrize("checkpointed", [True, False])
def test_writers_are_remembered_after(stop: str, checkpointed: bool) -> None:
    bench = Workbench()
    for sequence in range(20):
        bench.append(2, writer_id=7, sequence=sequence)
        if sequence == 12 and checkpointed:
            bench.log.checkpoint()
    bench.sync()
    if stop == "close":
        bench.reopen()
    else:
        bench.crash(stop == "kill")
    for sequence in range(15, 20):
        assert bench.append(2, writer_id=7, sequence=sequence) == (2 * sequence, 2 * sequence + 2, True)
    with pytest.raises(OutOfOrderSequence):
        bench.append(2, writer_id=7, sequence=14)
    assert bench.append(2, writer_id=7, sequence=20) == (40, 42, False)
    bench.check()


def test_writers_are_remembered_when_their_batches_have_expired() -> None:
    bench = Workbench()
    with_five(bench)
    bench.now_ms += 100
    bench.log.expire(now_ms=bench.now_ms, ttl_ms=10, bytes_max=None)
    assert bench.log.start_offset == 12
    bench.crash(False)
    assert bench.append(2, writer_id=7, sequence=5) == (10, 12, True)


def test_a_batch_lost_by_power_loss_is_new_again() -> None:
    bench = Workbench()
    bench.append(2, writer_id=7, sequence=0)
    bench.sync()
    bench.append(2, writer_id=7, sequence=1)
    bench.crash(False)
    assert bench.append(2, writer_id=7, sequence=1) == (2, 4, False)


def test_a_truncated_batch_is_new_again() -> None:
    bench = Workbench()
    with_five(bench)
    bench.log.truncate(8)
    assert bench.append(2, writer_id=7, sequence=3) == (6, 8, True)
    assert bench.append(2, writer_id=7, sequence=4) == (8, 10, False)


def test_a_writer_whose_remembered_batches_are_all_truncated_is_replayed_from_the_log() -> None:
    bench = Workbench()
    for sequence in range(20):
        bench.append(2, writer_id=7, sequence=sequence)
    bench.log.truncate(10)
    assert bench.append(2, writer_id=7, sequence=4) == (8, 10, True)
    assert bench.append(2, writer_id=7, sequence=0) == (0, 2, True)
    assert bench.append(2, writer_id=7, sequence=5) == (10, 12, False)


def test_a_silent_writer_is_forgotten() -> None:
    bench = Workbench(writer_expiry_ms=1000)
    with_five(bench)
    bench.now_ms += 1000
    assert bench.append(2, writer_id=7, sequence=5).duplicate
    bench.now_ms += 1
    with pytest.raises(UnknownWriter):
        bench.append(2, writer_id=7, sequence=5)
    assert not bench.append(2, writer_id=7, sequence=0).duplicate
    bench.now_ms += 1001
    bench.log.roll_if_due(bench.now_ms)
    assert len(bench.log._writers) == 0


@pytest.mark.parametrize("again", [lambda bench: None, Workbench.reopen, Workbench.crash])
def test_a_writer_that_began_again_has_no_past(again: Callable[[Workbench], object]) -> None:
    """What it gave in its former life has the same numbers, and other rows."""
    bench = Workbench(writer_expiry_ms=1000)
    with_five(bench)
    bench.now_ms += 1001
    assert bench.append(2, writer_id=7, sequence=0) == (12, 14, False)
    again(bench)
    with pytest.raises(OutOfOrderSequence):
        bench.append(2, writer_id=7, sequence=4)
    assert bench.append(2, writer_id=7, sequence=0) == (12, 14, True)
    assert bench.append(2, writer_id=7, sequence=1) == (14, 16, False)
    assert bench.append(2, writer_id=7, sequence=1) == (14, 16, True)
    bench.check()


def test_a_forgotten_writer_is_not_brought_back_by_a_restart() -> None:
    bench = Workbench(writer_expiry_ms=1000)
    with_five(bench)
    bench.now_ms += 1001
    bench.reopen()
    assert len(bench.log._writers) == 0


def test_sequences_go_round() -> None:
    writers = Writers(expiry_ms=10**9)
    writers.remember(1, WriterBatch(SEQUENCE_MAX - 1, 0, 1), timestamp_ms=START_MS)
    writers.remember(1, WriterBatch(SEQUENCE_MAX, 1, 2), timestamp_ms=START_MS)
    writers.remember(1, WriterBatch(0, 2, 3), timestamp_ms=START_MS)
    state = writers.snapshot()[1]
    assert [batch.batch_sequence for batch in state.batches] == [SEQUENCE_MAX - 1, SEQUENCE_MAX, 0]


def test_the_number_of_writers_is_bounded() -> None:
    writers = Writers(expiry_ms=10**9)
    for writer_id in range(WRITERS_MAX + 10):
        writers.remember(
            writer_id, WriterBatch(0, writer_id, writer_id + 1), timestamp_ms=START_MS + writer_id
        )
    assert len(writers) == WRITERS_MAX
    assert min(writers.snapshot()) == 10


def test_beyond_the_bound_the_writer_that_was_silent_longest_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("strom.log.writers.WRITERS_MAX", 2)
    bench = Workbench()
    for writer_id, sequence in ((1, 0), (2, 0), (1, 1), (3, 0)):
        bench.append(writer_id=writer_id, sequence=sequence)
    assert bench.append(writer_id=1, sequence=1).duplicate, "it came first, and wrote last but one"
    assert bench.append(writer_id=3, sequence=0).duplicate
    with pytest.raises(OutOfOrderSequence):
        bench.append(writer_id=2, sequence=1)


def test_a_refused_batch_leaves_no_trace() -> None:
    bench = Workbench()
    with_five(bench)
    assert isinstance(bench.disk, ForgettingDisk)
    changes = len(bench.disk.trace)
    with pytest.raises(OutOfOrderSequence):
        bench.append(2, writer_id=7, sequence=50)
    bench.append(2, writer_id=7, sequence=5)
    assert len(bench.disk.trace) == changes


def _roll(bench: Workbench) -> None:
    bench.now_ms += bench.settings.roll_ms
    assert bench.log.roll_if_due(bench.now_ms)


def _open_without(bench: Workbench, base_offset: int) -> None:
    """The process ends, the files of one segment are lost, and the log is opened again."""
    bench.log.abandon()
    for name in bench.disk.list(bench.folder):
        if name.startswith(f"{base_offset:020d}."):
            bench.disk.remove(f"{bench.folder}/{name}")
    bench.log = bench._open()


def test_writers_of_a_checkpoint_whose_segment_is_lost_count_in_a_log_that_begins_behind_it() -> None:
    """What a checkpoint knows of writers is about all that lay before it."""
    bench = Workbench(writer_expiry_ms=10**9)
    with_five(bench)
    bench.log.checkpoint()
    _roll(bench)
    bench.append(3, writer_id=8, sequence=0)
    _open_without(bench, 0)
    assert (bench.log.start_offset, bench.log.end_offset) == (12, 15)
    assert bench.append(2, writer_id=7, sequence=5) == (10, 12, True)
    assert bench.append(2, writer_id=7, sequence=6) == (15, 17, False)
    assert bench.append(3, writer_id=8, sequence=0) == (12, 15, True)


def test_writers_of_a_checkpoint_whose_segment_is_lost_do_not_count_where_older_ones_are_left() -> None:
    """Those are replayed: a batch that was lost with the segment is new, not a duplicate."""
    bench = Workbench(writer_expiry_ms=10**9)
    bench.append(2, writer_id=7, sequence=0)
    _roll(bench)
    bench.append(2, writer_id=7, sequence=1)
    bench.append(2, writer_id=9, sequence=0)
    bench.log.checkpoint()
    _open_without(bench, 2)
    assert (bench.log.start_offset, bench.log.end_offset) == (0, 6)
    assert bench.append(2, writer_id=7, sequence=0) == (0, 2, True)
    assert bench.append(2, writer_id=9, sequence=0) == (6, 8, False)
    assert bench.append(2, writer_id=7, sequence=1) == (8, 10, False)
