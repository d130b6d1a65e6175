"""Messages between copies, as the words of ``strom.replication``."""

from __future__ import annotations

from strom.errors import NotLeader
from strom.log.copies.pulled import GroupMark, PulledBatches
from strom.log.epochs import EpochStart
from strom.model.bucket import BucketId
from strom.protocol.error_codes import code_of, message_of
from strom.protocol.message import whole
from strom.protocol.messages.replication import WireAnswer, WireBucket, WireQuestion
from strom.replication.divergence import EpochEnd
from strom.replication.member import CopyIdentity, Member
from strom.replication.pulls import BatchesFrom, PullAnswer, PullQuestion
from strom.replication.reports import Report
from strom.replication.stage_journal import JournalEntry, JournalRead


def bucket_of(message: WireBucket | WireQuestion | WireAnswer) -> BucketId:
    """The bucket that a message names."""
    return BucketId(message.table_id, message.partition_id, message.bucket_id)


def wire_bucket(bucket: BucketId) -> WireBucket:
    """A bucket's name."""
    return WireBucket(table_id=bucket.table_id, partition_id=bucket.partition_id, bucket_id=bucket.bucket)


def question_of(message: WireQuestion, server_id: int) -> PullQuestion:
    """What a follower asks and reports."""
    identity = CopyIdentity(message.disk, message.placement, message.lineage)
    return PullQuestion(
        epoch=message.leader_epoch,
        ask=message.ask,
        member=Member(server_id, identity),
        at=message.at,
        epoch_before=message.epoch_before,
        report=Report(message.end, message.synced, message.journal_durable, message.barrier),
        journal=message.journal_read,
        journal_began=message.journal_began,
    )


def wire_question(bucket: BucketId, question: PullQuestion, *, high: int) -> WireQuestion:
    """A question, or with ``ask`` 0 a report."""
    identity, report = question.member.identity, question.report
    return WireQuestion(
        table_id=bucket.table_id,
        partition_id=bucket.partition_id,
        bucket_id=bucket.bucket,
        leader_epoch=question.epoch,
        ask=question.ask,
        disk=identity.disk,
        placement=identity.placement,
        lineage=identity.lineage,
        at=question.at,
        epoch_before=question.epoch_before,
        end=report.end,
        synced=report.synced,
        high=high,
        journal_read=question.journal,
        journal_durable=report.stages,
        barrier=report.barrier,
        journal_began=question.journal_began,
    )


def not_leader(bucket: BucketId, question: PullQuestion, epoch: int) -> WireAnswer:
    """The follower asked somebody who does not lead in its epoch; ``epoch``: the newest known here (R2)."""
    error = NotLeader(f"this server does not lead bucket {bucket} in epoch {question.epoch}")
    return refused(bucket, question, epoch, error)


def refused(bucket: BucketId, question: PullQuestion, epoch: int, error: BaseException) -> WireAnswer:
    """The answer is an error."""
    return WireAnswer(
        table_id=bucket.table_id,
        partition_id=bucket.partition_id,
        bucket_id=bucket.bucket,
        leader_epoch=epoch,
        ask=question.ask,
        error_code=code_of(error),
        error_message=message_of(error),
    )


def pulled_of(message: WireAnswer, at: int) -> PulledBatches | None:
    """The batches of an answer; None if it has none."""
    if message.records is None or message.end_offset is None:
        return None
    return PulledBatches(
        at,
        message.end_offset,
        (memoryview(whole(message.records)),),
        tuple(EpochStart(one.epoch, one.start_offset) for one in message.epochs),
        tuple(
            GroupMark(
                one.number,
                one.start_offset,
                one.end_offset,
                one.sink,
                one.sink_epoch,
                one.overwrite,
                one.no_rows,
            )
            for one in message.marks
        ),
        message.forgotten or 0,
        message.crc or 0,
    )


def journal_of(message: WireAnswer) -> JournalRead | None:
    """What an answer tells of the leader's journal of stages; None if nothing."""
    begin, position, end = message.journal_begin, message.journal_position, message.journal_end
    if begin is None or position is None or end is None:
        return None
    entries = tuple(
        JournalEntry(position, bytes(one.stage_id), added=one.size is not None) for one in message.journal
    )
    return JournalRead(begin, entries, position, end)


def answer_of(message: WireAnswer) -> PullAnswer:
    """What a leader says, without the bytes and without its journal. Not for errors and bases."""
    diverging = message.diverging_epoch is not None and message.diverging_end is not None
    return PullAnswer(
        epoch=message.leader_epoch,
        ask=message.ask,
        content=EpochEnd(message.diverging_epoch, message.diverging_end) if diverging else BatchesFrom(),  # type: ignore[arg-type]
        high=message.high or 0,
        stable=message.stable or 0,
        barrier=message.barrier or 0,
        losses=message.losses or 0,
    )
