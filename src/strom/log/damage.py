"""Offsets of a log that were given up as damaged: what lies there cannot be read, and readers go on behind it.

Only an operator marks offsets. A read that finds bytes that are not what was written, or that nobody can read, fails
and names the offsets; the operator marks those. From then on a read returns in their place one batch without records
that spans all of their offsets: every client goes on behind it, Fluss's too. Offsets stay as they were. The bytes stay
too, so a mark can be taken back.

Marks are whole batches. The file is replaced atomically; without one nothing is marked. Format: docs/formats/damage.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from strom.errors import OffsetOutOfRange
from strom.log import layout as at
from strom.log.chain import Chain
from strom.log.health import Health
from strom.log.reading.seek import batch_around
from strom.log.reading.slices import LogSlice
from strom.record import layout as batch_at
from strom.record.batch import stamp, write_crc
from strom.record.checksum import crc32c
from strom.runtime.files import Files

#: A batch takes at most this many offsets.
_SPAN_MAX = 1 << 31


class Mark(NamedTuple):
    """Offsets [start, end) that were given up."""

    start: int
    end: int
    schema_id: int
    """The schema of the empty batch that readers get."""
    marked_ms: int


class Damage:
    """The marks of one log, rising and apart. A value: it never changes."""

    def __init__(self, marks: Iterable[Mark] = ()) -> None:
        self.marks = tuple(_joined(sorted(marks)))

    def __bool__(self) -> bool:
        return bool(self.marks)

    @property
    def rows(self) -> int:
        """How many offsets are marked."""
        return sum(mark.end - mark.start for mark in self.marks)

    def next(self, offset: int) -> Mark | None:
        """The mark that holds ``offset``, else the first one behind it."""
        return next((mark for mark in self.marks if mark.end > offset), None)

    def marked(self, mark: Mark) -> Damage:
        """With one more mark."""
        return Damage((*self.marks, mark))

    def without(self, start: int, end: int) -> Damage:
        """Without those that touch [start, end)."""
        return Damage(mark for mark in self.marks if mark.end <= start or mark.start >= end)

    def between(self, start: int, end: int) -> Damage:
        """The marks that are left in a log that holds [start, end)."""
        kept = (mark._replace(end=min(mark.end, end)) for mark in self.marks if mark.end > start)
        return Damage(mark for mark in kept if mark.start < mark.end)

    def encode(self) -> bytes:
        """The bytes of the file."""
        return at.DAMAGE_FORMAT + b"".join(_encode(mark) for mark in self.marks)


def gap(mark: Mark, offset: int) -> LogSlice:
    """A slice that takes a reader at ``offset`` to the end of the mark, or as far as one batch can."""
    start = mark.start if mark.end - mark.start < _SPAN_MAX else offset
    end = min(mark.end, start + _SPAN_MAX)
    batch = bytearray(
        batch_at.HEADER[batch_at.MAGIC_PLAIN].pack(
            0,
            batch_at.HEADER_SIZE_MIN - batch_at.LENGTH_OVERHEAD,
            batch_at.MAGIC_PLAIN,
            0,
            0,
            mark.schema_id,
            batch_at.ATTRIBUTE_APPEND_ONLY | batch_at.ATTRIBUTE_DAMAGED,
            end - start - 1,
            batch_at.NO_WRITER_ID,
            batch_at.NO_BATCH_SEQUENCE,
            0,
        )
    )
    stamp(batch, base_offset=start, timestamp_ms=mark.marked_ms)
    write_crc(batch, batch_at.MAGIC_PLAIN)
    return LogSlice([batch], end, batches=1, size=len(batch))


class DamageFile:
    """The marks of one log, in memory and on disk; changes are durable on return."""

    def __init__(self, files: Files, folder: str, health: Health) -> None:
        self._files = files
        self._folder = folder
        self._health = health
        self._path = f"{folder}/{at.DAMAGE_NAME}"
        self.damage = _decode(files.read_whole(self._path)) if files.exists(self._path) else Damage()

    def mark(self, chain: Chain, start: int, end: int, *, schema_id: int, now_ms: int) -> Mark:
        """Give up the batches of ``chain`` that hold offsets of [start, end)."""
        log_start, log_end = chain.start_offset, chain.end_offset
        if not log_start <= start < end <= log_end:
            raise OffsetOutOfRange(
                f"the log holds offsets {log_start} to {log_end}, not {start} to {end}",
                start_offset=log_start,
                end_offset=log_end,
            )
        first, _ = batch_around(chain, start)
        _, last = batch_around(chain, end - 1)
        mark = Mark(max(first, log_start), last, schema_id, now_ms)
        self._keep(self.damage.between(log_start, log_end).marked(mark))
        return mark

    def unmark(self, start: int, end: int) -> int:
        """Take back the marks that touch [start, end); how many offsets are no longer given up."""
        before = self.damage.rows
        self._keep(self.damage.without(start, end))
        return before - self.damage.rows

    def limit(self, start: int, end: int) -> None:
        """Forget marks of offsets outside [start, end), which is what the log holds now."""
        kept = self.damage.between(start, end)
        if kept.marks != self.damage.marks:
            self._keep(kept)

    def _keep(self, damage: Damage) -> None:
        try:
            if damage:
                self._files.write_whole(self._path, damage.encode())
            elif self._files.exists(self._path):
                self._files.remove(self._path)
                self._files.sync_folder(self._folder)
        except OSError as error:
            raise self._health.failed("write the marks of damage", error) from error
        self.damage = damage


def _decode(content: bytes) -> Damage:
    """The marks in a file's bytes; an entry that is not sound marks nothing."""
    if content[: at.FORMAT_LENGTH] != at.DAMAGE_FORMAT:
        return Damage()
    marks = []
    for position in range(at.FORMAT_LENGTH, len(content) - at.DAMAGE.size + 1, at.DAMAGE.size):
        entry = content[position : position + at.DAMAGE.size]
        checksum, schema_id, start, end, marked_ms = at.DAMAGE.unpack(entry)
        if checksum == crc32c(entry[at.CHECKSUM_LENGTH :]) and 0 <= start < end:
            marks.append(Mark(start, end, schema_id, marked_ms))
    return Damage(marks)


def _encode(mark: Mark) -> bytes:
    rest = at.DAMAGE.pack(0, mark.schema_id, mark.start, mark.end, mark.marked_ms)[at.CHECKSUM_LENGTH :]
    return at.CHECKSUM.pack(crc32c(rest)) + rest


def _joined(marks: list[Mark]) -> list[Mark]:
    found: list[Mark] = []
    for mark in marks:
        if found and mark.start <= found[-1].end:
            found[-1] = found[-1]._replace(end=max(found[-1].end, mark.end))
        else:
            found.append(mark)
    return found
