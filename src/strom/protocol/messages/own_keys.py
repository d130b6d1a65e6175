"""Strom's own calls on primary-key tables: rows in columns, batch by batch (API keys from 20004 up).

``records`` and ``keys`` are record batches (docs/formats/record_batch.md). An error of a bucket is
answered with that bucket, or in the response itself if the call concerns a single one.
"""

from __future__ import annotations

from collections.abc import Sequence

from strom.protocol.fields import INT32, boolean, int32, int64, nested, packed, raw, repeated, text
from strom.protocol.message import Message, Payload
from strom.protocol.messages.predicate import WirePredicate


class UpsertRowsBucketRequest(Message):
    """``records`` is one batch; the change of a row is 3 (write it) or 4 (delete it)."""

    partition_id: int | None = int64(1, default=None)
    bucket_id: int = int32(2)
    records: Payload = raw(3)


class UpsertRowsRequest(Message):
    """``columns``: positions of the columns that the batches hold, ascending, the key's among them; empty: all.

    Other columns stay unchanged (a partial update). For a delete only the key counts.
    """

    acks: int = int32(1)
    table_id: int = int64(2)
    timeout_ms: int = int32(3)
    columns: Sequence[int] = packed(4, INT32, default=())
    buckets_req: Sequence[UpsertRowsBucketRequest] = repeated(5, UpsertRowsBucketRequest, default=())


class UpsertRowsBucketResponse(Message):
    """The changes are in the changelog from ``base_offset`` to before ``log_end_offset``, written in ``epoch``."""

    partition_id: int | None = int64(1, default=None)
    bucket_id: int = int32(2)
    error_code: int | None = int32(3, default=None)
    error_message: str | None = text(4, default=None)
    base_offset: int | None = int64(5, default=None)
    log_end_offset: int | None = int64(6, default=None)
    epoch: int | None = int32(7, default=None)


class UpsertRowsResponse(Message):
    buckets_resp: Sequence[UpsertRowsBucketResponse] = repeated(1, UpsertRowsBucketResponse, default=())


class LookupRowsBucketRequest(Message):
    """``keys``: one batch of the key's (the index's) columns.

    With ``at_least_offset`` the answer waits until everything before that offset is visible; ``at_least_epoch`` is the
    epoch in which the record before it was written, and a server that knows another one there refuses.

    ``rows_after``, for one tuple of an index: as many rows as an answer holds, of those written after this offset
    (-1: all), the oldest first.
    """

    partition_id: int | None = int64(1, default=None)
    bucket_id: int = int32(2)
    keys: Payload = raw(3)
    at_least_offset: int | None = int64(4, default=None)
    at_least_epoch: int | None = int32(5, default=None)
    rows_after: int | None = int64(6, default=None)


class LookupRowsRequest(Message):
    """``columns``: positions in the schema ``schema_id`` (empty: all). ``index``: its name; None: the primary key.

    ``strong``: the answer has everything that anybody was acknowledged before the question; the leader makes sure with
    the other copies that it still is one. A bucket without other copies is answered at once.
    """

    table_id: int = int64(1)
    schema_id: int = int32(2)
    columns: Sequence[int] = packed(3, INT32, default=())
    index: str | None = text(4, default=None)
    buckets_req: Sequence[LookupRowsBucketRequest] = repeated(5, LookupRowsBucketRequest, default=())
    timeout_ms: int | None = int32(6, default=None)
    strong: bool | None = boolean(7, default=None)


class LookupRowsBucketResponse(Message):
    """``records``: one batch of the rows found; ``positions``: of each, which key it belongs to (u32, ascending).

    ``rows_after``: there are more rows; the next request asks for those after this offset.
    """

    partition_id: int | None = int64(1, default=None)
    bucket_id: int = int32(2)
    error_code: int | None = int32(3, default=None)
    error_message: str | None = text(4, default=None)
    records: Payload | None = raw(5, default=None, aligned=True)
    positions: Payload | None = raw(6, default=None)
    high_watermark: int | None = int64(7, default=None)
    epoch: int | None = int32(8, default=None)
    rows_after: int | None = int64(9, default=None)


class LookupRowsResponse(Message):
    buckets_resp: Sequence[LookupRowsBucketResponse] = repeated(1, LookupRowsBucketResponse, default=())


class LookupRowQuestion(Message):
    """Where to look up one row, and which columns: as in ``LookupRowsRequest``."""

    table_id: int = int64(1)
    schema_id: int = int32(2)
    columns: Sequence[int] = packed(3, INT32, default=())
    partition_id: int | None = int64(4, default=None)
    bucket_id: int = int32(5)
    timeout_ms: int | None = int32(6, default=None)


class LookupRowRequest(Message):
    """One row by its primary key; none of the columns may be nested.

    ``question`` is an encoded ``LookupRowQuestion``: a client that repeats it sends the same bytes, and a server
    recognizes them without decoding. ``key`` is a plain row of the key's columns, without NULLs.
    """

    question: Payload = raw(1)
    key: Payload = raw(2)
    at_least_offset: int | None = int64(3, default=None)
    at_least_epoch: int | None = int32(4, default=None)


class LookupRowResponse(Message):
    """``row``: a plain row of the requested columns; absent if there is none."""

    error_code: int | None = int32(1, default=None)
    error_message: str | None = text(2, default=None)
    row: Payload | None = raw(3, default=None)


class ScanRowsRequest(Message):
    """The rows that are live at the offset ``at`` (-1: now) of one bucket, a slice at a time.

    Only images written at ``start`` or later are sent. ``cursor`` is the last answer's ``next_cursor``; ``at`` then
    has to be that answer's. With ``dead``, the offsets before ``start`` that died between ``start`` and ``at`` come
    too, those of about a million records at a time: ``dead_from`` is the last answer's ``dead_next``.
    ``start_epoch``: of the record before ``start``, as ``at_epoch`` is of the one before ``at``; a bucket that knows
    another one there refuses.
    """

    table_id: int = int64(1)
    partition_id: int | None = int64(2, default=None)
    bucket_id: int = int32(3)
    at: int = int64(4)
    at_epoch: int | None = int32(5, default=None)
    start: int = int64(6)
    cursor: int | None = int64(7, default=None)
    columns: Sequence[int] = packed(8, INT32, default=())
    predicate: WirePredicate | None = nested(9, WirePredicate, default=None)
    limit: int | None = int64(10, default=None)
    max_bytes: int = int32(11)
    dead: bool = boolean(12)
    schema_id: int = int32(13)
    no_offsets: bool | None = boolean(14, default=None)
    """Offsets of rows are not wanted: the batches are plain ones, and their offsets mean nothing."""
    start_epoch: int | None = int32(15, default=None)
    dead_from: int | None = int64(16, default=None)


class ScanRowsResponse(Message):
    """``records``: sparse batches, as FetchRows sends them, or plain ones. No ``next_cursor``: that was the last slice.

    ``dead``: offsets (i64); ``dead_next``: there are more. ``horizon``: scans reach back to here; ``series_start``:
    ``start`` may be this or later.
    """

    error_code: int | None = int32(1, default=None)
    error_message: str | None = text(2, default=None)
    at: int | None = int64(3, default=None)
    at_epoch: int | None = int32(4, default=None)
    records: Payload | None = raw(5, default=None, aligned=True)
    next_cursor: int | None = int64(6, default=None)
    dead: Payload | None = raw(7, default=None)
    horizon: int | None = int64(8, default=None)
    series_start: int | None = int64(9, default=None)
    dead_next: int | None = int64(10, default=None)


class KeyFactsBucketRequest(Message):
    partition_id: int | None = int64(1, default=None)
    bucket_id: int = int32(2)


class KeyFactsRequest(Message):
    table_id: int = int64(1)
    buckets: Sequence[KeyFactsBucketRequest] = repeated(2, KeyFactsBucketRequest, default=())


class WireIndexFacts(Message):
    """``state``: ``ready``, or ``building`` (lookups are refused until then)."""

    name: str = text(1)
    columns: Sequence[int] = packed(2, INT32, default=())
    state: str = text(3)
    rows: int = int64(4)


class KeyFactsBucketResponse(Message):
    """What a bucket's key store holds: live rows at the high watermark, stored rows, horizons, files, memory."""

    partition_id: int | None = int64(1, default=None)
    bucket_id: int = int32(2)
    error_code: int | None = int32(3, default=None)
    error_message: str | None = text(4, default=None)
    live_rows: int | None = int64(5, default=None)
    stored_rows: int | None = int64(6, default=None)
    high_watermark: int | None = int64(7, default=None)
    epoch: int | None = int32(8, default=None)
    horizon: int | None = int64(9, default=None)
    series_start: int | None = int64(10, default=None)
    carried: int | None = int64(11, default=None)
    snapshot_offset: int | None = int64(12, default=None)
    base_files: int | None = int32(13, default=None)
    base_bytes: int | None = int64(14, default=None)
    index_bytes: int | None = int64(15, default=None)
    indexes: Sequence[WireIndexFacts] = repeated(16, WireIndexFacts, default=())


class KeyFactsResponse(Message):
    buckets_resp: Sequence[KeyFactsBucketResponse] = repeated(1, KeyFactsBucketResponse, default=())
