"""Cuts: where the reads of a plan begin and end in each bucket (20014, 20017).

A plan asks the coordinator for a *snapshot*, the number of the newest decision; then it asks the leaders to *cut* their
buckets at that number. Every read of the plan ends at its bucket's cut, so together they see whole decisions only.
"""

from __future__ import annotations

from collections.abc import Sequence

from strom.protocol.fields import INT64, boolean, int32, int64, packed, repeated, text
from strom.protocol.message import Message


class SnapshotRequest(Message):
    """No table ids: all tables."""

    table_ids: Sequence[int] = packed(1, INT64, default=())


class PendingBucket(Message):
    """``number``: the highest decision that lists the bucket and may not be applied there yet."""

    table_id: int = int64(1)
    partition_id: int | None = int64(2, default=None)
    bucket_id: int = int32(3)
    number: int = int64(4)


class SnapshotResponse(Message):
    """A read that is planned at ``number`` waits for these buckets, and leaves out groups of a higher number."""

    number: int = int64(1)
    pending: Sequence[PendingBucket] = repeated(2, PendingBucket, default=())


class CutBucketRequest(Message):
    """``at_least``: wait until the group of this number, or a later one, is visible.

    ``lake_offset``, ``lake_epoch``: up to where the asker knows the bucket in the lake, and the epoch of the record
    before. A bucket that ends before it refuses with LakeAhead, one that has another epoch there with StaleEpoch.
    ``at_most``: a bucket of a log table without groups is cut there, if it reaches so far.
    """

    partition_id: int | None = int64(1, default=None)
    bucket_id: int = int32(2)
    at_least: int | None = int64(3, default=None)
    lake_offset: int | None = int64(4, default=None)
    lake_epoch: int | None = int32(5, default=None)
    at_most: int | None = int64(6, default=None)


class CutBucketsRequest(Message):
    """Where reads that are planned at ``number`` end; all buckets asked about lie on the server that is asked.

    Without a number: at the high watermark. That is enough when no bucket of the table is ``grouped``. With ``sync``
    everything before the end survives power loss when the answer comes, whatever the table's durability.
    """

    table_id: int = int64(1)
    number: int | None = int64(2, default=None)
    timeout_ms: int = int32(3)
    buckets_req: Sequence[CutBucketRequest] = repeated(4, CutBucketRequest, default=())
    sync: bool | None = boolean(5, default=None)


class CutBucketResponse(Message):
    """``offset``: of the first group with a higher number, else the high watermark. ``epoch``: of the record before.

    ``grouped``: the bucket holds a sealed stage, or ever had a group. ``damaged``: it has fewer rows than
    offsets, since some are marked as damaged.
    """

    partition_id: int | None = int64(1, default=None)
    bucket_id: int = int32(2)
    error_code: int | None = int32(3, default=None)
    error_message: str | None = text(4, default=None)
    offset: int | None = int64(5, default=None)
    epoch: int | None = int32(6, default=None)
    start_offset: int | None = int64(7, default=None)
    grouped: bool | None = boolean(8, default=None)
    damaged: bool | None = boolean(9, default=None)


class CutBucketsResponse(Message):
    buckets_resp: Sequence[CutBucketResponse] = repeated(1, CutBucketResponse, default=())
