"""A leader's answer to one question: what it is, and how it is read."""

from __future__ import annotations

from dataclasses import dataclass

from strom.errors import OffsetOutOfRange, StageNotFound
from strom.log.copies.pulled import PulledBatches
from strom.model.bucket import BucketId
from strom.protocol.message import Payload, size_of
from strom.protocol.messages.replication import (
    WireAnswer,
    WireEpochStart,
    WireGroupMark,
    WireStageChange,
)
from strom.replication.divergence import EpochEnd
from strom.replication.pulls import PullQuestion
from strom.replication.stage_journal import JournalEntry, JournalRead
from strom.server.replicas.leading import LeadingBucket
from strom.tablet.tablet import Tablet

INLINE_BYTES_MAX = 256 * 1024
"""More than this is read by a thread."""
ALONE_BYTES_MAX = 8 * 1024 * 1024
"""The same while clients make no small calls: to hand it to a thread and back costs as much as to read it. What is
further back may have to come from the disk."""
AT_ONCE_BYTES_MAX = 4 * 1024 * 1024
"""Read of one bucket on the loop."""
BUCKET_BYTES_MIN = 1024 * 1024
"""The least that a bucket may have of an answer: with many buckets, those behind it have their turn next."""
JOURNAL_ENTRIES_MAX = 100
STAGE_BYTES_MAX = 16 * 1024
"""A stage up to this size comes with the entry that names it; others are asked for."""


@dataclass(frozen=True, slots=True)
class StandingQuestion:
    """A question that waits for its answer."""

    bucket: BucketId
    question: PullQuestion
    high: int
    """The watermark that the follower knows."""

    def has_news(self, leading: LeadingBucket) -> bool:
        """Whether there is something to answer."""
        question, tablet = self.question, leading.tablet
        return (
            tablet.end_offset > question.at
            or tablet.high_watermark > self.high
            or leading.journal.end > question.journal
            or leading.leadership.barrier > question.report.barrier
        )

    def is_long(self, leading: LeadingBucket, inline_bytes_max: int) -> bool:
        """Whether there is too much to read on the loop."""
        if leading.journal.end > self.question.journal:
            return True
        tablet = leading.tablet
        return tablet.end_offset > self.question.at and tablet.bytes_from(self.question.at) > inline_bytes_max


@dataclass(slots=True)
class AnswerPlan:
    """What one answer will be; ``read`` may run in any thread, the rest belongs to the loop."""

    standing: StandingQuestion
    facts: WireAnswer
    tablet: Tablet
    journal: JournalRead

    def read(self, room: int) -> WireAnswer:
        """The answer with its bytes: at least one batch if there is one, and no more than ``room``."""
        question, answer = self.standing.question, self.facts
        pulled = self.tablet.copy.batches_from(question.at, question.epoch_before, room)
        if not isinstance(pulled, PulledBatches):
            raise OffsetOutOfRange("the log has changed since the question was judged", offset=question.at)
        if pulled.end_offset > question.at:
            _set_batches(answer, pulled)
        if self.journal.end > question.journal:
            _set_journal(answer, self.journal, self.tablet)
        return answer


def share_of(max_bytes: int, buckets: int) -> int:
    """The part of an answer that each of so many buckets may have, unless a batch is larger.

    A bucket that is alone has all of it: a follower reports once for what it got, and its leader waits for that.
    """
    return min(max_bytes, max(BUCKET_BYTES_MIN, max_bytes // max(1, buckets)))


def plan_answer(standing: StandingQuestion, leading: LeadingBucket, losses: int) -> AnswerPlan:
    """Take what is known now; the log is read afterwards."""
    leadership, tablet = leading.leadership, leading.tablet
    facts = _answer(standing, leading.epoch)
    facts.high, facts.stable = tablet.high_watermark, leadership.stable
    facts.log_start, facts.barrier, facts.losses = tablet.start_offset, leadership.barrier, losses
    question = standing.question
    journal = leading.journal.read(question.journal, question.journal_began, JOURNAL_ENTRIES_MAX)
    return AnswerPlan(standing, facts, tablet, journal)


def diverging(standing: StandingQuestion, epoch: int, end: EpochEnd) -> WireAnswer:
    """The logs part: where the follower's epoch ends here (R8)."""
    answer = _answer(standing, epoch)
    answer.diverging_epoch, answer.diverging_end = end
    return answer


def copy_base(standing: StandingQuestion, epoch: int, at: int) -> WireAnswer:
    """The log does not reach back to where the follower is (R18)."""
    answer = _answer(standing, epoch)
    answer.copy_at = at
    return answer


def size_of_answer(answer: WireAnswer) -> int:
    """Bytes of the log and of stages in an answer."""
    return _size(answer.records) + sum(_size(one.body) for one in answer.journal)


def _size(payload: Payload | None) -> int:
    if payload is None:
        return 0
    return (
        size_of(payload)
        if isinstance(payload, bytes | bytearray | memoryview)
        else sum(map(size_of, payload))
    )


def _answer(standing: StandingQuestion, epoch: int) -> WireAnswer:
    bucket = standing.bucket
    return WireAnswer(
        table_id=bucket.table_id,
        partition_id=bucket.partition_id,
        bucket_id=bucket.bucket,
        leader_epoch=epoch,
        ask=standing.question.ask,
    )


def _set_batches(answer: WireAnswer, pulled: PulledBatches) -> None:
    answer.end_offset, answer.records, answer.crc = pulled.end_offset, list(pulled.records), pulled.crc
    answer.forgotten = pulled.forgotten or None
    answer.epochs = [
        WireEpochStart(epoch=start.epoch, start_offset=start.start_offset) for start in pulled.epochs
    ]
    answer.marks = [
        WireGroupMark(
            number=mark.number,
            start_offset=mark.start_offset,
            end_offset=mark.end_offset,
            sink=mark.sink,
            sink_epoch=mark.sink_epoch,
            overwrite=mark.overwrite,
            no_rows=mark.no_rows,
        )
        for mark in pulled.marks
    ]


def _set_journal(answer: WireAnswer, read: JournalRead, tablet: Tablet) -> None:
    """Entries of the journal; short stages with their content."""
    answer.journal = [_change(entry, tablet) for entry in read.entries]
    answer.journal_begin, answer.journal_position, answer.journal_end = read.begin, read.position, read.end


def _change(entry: JournalEntry, tablet: Tablet) -> WireStageChange:
    if not entry.added:
        return WireStageChange(stage_id=entry.stage)
    try:
        size = tablet.stages.size_of(entry.stage)
        body = tablet.stages.copies.read(entry.stage, 0, size) if size <= STAGE_BYTES_MAX else None
    except (
        StageNotFound
    ):  # dropped meanwhile: the follower will not find it either, and the journal will say so
        return WireStageChange(stage_id=entry.stage, size=0)
    return WireStageChange(stage_id=entry.stage, size=size, body=body)
