"""The parts of a log on their own: index, epochs, checkpoint, sidecar entries, a look from outside."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from log.workbench import LAYOUT, Workbench, batch_bytes
from strom.errors import ChecksumMismatch
from strom.log import layout as at
from strom.log.checkpoint import Checkpoint, decode_checkpoint
from strom.log.epochs import LEAP, Epochs, EpochStart, decode_epochs
from strom.log.index import Anchor, SegmentIndex, SegmentSpan, decode_index
from strom.log.opening.inspect import inspect_segment
from strom.log.sidecar import check_batch, decode_entry, encode_entry
from strom.log.writers import WriterBatch, WriterState
from strom.record.batch import check, stamp

# --- index


def filled(batches: int, *, interval_bytes: int = 1000) -> SegmentIndex:
    index = SegmentIndex(100, interval_bytes=interval_bytes)
    for number in range(batches):
        index.add(
            100 + number * 5, timestamp_ms=number, position=number * 300, sidecar_position=16 + number * 80
        )
    return index


def test_an_anchor_is_at_or_before_what_is_looked_for() -> None:
    index = filled(100)
    for offset in range(100, 600):
        anchor = index.before(offset)
        assert anchor.offset <= offset
        assert offset - anchor.offset < 4 * 5
        assert anchor == (anchor.offset, (anchor.offset - 100) * 60, 16 + (anchor.offset - 100) * 16)
    assert index.before(7) == index.start == Anchor(100, 0, at.SIDECAR_HEADER_SIZE)


def test_an_anchor_by_time_is_before_the_first_batch_of_that_time() -> None:
    index = filled(100)
    for timestamp_ms in range(-1, 105):
        anchor = index.before_time(timestamp_ms)
        assert (anchor.offset - 100) // 5 < max(timestamp_ms, 1)


def test_an_index_grows_to_a_bound_and_stays_useful() -> None:
    index = filled(10 * at.ANCHORS_MAX, interval_bytes=1)
    assert len(index) <= at.ANCHORS_MAX
    last = 100 + 5 * (10 * at.ANCHORS_MAX - 1)
    assert last - index.before(last).offset <= 5 * 32


def test_an_index_survives_its_file() -> None:
    index = filled(100)
    facts = SegmentSpan(100, 600, 30_000, 8016, 0, 0, 99)
    content = index.encode(facts)
    found = decode_index(content, base_offset=100, interval_bytes=1000)
    assert found is not None
    assert found[1] == facts
    assert [found[0].before(offset) for offset in range(100, 600)] == [
        index.before(o) for o in range(100, 600)
    ]
    assert decode_index(content, base_offset=101, interval_bytes=1000) is None
    for wrong in (b"", content[:-1], content + b"x", content[:50]):
        assert decode_index(wrong, base_offset=100, interval_bytes=1000) is None


def test_a_cut_index_knows_nothing_behind_the_cut() -> None:
    index = filled(100)
    index.cut(15_000)
    assert index.before(600).position < 15_000
    index.add(355, timestamp_ms=51, position=16_000, sidecar_position=4016)
    assert index.before(600) == Anchor(355, 16_000, 4016)


# --- epochs


def test_an_offset_belongs_to_the_epoch_that_began_at_or_before_it() -> None:
    epochs = Epochs().begin(0).begin(10).begin(25)
    assert [epochs.epoch_of(offset) for offset in (-1, 0, 9, 10, 24, 25, 99)] == [-1, 0, 0, 1, 1, 2, 2]


def test_an_epoch_that_lost_its_records_is_replaced_and_its_number_is_not_used_again() -> None:
    epochs = Epochs().begin(0).begin(10).begin(25).begin(10)
    assert epochs.starts == (EpochStart(0, 0), EpochStart(3, 10))
    assert epochs.begin(0).starts == (EpochStart(4, 0),)


def test_epochs_before_the_log_starts_are_forgotten() -> None:
    epochs = Epochs().begin(0).begin(10).begin(25).begin(30, log_start=12)
    assert epochs.starts == (EpochStart(1, 10), EpochStart(2, 25), EpochStart(3, 30))


def test_epochs_survive_their_file() -> None:
    epochs = Epochs().begin(0).begin(10).begin(25)
    assert decode_epochs(epochs.encode()) == epochs
    assert decode_epochs(Epochs().encode()) == Epochs()


def test_a_damaged_epoch_is_filled_in_and_leapt_over() -> None:
    content = bytearray(Epochs().begin(0).begin(10).begin(25).encode())
    content[-1] ^= 1
    found = decode_epochs(bytes(content))
    assert found.damaged
    assert found.latest == 1
    whole = found.merged([EpochStart(1, 12), EpochStart(2, 25), EpochStart(2, 30)])
    assert whole.starts == (EpochStart(0, 0), EpochStart(1, 10), EpochStart(2, 25))
    assert whole.begin(40).latest == 2 + LEAP


# --- checkpoint

writer_batches = st.lists(
    st.builds(WriterBatch, st.integers(0, 2**31 - 1), st.integers(0, 2**62), st.integers(0, 2**62)),
    min_size=1,
    max_size=5,
)
checkpoints = st.builds(
    Checkpoint,
    *[st.integers(0, 2**62)] * 4,
    st.integers(-1, 2**62),
    st.dictionaries(
        st.integers(0, 2**62),
        st.builds(WriterState, st.integers(0, 2**62), writer_batches.map(tuple)),
        max_size=4,
    ),
)


@given(checkpoints)
@settings(max_examples=50, deadline=None)
def test_a_checkpoint_survives_its_file(checkpoint: Checkpoint) -> None:
    content = checkpoint.encode()
    assert decode_checkpoint(content) == checkpoint
    assert decode_checkpoint(content[:-1]) is None
    assert decode_checkpoint(content + b"\0") is None


@given(checkpoints, st.data())
@settings(max_examples=50, deadline=None)
def test_a_damaged_checkpoint_is_no_checkpoint(checkpoint: Checkpoint, data: st.DataObject) -> None:
    content = bytearray(checkpoint.encode())
    content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    assert decode_checkpoint(bytes(content)) is None


# --- entries


def entry_of(batch: bytearray) -> bytes:
    view = memoryview(batch)
    header, columns = check(view, layout=LAYOUT)
    stamp(view, base_offset=40, timestamp_ms=12345)
    return encode_entry(
        view,
        header,
        columns.buffers,
        head_size=columns.head_size,
        base_offset=40,
        timestamp_ms=12345,
        position=999,
        epoch=3,
        synced_end=20,
    )


def test_an_entry_tells_what_its_batch_is() -> None:
    batch = batch_bytes(0, 3000, writer_id=5, sequence=6, statistics=True)
    content = entry_of(batch)
    entry = decode_entry(content)
    assert entry is not None
    assert entry.entry_size == len(content) == at.ENTRY_SIZE + 4 * entry.buffer_count
    assert entry.buffer_count == LAYOUT.buffer_count
    assert (entry.base_offset, entry.next_offset, entry.position, entry.end_position) == (
        40,
        3040,
        999,
        999 + len(batch),
    )
    assert (entry.epoch, entry.synced_end, entry.writer_id, entry.batch_sequence) == (3, 20, 5, 6)
    assert (entry.timestamp_ms, entry.record_count, entry.magic, entry.schema_id) == (12345, 3000, 1, 1)
    check_batch(memoryview(batch), entry)


@pytest.mark.parametrize("statistics", [False, True])
def test_no_byte_of_a_batch_can_change_unnoticed(statistics: bool) -> None:
    batch = batch_bytes(0, 2, statistics=statistics)
    entry = decode_entry(entry_of(batch))
    assert entry is not None
    for position in range(len(batch)):
        batch[position] ^= 1 << position % 8
        with pytest.raises(ChecksumMismatch):
            check_batch(memoryview(batch), entry)
        batch[position] ^= 1 << position % 8
    check_batch(memoryview(batch), entry)


def test_an_entry_that_is_short_or_damaged_is_no_entry() -> None:
    content = bytearray(entry_of(batch_bytes(0, 3000)))
    for size in range(len(content)):
        assert decode_entry(bytes(content[:size])) is None
    for position in range(len(content)):
        content[position] ^= 1 << position % 8
        assert decode_entry(bytes(content)) is None
        content[position] ^= 1 << position % 8


def test_entries_in_the_wrong_place_are_not_believed() -> None:
    """Sound entries, each for the other's batch: offset and position tell."""
    bench = Workbench()
    bench.append_many(3)
    bench.log.close()
    path = bench.path(bench.names(at.SIDECAR_SUFFIX)[0])
    content = bench.disk.read_whole(path)
    first, second, third = (
        content[at.SIDECAR_HEADER_SIZE + i * at.ENTRY_SIZE :][: at.ENTRY_SIZE] for i in range(3)
    )
    bench.disk.write_whole(path, content[: at.SIDECAR_HEADER_SIZE] + third + first + second)
    bench.log = bench._open()
    assert bench.read() == bench.rows
    bench.check()


# --- a look from outside


def test_a_segment_can_be_looked_at_from_outside() -> None:
    bench = Workbench(segment_bytes=10**6)
    bench.append(3, writer_id=9, sequence=0)
    bench.append(4000, compression="ZSTD", statistics=True)
    path = bench.path(bench.names(at.LOG_SUFFIX)[0])
    first, second = (batch.facts() for batch in inspect_segment(bench.disk, path))
    assert (first["position"], first["base_offset"], first["next_offset"], first["rows"]) == (0, 0, 3, 3)
    assert (first["writer_id"], first["sequence"], first["codec"], first["problem"]) == (9, 0, "none", None)
    assert (second["base_offset"], second["rows"], second["codec"], second["epoch"]) == (3, 4000, "zstd", 0)


@pytest.mark.parametrize("sidecar", [True, False])
def test_a_look_from_outside_finds_every_flip(sidecar: bool) -> None:
    bench = Workbench()
    bench.append(2)
    bench.append(1)
    bench.log.close()
    path = bench.path(bench.names(at.LOG_SUFFIX)[0])
    if not sidecar:
        bench.disk.remove(path.replace(at.LOG_SUFFIX, at.SIDECAR_SUFFIX))
    timestamp = set(range(13, 21))
    size = len(batch_bytes(0, 2))
    for position in range(size):
        bench.disk.flip(path, position, position % 8)  # type: ignore[attr-defined]
        problems = [batch.problem for batch in inspect_segment(bench.disk, path)]
        if sidecar or position not in timestamp:
            assert problems[0] is not None
        assert sidecar is False or problems[1:] == [None], "one bad batch does not hide the next"
        bench.disk.flip(path, position, position % 8)  # type: ignore[attr-defined]
    bench.disk.open(path).append([b"torn"])
    assert [batch.problem is None for batch in inspect_segment(bench.disk, path)] == [True, True, False]
