"""Batches that follow each other and are cut alike are read in runs: the same rows, and the same damage found."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from log.workbench import FOLDER, HALVES, NUMBERS, SMALL, START_MS, Workbench, numbers_of
from strom.errors import ChecksumMismatch
from strom.log import layout as at
from strom.log.entry_run import entries_like
from strom.log.log import Log
from strom.log.reading import alike_run
from strom.log.reading.run_pace import RunPace
from strom.log.sidecar import decode_entry
from strom.record.batch import DEFAULT_LIMITS, check, check_and_sum, read_header, split, write_crc
from strom.record.checksum import crc32c
from strom.record.columns import ColumnLayout
from strom.record.decode import decode
from strom.record.encode import encode
from strom.record.project import Projection, project_batch
from strom.record.struct_fields import positions
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


# --- any batches at all: what is read in runs is what a projection in memory gives ---------------------------------

KINDS = [pa.int64(), pa.string(), pa.bool_(), pa.float64(), pa.list_(pa.int32())]


def column(kind: pa.DataType, rows: int, random: np.random.Generator) -> pa.Array:
    """Values that differ, of the same length every time, so that many batches are cut alike."""
    values = random.integers(0, 10, rows).tolist()
    if pa.types.is_string(kind):
        return pa.array([f"text {value}" for value in values], kind)
    if pa.types.is_list(kind):
        return pa.array([[value, value + 1] for value in values], kind)
    return pa.array([value % 2 == 0 if pa.types.is_boolean(kind) else value for value in values], kind)


def log_of(disk: ForgettingDisk, batches: list[bytearray], schema: pa.Schema) -> Log:
    log = Log.open(disk, FOLDER, replace(SMALL, segment_bytes=10**7), START_MS)
    for number, batch in enumerate(batches):
        checked = check_and_sum(
            memoryview(batch), layout=ColumnLayout.of(schema), limits=DEFAULT_LIMITS,
            sum_from=at.WHOLE_BATCH_BYTES_MAX,
        )  # fmt: skip
        log.append(memoryview(batch), checked, now_ms=START_MS + number)
    return log


def projected_singly(log: Log, projection: Projection) -> list[bytes]:
    """What must be read, made from the whole batches."""
    whole = log.read(0, until=log.end_offset, max_bytes=10**8)
    batches = split(b"".join(whole.buffers))
    return [b"".join(project_batch(view, projection)) for _, view in batches]


def read_in_runs(log: Log, projection: Projection, max_bytes: int) -> list[bytes]:
    found: list[bytes] = []
    offset = 0
    while offset < log.end_offset:
        part = log.read(offset, until=log.end_offset, max_bytes=max_bytes, projection=projection)
        batches = [bytes(view) for _, view in split(b"".join(part.buffers))]
        assert part.batches == len(batches)
        assert part.size == sum(map(len, batches))
        assert part.rows == part.next_offset - offset
        found += batches
        offset = part.next_offset
    return found


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.sampled_from(KINDS), min_size=1, max_size=6),
    st.lists(st.sampled_from([5000, 5000, 5000, 6000]), min_size=1, max_size=9),
    st.booleans(),
    st.sampled_from([1, 200_000, 10**7]),
    st.data(),
)
def test_runs_hold_byte_for_byte_what_a_projection_of_each_batch_gives(
    kinds: list[pa.DataType], counts: list[int], statistics: bool, max_bytes: int, data: st.DataObject
) -> None:
    schema = pa.schema([(f"c{number}", kind) for number, kind in enumerate(kinds)])
    wanted = data.draw(st.lists(st.integers(0, len(kinds) - 1), min_size=1, unique=True).map(sorted))
    numeric = [number for number, kind in enumerate(kinds) if pa.types.is_integer(kind)]
    random = np.random.default_rng(len(counts))
    batches = [
        encode(
            pa.record_batch([column(kind, rows, random) for kind in kinds], schema=schema),
            schema_id=1,
            statistics=numeric if statistics and number % 4 else None,
            writer_id=number % 2,
            batch_sequence=number // 2,
        )
        for number, rows in enumerate(counts)
    ]
    log = log_of(ForgettingDisk(), batches, schema)
    projection = Projection(ColumnLayout.of(schema), wanted)
    expected = projected_singly(log, projection)
    for _ in range(2):
        assert read_in_runs(log, projection, max_bytes) == expected


def test_what_a_writer_left_between_columns_is_not_passed_on() -> None:
    schema = pa.schema([("flag", pa.bool_()), ("text", pa.string())])
    clean, soiled = [], []
    for number in range(6):
        random = np.random.default_rng(number)
        rows = pa.record_batch([column(field.type, 4001, random) for field in schema], schema=schema)
        batch = encode(rows, schema_id=1, writer_id=1, batch_sequence=number)
        clean.append(rows)
        position, length = check(batch, layout=None)[1].buffers[1]
        assert length % 8
        batch[position + length] = 7
        write_crc(batch, read_header(batch).magic)
        soiled.append(batch)
    log = log_of(ForgettingDisk(), soiled, schema)
    projection = Projection(ColumnLayout.of(schema), [0, 1])
    for _ in range(2):
        found = read_in_runs(log, projection, 10**7)
        assert [decode(one, schema) for one in found] == clean
        for one in found:
            position, length = check(one, layout=None)[1].buffers[1]
            assert one[position + length] == 0


# --- damage anywhere -------------------------------------------------------------------------------------------------


def test_damage_anywhere_in_a_batch_amid_a_run_is_found_or_is_not_of_what_is_read() -> None:
    bench = bench_of(*[ROWS] * 6)
    log = bench.log
    size = log._chain.active.log_size // 6
    expected = projected_singly(log, HALVES)
    assert read_in_runs(log, HALVES, 10**7) == expected
    columns = check(log.read(0, until=1, max_bytes=1).buffers[0], layout=None)[1]
    text = range(columns.buffers[3][0], columns.buffers[6][0])
    wanted = [n for n in range(columns.head_size, size, 997) if n not in text]
    for place in [*range(columns.head_size), *wanted]:
        flip(bench, at.LOG_SUFFIX, 3 * size + place)
        found = log.read(0, until=6 * ROWS, max_bytes=10**7, projection=HALVES)
        assert found.next_offset == 3 * ROWS, place
        assert b"".join(found.buffers) == b"".join(expected[:3])
        with pytest.raises(ChecksumMismatch):
            log.read(3 * ROWS, until=6 * ROWS, max_bytes=10**7, projection=HALVES)
        flip(bench, at.LOG_SUFFIX, 3 * size + place)
    for place in (text[10], text[-100]):
        flip(bench, at.LOG_SUFFIX, 3 * size + place)
        assert read_in_runs(log, HALVES, 10**7) == expected
        flip(bench, at.LOG_SUFFIX, 3 * size + place)


def test_damage_anywhere_in_an_entry_amid_a_run_costs_nothing() -> None:
    bench = bench_of(*[ROWS] * 6)
    size = (bench.log._chain.active.sidecar_size - at.SIDECAR_HEADER_SIZE) // 6
    expected = projected_singly(bench.log, NUMBERS)
    for place in range(size):
        flip(bench, at.SIDECAR_SUFFIX, at.SIDECAR_HEADER_SIZE + 3 * size + place)
        assert read_in_runs(bench.log, NUMBERS, 10**7) == expected, place
        flip(bench, at.SIDECAR_SUFFIX, at.SIDECAR_HEADER_SIZE + 3 * size + place)


def test_no_octet_of_an_entry_can_change_unnoticed_within_a_run() -> None:
    bench = bench_of(*[ROWS] * 5)
    content = bench.disk.read_whole(bench.path(bench.names(at.SIDECAR_SUFFIX)[0]))[at.SIDECAR_HEADER_SIZE :]
    first = decode_entry(content)
    assert first is not None
    whole = entries_like(first, content, 0, 9)
    assert whole.batches == 5
    assert whole.head_crcs == [decode_entry(content, n * first.entry_size).head_crc for n in range(5)]
    for place in range(first.entry_size):
        damaged = bytearray(content)
        damaged[3 * first.entry_size + place] ^= 1 << place % 8
        assert entries_like(first, bytes(damaged), 0, 9).batches == 3, place
    assert entries_like(first, content[:-1], 0, 9).batches == 4
    assert entries_like(first, content, 0, 2).batches == 2
    third = decode_entry(content, 2 * first.entry_size)
    assert third is not None
    assert entries_like(third, content, 2 * first.entry_size, 9).batches == 3, "as many as are there"


def test_a_sound_entry_in_the_wrong_place_ends_a_run() -> None:
    bench = bench_of(*[ROWS] * 5)
    content = bench.disk.read_whole(bench.path(bench.names(at.SIDECAR_SUFFIX)[0]))[at.SIDECAR_HEADER_SIZE :]
    first = decode_entry(content)
    assert first is not None
    size = first.entry_size
    parts = [content[n * size : (n + 1) * size] for n in range(5)]
    for order in ([0, 2, 1, 3, 4], [0, 0, 1, 2, 3], [0, 2, 3, 4, 1]):
        assert entries_like(first, b"".join(parts[n] for n in order), 0, 5).batches == 1


@pytest.mark.parametrize(
    "field", ["base_offset", "position", "last_offset_delta", "batch_size", "head_size", "schema_id", "flags"]
)
def test_a_sound_entry_that_does_not_continue_the_one_before_ends_a_run(field: str) -> None:
    """Each of these alone: an entry somewhere else in the log, or one of another batch, is not read with the others."""
    bench = bench_of(*[ROWS] * 5)
    content = bytearray(
        bench.disk.read_whole(bench.path(bench.names(at.SIDECAR_SUFFIX)[0]))[at.SIDECAR_HEADER_SIZE :]
    )
    first = decode_entry(bytes(content))
    assert first is not None
    start = 3 * first.entry_size
    content[start + positions(at.ENTRY_FIELDS)[field]] ^= 1
    checked = bytes(content[start + at.CHECKSUM_LENGTH : start + first.entry_size])
    content[start : start + at.CHECKSUM_LENGTH] = crc32c(checked).to_bytes(at.CHECKSUM_LENGTH, "little")
    assert decode_entry(bytes(content), start) is not None, "it is sound by itself"
    assert entries_like(first, bytes(content), 0, 9).batches == 3


# --- batches that only seem alike ------------------------------------------------------------------------------------


def nearly_alike(number: int, count: int, *, changes: bool) -> bytearray:
    """A batch of the size of its neighbours that says something else of its columns: other NULLs, or change types."""
    rows = 600
    gone = np.zeros(rows, np.bool_)
    gone[: 5 + (0 if changes else number % 7)] = True
    values = [pa.array(np.arange(rows) + number, pa.int64(), mask=gone)] + [pa.array(np.arange(rows))] * 7
    kinds = bytes([1]) * rows if changes else None
    batch = pa.RecordBatch.from_arrays(values, names=[f"c{place}" for place in range(8)])
    return encode(batch, schema_id=1, writer_id=1, batch_sequence=number, compression="NONE", changes=kinds)


@pytest.mark.parametrize("changes", [False, True])
def test_runs_that_break_off_cost_little_time_and_no_memory(
    monkeypatch: pytest.MonkeyPatch, changes: bool
) -> None:
    count, read = 600, 0
    schema = pa.schema([(f"c{place}", pa.int64()) for place in range(8)])
    batches = [nearly_alike(number, count, changes=changes) for number in range(count)]
    log = log_of(ForgettingDisk(), batches, schema)
    projection = Projection(ColumnLayout.of(schema), [0])
    original = alike_run._Run.read

    def counted(self: alike_run._Run, begin: int, head: int, place: int) -> int | None:
        nonlocal read
        read += 1
        return original(self, begin, head, place)

    monkeypatch.setattr(alike_run._Run, "read", counted)
    before = pa.total_allocated_bytes()
    found = log.read(0, until=log.end_offset, max_bytes=10**8, projection=projection)
    held = pa.total_allocated_bytes() - before
    assert found.batches == count
    assert held < 2 * found.size + 2**20
    assert read < count // 4, "batches that were read in vain"
    assert b"".join(found.buffers) == b"".join(projected_singly(log, projection))


def test_the_pace_of_runs_follows_what_comes_of_them() -> None:
    pace = RunPace()
    assert [(pace.batches(1000), pace.had(hoped, hoped))[0] for hoped in (8, 16, 32)] == [8, 16, 32]
    assert pace.batches(20) == 20, "never more than fit"
    pace.had(20, 3)
    assert [pace.batches(1000) for _ in range(2)] == [0, 8]
    pace.had(8, 0)
    assert [pace.batches(1000) for _ in range(3)] == [0, 0, 8]
    pace.had(8, 8)
    assert pace.batches(1000) == 16
