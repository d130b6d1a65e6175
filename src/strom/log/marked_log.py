"""A log of which somebody may give up what nobody can read (damage.py)."""

from __future__ import annotations

from strom.errors import OffsetOutOfRange
from strom.log.damage import Damage, Mark, gap, read_damage, write_damage
from strom.log.log import BATCH_BYTES_ANY, Log
from strom.log.opening.recovery import Recovered
from strom.log.reading.seek import batch_around
from strom.log.reading.slices import LogSlice, ProjectionOf, Skip
from strom.log.settings import LogSettings
from strom.record.project import Projection
from strom.runtime.files import Files


class MarkedLog(Log):
    """Reads go on behind what is marked. Marks are changed by the hand that appends."""

    def __init__(self, files: Files, folder: str, settings: LogSettings, found: Recovered) -> None:
        """Use ``open``."""
        super().__init__(files, folder, settings, found)
        self.damage = read_damage(files, folder)

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
    ) -> LogSlice:
        """As ``Log.read``; in the place of what is marked comes a batch without records.

        Without ``gaps`` only where nothing is behind it: not every client of the peer's goes on behind such a batch,
        and all of them take one that begins later than they asked for.
        """
        end = min(until, self._end_offset)
        if self.damage and self.start_offset <= offset < end:
            mark = self.damage.next(offset)
            if mark is not None and mark.start <= offset:
                if gaps or mark.end >= end:
                    return gap(mark, offset)
                offset, mark = mark.end, self.damage.next(mark.end)
            until = until if mark is None else min(until, mark.start)
        return super().read(
            offset, until=until, max_bytes=max_bytes, projection=projection, skip=skip, most=most
        )

    def batch_around(self, offset: int) -> tuple[int, int]:
        """The offsets [from, until) of the batch that holds ``offset``; see ``seek.batch_around``."""
        return batch_around(self._chain, offset, end_offset=self._end_offset)

    def mark_damaged(self, start: int, end: int, *, schema_id: int, now_ms: int) -> Mark:
        """Give up the batches that hold offsets of [start, end): readers go on behind them. Durable on return."""
        self._check_online()
        if not self.start_offset <= start < end <= self._end_offset:
            raise OffsetOutOfRange(
                f"the log holds offsets {self.start_offset} to {self._end_offset}, not {start} to {end}",
                start_offset=self.start_offset,
                end_offset=self._end_offset,
            )
        first, _ = self.batch_around(start)
        _, last = self.batch_around(end - 1)
        mark = Mark(max(first, self.start_offset), last, schema_id, now_ms)
        self._keep_damage(self.damage.between(self.start_offset, self._end_offset).marked(mark))
        return mark

    def unmark_damaged(self, start: int, end: int) -> int:
        """Take back the marks that touch [start, end); how many offsets are no longer given up."""
        self._check_online()
        before = self.damage.rows
        self._keep_damage(self.damage.without(start, end))
        return before - self.damage.rows

    def _begin_epoch(self) -> None:
        """Before the first batch of an epoch: what a cut or a crash took, and is written anew, is marked no longer."""
        kept = self.damage.between(self.start_offset, self._end_offset)
        if kept.marks != self.damage.marks:
            self._keep_damage(kept)
        super()._begin_epoch()

    def _keep_damage(self, damage: Damage) -> None:
        try:
            write_damage(self._files, self._folder, damage)
        except OSError as error:
            raise self._failed("write the marks of damage", error) from error
        self.damage = damage
