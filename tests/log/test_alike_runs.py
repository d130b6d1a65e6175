"""Batches that follow each other and are cut alike are read in runs: the same rows, and the same damage found."""

from __future__ import annotations

import pytest

from log.workbench import HALVES, NUMBERS, Workbench, numbers_of
from strom.errors import ChecksumMismatch
from strom.log import layout as at
from strom.record.project import Projection
from strom.testing.disk import ForgettingDisk

ROWS = 2000
"""Enough that a batch has a checksum per column."""


def bench_of(*counts: int) -> Workbench:
    bench = Workbench(segment_bytes=10**7)
    for number, count in enumerate(counts):
        bench.append(count, writer_id=1 + number % 2, sequence=number // 2)
    return bench


def flip(bench: Workbench, suffix: str, position: int) -> None:
    assert isinstance(bench.disk, ForgettingDisk)
    bench.disk.flip(bench.path(bench.names(suffix)[0]), position)


@pytest.mark.parametrize("projection", [NUMBERS, HALVES])
@pytest.mark.parametrize("max_bytes", [1, 50_000, 100_000, 10**7])
def test_runs_of_any_length_hold_the_rows_in_order(projection: Projection, max_bytes: int) -> None:
    bench = bench_of(*[ROWS] * 7, 1500, *[ROWS] * 5, 1, ROWS)
    assert bench.read(projection=projection, max_bytes=max_bytes) == bench.rows
    assert bench.read(projection=projection, max_bytes=max_bytes) == bench.rows


@pytest.mark.parametrize("until", [1, ROWS, ROWS + 1, 3 * ROWS, 8 * ROWS - 1])
def test_a_run_ends_with_the_batch_that_holds_the_last_wanted_row(until: int) -> None:
    bench = bench_of(*[ROWS] * 8)
    for _ in range(3):
        found = bench.log.read(0, until=until, max_bytes=10**7, projection=NUMBERS)
        assert found.next_offset == -(-until // ROWS) * ROWS
        assert (found.batches, found.rows) == (found.next_offset // ROWS, found.next_offset)
        assert numbers_of(found, NUMBERS.schema) == bench.rows[: found.next_offset]


def test_a_run_ends_before_a_damaged_batch_and_goes_on_behind_it() -> None:
    bench = bench_of(*[ROWS] * 8)
    size = bench.log._chain.active.log_size // 8
    read = bench.log.read
    whole = read(0, until=8 * ROWS, max_bytes=10**7, projection=NUMBERS)
    assert whole.next_offset == 8 * ROWS
    flip(bench, at.LOG_SUFFIX, 5 * size + 5000)
    found = read(0, until=8 * ROWS, max_bytes=10**7, projection=NUMBERS)
    assert found.next_offset == 5 * ROWS
    assert numbers_of(found, NUMBERS.schema) == bench.rows[: 5 * ROWS]
    with pytest.raises(ChecksumMismatch):
        read(5 * ROWS, until=8 * ROWS, max_bytes=10**7, projection=NUMBERS)
    found = read(6 * ROWS, until=8 * ROWS, max_bytes=10**7, projection=NUMBERS)
    assert numbers_of(found, NUMBERS.schema) == bench.rows[6 * ROWS :]


def test_a_damaged_entry_amid_a_run_is_made_again() -> None:
    bench = bench_of(*[ROWS] * 8)
    sidecar = bench.log._chain.active.sidecar_size
    entry = (sidecar - at.SIDECAR_HEADER_SIZE) // 8
    for place in (20, entry - 2):
        flip(bench, at.SIDECAR_SUFFIX, at.SIDECAR_HEADER_SIZE + 4 * entry + place)
        assert bench.read(projection=NUMBERS, max_bytes=10**7) == bench.rows
