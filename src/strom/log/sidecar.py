"""The sidecar of a segment: one entry per batch, with what the batch itself cannot vouch for.

A batch's own CRC covers neither its offset nor its timestamp, and covers its columns only all together. The entry adds
    where the batch lies and what was stamped on it,
    the checksum of its head (header, statistics, change types, Arrow metadata),
    the checksum of every buffer of its body (of batches large enough to be read in parts),
    its epoch, its writer and sequence, and up to where the log was synced when it was written.

Everything but the timestamp can be derived from the batch again (``make_entry``), so a damaged or lost entry loses
nothing. Format: docs/formats/sidecar.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from struct import Struct
from typing import NamedTuple

from strom.errors import ChecksumMismatch
from strom.log import layout as at
from strom.record import layout as batch_at
from strom.record.batch import BatchHeader
from strom.record.checksum import crc32c
from strom.runtime.files import Bytes

#: base_offset, length, magic, timestamp: what lies before the CRC (and the epoch) in every batch.
_STAMP = Struct("<qibq")
_CHECKED_FROM = at.CHECKSUM_LENGTH


class SidecarEntry(NamedTuple):
    """One batch of a segment. Fields as in layout.ENTRY_FIELDS."""

    checksum: int
    buffer_count: int
    base_offset: int
    last_offset_delta: int
    batch_size: int
    position: int
    timestamp_ms: int
    epoch: int
    synced_end: int
    writer_id: int
    batch_sequence: int
    batch_crc: int
    head_size: int
    head_crc: int
    schema_id: int
    magic: int
    flags: int

    @property
    def next_offset(self) -> int:
        """The offset after this batch."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def end_position(self) -> int:
        """Where the next batch starts."""
        return self.position + self.batch_size

    @property
    def entry_size(self) -> int:
        """Bytes of the entry with its buffer checksums."""
        return at.ENTRY_SIZE + self.buffer_count * at.BUFFER_CRC_LENGTH

    @property
    def record_count(self) -> int:
        """Rows in the batch."""
        return 0 if self.flags & at.FLAG_EMPTY else self.last_offset_delta + 1


def encode_header(base_offset: int) -> bytes:
    """The first bytes of a sidecar."""
    return at.SIDECAR_HEADER.pack(at.SIDECAR_FORMAT, base_offset)


def encode_entry(
    view: memoryview,
    header: BatchHeader,
    buffers: Sequence[tuple[int, int]],
    *,
    head_size: int,
    base_offset: int,
    timestamp_ms: int,
    position: int,
    epoch: int,
    synced_end: int,
    buffer_crcs: Sequence[int] | None = None,
) -> bytes:
    """The entry of a stamped batch. ``buffers`` are (position, length) from the batch's start.

    ``buffer_crcs`` are their checksums, if the caller has them.
    """
    if header.size <= at.WHOLE_BATCH_BYTES_MAX:
        crcs = b""
    else:
        if buffer_crcs is None:
            # Columns without nulls have no validity, so many buffers are empty; their checksum is 0.
            buffer_crcs = [crc32c(view[start : start + size]) if size else 0 for start, size in buffers]
        assert len(buffer_crcs) == len(buffers)
        crcs = _crcs_of(len(buffer_crcs)).pack(*buffer_crcs)
    packed = at.ENTRY.pack(
        0,
        len(crcs) // at.BUFFER_CRC_LENGTH,
        base_offset,
        header.last_offset_delta,
        header.size,
        position,
        timestamp_ms,
        epoch,
        synced_end,
        header.writer_id,
        header.batch_sequence,
        header.crc,
        head_size,
        crc32c(view[:head_size]),
        header.schema_id,
        header.magic,
        0 if header.record_count else at.FLAG_EMPTY,
    )
    checked = packed[_CHECKED_FROM:] + crcs
    return at.CHECKSUM.pack(crc32c(checked)) + checked


def decode_entry(chunk: bytes, position: int = 0) -> SidecarEntry | None:
    """The entry at ``position``, or None when the bytes there are not a whole and sound entry."""
    if len(chunk) - position < at.ENTRY_SIZE:
        return None
    entry = SidecarEntry._make(at.ENTRY.unpack_from(chunk, position))
    end = position + at.ENTRY_SIZE + entry[1] * at.BUFFER_CRC_LENGTH
    if end > len(chunk) or entry[0] != crc32c(chunk[position + _CHECKED_FROM : end]):
        return None
    return entry


def decode_buffer_crcs(chunk: bytes, position: int, entry: SidecarEntry) -> tuple[int, ...]:
    """The buffer checksums of the sound entry at ``position``."""
    return _crcs_of(entry.buffer_count).unpack_from(chunk, position + at.ENTRY_SIZE)


@lru_cache(maxsize=256)
def _crcs_of(count: int) -> Struct:
    return Struct(f"<{count}I")


def check_batch(view: memoryview, entry: SidecarEntry) -> None:
    """Raise ChecksumMismatch unless ``view`` is, byte for byte, the batch this entry was made for."""
    stamped = _STAMP.pack(
        entry.base_offset, entry.batch_size - batch_at.LENGTH_OVERHEAD, entry.magic, entry.timestamp_ms
    )
    if len(view) != entry.batch_size or view[: len(stamped)] != stamped:
        raise damaged_batch(entry, "its offset, length or timestamp is not what was stamped on it")
    if entry.magic == batch_at.MAGIC_EPOCH and crc32c(view[: entry.head_size]) != entry.head_crc:
        raise damaged_batch(entry, "its head does not fit its checksum")
    covered_from = batch_at.SCHEMA_ID_POSITION[entry.magic]
    written = at.CHECKSUM.unpack_from(view, batch_at.CRC_POSITION[entry.magic])[0]
    if written != entry.batch_crc or crc32c(view[covered_from:]) != entry.batch_crc:
        raise damaged_batch(entry, "its bytes do not fit its checksum")


def check_head(head: Bytes, entry: SidecarEntry) -> None:
    """Raise ChecksumMismatch unless ``head`` is the head of the batch this entry was made for."""
    if len(head) != entry.head_size or crc32c(head) != entry.head_crc:
        raise damaged_batch(entry, "its head does not fit its checksum")


def damaged_batch(entry: SidecarEntry, reason: str) -> ChecksumMismatch:
    """The error for a batch that cannot be served."""
    return ChecksumMismatch(
        f"the batch at offset {entry.base_offset} is damaged: {reason}",
        base_offset=entry.base_offset,
        next_offset=entry.next_offset,
        position=entry.position,
    )
