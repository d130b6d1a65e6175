"""Inspecting a segment's file: what each batch is, and what is wrong with it.

Reads only, needs no log and no server. With the sidecar beside the file its entries are compared too; without it,
offsets must be dense and checksums must fit. Ends at a batch whose end cannot be known.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from dataclasses import dataclass

from strom.errors import ChecksumMismatch, Corrupt
from strom.log import layout as at
from strom.log.chain import open_if_there
from strom.log.opening.segment_scan import StoredEntries
from strom.log.sidecar import SidecarEntry, check_batch
from strom.log.walk import HEADER_BYTES_MAX
from strom.record.batch import BatchHeader, check_crc, read_columns, read_header
from strom.record.layout import NOT_COMPRESSED
from strom.runtime.files import File, Files

CODEC_NAMES = {NOT_COMPRESSED: "none", 0: "lz4", 1: "zstd"}


@dataclass(frozen=True)
class InspectedBatch:
    """One batch of a segment's file, sound or not."""

    position: int
    size: int
    header: BatchHeader | None
    codec: str | None
    epoch: int | None
    problem: str | None

    def facts(self) -> dict[str, object]:
        """The batch as a row of a table."""
        header = self.header
        return {
            "position": self.position,
            "size": self.size,
            "base_offset": None if header is None else header.base_offset,
            "next_offset": None if header is None else header.next_offset,
            "rows": None if header is None else header.record_count,
            "timestamp": None if header is None else header.timestamp_ms,
            "epoch": self.epoch,
            "writer_id": None if header is None or header.writer_id < 0 else header.writer_id,
            "sequence": None if header is None or header.batch_sequence < 0 else header.batch_sequence,
            "schema_id": None if header is None else header.schema_id,
            "magic": None if header is None else header.magic,
            "statistics_size": None if header is None else header.statistics_size,
            "codec": self.codec,
            "problem": self.problem,
        }


def inspect_segment(files: Files, path: str) -> Iterator[InspectedBatch]:
    """The batches of a segment's file, one after the other."""
    log = files.open(path)
    stem = path.removesuffix(at.LOG_SUFFIX)
    stored = StoredEntries(open_if_there(files, stem + at.SIDECAR_SUFFIX))
    offset = at.base_offset_of(posixpath.basename(path))
    position, sidecar_position, size = 0, at.SIDECAR_HEADER_SIZE, log.size()
    while position < size:
        found = stored.entry_at(sidecar_position)
        entry = found[0] if found is not None and found[0].position == position else None
        batch = _inspect(log, position, size - position, offset, entry)
        yield batch
        if entry is not None:
            offset, sidecar_position = entry.next_offset, sidecar_position + entry.entry_size
        elif batch.problem is None and batch.header is not None:
            offset = batch.header.next_offset
        else:
            return
        position += batch.size


def _inspect(
    log: File, position: int, room: int, offset: int | None, entry: SidecarEntry | None
) -> InspectedBatch:
    header, codec, problem = None, None, None
    size = room if entry is None else entry.batch_size
    try:
        header = read_header(log.read_at(position, HEADER_BYTES_MAX))
        if entry is None:
            size = min(header.size, room)
        view = memoryview(log.read_at(position, size))
        if entry is not None:
            check_batch(view, entry)
        if header.size > room:
            raise ChecksumMismatch(f"a batch of {header.size} bytes has only {room}: it is torn")
        check_crc(view, header)
        if offset is not None and header.base_offset != offset:
            raise ChecksumMismatch(f"offset {header.base_offset} follows where {offset} should")
        codec = CODEC_NAMES.get(read_columns(view, header).codec)
    except Corrupt as error:
        problem = str(error)
    return InspectedBatch(position, size, header, codec, None if entry is None else entry.epoch, problem)
