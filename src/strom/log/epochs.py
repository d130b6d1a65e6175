"""The epochs of a log: which one gave an offset its record.

A log that is alone gives itself its epochs: every opening for writing begins one, and so does every truncation, so
that an offset that is assigned again (because its first record was lost or cut) differs by its epoch. A copy of a
replicated log is given them: a leader by the metadata, a follower with the records that it pulls. The history is
durable before the first record of an epoch is written.

A history is a value: it never changes, so readers need no lock. Format: docs/formats/epochs.md. A damaged entry is left
out and noted (``damaged``); recovery then fills the history from the sidecars, which carry the epoch of every batch,
and leaps ahead so that no number is used twice.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from strom.errors import StaleEpoch
from strom.log import layout as at
from strom.record.checksum import crc32c

#: How far to leap when the latest epoch may have been lost with a damaged entry.
LEAP = 1024


class EpochStart(NamedTuple):
    """An epoch and its first offset."""

    epoch: int
    start_offset: int


@dataclass(frozen=True)
class Epochs:
    """Epochs in rising order, with rising starts. ``latest`` may be above the last entry's, never below."""

    starts: tuple[EpochStart, ...] = ()
    latest: int = at.NO_EPOCH
    damaged: bool = False

    def epoch_of(self, offset: int) -> int:
        """The epoch that gave ``offset`` its record (or would give it), NO_EPOCH when none did."""
        index = bisect_right(self.starts, offset, key=lambda start: start.start_offset)
        return self.starts[index - 1].epoch if index else at.NO_EPOCH

    def begin(self, start_offset: int, *, log_start: int = 0) -> Epochs:
        """The history with a new epoch from ``start_offset`` on."""
        epoch = self.latest + (LEAP if self.damaged else 1)
        # An epoch that starts at or after the new one has no record left, nor has one that ends before the log starts.
        kept = [start for start in self.starts if start.start_offset < start_offset]
        while len(kept) > 1 and kept[1].start_offset <= log_start:
            del kept[0]
        return Epochs((*kept, EpochStart(epoch, start_offset)), epoch)

    def given(self, epoch: int, start_offset: int, *, log_start: int = 0) -> Epochs:
        """The history in which the records from ``start_offset`` on, the end of the log, are of a given epoch.

        StaleEpoch when the record before them is of a later one.
        """
        kept = [start for start in self.starts if start.start_offset < start_offset]
        newest = kept[-1].epoch if kept else at.NO_EPOCH
        if epoch < newest:
            raise StaleEpoch(
                f"records of epoch {epoch} cannot follow one of epoch {newest} at offset {start_offset}",
                epoch=epoch,
                newest=newest,
                offset=start_offset,
            )
        # Unlike in ``begin``, the epoch of the record before the log's start stays known: followers ask for it.
        while len(kept) > 1 and kept[1].start_offset < log_start:
            del kept[0]
        if epoch > newest:
            kept.append(EpochStart(epoch, start_offset))
        return Epochs(tuple(kept), epoch)

    def until(self, end_offset: int) -> Epochs:
        """The history of a log that ends at ``end_offset``: of epochs that have a record there."""
        kept = tuple(start for start in self.starts if start.start_offset < end_offset)
        return Epochs(kept, kept[-1].epoch if kept else at.NO_EPOCH, self.damaged)

    def merged(self, seen: Iterable[EpochStart]) -> Epochs:
        """The history completed by epochs seen elsewhere; still ``damaged``, so the next epoch leaps."""
        lowest: dict[int, int] = {}
        for epoch, start_offset in (*self.starts, *seen):
            lowest[epoch] = min(start_offset, lowest.get(epoch, start_offset))
        rising: list[EpochStart] = []
        for epoch, start_offset in sorted(lowest.items()):
            if not rising or start_offset > rising[-1].start_offset:
                rising.append(EpochStart(epoch, start_offset))
        return Epochs(tuple(rising), max([self.latest, *lowest]), self.damaged)

    def encode(self) -> bytes:
        """The bytes of the file."""
        return at.EPOCHS_FORMAT + b"".join(_encode(start) for start in self.starts)


def _encode(start: EpochStart) -> bytes:
    packed = at.EPOCH.pack(0, start.epoch, start.start_offset)
    return at.CHECKSUM.pack(crc32c(packed[at.CHECKSUM_LENGTH :])) + packed[at.CHECKSUM_LENGTH :]


def decode_epochs(content: bytes) -> Epochs:
    """The history in a file's bytes, whatever they are; what is wrong is left out and makes it ``damaged``."""
    body = content[at.FORMAT_LENGTH :]
    damaged = content[: at.FORMAT_LENGTH] != at.EPOCHS_FORMAT or len(body) % at.EPOCH.size != 0
    starts: list[EpochStart] = []
    for position in range(0, len(body) - at.EPOCH.size + 1, at.EPOCH.size):
        checksum, epoch, start_offset = at.EPOCH.unpack_from(body, position)
        sound = checksum == crc32c(body[position + at.CHECKSUM_LENGTH : position + at.EPOCH.size])
        rises = not starts or (epoch > starts[-1].epoch and start_offset > starts[-1].start_offset)
        if sound and rises and epoch >= 0 and start_offset >= 0:
            starts.append(EpochStart(epoch, start_offset))
        else:
            damaged = True
    return Epochs(tuple(starts), starts[-1].epoch if starts else at.NO_EPOCH, damaged)
