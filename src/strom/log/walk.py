"""A walk along the batches of a segment, entry by entry, from an anchor onwards.

Every entry is checked against its checksum and against the place where it must be: entries are dense, so the offset,
the position in the log and the position in the sidecar of the next one are known. An entry that is missing or wrong is
rebuilt from its batch, which has a checksum of its own; the walk ends with ChecksumMismatch only if both are bad.
"""

from __future__ import annotations

from strom.errors import ChecksumMismatch, Corrupt
from strom.log import layout as at
from strom.log.entry_run import EntryRun, entries_like
from strom.log.epochs import Epochs
from strom.log.index import Anchor
from strom.log.segment import SegmentFiles
from strom.log.sidecar import SidecarEntry, decode_buffer_crcs, decode_entry, encode_entry
from strom.record import layout as batch_at
from strom.record.batch import check_crc, read_columns, read_header
from strom.runtime.files import File

#: A reader at the tail needs few entries, one that goes on needs many.
CHUNK_BYTES_FIRST = 4 * 1024
CHUNK_BYTES_NEXT = 64 * 1024
#: No schema has this many buffers: a larger count is damage, not a reason to allocate.
ENTRY_BYTES_MAX = 4 * 1024 * 1024
HEADER_BYTES_MAX = max(batch_at.HEADER_SIZE)


class Walk:
    """Stands before an entry; ``offset``, ``position`` and ``sidecar_position`` say where."""

    __slots__ = (
        "_chunk",
        "_chunk_bytes",
        "_chunk_start",
        "_epochs",
        "_files",
        "_log_size",
        "_source",
        "_source_at",
        "made_again",
        "offset",
        "position",
        "sidecar_position",
    )

    def __init__(self, files: SegmentFiles, anchor: Anchor, *, log_size: int, epochs: Epochs) -> None:
        self.offset, self.position, self.sidecar_position = anchor
        #: How many entries had to be rebuilt from their batches.
        self.made_again = 0
        self._files = files
        self._log_size = log_size
        self._epochs = epochs
        self._chunk = b""
        self._chunk_start = self.sidecar_position
        self._chunk_bytes = CHUNK_BYTES_FIRST
        self._source = b""
        self._source_at = 0

    def next(self) -> SidecarEntry:
        """The entry here; the walk then stands before the one after it."""
        at_chunk = self.sidecar_position - self._chunk_start
        entry = decode_entry(self._chunk, at_chunk)
        if entry is None:
            entry = self._read_chunk()
            at_chunk = 0
        self._source, self._source_at = self._chunk, at_chunk
        if entry is None or entry.base_offset != self.offset or entry.position != self.position:
            self._source, self._source_at = self._make_entry(), 0
            entry = decode_entry(self._source)
            assert entry is not None
        self.offset = entry.next_offset
        self.position += entry.batch_size
        self.sidecar_position += entry.entry_size
        return entry

    def run_from(self, first: SidecarEntry, count: int) -> EntryRun:
        """The entry that ``next`` returned last and those that follow it and are like it, ``count`` at most.

        The walk does not move. The run ends early at a damaged entry, or at the end of what was read ahead.
        """
        size = first.entry_size
        if self._source is self._chunk and (len(self._chunk) - self._source_at) // size < count:
            self._read_ahead(min(count * size, CHUNK_BYTES_NEXT), size)
        return entries_like(first, self._source, self._source_at, count)

    def _read_ahead(self, wanted: int, size: int) -> None:
        """Read more entries into the chunk, which then begins with the one that ``next`` returned last."""
        sidecar = self._files.sidecar
        if sidecar is None or wanted <= len(self._chunk) - self._source_at:
            return
        start = self.sidecar_position - size
        chunk = sidecar.read_at(start, wanted)
        if chunk.startswith(self._chunk[self._source_at : self._source_at + size]):
            self._chunk, self._chunk_start = chunk, start
            self._source, self._source_at = chunk, 0

    def pass_over(self, run: EntryRun, count: int) -> None:
        """Move from behind the first entry of the run to behind the first ``count``."""
        entry, further = run.first, count - 1
        self.offset += further * (entry.last_offset_delta + 1)
        self.position += further * entry.batch_size
        self.sidecar_position += further * entry.entry_size
        self._source_at += further * entry.entry_size

    def entry_bytes(self) -> bytes:
        """The bytes of the entry that ``next`` returned last."""
        size = at.ENTRY_SIZE + at.ENTRY.unpack_from(self._source, self._source_at)[1] * at.BUFFER_CRC_LENGTH
        return self._source[self._source_at : self._source_at + size]

    def buffer_crcs(self, entry: SidecarEntry) -> tuple[int, ...]:
        """The checksums per buffer of the entry that ``next`` returned last."""
        return decode_buffer_crcs(self._source, self._source_at, entry)

    def anchor(self) -> Anchor:
        """Where it stands."""
        return Anchor(self.offset, self.position, self.sidecar_position)

    def _read_chunk(self) -> SidecarEntry | None:
        sidecar = self._files.sidecar
        if sidecar is None:
            return None
        self._chunk_start = self.sidecar_position
        self._chunk = chunk = sidecar.read_at(self._chunk_start, self._chunk_bytes)
        self._chunk_bytes = CHUNK_BYTES_NEXT
        size = entry_size_claimed(chunk)
        if len(chunk) < size <= ENTRY_BYTES_MAX:
            self._chunk = chunk = sidecar.read_at(self._chunk_start, size)
        return decode_entry(chunk)

    def _make_entry(self) -> bytes:
        self.made_again += 1
        return make_entry(
            self._files.log,
            offset=self.offset,
            position=self.position,
            log_size=self._log_size,
            epoch=self._epochs.epoch_of(self.offset),
        )


def entry_size_claimed(chunk: bytes) -> int:
    """The size that the entry at the start of ``chunk`` claims; not checked."""
    if len(chunk) < at.ENTRY_SIZE:
        return at.ENTRY_SIZE
    count: int = at.ENTRY.unpack_from(chunk)[1]
    return at.ENTRY_SIZE + count * at.BUFFER_CRC_LENGTH


def make_entry(log: File, *, offset: int, position: int, log_size: int, epoch: int) -> bytes:
    """The entry of the batch at ``position``, derived from the batch; ChecksumMismatch when that is not sound.

    The batch must be the one that belongs here. Its timestamp is taken as it is: nothing else knows it.
    """
    try:
        header = read_header(log.read_at(position, HEADER_BYTES_MAX))
        if header.base_offset != offset or header.size > log_size - position:
            raise ChecksumMismatch(f"no batch of offset {offset} is at position {position}")
        view = memoryview(log.read_at(position, header.size))
        if len(view) != header.size:
            raise ChecksumMismatch(f"the log ends within the batch at position {position}")
        check_crc(view, header)
        columns = read_columns(view, header)
    except Corrupt as error:
        raise ChecksumMismatch(
            f"the batch at offset {offset} is damaged, and so is its sidecar entry: {error}",
            base_offset=offset,
            position=position,
            path=log.path,
        ) from error
    return encode_entry(
        view,
        header,
        columns.buffers,
        head_size=columns.head_size,
        base_offset=offset,
        timestamp_ms=header.timestamp_ms,
        position=position,
        epoch=epoch,
        synced_end=0,
    )
