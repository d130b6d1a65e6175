"""What a bucket does as one copy of several: lead, or follow its leader by pulling.

    1. It leads only in epochs that the metadata gave, each once (R3); as a follower it takes no writes but pulled ones.
    2. A pulled batch is kept as it is: bytes, offset, timestamp, epoch; and its rows go where a replay would put them.
    3. A group is passed in one step. Whatever ends a role drops a group that is not closed (R13).
    4. A cut undoes what the records did, and never goes below the high watermark, unless rows were declared lost (R10).

``lead`` to ``cut_to`` are called in the bucket's lane, the others as they say.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from strom.errors import OffsetOutOfRange
from strom.log.copies.following import PulledBatch
from strom.log.copies.pulled import PulledBatches
from strom.model.bucket import BucketId
from strom.record.batch import BatchHeader
from strom.replication.divergence import BaseNeeded, EpochEnd, EpochHistory
from strom.tablet.copies.base_copy import BaseCopies, BaseCopy, CopyPiece, HeldBase
from strom.tablet.copies.pull_answer import CopyPosition, Pullable, batches_from, position_of


class CopyTarget(Pullable, Protocol):
    """What is needed of a tablet."""

    bucket: BucketId
    leading: bool

    @property
    def high_watermark(self) -> int:
        """Readers see offsets below this one."""

    @property
    def base_offset(self) -> int:
        """It cannot be cut below."""

    def check_online(self) -> None:
        """Raise what took the tablet offline, if anything did."""

    def take_back(self) -> None:
        """Take back the open group."""

    def drop_unsealed(self) -> None:
        """Remove the stages that are not sealed."""

    def standby(self, batches: Sequence[PulledBatch]) -> Callable[[int], None]:
        """How to take each of these batches, once it is in the log, into what is kept beside it."""

    def remember_recent(
        self, view: memoryview, header: BatchHeader, base_offset: int, next_offset: int
    ) -> None:
        """A batch is in the log."""

    def lower_high(self, high: int) -> None:
        """Rows above were declared lost."""

    def was_cut(self, end: int) -> None:
        """The log was cut."""

    def held_base(self) -> HeldBase:
        """The newest base, with its files open."""


class BucketCopy:
    """One copy of a bucket."""

    def __init__(self, tablet: CopyTarget) -> None:
        self._tablet = tablet
        self.bases = BaseCopies()
        """Who copies the base (R18)."""

    # --- roles (in the lane) -----------------------------------------------------------------------------

    def lead(self, epoch: int) -> None:
        """Begin to lead in an epoch that the metadata gave; StaleEpoch when the log has records of it."""
        self._tablet.check_online()
        self._drop_open_group()
        self._tablet.log.begin_epoch(epoch)
        self._tablet.leading = True

    def follow(self) -> None:
        """Take no more writes but pulled ones. Stages that are not sealed are dropped, too."""
        self._tablet.check_online()
        self._tablet.leading = False
        self.bases.end_all()
        self._drop_open_group()
        self._tablet.drop_unsealed()

    def _drop_open_group(self) -> None:
        if self._tablet.log.in_group:
            self._tablet.take_back()

    # --- following (in the lane) -------------------------------------------------------------------------

    def append_pulled(self, pulled: PulledBatches, *, now_ms: int) -> int:
        """Append what was pulled from the leader, as it is; returns where the log ends.

        All of it is checked first: what is refused (``LogFollowing.check``) leaves nothing behind. StorageFull may
        leave the first batches, and a group that is not closed (``close_group``).
        """
        tablet = self._tablet
        tablet.check_online()
        assert not tablet.leading
        following = tablet.log.following
        batches = following.check(pulled)
        publish = tablet.standby(batches)
        following.begin(pulled)
        for number, batch in enumerate(batches):
            following.append(batch, now_ms=now_ms)
            header = batch.header
            tablet.remember_recent(batch.view, header, header.base_offset, batch.next_offset)
            publish(number)
            following.close_complete()  # last: without room for it, nothing of the batch is left out
        return tablet.log.end_offset

    def close_group(self) -> int:
        """Close a pulled group that is complete, if there was no room for that; returns where the log ends."""
        self._tablet.check_online()
        self._tablet.log.following.close_complete()
        return self._tablet.log.end_offset

    def cut_to(self, offset: int, *, lost: bool = False) -> int:
        """Cut a follower's log at an offset, or at the group boundary below (R8); returns its new end.

        Not below the high watermark, unless it was declared that rows are ``lost``, and never below the base: that has
        to be copied anew (OffsetOutOfRange). Busy: try again.
        """
        tablet = self._tablet
        tablet.check_online()
        assert not tablet.leading
        self._drop_open_group()
        bound = tablet.base_offset if lost else tablet.high_watermark
        if offset < bound:
            raise OffsetOutOfRange(
                f"this copy of bucket {tablet.bucket} cannot be cut at {offset}, below {bound}: copy its base anew",
                offset=offset,
                bound=bound,
            )
        if lost:
            tablet.lower_high(offset)
        end = tablet.log.truncate(offset)
        tablet.was_cut(end)
        return end

    # --- the base, for a follower that lacks what the log starts with -------------------------------------

    def begin_copy(self, holder: int) -> BaseCopy:
        """Hold the base for a follower, named by a number; while it holds one, the same again. In the lane."""
        self._tablet.check_online()
        return self.bases.begin(holder, self._tablet.held_base)

    def read_copy_file(self, holder: int, file: int, position: int, max_bytes: int) -> CopyPiece:
        """Some bytes of a file (by its place in the list) of the base that is held. Any thread."""
        return self.bases.read(holder, file, position, max_bytes)

    def end_copy(self, holder: int) -> None:
        """Hold the base no longer. In the lane."""
        self.bases.end(holder)

    # --- for other copies (any thread) -------------------------------------------------------------------

    def position(self) -> CopyPosition:
        """What this copy has."""
        return position_of(self._tablet)

    def history(self) -> EpochHistory:
        """Which epochs wrote this copy, to compare it with another (R8)."""
        return self._tablet.history()

    def batches_from(
        self, at: int, epoch_before: int, max_bytes: int
    ) -> PulledBatches | EpochEnd | BaseNeeded:
        """What a follower gets that has everything before ``at``, the last of it of ``epoch_before``.

        Whole batches up to the end, at least one if there is one; or where the two logs part; or it has to copy the
        base first.
        """
        self._tablet.check_online()
        return batches_from(self._tablet, at, epoch_before, max_bytes)
