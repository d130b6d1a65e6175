"""Between the copies of a bucket: Pull, Position, CopyBase and CopyStage (keys from 20060 up).

Only the inner listener of a server takes them. A follower has at most one *question* per bucket before a leader. It
stands there until there is something to answer: batches, a higher watermark, a stage. All questions of a server go over
one connection, in a *session* that ends with it; a call brings the questions that are new, and its answer the answers
that are ready. So an append costs as much among ten buckets as among ten thousand.
"""

from __future__ import annotations

from collections.abc import Sequence

from strom.protocol.fields import boolean, int32, int64, raw, repeated, text
from strom.protocol.message import Message, Payload
from strom.runtime.files import Bytes


class WireBucket(Message):
    """Which bucket."""

    table_id: int = int64(1)
    partition_id: int | None = int64(2, default=None)
    bucket_id: int = int32(3)


class WireQuestion(Message):
    """What a follower has of a bucket, and from where on it wants more.

    ``ask``: the question's number, which its answer repeats; 0 only reports. ``disk``, ``placement``, ``lineage``: the
    identity of the copy. ``at`` and ``epoch_before``: where it goes on (maybe inside a group), and the epoch of the
    record before. ``end`` and ``synced`` are boundaries of groups. ``high``: the watermark it knows. ``journal_read``,
    ``journal_durable``: how much of the leader's journal of stages it has read, and up to where it has the stages as
    durable as the table promises; ``journal_began``: where it ended when it began. ``barrier``: the highest it was told
    in this epoch.
    """

    table_id: int = int64(1)
    partition_id: int | None = int64(2, default=None)
    bucket_id: int = int32(3)
    leader_epoch: int = int32(4)
    ask: int = int64(5)
    disk: str = text(6)
    placement: int = int64(7)
    lineage: int = int64(8)
    at: int = int64(9)
    epoch_before: int = int32(10)
    end: int = int64(11)
    synced: int = int64(12)
    high: int = int64(13)
    journal_read: int = int64(14)
    journal_durable: int = int64(15)
    barrier: int = int64(16)
    journal_began: int = int64(17)


class PullRequest(Message):
    """New questions and reports of a session, and the buckets that the server follows no more.

    ``number`` counts the calls of a session from 0; the call with 0 begins it and forgets any other session of the
    server. A new call takes the place of the one that waits, which is answered at once.
    """

    server_id: int = int32(1)
    incarnation: int = int64(2)
    session: int = int64(3)
    number: int = int64(4)
    questions: Sequence[WireQuestion] = repeated(5, WireQuestion, default=())
    given_up: Sequence[WireBucket] = repeated(6, WireBucket, default=())
    max_bytes: int = int32(7)
    wait_ms: int = int32(8)


class WireEpochStart(Message):
    """An epoch, and its first offset among the batches of an answer."""

    epoch: int = int32(1)
    start_offset: int = int64(2)


class WireGroupMark(Message):
    """A closed group that the batches of an answer touch."""

    number: int = int64(1)
    start_offset: int = int64(2)
    end_offset: int = int64(3)
    sink: str = text(4)
    sink_epoch: int = int64(5)
    overwrite: bool = boolean(6)
    no_rows: bool = boolean(7)


class WireStageChange(Message):
    """One entry of a leader's journal of stages: added, or (without ``size``) dropped.

    ``body``: all of its content, if that is short; otherwise the follower asks for it (CopyStage).
    """

    stage_id: Bytes = raw(1)
    size: int | None = int64(2, default=None)
    body: Payload | None = raw(3, default=None)


class WireAnswer(Message):
    """The answer to a question: an error, or facts with at most one of batches, a divergence and a base to copy.

    ``error_code`` NotLeader: ``leader_epoch`` is the newest that the server knows of. ``records``: batches from the
    question's ``at`` on, up to ``end_offset``; ``crc``: their CRC-32C, with offsets and timestamps; ``forgotten``:
    groups up to this number come without marks. ``diverging_epoch``, ``diverging_end``: the newest epoch up to the
    question's that the leader has records of, and where they end. ``copy_at``: the log does not reach back so far; copy
    the base at this offset first. ``journal``: entries from ``journal_begin`` on (the question's ``journal_read``, or 0
    when the follower must read it anew) up to ``journal_position``.
    """

    table_id: int = int64(1)
    partition_id: int | None = int64(2, default=None)
    bucket_id: int = int32(3)
    leader_epoch: int = int32(4)
    ask: int = int64(5)
    error_code: int | None = int32(6, default=None)
    error_message: str | None = text(7, default=None)
    high: int | None = int64(8, default=None)
    stable: int | None = int64(9, default=None)
    log_start: int | None = int64(10, default=None)
    barrier: int | None = int64(11, default=None)
    losses: int | None = int64(12, default=None)
    end_offset: int | None = int64(13, default=None)
    epochs: Sequence[WireEpochStart] = repeated(14, WireEpochStart, default=())
    marks: Sequence[WireGroupMark] = repeated(15, WireGroupMark, default=())
    diverging_epoch: int | None = int32(16, default=None)
    diverging_end: int | None = int64(17, default=None)
    copy_at: int | None = int64(18, default=None)
    journal_end: int | None = int64(19, default=None)
    journal: Sequence[WireStageChange] = repeated(20, WireStageChange, default=())
    records: Payload | None = raw(21, default=None)
    crc: int | None = int64(22, default=None)
    forgotten: int | None = int64(23, default=None)
    journal_begin: int | None = int64(24, default=None)
    journal_position: int | None = int64(25, default=None)


class PullResponse(Message):
    """``unknown_session``: nothing of the call was heard; begin a new session."""

    answers: Sequence[WireAnswer] = repeated(1, WireAnswer, default=())
    unknown_session: bool | None = boolean(2, default=None)


class PositionRequest(Message):
    """The coordinator asks what the copies of a server hold, before it declares a loss."""

    buckets_req: Sequence[WireBucket] = repeated(1, WireBucket, default=())


class WirePosition(Message):
    """What one copy holds. ``last_epoch``: of its newest record."""

    table_id: int = int64(1)
    partition_id: int | None = int64(2, default=None)
    bucket_id: int = int32(3)
    error_code: int | None = int32(4, default=None)
    error_message: str | None = text(5, default=None)
    placement: int | None = int64(6, default=None)
    last_epoch: int | None = int32(7, default=None)
    start: int | None = int64(8, default=None)
    end: int | None = int64(9, default=None)
    synced: int | None = int64(10, default=None)
    disk: str | None = text(11, default=None)
    lineage: int | None = int64(12, default=None)


class PositionResponse(Message):
    """``incarnation``: of the process that answers; a decision rests upon its registration."""

    server_id: int = int32(1)
    incarnation: int = int64(2)
    positions: Sequence[WirePosition] = repeated(3, WirePosition, default=())


class CopyBaseRequest(Message):
    """A piece of a bucket's base files, from ``position`` of ``file`` (by its place in the list) on.

    ``at``: the offset of the base that is being copied; without it, or when the leader holds another one for this
    follower, the answer is the list of files, and the copy begins anew. ``ended``: the leader need not hold it any
    longer.
    """

    table_id: int = int64(1)
    partition_id: int | None = int64(2, default=None)
    bucket_id: int = int32(3)
    leader_epoch: int = int32(4)
    server_id: int = int32(5)
    placement: int = int64(6)
    at: int | None = int64(7, default=None)
    file: int | None = int32(8, default=None)
    position: int | None = int64(9, default=None)
    max_bytes: int = int32(10)
    ended: bool | None = boolean(11, default=None)


class WireCopyFile(Message):
    """A file of a base."""

    name: str = text(1)
    size: int = int64(2)


class CopyBaseResponse(Message):
    """``at``: the offset of the base; the log goes on from there. ``crc``: CRC-32C of ``content``."""

    leader_epoch: int = int32(1)
    at: int = int64(2)
    files: Sequence[WireCopyFile] = repeated(3, WireCopyFile, default=())
    content: Payload | None = raw(4, default=None)
    crc: int | None = int64(5, default=None)


class CopyStageRequest(Message):
    """A piece of a sealed stage, from ``position`` on."""

    table_id: int = int64(1)
    partition_id: int | None = int64(2, default=None)
    bucket_id: int = int32(3)
    leader_epoch: int = int32(4)
    stage_id: Bytes = raw(5)
    position: int = int64(6)
    max_bytes: int = int32(7)


class CopyStageResponse(Message):
    """``size``: of the whole stage."""

    size: int = int64(1)
    content: Payload = raw(2)
