"""Batches of keys whose shape is known are read without a second look, and only those."""

from __future__ import annotations

import ctypes

import numpy as np
import pyarrow as pa
import pytest

from strom.errors import ChecksumMismatch, StromError
from strom.record.batch import read_header, write_crc
from strom.record.encode import encode
from strom.record.layout import MAGIC_PLAIN
from strom.server.tablets.key_forms import KeyBatchReader

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("at", pa.date32(), nullable=False)])
LIMIT = 1 << 20


def encoded(ids: list[int], **more: object) -> bytearray:
    batch = pa.record_batch([ids, pa.array(ids, pa.int32()).cast(pa.date32())], schema=SCHEMA)
    return encode(batch, schema_id=1, **more)  # type: ignore[arg-type]


def read(batches: KeyBatchReader, view: bytearray) -> list[int]:
    found = batches.read(memoryview(view), read_header(view), LIMIT)
    return found.column("id").to_pylist()  # type: ignore[no-any-return]


@pytest.mark.parametrize("compression", ["NONE", "LZ4_FRAME", "ZSTD"])
def test_keys_are_read_the_same_the_first_time_and_later(compression: str) -> None:
    batches = KeyBatchReader(SCHEMA)
    for start in range(3):
        ids = list(range(start, start + 200))
        assert read(batches, encoded(ids, compression=compression)) == ids
    assert bool(batches._known) == (compression == "NONE")


@pytest.mark.parametrize("count", [1, 3, 200])
def test_keys_of_a_known_shape_lie_where_they_are_said_to(count: int) -> None:
    batches = KeyBatchReader(SCHEMA)
    for start in range(3):
        ids = list(range(start, start + count))
        view = memoryview(encoded(ids))
        found = batches.places(view, read_header(view), LIMIT)
        if start == 0:
            assert isinstance(found, pa.RecordBatch)
            assert found.column("id").to_pylist() == ids
            continue
        assert not isinstance(found, pa.RecordBatch)
        assert found.rows == count
        assert found.addresses[:, [0, 2]].tolist() == [[0, 0], [0, 0]]
        for column, width in ((0, 8), (1, 4)):
            content = ctypes.string_at(int(found.addresses[column, 1]), width * count)
            assert np.frombuffer(content, f"<i{width}").tolist() == ids


def test_a_flipped_byte_is_seen_although_the_shape_is_known() -> None:
    batches = KeyBatchReader(SCHEMA)
    view = encoded([1, 2, 3])
    assert read(batches, view) == [1, 2, 3]
    view[-1] ^= 1
    with pytest.raises(ChecksumMismatch):
        read(batches, view)


def test_whatever_else_is_changed_is_refused_or_read_in_full() -> None:
    """Every byte of the metadata in turn, sealed again: no crash, and no wrong length."""
    batches = KeyBatchReader(SCHEMA)
    good = encoded([1, 2, 3])
    assert read(batches, good) == [1, 2, 3]
    chance = np.random.default_rng(7)
    refused = 0
    for position in range(24, len(good)):
        view = bytearray(good)
        view[position] ^= int(chance.integers(1, 256))
        write_crc(view, MAGIC_PLAIN)
        try:
            found = batches.read(memoryview(view), read_header(view), LIMIT)
        except StromError:
            refused += 1
        else:
            assert found.num_rows == read_header(view).record_count
    assert refused > 50
