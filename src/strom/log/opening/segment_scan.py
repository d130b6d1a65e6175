"""Checking one segment after an unclean stop: trust, repair, or say where trust ends.

From an anchor on, every batch is read and checked against its own CRC and against its entry.

    batch sound, entry fits           trusted
    batch sound, entry missing/stale  trusted; the entry is rebuilt
    batch damaged, but durable        kept: reads of it raise (its entry says where it ends)
    anything else                     trust ends here

A stale entry has another epoch: it was written for a batch that was lost to power loss.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from strom.errors import ChecksumMismatch
from strom.log import layout as at
from strom.log.epochs import Epochs
from strom.log.index import Anchor
from strom.log.opening.mend import SidecarGrowth, SidecarRewrite
from strom.log.segment import Segment, SegmentFiles
from strom.log.sidecar import SidecarEntry, check_batch, decode_entry, encode_header
from strom.log.walk import CHUNK_BYTES_NEXT, ENTRY_BYTES_MAX, entry_size_claimed, make_entry
from strom.record import layout as batch_at
from strom.record.checksum import crc32c
from strom.runtime.files import File, Files


class StoredEntries:
    """The sound entries of a sidecar, by position. Never looks at the log."""

    def __init__(self, sidecar: File | None) -> None:
        self._sidecar = sidecar
        self._chunk = b""
        self._start = 0

    def entry_at(self, position: int) -> tuple[SidecarEntry, bytes] | None:
        """The sound entry at ``position`` with its bytes, or None."""
        if self._sidecar is None:
            return None
        entry = decode_entry(self._chunk, position - self._start) if position >= self._start else None
        if entry is None:
            self._start = position
            self._chunk = self._sidecar.read_at(position, CHUNK_BYTES_NEXT)
            size = entry_size_claimed(self._chunk)
            if len(self._chunk) < size <= ENTRY_BYTES_MAX:
                self._chunk = self._sidecar.read_at(position, size)
            entry = decode_entry(self._chunk)
            if entry is None:
                return None
        begin = position - self._start
        return entry, self._chunk[begin : begin + entry.entry_size]

    def walk(self, position: int = at.SIDECAR_HEADER_SIZE) -> Iterator[SidecarEntry]:
        """Sound entries one after the other, until one is not."""
        while (found := self.entry_at(position)) is not None:
            yield found[0]
            position += found[0].entry_size


class SegmentScan:
    """Checks one segment from an anchor on. Afterwards ``place`` is where trust ends."""

    def __init__(
        self,
        files: Files,
        segment: Segment,
        opened: SegmentFiles,
        anchor: Anchor,
        *,
        epochs: Epochs,
        durable_end: int,
        last_timestamp_ms: int,
        on_entry: Callable[[SidecarEntry], None],
    ) -> None:
        self.place = anchor
        self.batches_damaged = 0
        self.entries_made = 0
        self._files = files
        self._segment = segment
        self._opened = opened
        self._epochs = epochs
        self._durable_end = durable_end
        self._last_timestamp_ms = last_timestamp_ms
        self._on_entry = on_entry
        self._stored = StoredEntries(opened.sidecar)
        self._repair: SidecarGrowth | SidecarRewrite | None = None
        self._complete: bool | None = None

    @property
    def whole(self) -> bool:
        """Whether everything in the segment is trusted or kept."""
        return self.place.position == self._segment.log_size

    def run(self) -> None:
        """Check every batch; afterwards the sidecar matches what is trusted."""
        sidecar = self._opened.sidecar
        header = encode_header(self._segment.base_offset)
        if sidecar is None or sidecar.read_at(0, len(header)) != header:
            self._repair = self._rewrite()
        while self.place.position < self._segment.log_size:
            found = self._entry_here()
            if found is None:
                break
            self._step(*found)
        self._finish_sidecar()

    def _step(self, entry: SidecarEntry, content: bytes) -> None:
        segment, place = self._segment, self.place
        self._opened.index.add(
            entry.base_offset,
            timestamp_ms=entry.timestamp_ms,
            position=entry.position,
            sidecar_position=place.sidecar_position,
        )
        if segment.first_timestamp_ms < 0:
            segment.first_timestamp_ms = entry.timestamp_ms
        segment.last_timestamp_ms = self._last_timestamp_ms = max(self._last_timestamp_ms, entry.timestamp_ms)
        if self._repair is not None:
            self._repair.add(content)
        self._on_entry(entry)
        self.place = Anchor(
            entry.next_offset, place.position + entry.batch_size, place.sidecar_position + entry.entry_size
        )

    def _entry_here(self) -> tuple[SidecarEntry, bytes] | None:
        """The entry of the batch here, stored or rebuilt; None where trust ends."""
        found = self._stored_here()
        if found is not None and self._fits(found[0]):
            return found
        # If only the stamp was torn, the rest of the batch is sound; what is left of the stamp must not be trusted.
        made = None if found is not None and self._payload_fits(found[0]) else self._made_here()
        if made is not None:
            self._begin_repair()
            self.entries_made += 1
            return made
        if found is not None and (self.place.offset < self._durable_end or self._is_complete()):
            self.batches_damaged += 1
            return found
        return None

    def _stored_here(self) -> tuple[SidecarEntry, bytes] | None:
        """The sound entry of this place, unless it is stale."""
        place = self.place
        found = self._stored.entry_at(place.sidecar_position)
        if found is None or found[0].base_offset != place.offset or found[0].position != place.position:
            return None
        return found if found[0].epoch == self._epochs.epoch_of(place.offset) else None

    def _fits(self, entry: SidecarEntry) -> bool:
        try:
            check_batch(memoryview(self._opened.log.read_at(entry.position, entry.batch_size)), entry)
        except ChecksumMismatch:
            return False
        return True

    def _payload_fits(self, entry: SidecarEntry) -> bool:
        view = memoryview(self._opened.log.read_at(entry.position, entry.batch_size))
        covered_from = batch_at.SCHEMA_ID_POSITION[entry.magic]
        return len(view) == entry.batch_size and crc32c(view[covered_from:]) == entry.batch_crc

    def _made_here(self) -> tuple[SidecarEntry, bytes] | None:
        place = self.place
        try:
            content = make_entry(
                self._opened.log,
                offset=place.offset,
                position=place.position,
                log_size=self._segment.log_size,
                epoch=self._epochs.epoch_of(place.offset),
            )
        except ChecksumMismatch:
            return None
        entry = decode_entry(content)
        assert entry is not None
        # Timestamps never fall, so this one is what a torn write left of the true one.
        return None if entry.timestamp_ms < self._last_timestamp_ms else (entry, content)

    def _is_complete(self) -> bool:
        """Whether the segment was sealed and its sidecar has every batch to the end: then nothing is torn."""
        if self._complete is None:
            position, offset = self.place.position, self.place.offset
            for entry in self._stored.walk(self.place.sidecar_position):
                if entry.position != position or entry.base_offset != offset:
                    break
                position, offset = entry.end_position, entry.next_offset
            self._complete = offset == self._segment.end_offset and position == self._segment.log_size
        return self._complete

    # --- the sidecar -----------------------------------------------------------------------------------------------

    def _begin_repair(self) -> None:
        """Write all entries from here on again."""
        if self._repair is not None:
            return
        sidecar, size = self._opened.sidecar, self.place.sidecar_position
        if sidecar is not None and size <= sidecar.size() < size + at.ENTRY_SIZE:
            self._repair = SidecarGrowth(sidecar, size)  # nothing behind this place could be lost
        else:
            self._repair = self._rewrite()

    def _rewrite(self) -> SidecarRewrite:
        return SidecarRewrite(
            self._files, self._segment, old=self._opened.sidecar, keep_until=self.place.sidecar_position
        )

    def _finish_sidecar(self) -> None:
        sidecar = self._opened.sidecar
        believed = self.whole or self.place.offset >= self._durable_end
        if self._repair is not None:
            self._repair.finish()
        elif sidecar is not None and sidecar.size() > self.place.sidecar_position and believed:
            sidecar.truncate(self.place.sidecar_position)
        self._segment.sidecar_size = self.place.sidecar_position
