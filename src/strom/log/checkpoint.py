"""The checkpoint of a log: up to where everything is durable, and what the writers had sent by then.

It names a place in the log. Up to there segments and sidecars are synced, so opening a log trusts them unread; from
there on it reads, checks and replays. Written whole and atomically; one checksum covers it. Without a sound one the
whole log is read. Format: docs/formats/indexes.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from strom.log import layout as at
from strom.log.writers import BATCHES_REMEMBERED, WriterBatch, WriterState
from strom.record.checksum import crc32c
from strom.record.struct_fields import positions

_CHECKED_FROM = positions(at.CHECKPOINT_HEADER_FIELDS)["writer_count"]


@dataclass(frozen=True)
class Checkpoint:
    """A place in the log and the writers' state there."""

    segment_base_offset: int
    log_size: int
    sidecar_size: int
    end_offset: int
    last_timestamp_ms: int
    writers: Mapping[int, WriterState] = field(default_factory=dict)

    def encode(self) -> bytes:
        """The bytes of the file."""
        header = at.CHECKPOINT_HEADER.pack(
            at.CHECKPOINT_FORMAT,
            0,
            len(self.writers),
            self.segment_base_offset,
            self.log_size,
            self.sidecar_size,
            self.end_offset,
            self.last_timestamp_ms,
        )
        parts = [header[_CHECKED_FROM:]]
        for writer_id, state in self.writers.items():
            parts.append(at.WRITER.pack(writer_id, state.last_timestamp_ms, len(state.batches)))
            parts.extend(at.WRITER_BATCH.pack(*batch) for batch in state.batches)
        checked = b"".join(parts)
        return at.CHECKPOINT_FORMAT + at.CHECKSUM.pack(crc32c(checked)) + checked


def decode_checkpoint(content: bytes) -> Checkpoint | None:
    """The checkpoint in a file's bytes, or None when they are not a sound one."""
    if len(content) < at.CHECKPOINT_HEADER.size:
        return None
    header = at.CHECKPOINT_HEADER.unpack_from(content)
    form, checksum, writer_count, base_offset, log_size, sidecar_size, end_offset, timestamp_ms = header
    if form != at.CHECKPOINT_FORMAT or checksum != crc32c(content[_CHECKED_FROM:]):
        return None
    writers = _decode_writers(content, writer_count)
    if writers is None:
        return None
    return Checkpoint(base_offset, log_size, sidecar_size, end_offset, timestamp_ms, writers)


def _decode_writers(content: bytes, writer_count: int) -> dict[int, WriterState] | None:
    writers: dict[int, WriterState] = {}
    position = at.CHECKPOINT_HEADER.size
    for _ in range(writer_count):
        if len(content) - position < at.WRITER.size:
            return None
        writer_id, last_timestamp_ms, batch_count = at.WRITER.unpack_from(content, position)
        position += at.WRITER.size
        end = position + batch_count * at.WRITER_BATCH.size
        if not 1 <= batch_count <= BATCHES_REMEMBERED or end > len(content):
            return None
        batches = tuple(WriterBatch(*found) for found in at.WRITER_BATCH.iter_unpack(content[position:end]))
        writers[writer_id] = WriterState(last_timestamp_ms, batches)
        position = end
    return writers if position == len(content) else None
