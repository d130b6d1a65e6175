"""A batch whose wanted columns are read from a file is the batch that a projection in memory gives."""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strom.errors import ChecksumMismatch
from strom.log.entry_run import EntryRun
from strom.log.reading import answer_memory
from strom.log.reading.alike_run import read_run
from strom.log.reading.answer_memory import AnswerMemory, read_cut
from strom.log.sidecar import decode_buffer_crcs, decode_entry, encode_entry
from strom.record import body
from strom.record import layout as at
from strom.record.batch import check, check_crc, read_header
from strom.record.columns import ColumnLayout
from strom.record.decode import decode
from strom.record.encode import encode
from strom.record.project import Projection, project_batch
from strom.testing.disk import ForgettingDisk

FORMS = [pa.int64(), pa.int32(), pa.bool_(), pa.string(), pa.binary(3), pa.float64()]


def column(kind: pa.DataType, rows: int, seed: int) -> pa.Array:
    random = np.random.default_rng(seed)
    values = [None if v % 5 == 0 else int(v) for v in random.integers(0, 100, rows)]
    if pa.types.is_fixed_size_binary(kind):
        return pa.array([None if v is None else bytes([v] * 3) for v in values], kind)
    if pa.types.is_string(kind):
        return pa.array([None if v is None else "x" * v for v in values], kind)
    if pa.types.is_boolean(kind):
        return pa.array([None if v is None else v % 2 == 0 for v in values], kind)
    return pa.array(values, kind)


def stored(batch: pa.RecordBatch, compression: str) -> tuple[ForgettingDisk, object, list[int], bytes]:
    view = memoryview(encode(batch, schema_id=1, compression=compression))
    header, columns = check(view, layout=ColumnLayout.of(batch.schema))
    with mock.patch("strom.log.layout.WHOLE_BATCH_BYTES_MAX", 0):
        packed = encode_entry(
            view, header, columns.buffers, head_size=columns.head_size, base_offset=0, timestamp_ms=0,
            position=3, epoch=0, synced_end=0,
        )  # fmt: skip
    entry = decode_entry(packed)
    assert entry is not None
    disk = ForgettingDisk()
    disk.open("log", create=True).append([b"abc", view])
    return disk, entry, list(decode_buffer_crcs(packed, 0, entry)), bytes(view)


def alike_of(disk: ForgettingDisk, entry: Any, crcs: list[int], projection: Projection) -> bytes | None:
    """The batch as one that is expected to be cut as the last one was; None when it is not."""
    alike = projection.alike(entry.head_size, entry.batch_size)
    if alike is None:
        return None
    buffers: list[memoryview] = []
    answer = AnswerMemory(buffers, 1 << 20)
    run = EntryRun(entry, 1, [entry.head_crc], np.array([crcs], np.uint32))
    if not read_run(disk.open("log"), alike, run, answer):
        return None
    answer.emit()
    return b"".join(buffers)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from(FORMS), min_size=1, max_size=9),
    st.integers(1, 300),
    st.sampled_from(["NONE", "ZSTD"]),
    st.sampled_from([0, 7, 4096]),
    st.sampled_from([1, 500, 1 << 20]),
    st.data(),
)
def test_what_is_read_is_what_a_projection_in_memory_gives(
    kinds: list[pa.DataType], rows: int, compression: str, gap: int, step: int, data: st.DataObject
) -> None:
    batch = pa.record_batch({f"c{i}": column(kind, rows, i) for i, kind in enumerate(kinds)})
    wanted = data.draw(st.lists(st.integers(0, len(kinds) - 1), min_size=1, unique=True).map(sorted))
    disk, entry, crcs, view = stored(batch, compression)
    layout = ColumnLayout.of(batch.schema)
    with mock.patch.object(body, "GAP_BYTES_MAX", gap), mock.patch.object(body, "STEP_BYTES", step):
        projection = Projection(layout, wanted)
        for _ in range(body.USES_BEFORE_TABLES + 1):  # the last ones by tables of their own
            buffers: list[memoryview] = []
            answer = AnswerMemory(buffers, 1 << 20)
            cut = projection.cut(view, read_header(view))
            read_cut(disk.open("log"), entry, cut, crcs, answer.room(cut.size))
            answer.keep(cut.size)
            answer.emit()
            found = b"".join(buffers)
            check_crc(found, read_header(found))
            assert decode(found, projection.schema).equals(batch.select(wanted))
            assert found == b"".join(project_batch(view, projection))
            assert alike_of(disk, entry, crcs, projection) == found


def test_a_flipped_byte_of_a_wanted_column_is_found_and_one_of_another_is_not_looked_at() -> None:
    batch = pa.record_batch({f"c{i}": column(pa.int64(), 50, i) for i in range(4)})
    disk, entry, crcs, view = stored(batch, "NONE")
    layout = ColumnLayout.of(batch.schema)
    columns = check(view, layout=layout)[1]
    for number, (position, length) in enumerate(columns.buffers):
        if not length:
            continue
        disk.flip("log", 3 + position + length // 2)
        projection = Projection(layout, [1, 3])
        cut = projection.cut(view, read_header(view))
        room = AnswerMemory([], 1 << 20).room(cut.size)
        if number // 2 in (1, 3):
            with pytest.raises(ChecksumMismatch, match="does not fit its checksum"):
                read_cut(disk.open("log"), entry, cut, crcs, room)
        else:
            read_cut(disk.open("log"), entry, cut, crcs, room)
        disk.flip("log", 3 + position + length // 2)


@pytest.mark.parametrize("wanted", [[0, 1], [1, 3], [3]])
def test_what_was_expected_is_held_against_its_checksums(wanted: list[int]) -> None:
    batch = pa.record_batch({f"c{i}": column(pa.int64(), 1000, i) for i in range(4)})
    disk, entry, crcs, view = stored(batch, "NONE")
    layout = ColumnLayout.of(batch.schema)
    projection = Projection(layout, wanted)
    expected = b"".join(project_batch(view, projection))
    assert alike_of(disk, entry, crcs, projection) == expected
    head = [(place, 1) for place in range(0, entry.head_size, 5)]
    for number, (position, length) in enumerate([*check(view, layout=layout)[1].buffers, *head]):
        if not length:
            continue
        disk.flip("log", 3 + position + length // 2)
        sound = number < 8 and number // 2 not in wanted
        assert alike_of(disk, entry, crcs, projection) == (expected if sound else None)
        disk.flip("log", 3 + position + length // 2)
    disk.open("log").truncate(3 + len(view) - 20)
    assert alike_of(disk, entry, crcs, projection) == (None if 3 in wanted else expected)


def test_a_batch_of_the_same_size_that_says_something_else_of_its_columns_is_not_taken_for_the_one_before() -> (
    None
):
    text = pa.array(["y" * 24] * 40)
    one, changed, other = (
        pa.record_batch({"a": pa.array([None] * nulls + [value] * (40 - nulls), pa.int64()), "b": text})
        for nulls, value in ((1, 5), (1, 6), (2, 5))
    )
    projection = Projection(ColumnLayout.of(one.schema), [0])
    project_batch(stored(one, "NONE")[3], projection)
    for batch, same in ((one, True), (other, False), (changed, True)):
        disk, entry, crcs, _ = stored(batch, "NONE")
        assert projection.alike(entry.head_size, entry.batch_size) is not None
        found = alike_of(disk, entry, crcs, projection)
        assert (found is not None) is same
        assert found is None or decode(found, projection.schema).equals(batch.select([0]))


def test_batches_with_change_types_are_cut_one_by_one() -> None:
    batch = pa.record_batch({f"c{i}": column(pa.int64(), 50, i) for i in range(3)})
    view = memoryview(encode(batch, schema_id=1, changes=bytes([1] * 50)))
    projection = Projection(ColumnLayout.of(batch.schema), [1])
    projection.cut(view, read_header(view))
    assert projection.alike(check(view, layout=None)[1].head_size, len(view)) is None


@pytest.mark.parametrize("statistics", [None, [0]])
def test_heads_are_taken_up_to_the_first_that_says_something_else_of_its_batch(
    statistics: list[int] | None,
) -> None:
    batch = pa.record_batch({f"c{i}": column(pa.int64(), 50, i) for i in range(3)})
    view = memoryview(encode(batch, schema_id=1, statistics=statistics))
    header = read_header(view)
    projection = Projection(ColumnLayout.of(batch.schema), [1])
    projection.cut(view, header)
    alike = projection.alike(check(view, layout=None)[1].head_size, len(view))
    assert alike is not None
    sound = np.frombuffer(view[: alike.head_size], np.uint8)
    fields = [
        range(at.LENGTH_POSITION, at.TIMESTAMP_POSITION),
        range(at.ATTRIBUTES_POSITION[header.magic], at.WRITER_ID_POSITION[header.magic]),
        range(at.RECORD_COUNT_POSITION[header.magic], at.HEADER_SIZE[header.magic]),
    ]
    for place in [octet for field in fields for octet in field]:
        old = np.stack([sound] * 4)
        old[2, place] ^= 1
        new = np.zeros((4, alike.size), np.uint8)
        assert alike.write_heads(old, new, [0] * 4, header.magic) == 2, place
        assert new[1].any()
        assert not new[2:].any()


def test_a_log_that_ends_within_a_wanted_column_is_damage() -> None:
    batch = pa.record_batch({f"c{i}": column(pa.int64(), 50, i) for i in range(4)})
    disk, entry, crcs, view = stored(batch, "NONE")
    disk.open("log").truncate(3 + len(view) - 20)
    cut = Projection(ColumnLayout.of(batch.schema), [3]).cut(view, read_header(view))
    with pytest.raises(ChecksumMismatch, match="the log ends within it"):
        read_cut(disk.open("log"), entry, cut, crcs, AnswerMemory([], 1 << 20).room(cut.size))


def test_batches_lie_side_by_side_in_few_pieces_and_in_order() -> None:
    buffers: list[memoryview | bytes] = []
    answer = AnswerMemory(buffers, 10 * answer_memory.PIECE_BYTES)
    for number in range(10):
        piece, start = answer.room(100)
        piece[start : start + 100] = bytes([number]) * 100
        answer.keep(100)
        if number == 5:
            answer.emit()
            buffers.append(b"between")
    piece, start = answer.room(3 * answer_memory.PIECE_BYTES)  # does not fit what is left
    assert start == 0
    assert len(piece) == 3 * answer_memory.PIECE_BYTES
    assert [len(one) for one in buffers] == [600, 7, 400]
    assert bytes(buffers[2]) == b"".join(bytes([n]) * 100 for n in range(6, 10))


def test_a_room_that_was_not_kept_is_given_again() -> None:
    buffers: list[memoryview] = []
    answer = AnswerMemory(buffers, 1 << 20)
    first = answer.room(10)
    assert answer.room(10) == first
    answer.emit()
    assert buffers == []
