"""Reading a log: slices of batches from an offset, the newest rows, an offset by time. Any thread may read.

Where offsets were given up as damaged (damage.py), a slice has one batch without records in their place.
"""

from __future__ import annotations

from strom.log.chain import Chain, out_of_range
from strom.log.damage import DamageFile, gap
from strom.log.health import Health
from strom.log.reading.seek import offset_at, tail_begin
from strom.log.reading.slices import BATCH_BYTES_ANY, LogSlice, ProjectionOf, Skip, SliceReader, joined
from strom.record.project import Projection

TAIL_BYTES_MAX = 64 * 1024 * 1024


class LogReader:
    """Reads one log; sees whole batches below the end that the log has when a call begins."""

    def __init__(self, chain: Chain, damage: DamageFile, health: Health) -> None:
        self._chain = chain
        self._damage = damage
        self._health = health

    def read(
        self,
        offset: int,
        *,
        until: int,
        max_bytes: int,
        projection: Projection | ProjectionOf | None = None,
        skip: Skip | None = None,
        most: int | None = BATCH_BYTES_ANY,
        gaps: bool = True,
        heed_marks: bool = True,
    ) -> LogSlice:
        """Whole batches from the one that holds ``offset`` up to ``until``, at most ``max_bytes`` of them.

        The first one may be larger, up to ``most`` bytes (None: it may not); if it is larger still,
        ``LogSlice.lacking`` says so. Offsets marked as damaged come as one batch without records; without ``gaps`` only
        where nothing follows it: not every client of the peer's goes on behind such a batch, and all of them accept one
        that begins later than they asked for. Without ``heed_marks`` everything comes as it was written. Raises
        OffsetOutOfRange and ChecksumMismatch.
        """
        self._health.check()
        chain = self._chain
        end_offset = chain.end_offset
        if not chain.start_offset <= offset <= end_offset:
            raise out_of_range(chain, offset)
        until = min(until, end_offset)
        if offset >= until:
            return LogSlice([], offset)
        damage = self._damage.damage
        if damage and heed_marks:
            mark = damage.next(offset)
            if mark is not None and mark.start <= offset:
                if gaps or mark.end >= until:
                    return gap(mark, offset)
                offset, mark = mark.end, damage.next(mark.end)
            until = until if mark is None else min(until, mark.start)
        reader = SliceReader(
            chain,
            until=until,
            max_bytes=max_bytes,
            projection=(lambda _: projection) if isinstance(projection, Projection) else projection,
            skip=skip,
            most=most,
        )
        try:
            return reader.read(offset)
        except OSError as error:
            raise self._health.unreadable(error) from error

    def tail_rows(self, limit: int, *, until: int, max_bytes: int = TAIL_BYTES_MAX) -> LogSlice:
        """The newest batches below ``until`` that hold ``limit`` rows together, or as many as fit ``max_bytes``.

        A damaged batch among them raises ChecksumMismatch.
        """
        until = max(min(until, self._chain.end_offset), self._chain.start_offset)
        try:
            begin, size = tail_begin(self._chain, limit, until=until, max_bytes=max_bytes)
        except OSError as error:
            raise self._health.unreadable(error) from error
        found = self.read(begin, until=until, max_bytes=max(size, 1))
        while found.next_offset < until:  # behind a gap, or at what ended the slice: that is raised
            found = joined(found, self.read(found.next_offset, until=until, max_bytes=max(size, 1)))
        return found

    def offset_at(self, timestamp_ms: int) -> int:
        """The first offset of the first batch whose timestamp is at least this, else the end."""
        try:
            return offset_at(self._chain, timestamp_ms)
        except OSError as error:
            raise self._health.unreadable(error) from error
