"""The header of a batch: read, split, stamped, sealed."""

from __future__ import annotations

import pyarrow as pa
import pytest

from strom.errors import ChecksumMismatch, MalformedBatch, TornBatch
from strom.record import layout as at
from strom.record.batch import check, check_crc, read_header, seal, split, stamp
from strom.record.columns import ColumnLayout
from strom.record.encode import encode

ROWS = pa.record_batch({"a": pa.array([1, 2, 3]), "s": pa.array(["x", None, "zz"])})
LAYOUT = ColumnLayout(ROWS.schema)


def a_batch(**more: object) -> bytearray:
    return encode(ROWS, schema_id=7, **more)


def with_magic(magic: int) -> bytearray:
    """The batch under another magic, by hand."""
    plain = a_batch()
    fields = at.HEADER[0].unpack_from(plain, 0)
    base, _, _, timestamp, crc, *rest = fields
    size = len(plain) - at.HEADER_SIZE[0] + at.HEADER_SIZE[magic]
    epoch = [5] if magic == at.MAGIC_EPOCH else []
    tail = [] if magic == at.MAGIC_PLAIN else [0]
    head = at.HEADER[magic].pack(base, size - 12, magic, timestamp, *epoch, crc, *rest, *tail)
    batch = bytearray(head + plain[at.HEADER_SIZE[0] :])
    seal(batch, writer_id=-1, batch_sequence=-1)
    return batch


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_a_header_of_every_magic_is_read(magic: int) -> None:
    batch = with_magic(magic)
    header, _ = check(batch, layout=LAYOUT)
    assert (header.magic, header.size, header.schema_id) == (magic, len(batch), 7)
    assert (header.record_count, header.last_offset_delta, header.next_offset) == (3, 2, 3)
    assert header.epoch == (5 if magic == 2 else at.NO_EPOCH)
    assert header.records_position == at.HEADER_SIZE[magic]
    assert header.append_only
    assert not header.sparse


def test_the_next_offset_counts_offsets_not_records() -> None:
    header = read_header(a_batch())._replace(base_offset=100, record_count=1, last_offset_delta=9)
    assert header.next_offset == 110


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_stamping_leaves_the_checksum_valid(magic: int) -> None:
    batch = with_magic(magic)
    stamp(batch, base_offset=2**40, timestamp_ms=1_700_000_000_000)
    header, _ = check(batch, layout=LAYOUT)
    assert (header.base_offset, header.timestamp_ms) == (2**40, 1_700_000_000_000)


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_sealing_gives_writer_and_sequence_a_new_checksum(magic: int) -> None:
    batch = with_magic(magic)
    before = read_header(batch).crc
    seal(batch, writer_id=12, batch_sequence=34)
    header, _ = check(batch, layout=LAYOUT)
    assert (header.writer_id, header.batch_sequence) == (12, 34)
    assert header.crc != before


def test_encoding_with_a_writer_equals_sealing_afterwards() -> None:
    batch = a_batch(checksum=False)
    seal(batch, writer_id=3, batch_sequence=4)
    assert batch == a_batch(writer_id=3, batch_sequence=4)


def test_every_flipped_bit_that_the_checksum_covers_is_found() -> None:
    batch = a_batch()
    header = read_header(batch)
    for position in range(at.SCHEMA_ID_POSITION[0], len(batch)):
        batch[position] ^= 1 << (position % 8)
        with pytest.raises(ChecksumMismatch):
            check_crc(batch, header)
        batch[position] ^= 1 << (position % 8)
    check_crc(batch, header)


def test_batches_one_after_the_other_are_split() -> None:
    first, second = a_batch(), encode(ROWS.slice(0, 1), schema_id=8)
    found = split(first + second)
    assert [bytes(view) for _, view in found] == [bytes(first), bytes(second)]
    assert [header.schema_id for header, _ in found] == [7, 8]
    assert split(b"") == []


@pytest.mark.parametrize("missing", [1, 10, 300])
def test_a_batch_that_ends_early_is_torn(missing: int) -> None:
    batch = a_batch()
    with pytest.raises(TornBatch):
        split(batch + batch[:-missing])
    with pytest.raises(TornBatch):
        check(batch[:-missing], layout=LAYOUT)


@pytest.mark.parametrize("size", [0, 1, 12, 13, 47])
def test_fewer_bytes_than_a_header_are_torn(size: int) -> None:
    with pytest.raises(TornBatch):
        read_header(a_batch()[:size])


def test_a_larger_header_than_there_are_bytes_is_torn() -> None:
    with pytest.raises(TornBatch):
        read_header(with_magic(2)[:50])


@pytest.mark.parametrize("length", [-(2**31), -12, -1, 0, 35])
def test_a_length_that_cannot_hold_the_header_is_malformed(length: int) -> None:
    batch = a_batch()
    batch[at.LENGTH_POSITION : at.LENGTH_POSITION + 4] = length.to_bytes(4, "little", signed=True)
    with pytest.raises(MalformedBatch):
        split(batch)


@pytest.mark.parametrize("magic", [3, 127, 128, 255])
def test_an_unknown_magic_is_malformed(magic: int) -> None:
    batch = a_batch()
    batch[at.MAGIC_POSITION] = magic
    with pytest.raises(MalformedBatch, match="magic"):
        read_header(batch)


def test_statistics_that_reach_past_the_batch_are_malformed() -> None:
    batch = with_magic(1)
    for size in (-1, len(batch), 2**31 - 1):
        position = at.STATISTICS_LENGTH_POSITION[1]
        batch[position : position + 4] = size.to_bytes(4, "little", signed=True)
        with pytest.raises(MalformedBatch):
            read_header(batch)


def test_a_batch_without_records_is_a_header_and_consumes_one_offset() -> None:
    batch = encode(ROWS.slice(0, 0), schema_id=1)
    header, columns = check(batch, layout=LAYOUT)
    assert len(batch) == at.HEADER_SIZE[0]
    assert (header.record_count, header.next_offset) == (0, 1)
    assert columns.buffers == []
