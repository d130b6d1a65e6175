"""What expires and what stays."""

from __future__ import annotations

import pytest

from log.workbench import START_MS, Workbench, batch_bytes, numbers_of
from strom.errors import OffsetOutOfRange
from strom.log import layout as at
from strom.log.retention import SegmentFacts, count_expired

SIZE = len(batch_bytes(0, 3))


def aged(segments: int = 5) -> Workbench:
    """Segments of two batches each, 100 ms apart."""
    bench = Workbench(segment_bytes=2 * SIZE)
    for number in range(2 * segments):
        bench.now_ms = START_MS + number // 2 * 100
        bench.append()
    assert bench.log.segment_count == segments
    return bench


def test_nothing_expires_without_a_limit() -> None:
    bench = aged()
    assert bench.log.expire(now_ms=10**12, ttl_ms=None, bytes_max=None) == (0, 0, 0)
    bench.check()


def test_segments_expire_when_their_last_batch_is_too_old() -> None:
    bench = aged()
    assert bench.log.expire(now_ms=START_MS + 300, ttl_ms=150, bytes_max=None) == (2, 4 * SIZE, 12)
    assert bench.log.start_offset == 12
    assert len(bench.names(at.LOG_SUFFIX)) == len(bench.names(at.SIDECAR_SUFFIX)) == 3
    bench.check()
    with pytest.raises(OffsetOutOfRange):
        bench.log.read(11, until=30, max_bytes=1)
    bench.reopen()
    assert (bench.log.start_offset, bench.log.end_offset) == (12, 30)
    bench.check()


def test_segments_expire_when_the_rest_is_large_enough() -> None:
    bench = aged()
    assert bench.log.expire(now_ms=START_MS, ttl_ms=None, bytes_max=5 * SIZE).segments == 2
    assert bench.log.size_bytes == 6 * SIZE
    bench.check()


def test_what_is_still_needed_stays() -> None:
    bench = aged()
    assert bench.log.expire(now_ms=10**12, ttl_ms=1, bytes_max=0, keep_from=11).start_offset == 6
    bench.check()


def test_an_expired_log_keeps_its_end_offset_and_takes_new_rows() -> None:
    bench = aged()
    assert bench.log.expire(now_ms=10**12, ttl_ms=1, bytes_max=None).segments == 5
    assert (bench.log.start_offset, bench.log.end_offset, bench.log.size_bytes) == (30, 30, 0)
    assert bench.names(at.LOG_SUFFIX) == [at.segment_name(30)]
    assert bench.log.read(30, until=30, max_bytes=1).buffers == []
    bench.crash(False)
    assert (bench.log.start_offset, bench.log.end_offset) == (30, 30)
    bench.reopen()
    assert bench.append().base_offset == 30
    bench.check()


def test_the_active_segment_is_sealed_once_its_oldest_batch_is_too_old() -> None:
    bench = Workbench()
    bench.append()
    bench.now_ms += 100
    bench.append()
    assert bench.log.expire(now_ms=bench.now_ms, ttl_ms=50, bytes_max=None).segments == 0
    assert bench.log.segment_count == 2
    bench.check()
    assert bench.log.expire(now_ms=bench.now_ms + 51, ttl_ms=50, bytes_max=None).start_offset == 6


def test_an_empty_log_does_not_expire() -> None:
    bench = Workbench()
    assert bench.log.expire(now_ms=10**12, ttl_ms=1, bytes_max=0) == (0, 0, 0)
    assert bench.disk.list(bench.folder) == []


def test_a_reader_finishes_with_the_files_it_has() -> None:
    bench = aged()
    bench.check()
    place = bench.log._chain.locate(0)
    bench.log.expire(now_ms=10**12, ttl_ms=1, bytes_max=None)
    assert bytes(place.files.log.read_at(0, 8)) == bytes(8)
    assert place.walk.next().base_offset == 3


def test_a_reader_that_comes_too_late_is_told_so() -> None:
    """It found its segment before retention did, and opens the file after."""
    bench = aged()
    bench.reopen()
    segment = bench.log._chain.segments[0]
    bench.log.expire(now_ms=START_MS + 300, ttl_ms=150, bytes_max=None)
    with pytest.raises(OffsetOutOfRange):
        bench.log._chain.files_of(segment)


def test_retention_after_a_restart_reads_timestamps_from_the_indexes() -> None:
    bench = aged()
    bench.reopen()
    assert bench.log.expire(now_ms=START_MS + 300, ttl_ms=150, bytes_max=None).start_offset == 12
    found = bench.log.read(12, until=30, max_bytes=10**6)
    assert len(numbers_of(found)) == 18


def test_the_decision_asks_for_as_few_timestamps_as_possible() -> None:
    asked = []

    def last_timestamp_ms(number: int) -> int:
        asked.append(number)
        return number * 100

    sealed = [SegmentFacts((number + 1) * 10, 1000) for number in range(100)]
    limits = {"active_bytes": 0, "bytes_max": None, "keep_from": None}
    assert count_expired(sealed, last_timestamp_ms=last_timestamp_ms, now_ms=350, ttl_ms=100, **limits) == 3
    assert asked == [0, 1, 2, 3]


@pytest.mark.parametrize(("keep_from", "expired"), [(9, 0), (10, 1), (19, 1), (20, 2), (None, 2)])
def test_a_segment_may_go_when_all_of_it_lies_before_what_is_kept(
    keep_from: int | None, expired: int
) -> None:
    found = count_expired(
        [SegmentFacts(end_offset=10, size_bytes=5), SegmentFacts(end_offset=20, size_bytes=5)],
        active_bytes=5,
        last_timestamp_ms=lambda _: 0,
        now_ms=1_000,
        ttl_ms=1,
        bytes_max=None,
        keep_from=keep_from,
    )
    assert found == expired


@pytest.mark.parametrize(
    ("limits", "expired"),
    [
        ({"ttl_ms": 100, "now_ms": 1_100}, 0),
        ({"ttl_ms": 100, "now_ms": 1_101}, 1),
        ({"ttl_ms": 100, "now_ms": 900}, 0),
        ({"bytes_max": 5}, 1),
        ({"bytes_max": 6}, 0),
        ({"bytes_max": 0}, 1),
        ({"ttl_ms": 100, "bytes_max": 5, "now_ms": 1_100}, 1),
        ({"ttl_ms": 100, "bytes_max": 6, "now_ms": 1_101}, 1),
    ],
    ids=str,
)
def test_a_segment_stays_for_its_whole_time_and_as_long_as_the_rest_is_too_little(
    limits: dict[str, int], expired: int
) -> None:
    found = count_expired(
        [SegmentFacts(end_offset=10, size_bytes=10)],
        active_bytes=5,
        last_timestamp_ms=lambda _: 1_000,
        keep_from=None,
        **{"now_ms": 0, "ttl_ms": None, "bytes_max": None, **limits},  # type: ignore[arg-type]
    )
    assert found == expired


def test_the_active_segment_stays_as_long_as_its_oldest_batch_may() -> None:
    bench = Workbench()
    bench.append()
    assert bench.log.expire(now_ms=bench.now_ms + 50, ttl_ms=50, bytes_max=None) == (0, 0, 0)
    assert bench.log.segment_count == 1
    assert bench.log.expire(now_ms=bench.now_ms + 51, ttl_ms=50, bytes_max=None).start_offset == 3
