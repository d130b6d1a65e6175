"""A batch is checksummed in one pass: the whole matches its header, each buffer its checksum taken alone."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strom.errors import ChecksumMismatch, MalformedBatch
from strom.record import checksum
from strom.record import layout as at
from strom.record.batch import DEFAULT_LIMITS, Checked, check, check_and_sum, read_header, write_crc
from strom.record.checksum import crc32c
from strom.record.columns import ColumnLayout
from strom.record.encode import encode
from strom.record.joined_checksum import shifted, shifted_often

SCHEMA = pa.schema(
    [("id", pa.int64()), ("name", pa.string()), ("flag", pa.bool_()), ("marks", pa.list_(pa.int8()))]
)
LAYOUT = ColumnLayout.of(SCHEMA)


def rows(count: int, seed: int) -> pa.RecordBatch:
    chance = random.Random(seed)
    return pa.record_batch(
        [
            pa.array([chance.choice([None, chance.getrandbits(60)]) for _ in range(count)], pa.int64()),
            pa.array(["x" * chance.randrange(20) for _ in range(count)]),
            pa.array([chance.random() < 0.5 for _ in range(count)]),
            pa.array([[1] * chance.randrange(4) for _ in range(count)], pa.list_(pa.int8())),
        ],
        schema=SCHEMA,
    )


def summed(batch: bytearray) -> Checked:
    return check_and_sum(batch, layout=LAYOUT, limits=DEFAULT_LIMITS, sum_from=0)


@given(
    st.integers(1, 300),
    st.integers(0, 1000),
    st.sampled_from(["NONE", "ZSTD"]),
    st.sampled_from([None, [0, 1]]),
)
@settings(max_examples=60, deadline=None)
def test_the_sums_are_those_of_each_buffer_alone(
    count: int, seed: int, compression: str, statistics: list[int] | None
) -> None:
    batch = encode(rows(count, seed), schema_id=1, compression=compression, statistics=statistics)
    header, columns, crcs, _ = summed(batch)
    assert (header, columns) == check(batch, layout=LAYOUT)
    assert crcs == [crc32c(bytes(batch[start : start + length])) for start, length in columns.buffers]


def test_large_buffers_and_machines_without_the_native_function_give_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.int32())])
    columns = [pa.array(np.arange(50_000)), pa.array(np.arange(50_000, dtype=np.int32))]
    batch = encode(pa.record_batch(columns, schema=schema), schema_id=1)
    assert columns[0].nbytes > checksum.LARGE_BYTES
    found = check_and_sum(batch, layout=None, limits=DEFAULT_LIMITS, sum_from=0).buffer_crcs
    monkeypatch.setattr(checksum, "_extend_at", None)
    monkeypatch.setattr(checksum, "_extend_small_at", None)
    assert found == check_and_sum(batch, layout=None, limits=DEFAULT_LIMITS, sum_from=0).buffer_crcs
    assert found == [0, crc32c(columns[0].buffers()[1]), 0, crc32c(columns[1].buffers()[1])]


def test_only_batches_above_the_bound_are_summed_up_by_buffers() -> None:
    batch = encode(rows(50, 1), schema_id=1)
    for bound, wanted in ((len(batch), False), (len(batch) - 1, True)):
        found = check_and_sum(batch, layout=LAYOUT, limits=DEFAULT_LIMITS, sum_from=bound)
        assert (found.buffer_crcs is not None) == wanted


def test_every_damaged_byte_is_a_wrong_checksum_also_in_padding_and_metadata() -> None:
    batch = encode(rows(40, 2), schema_id=1, statistics=[0, 1])
    for place in range(at.HEADER_SIZE[read_header(batch).magic], len(batch)):
        damaged = bytearray(batch)
        damaged[place] ^= 0x55
        with pytest.raises(ChecksumMismatch):
            summed(damaged)


def test_padding_may_hold_anything_as_long_as_the_checksum_covers_it() -> None:
    batch = encode(rows(41, 3), schema_id=1)
    header, columns, crcs, _ = summed(batch)
    position, length = next(one for one in columns.buffers if one[1] % 8)
    batch[position + length] = 0xAB
    with pytest.raises(ChecksumMismatch):
        summed(batch)
    write_crc(batch, header.magic)
    assert summed(batch).buffer_crcs == crcs


def test_metadata_that_is_wrong_and_covered_is_malformed() -> None:
    batch = encode(rows(41, 3), schema_id=1)
    header = read_header(batch)
    batch[header.message_position] ^= 0xFF
    write_crc(batch, header.magic)
    with pytest.raises(MalformedBatch):
        summed(batch)


def test_a_length_that_comes_often_shifts_as_it_did_before() -> None:
    length = 123_457
    found = {shifted_often(0xDEADBEEF, length) for _ in range(300)}
    assert found == {shifted(0xDEADBEEF, length)}
