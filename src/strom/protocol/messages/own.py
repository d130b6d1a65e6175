"""Calls that only Strom has (API keys from 20000 up); a Fluss client never sees them."""

from __future__ import annotations

from collections.abc import Sequence

from strom.protocol.fields import INT32, int32, int64, nested, packed, raw, repeated, text
from strom.protocol.message import Message, Payload
from strom.protocol.messages.predicate import WirePredicate
from strom.protocol.messages.tables import WireTablePath
from strom.runtime.files import Bytes


class AlterTableRequest(Message):
    """``changes_json``: {"add_columns": [{"name", "data_type", "comment"}], "set": {…}, "unset": […]}."""

    table_path: WireTablePath = nested(1, WireTablePath)
    changes_json: Bytes = raw(2)


class AlterTableResponse(Message):
    """The table's newest schema after the change."""

    schema_id: int = int32(1)


class FetchRowsBucketRequest(Message):
    """From ``fetch_offset`` to before ``end_offset`` (None: to the end).

    ``epoch_before``: of the record before ``fetch_offset``, as the reader saw it (-2: it does not know, and is told); a
    server that has another one there, or none, refuses. ``cut_offset`` and ``cut_epoch``: where the read was planned to
    end and the epoch of the record before that, likewise; any copy that has reached it may answer.
    """

    partition_id: int | None = int64(1, default=None)
    bucket_id: int = int32(2)
    fetch_offset: int = int64(3)
    max_bytes: int = int32(4)
    end_offset: int | None = int64(5, default=None)
    epoch_before: int | None = int32(6, default=None)
    cut_offset: int | None = int64(7, default=None)
    cut_epoch: int | None = int32(8, default=None)


class FetchRowsRequest(Message):
    """A fetch with columns by id and a row filter.

    Batches written before a column existed come without it. With a predicate, statistics skip whole batches and
    the rows of the others are filtered: batches may come back sparse.
    """

    table_id: int = int64(1)
    max_bytes: int = int32(2)
    max_wait_ms: int = int32(3)
    min_bytes: int = int32(4)
    projected_ids: Sequence[int] = packed(5, INT32, default=())
    predicate: WirePredicate | None = nested(6, WirePredicate, default=None)
    buckets_req: Sequence[FetchRowsBucketRequest] = repeated(7, FetchRowsBucketRequest, default=())


class FetchRowsBucketResponse(Message):
    """``next_offset`` is where to continue: it may lie behind batches without matching rows. ``epoch``: of the record
    before it, if the request named one.

    ``records`` is aligned, so that a client can use the columns in it without copying them.
    """

    partition_id: int | None = int64(1, default=None)
    bucket_id: int = int32(2)
    error_code: int | None = int32(3, default=None)
    error_message: str | None = text(4, default=None)
    high_watermark: int | None = int64(5, default=None)
    log_start_offset: int | None = int64(6, default=None)
    records: Payload | None = raw(7, default=None, aligned=True)
    next_offset: int | None = int64(8, default=None)
    bytes_skipped: int | None = int64(9, default=None)
    rows_skipped: int | None = int64(10, default=None)
    epoch: int | None = int32(11, default=None)


class FetchRowsResponse(Message):
    buckets_resp: Sequence[FetchRowsBucketResponse] = repeated(1, FetchRowsBucketResponse, default=())


class TableStatusRequest(Message):
    table_path: WireTablePath = nested(1, WireTablePath)


class WireBucketStatus(Message):
    """``error``: why the bucket is offline; unknown numbers are then 0.

    ``stages``: what is staged but not published; ``decision``: the number of the newest visible one.
    """

    partition_id: int | None = int64(1, default=None)
    bucket_id: int = int32(2)
    leader_id: int = int32(3)
    start_offset: int = int64(4)
    high_watermark: int = int64(5)
    end_offset: int = int64(6)
    size_bytes: int = int64(7)
    segments: int = int32(8)
    error: str | None = text(9, default=None)
    epoch: int = int32(10)
    stages: int | None = int32(11, default=None)
    stage_bytes: int | None = int64(12, default=None)
    decision: int | None = int64(13, default=None)
    damaged_rows: int | None = int64(14, default=None)


class TableStatusResponse(Message):
    """A tablet server answers for the buckets it leads; the coordinator asks all of them and merges."""

    table_id: int = int64(1)
    buckets: Sequence[WireBucketStatus] = repeated(2, WireBucketStatus, default=())


class BackupRequest(Message):
    """``begin`` makes a cut of everything at one instant, ``renew`` keeps it for another minute, ``end`` removes it.

    ``backup_id``: of the cut, except to begin one.
    """

    action: str = text(1)
    backup_id: str | None = text(2, default=None)


class BackupResponse(Message):
    """Of a cut that was begun: its id, and the folder on the server's machine that it can be copied from."""

    backup_id: str | None = text(1, default=None)
    folder: str | None = text(2, default=None)


class ServerStatusRequest(Message):
    pass


class ServerStatusResponse(Message):
    status_json: Bytes = raw(1)
