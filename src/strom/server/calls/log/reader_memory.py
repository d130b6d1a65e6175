"""What a reader has seen of a bucket, and whether it still holds (R11).

A reader that shows an offset and the epoch of the record before it can be answered by any copy, and never goes back: if
the copy has another record there, or lost it, the reader is told what it saw that is gone.
"""

from __future__ import annotations

from typing import NamedTuple

from strom.errors import StaleEpoch
from strom.tablet.tablet import Tablet

UNKNOWN = -2
"""The reader does not know the epoch; it wants to be told."""


class SeenUpTo(NamedTuple):
    """Everything before ``offset``, whose last record was written in ``epoch``."""

    offset: int
    epoch: int

    def check(self, tablet: Tablet) -> None:
        """Raise StaleEpoch if the bucket does not continue what the reader saw."""
        if self.epoch == UNKNOWN or not self.offset or tablet.log.epochs.damaged:
            return
        if epoch_before(tablet, self.offset) == self.epoch:
            return
        history = tablet.history()
        if self.offset <= history.log_start:
            return  # what lies below the log's start is gone by age: that is another error
        if tablet.replicated and not tablet.leading and self.offset > history.end:
            return  # a copy that is behind: it will get there
        end = history.end_of_epoch(self.epoch)
        kept = history.log_start if end is None else min(end.end, self.offset)
        raise StaleEpoch(
            f"bucket {tablet.bucket} lost the rows from offset {kept} to {self.offset} that this reader has seen: no "
            f"copy that was left had them. Undo what was made of them, and read on from offset {kept}, where other "
            "rows may be by now",
            bucket=str(tablet.bucket),
            lost_from=kept,
            lost_to=self.offset,
        )


def epoch_before(tablet: Tablet, offset: int) -> int | None:
    """The epoch of the record before an offset. At the end of a log, where tails read, no history is made for it."""
    log = tablet.log
    starts = log.epochs.starts
    if starts and starts[-1].start_offset < offset <= log.end_offset:
        return starts[-1].epoch
    return tablet.history().epoch_before(offset)
