"""A bucket that this server follows: what it asks its leader, and what it does with the answers.

One question at a time stands before the leader. Its answer is taken in the bucket's lane; then the next question goes
out, with a report of what the copy has. Under ``group`` another report follows when that is synced. Stages come beside
the log, on their own way (``stage_mirroring.py``).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from strom.errors import Busy, NotLeader, OffsetOutOfRange, StorageOffline, StromError
from strom.log.copies.pulled import PulledBatches
from strom.model.bucket import BucketId
from strom.protocol.error_codes import code_of, error_of
from strom.protocol.messages.replication import WireAnswer, WireQuestion
from strom.replication.followership import CutTo, Followership, TakeBatches
from strom.replication.pulls import CopyFacts, PullQuestion
from strom.replication.reports import Report
from strom.server.background.checkpoints import Checkpoints
from strom.server.background.group_commit import GroupCommit
from strom.server.replicas.stage_mirroring import StageMirroring
from strom.server.replicas.wire import answer_of, journal_of, pulled_of, wire_question
from strom.server.tablets.tablet_slot import TabletSlot
from strom.tablet.tablet import Tablet

INLINE_BYTES_MAX = 64 * 1024
"""More than this is appended off the loop; rows of primary-key tables always are."""
ALONE_BYTES_MAX = 4 * 1024 * 1024
"""The same while nothing small is done beside it: handing it to a thread and back costs as much as the append."""
ALONE_AFTER_S = 0.05
"""This long after something small."""
BULK_BYTES_MIN = 256 * 1024
PAUSE_S = 0.05
"""After an answer that could not be taken: before the next question."""
PAUSE_FULL_S = 1.0

_NOT_LEADER = code_of(NotLeader(""))

logger = logging.getLogger(__name__)


class FollowerNeeds:
    """What a follower needs of its server."""

    def __init__(
        self,
        commit: GroupCommit,
        checkpoints: Checkpoints,
        now_ms: Callable[[], int],
        look: Callable[[], None],
        copy_base: Callable[[FollowingBucket], None],
        small_calls_about: Callable[[], bool],
    ) -> None:
        """``look``: at the metadata, who leads. ``copy_base``: begin to copy the base files of the leader.
        ``small_calls_about``: whether clients make small calls here."""
        self.commit = commit
        self.checkpoints = checkpoints
        self.now_ms = now_ms
        self.look = look
        self.copy_base = copy_base
        self._small_calls_about = small_calls_about
        self._small_at = float("-inf")

    def inline_bytes_max(self, size: int) -> int:
        """Up to how many bytes are appended on the loop, now that so many came."""
        now = asyncio.get_running_loop().time()
        if size <= INLINE_BYTES_MAX:
            self._small_at = now
        alone = now - self._small_at > ALONE_AFTER_S and not self._small_calls_about()
        return ALONE_BYTES_MAX if alone else INLINE_BYTES_MAX


class FollowingBucket:
    """One epoch of a follower of one bucket. Belongs to the loop."""

    def __init__(
        self,
        slot: TabletSlot,
        tablet: Tablet,
        leader_id: int,
        followership: Followership,
        needs: FollowerNeeds,
        mirroring: StageMirroring,
        *,
        lost: bool,
    ) -> None:
        """``lost``: rows that were committed may have been given up since this copy last heard of its watermark."""
        self.slot = slot
        self.tablet = tablet
        self.leader_id = leader_id
        self.followership = followership
        self.on_change: Callable[[FollowingBucket], None] | None = None
        """Called when there is a new question or report (``PullLoop``)."""
        self._needs = needs
        self._mirroring = mirroring
        self._lost = lost
        self._asked = 0
        self._at = 0
        self._busy = False
        self._stopped = False
        self._reported: Report | None = None
        self._high = tablet.high_watermark
        self._pause: asyncio.TimerHandle | None = None
        mirroring.on_progress = self._changed

    @property
    def bucket(self) -> BucketId:
        """The bucket."""
        return self.slot.bucket

    @property
    def epoch(self) -> int:
        """Of the leader that is followed."""
        return self.followership.epoch

    @property
    def unsettled(self) -> bool:
        """Whether it may still hold rows that were given up: no leader after the loss has answered it."""
        return self._lost

    @property
    def stopped(self) -> bool:
        """Whether the role has changed: nothing more is done."""
        return self._stopped

    def stop(self) -> None:
        """The role changes: take no more answers (R12)."""
        self._stopped = True
        self._asked = 0
        self._mirroring.stop()
        if self._pause is not None:
            self._pause.cancel()

    # --- asking ----------------------------------------------------------------------------------------------

    def forget_question(self) -> None:
        """Nobody will answer what was asked: the connection is gone."""
        self._asked = 0
        self._reported = None

    def entry(self) -> WireQuestion | None:
        """The next question, or a report of progress while one stands; None if there is nothing new to say."""
        if self._stopped or self._busy or self._pause is not None:
            return None
        position = self.tablet.copy.position()
        facts = CopyFacts(position.at, position.epoch_before, position.end, position.synced)
        if not self._asked:
            question = self.followership.question(facts)
            self._asked, self._at = question.ask, question.at
        else:
            question = self._report(facts)
            if question.report == self._reported:
                return None
        self._reported = question.report
        return wire_question(self.bucket, question, high=self._high)

    def _report(self, facts: CopyFacts) -> PullQuestion:
        followership = self.followership
        return PullQuestion(
            epoch=followership.epoch,
            ask=0,
            member=followership.member,
            at=facts.at,
            epoch_before=facts.epoch_before,
            report=followership.report(facts),
            journal=followership.stages.position,
            journal_began=followership.stages.began,
        )

    def moved(self) -> None:
        """A sync of this copy ended, for example."""
        if not self._stopped and not self._busy:
            self._changed()

    def _changed(self) -> None:
        if self.on_change is not None and not self._stopped:
            self.on_change(self)

    # --- answers ---------------------------------------------------------------------------------------------

    def answered(self, answer: WireAnswer) -> None:
        """Take the answer to the question that stands; any other is late (R12)."""
        if self._stopped or not answer.ask or answer.ask != self._asked:
            return
        if answer.error_code is not None:
            self._refused(answer)
            return
        if answer.copy_at is not None:
            self._asked = 0
            self._copy_base()
            return
        step = self.followership.take(answer_of(answer), self.tablet.history())
        self._asked = 0
        if self.followership.copying is not None:
            self._copy_base()  # what would tell where the logs part lies below this one
            return
        match step:
            case TakeBatches(high, stable):
                self._take(answer, pulled_of(answer, self._at), high, stable)
            case CutTo(offset):
                lost = self._lost
                self._in_lane(
                    lambda tablet: tablet.copy.cut_to(offset, lost=lost), self._was_cut, self._not_cut
                )
            case _:
                self._changed()

    def _refused(self, answer: WireAnswer) -> None:
        """The leader leads no more, or not yet, or cannot read its log."""
        self._asked = 0
        if answer.error_code != _NOT_LEADER:
            error = error_of(answer.error_code or -1, answer.error_message)
            logger.warning("bucket %s: its leader cannot answer: %s", self.bucket, error)
        self._ask_later(PAUSE_S)
        self._needs.look()

    def _take(self, answer: WireAnswer, pulled: PulledBatches | None, high: int, stable: int) -> None:
        journal = journal_of(answer)
        if journal is not None:
            self._mirroring.take(journal, answer.journal)
        if pulled is None:
            self._taken(0, high, stable, None)
            return
        now_ms, size = self._needs.now_ms(), pulled.size
        small = size <= self._needs.inline_bytes_max(size) and not self.tablet.has_keys
        self._in_lane(
            lambda tablet: tablet.copy.append_pulled(pulled, now_ms=now_ms),
            partial(self._taken, size, high, stable),
            small=small and self.tablet.log.appends_quickly(size, now_ms),
            bulk=size >= BULK_BYTES_MIN,
        )

    def _taken(self, size: int, high: int, stable: int, _end: int | None) -> None:
        tablet = self.tablet
        self._busy = False
        tablet.raise_high(min(high, tablet.end_offset), stable)
        self._high = min(high, tablet.end_offset)
        if size:
            self._needs.checkpoints.appended(self.slot, tablet, size)
            if tablet.durability == "group":
                self._needs.commit.request(tablet)
        self._lost = False  # what it was told now is of after the loss
        self._changed()

    def _was_cut(self, end: int) -> None:
        logger.info(
            "bucket %s: cut at %d, where it parts from its leader in epoch %d", self.bucket, end, self.epoch
        )
        self._busy = False
        self._high = min(self._high, end)
        self._changed()

    # --- work ------------------------------------------------------------------------------------------------

    def _copy_base(self) -> None:
        self._busy = True
        self.followership.copying = None
        self._needs.copy_base(self)

    def goes_on(self, tablet: Tablet) -> None:
        """The base was copied, or could not be: go on from what there is."""
        if not self._stopped:
            self.tablet = tablet
            self._busy = False
            self._high = tablet.high_watermark
            self._changed()

    def _in_lane(
        self,
        job: Callable[[Tablet], int],
        then: Callable[[int], None],
        failed: Callable[[BaseException], None] | None = None,
        *,
        small: bool = False,
        bulk: bool = False,
    ) -> None:
        """Change the tablet in its turn, unless the role has changed by then."""
        self._busy = True
        failed = failed or self._failed

        def work(tablet: Tablet) -> int:
            if self._stopped:
                raise NotLeader("the role has changed")
            return job(tablet)

        try:
            result = self.slot.do(work, small=small, bulk=bulk, any_role=True)
        except Exception as error:  # also what nobody expects: the other buckets of the leader go on
            failed(error)
            return
        if isinstance(result, asyncio.Future):
            result.add_done_callback(lambda done: self._done(done, then, failed))
        else:
            then(result)

    def _done(
        self,
        done: asyncio.Future[int],
        then: Callable[[int], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        if self._stopped or done.cancelled():
            done.cancelled() or done.exception()
            return
        error = done.exception()
        if error is None:
            then(done.result())
        else:
            failed(error)

    def _not_cut(self, error: BaseException) -> None:
        if isinstance(error, OffsetOutOfRange) and self._lost:
            self._copy_base()  # what it would have to undo lies below its log
            return
        if isinstance(error, OffsetOutOfRange):
            logger.error(
                "bucket %s: its leader of epoch %d has other rows below the high watermark: %s",
                self.bucket,
                self.epoch,
                error,
            )
        self._failed(error)

    def _failed(self, error: BaseException) -> None:
        """An answer could not be taken: nothing of it was."""
        self._busy = False
        if self._stopped:
            return
        if isinstance(error, OSError):
            error = StorageOffline(f"the disk failed to write bucket {self.bucket}: {error}")
        if not isinstance(error, StromError):  # nobody knows how much of the answer was taken
            unexpected = f"bucket {self.bucket} could not take an answer of its leader: {error!r}"
            error = StorageOffline(unexpected).with_traceback(error.__traceback__)
        if isinstance(error, StorageOffline):
            self.tablet.fail(error)
            logger.error("bucket %s is not followed any more: %s", self.bucket, error, exc_info=error)
            self.stop()
            return
        if not isinstance(error, Busy):
            logger.warning("bucket %s: an answer of its leader was not taken: %s", self.bucket, error)
        self._ask_later(PAUSE_FULL_S if not isinstance(error, Busy) else PAUSE_S)

    def _ask_later(self, pause_s: float) -> None:
        if self._pause is None and not self._stopped:
            self._pause = asyncio.get_running_loop().call_later(pause_s, self._ask_again)

    def _ask_again(self) -> None:
        self._pause = None
        if self.tablet.log.following.complete:  # perhaps nothing more comes that would close it
            self._in_lane(lambda tablet: tablet.copy.close_group(), self._closed)
        else:
            self._changed()

    def _closed(self, _end: int) -> None:
        self._busy = False
        if self.tablet.durability == "group":
            self._needs.commit.request(self.tablet)
        self._changed()
