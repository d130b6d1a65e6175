"""What a log does on a good day: append, read, roll, find."""

from __future__ import annotations

import pyarrow as pa
import pytest

from log.workbench import (
    HALVES,
    NUMBERS,
    SCHEMA,
    START_MS,
    Workbench,
    append_bytes,
    batch_bytes,
    numbers_of,
    read_everything,
    timestamps_of,
)
from strom.errors import OffsetOutOfRange
from strom.log import layout as at
from strom.log.chain import SEALED_OPEN_MAX
from strom.log.index import Anchor
from strom.log.reading.slices import LogSlice
from strom.record.batch import read_header
from strom.record.encode import encode
from strom.runtime.files import LocalFiles
from strom.testing.disk import ForgettingDisk, ForgettingFile


def test_a_new_log_is_empty_and_writes_nothing() -> None:
    bench = Workbench()
    assert (bench.log.start_offset, bench.log.end_offset, bench.log.synced_end) == (0, 0, 0)
    assert bench.log.read(0, until=0, max_bytes=100).buffers == []
    assert bench.disk.list(bench.folder) == []
    assert bench.log.tail_rows(10, until=0).buffers == []
    assert bench.log.offset_at(0) == 0


def test_rows_come_back_in_order_with_dense_offsets() -> None:
    bench = Workbench()
    for count in (1, 5, 2, 70):
        bench.append(count)
    assert [offset for offset, _ in bench.read()] == list(range(78))
    bench.check()


def test_the_bytes_that_were_appended_are_the_bytes_that_are_read() -> None:
    bench = Workbench()
    batch = batch_bytes(0, 10)
    append_bytes(bench.log, batch, now_ms=START_MS + 7)
    found = bench.log.read(0, until=10, max_bytes=1)
    assert b"".join(found.buffers) == bytes(batch)
    header = read_header(batch)
    assert (header.base_offset, header.timestamp_ms) == (0, START_MS + 7)


def test_a_read_within_a_batch_begins_with_that_batch() -> None:
    bench = Workbench()
    bench.append_many(4, count=10)
    found = bench.log.read(17, until=40, max_bytes=1)
    assert [offset for offset, _ in numbers_of(found)] == list(range(10, 20))
    assert found.next_offset == 20


def test_a_read_gives_at_least_one_batch_unless_told_otherwise() -> None:
    bench = Workbench()
    bench.append_many(3)
    assert bench.log.read(0, until=9, max_bytes=0).batches == 1
    found = bench.log.read(0, until=9, max_bytes=0, most=None)
    assert (found.batches, found.buffers, found.next_offset) == (0, [], 0)


def test_a_read_takes_no_more_than_max_bytes_when_more_than_one_batch_is_there() -> None:
    bench = Workbench(segment_bytes=10**6)
    bench.append_many(10)
    size = len(batch_bytes(0, 3))
    found = bench.log.read(0, until=30, max_bytes=4 * size + size // 2)
    assert (found.batches, found.rows, found.size, found.next_offset) == (4, 12, 4 * size, 12)
    assert len(found.buffers) == 1, "neighbours are read together"


def test_a_projected_read_is_measured_by_what_it_sends() -> None:
    bench = Workbench(segment_bytes=10**6)
    bench.append_many(10)
    one = bench.log.read(0, until=30, max_bytes=1, projection=NUMBERS)
    found = bench.log.read(0, until=30, max_bytes=one.size * 3, projection=NUMBERS)
    assert (one.batches, found.batches, found.next_offset) == (1, 3, 9)


def test_nobody_reads_past_the_offset_they_were_given() -> None:
    bench = Workbench()
    bench.append_many(4)
    assert bench.log.read(0, until=6, max_bytes=10**6).next_offset == 6
    assert bench.log.read(6, until=6, max_bytes=10**6) == LogSlice([], 6)
    assert bench.log.read(9, until=6, max_bytes=10**6).buffers == []


@pytest.mark.parametrize(
    ("offset", "bound"), [(-1, {"start_offset": 0}), (13, {"end_offset": 12}), (2**62, {"end_offset": 12})]
)
def test_an_offset_outside_the_log_is_refused_with_where_it_begins_or_ends(
    offset: int, bound: dict[str, int]
) -> None:
    bench = Workbench()
    bench.append_many(4)
    assert bench.log.end_offset == 12
    with pytest.raises(OffsetOutOfRange, match=f"offset {offset} ") as refused:
        bench.log.read(offset, until=12, max_bytes=10)
    assert refused.value.facts == {"offset": offset} | bound


def test_a_log_rolls_by_size_and_reads_across_segments() -> None:
    bench = Workbench()
    bench.append_many(40)
    assert bench.log.segment_count > 3
    assert bench.names(at.LOG_SUFFIX) == [
        at.segment_name(base_offset) for base_offset in (0, *bench.log.sealed_ends)
    ]
    assert all(bench.disk.size(bench.path(name)) <= 4000 for name in bench.names(at.LOG_SUFFIX))
    bench.check()
    found = bench.log.read(0, until=120, max_bytes=10**6)
    assert found.next_offset == 120


def test_a_batch_larger_than_a_segment_gets_one_of_its_own() -> None:
    bench = Workbench(segment_bytes=1000)
    for count in (1, 500, 1):
        bench.append(count)
    assert bench.log.segment_count == 3
    bench.check()


def test_a_log_rolls_by_age_at_the_next_append() -> None:
    bench = Workbench(roll_ms=100)
    bench.append()
    bench.now_ms += 99
    bench.append()
    assert bench.log.segment_count == 1
    bench.now_ms += 1
    bench.append()
    assert bench.log.segment_count == 2
    bench.check()


def test_an_idle_log_rolls_by_age_when_asked() -> None:
    bench = Workbench(roll_ms=100)
    assert not bench.log.roll_if_due(START_MS + 1000)
    bench.append()
    assert not bench.log.roll_if_due(START_MS + 99)
    assert bench.log.roll_if_due(START_MS + 100)
    assert not bench.log.roll_if_due(START_MS + 1000)
    assert bench.log.segment_count == 2
    bench.append()
    bench.check()


def test_timestamps_never_fall_whatever_the_clock_does() -> None:
    bench = Workbench()
    for now_ms in (START_MS, START_MS - 500, START_MS + 3, START_MS - 1):
        bench.now_ms = now_ms
        bench.append()
    stamped = timestamps_of(bench.log.read(0, until=12, max_bytes=10**6))
    assert [timestamp for _, timestamp in stamped] == [START_MS, START_MS, START_MS + 3, START_MS + 3]
    bench.now_ms = START_MS - 1000
    bench.reopen()
    bench.append()
    assert timestamps_of(bench.log.read(12, until=15, max_bytes=1)) == [(12, START_MS + 3)]


def test_an_offset_is_found_by_time() -> None:
    bench = Workbench()
    times = [START_MS + 10 * (i // 3) for i in range(60)]
    for bench.now_ms in times:
        bench.append(2)
    assert bench.log.segment_count > 3
    for wanted in range(START_MS - 5, START_MS + 205):
        expected = next((2 * i for i, time in enumerate(times) if time >= wanted), 120)
        assert bench.log.offset_at(wanted) == expected
    bench.reopen()
    assert bench.log.offset_at(START_MS + 100) == 60


def test_the_tail_covers_the_rows_asked_for() -> None:
    bench = Workbench()
    bench.append_many(30)
    for limit, first in ((1, 87), (3, 87), (4, 84), (20, 69), (90, 0), (1000, 0)):
        found = bench.log.tail_rows(limit, until=90)
        assert [offset for offset, _ in numbers_of(found)] == list(range(first, 90))
    assert [offset for offset, _ in numbers_of(bench.log.tail_rows(4, until=12))] == list(range(6, 12))


def test_the_tail_is_bounded_in_bytes() -> None:
    bench = Workbench()
    bench.append_many(30)
    size = len(batch_bytes(0, 3))
    assert bench.log.tail_rows(1000, until=90, max_bytes=2 * size).rows == 6
    assert bench.log.tail_rows(1000, until=90, max_bytes=1).rows == 3


def test_a_batch_without_records_takes_one_offset_and_no_row() -> None:
    bench = Workbench()
    bench.append()
    empty = encode(pa.RecordBatch.from_pylist([], schema=SCHEMA), schema_id=1)
    assert append_bytes(bench.log, empty) == (3, 4, False)
    bench.append()
    assert bench.log.end_offset == 7
    for projection in (None, NUMBERS):
        assert [offset for offset, _ in read_everything(bench.log, projection=projection)] == [
            0,
            1,
            2,
            4,
            5,
            6,
        ]
    assert bench.log.tail_rows(4, until=7).rows == 6
    assert bench.log.tail_rows(3, until=7).rows == 3


def test_batches_are_skipped_by_their_head() -> None:
    bench = Workbench()
    for _ in range(12):
        bench.append(3, statistics=True)
    seen = []

    def skip(header: object, head: memoryview) -> bool:
        seen.append(len(head))
        return header.base_offset % 2 == 0  # type: ignore[attr-defined]

    found = bench.log.read(0, until=36, max_bytes=10**6, skip=skip)
    assert [offset for offset, _ in numbers_of(found)] == [
        o for b in range(3, 36, 6) for o in range(b, b + 3)
    ]
    assert (found.batches, found.rows, found.rows_skipped, found.next_offset) == (6, 18, 18, 36)
    assert found.bytes_skipped > 0
    assert all(size > 60 for size in seen), "the head holds header, statistics and Arrow metadata"


def test_a_projection_may_differ_by_schema() -> None:
    bench = Workbench()
    bench.append_many(3)
    found = bench.log.read(
        0, until=9, max_bytes=10**6, projection=lambda schema_id: HALVES if schema_id == 1 else None
    )
    assert [offset for offset, _ in numbers_of(found, HALVES.schema)] == list(range(9))
    plain = bench.log.read(0, until=9, max_bytes=10**6, projection=lambda schema_id: None)
    assert plain == bench.log.read(0, until=9, max_bytes=10**6)


@pytest.mark.parametrize("compression", ["NONE", "LZ4_FRAME", "ZSTD"])
def test_large_batches_are_read_by_columns(compression: str) -> None:
    bench = Workbench(segment_bytes=10**7)
    for _ in range(3):
        bench.append(9000, compression=compression, statistics=True)
    assert len(batch_bytes(0, 9000, compression=compression)) > at.WHOLE_BATCH_BYTES_MAX
    bench.append(2)
    bench.check()
    whole = bench.log.read(0, until=9000, max_bytes=1).size
    assert bench.log.read(0, until=9000, max_bytes=1, projection=NUMBERS).size < whole / 2


def test_a_large_batch_is_skipped_without_reading_its_body() -> None:
    bench = Workbench(segment_bytes=10**7)
    for _ in range(3):
        bench.append(5000, statistics=True)
    found = bench.log.read(
        0, until=15000, max_bytes=10**8, skip=lambda header, head: header.base_offset == 5000
    )
    assert (found.batches, found.rows_skipped) == (2, 5000)
    assert len(numbers_of(found)) == 10_000


def test_a_log_on_the_real_disk_is_the_same_log(tmp_path: object) -> None:
    bench = Workbench(LocalFiles(), folder=f"{tmp_path}/1/-/0")
    bench.append_many(40)
    bench.append(5000)
    bench.check()
    bench.reopen()
    assert bench.log.report.clean
    bench.append()
    bench.check()


def test_a_log_keeps_few_files_open() -> None:
    bench = Workbench()
    bench.append_many(60)
    assert bench.log.segment_count > 5
    bench.check()
    assert len(bench.log._chain._sealed_open) <= 3
    assert sum(segment.files is not None for segment in bench.log._chain.segments) == 1


def test_a_cursor_that_points_nowhere_costs_time_not_truth() -> None:
    bench = Workbench()
    bench.append_many(4)
    chain = bench.log._chain
    chain.remember(chain.active, Anchor(6, 17, 99))
    assert [offset for offset, _ in numbers_of(bench.log.read(6, until=12, max_bytes=10**6))] == list(
        range(6, 12)
    )


def test_a_log_knows_its_size() -> None:
    bench = Workbench()
    bench.append_many(40)
    assert bench.log.size_bytes == 40 * len(batch_bytes(0, 3))


class OpenedFiles(ForgettingDisk):
    """Notes which logs are opened."""

    def __init__(self) -> None:
        super().__init__()
        self.opened: list[str] = []

    def open(self, path: str, *, create: bool = False) -> ForgettingFile:
        if path.endswith(at.LOG_SUFFIX):
            self.opened.append(path)
        return super().open(path, create=create)


def test_the_sealed_segments_that_were_read_last_stay_open_and_no_others() -> None:
    disk = OpenedFiles()
    bench = Workbench(disk, segment_bytes=1)
    bench.append_many(SEALED_OPEN_MAX + 4)
    bench.reopen()

    def opened_by_reading(*segments: int) -> int:
        disk.opened.clear()
        for number in segments:
            found = bench.log.read(3 * number, until=3 * number + 3, max_bytes=1)
            assert numbers_of(found)[0] == (3 * number, 3 * number)
        return len(disk.opened)

    last_read = tuple(range(1, SEALED_OPEN_MAX + 1))
    opened_by_reading(*last_read)
    assert opened_by_reading(*last_read, *last_read) == 0
    assert opened_by_reading(0) == 1
    assert opened_by_reading(0, *last_read[1:]) == 0, "only the one that was not read for longest had to go"
    assert opened_by_reading(1) == 1


def test_files_that_a_crash_left_under_the_names_of_a_new_segment_are_no_part_of_it() -> None:
    bench = Workbench(segment_bytes=1)
    for _ in range(3):
        base = f"{bench.log.end_offset:020d}"
        for suffix in (at.LOG_SUFFIX, at.SIDECAR_SUFFIX):
            bench.disk.make_folder(bench.folder)
            bench.disk.open(bench.path(base + suffix), create=True).append([b"left" * 1000])
        bench.append()
        bench.check()
    bench.reopen()
    bench.check()
    assert bench.log.report.clean
