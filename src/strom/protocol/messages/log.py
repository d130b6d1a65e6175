"""The log: produce, fetch, list offsets, limit scan, writer ids.

``records`` is zero or more record batches, one after the other (docs/formats/record_batch.md). Where a server
fills it, it may be several buffers: they are sent without being joined.
"""

from __future__ import annotations

from collections.abc import Sequence

from strom.protocol.fields import INT32, boolean, int32, int64, nested, packed, raw, repeated, text
from strom.protocol.message import Message, Payload
from strom.protocol.messages.predicate import WirePredicate
from strom.protocol.messages.tables import WireTablePath


class ProduceLogBucketRequest(Message):
    partition_id: int | None = int64(1, default=None)
    bucket_id: int = int32(2)
    records: Payload = raw(3)


class ProduceLogRequest(Message):
    """``acks``: 0 none, 1 the leader, -1 all in sync."""

    acks: int = int32(1)
    table_id: int = int64(2)
    timeout_ms: int = int32(3)
    buckets_req: Sequence[ProduceLogBucketRequest] = repeated(4, ProduceLogBucketRequest, default=())


class ProduceLogBucketResponse(Message):
    partition_id: int | None = int64(1, default=None)
    bucket_id: int = int32(2)
    error_code: int | None = int32(3, default=None)
    error_message: str | None = text(4, default=None)
    base_offset: int | None = int64(5, default=None)


class ProduceLogResponse(Message):
    """Exactly the buckets of the request: a missing one is an error to the peer, a foreign one breaks its writer."""

    buckets_resp: Sequence[ProduceLogBucketResponse] = repeated(1, ProduceLogBucketResponse, default=())


class FetchLogBucketRequest(Message):
    partition_id: int | None = int64(1, default=None)
    bucket_id: int = int32(2)
    fetch_offset: int = int64(3)
    max_fetch_bytes: int = int32(4)


class FetchLogTableRequest(Message):
    """``projected_fields``: column positions, ascending."""

    table_id: int = int64(1)
    projection_pushdown_enabled: bool = boolean(2)
    projected_fields: Sequence[int] = packed(3, INT32, default=())
    buckets_req: Sequence[FetchLogBucketRequest] = repeated(4, FetchLogBucketRequest, default=())
    filter_predicate: WirePredicate | None = nested(5, WirePredicate, default=None)
    filter_schema_id: int | None = int32(6, default=None)


class FetchLogRequest(Message):
    """``follower_server_id`` -1: a client."""

    follower_server_id: int = int32(1)
    max_bytes: int = int32(2)
    tables_req: Sequence[FetchLogTableRequest] = repeated(3, FetchLogTableRequest, default=())
    max_wait_ms: int | None = int32(4, default=None)
    min_bytes: int | None = int32(5, default=None)
    read_preference: int | None = int32(6, default=None)


class RemoteLogSegment(Message):
    segment_id: str = text(1)
    start_offset: int = int64(2)
    end_offset: int = int64(3)
    size: int = int32(4)
    max_timestamp: int | None = int64(5, default=None)


class RemoteLogFetchInfo(Message):
    remote_log_tablet_dir: str = text(1)
    partition_name: str | None = text(2, default=None)
    remote_log_segments: Sequence[RemoteLogSegment] = repeated(3, RemoteLogSegment, default=())
    first_start_pos: int | None = int32(4, default=None)


class FetchLogBucketResponse(Message):
    """``records`` is always set, empty when there is nothing: without it the peer's client never wakes."""

    partition_id: int | None = int64(1, default=None)
    bucket_id: int = int32(2)
    error_code: int | None = int32(3, default=None)
    error_message: str | None = text(4, default=None)
    high_watermark: int | None = int64(5, default=None)
    log_start_offset: int | None = int64(6, default=None)
    remote_log_fetch_info: RemoteLogFetchInfo | None = nested(7, RemoteLogFetchInfo, default=None)
    records: Payload | None = raw(8, default=None)
    filtered_end_offset: int | None = int64(9, default=None)


class FetchLogTableResponse(Message):
    table_id: int = int64(1)
    buckets_resp: Sequence[FetchLogBucketResponse] = repeated(2, FetchLogBucketResponse, default=())


class FetchLogResponse(Message):
    tables_resp: Sequence[FetchLogTableResponse] = repeated(1, FetchLogTableResponse, default=())


class ListOffsetsRequest(Message):
    """``offset_type``: 0 earliest, 1 latest, 2 by timestamp."""

    follower_server_id: int = int32(1)
    offset_type: int = int32(2)
    table_id: int = int64(3)
    partition_id: int | None = int64(4, default=None)
    bucket_id: Sequence[int] = packed(5, INT32, default=())
    start_timestamp: int | None = int64(6, default=None)


class ListOffsetsBucketResponse(Message):
    bucket_id: int = int32(1)
    error_code: int | None = int32(2, default=None)
    error_message: str | None = text(3, default=None)
    offset: int | None = int64(4, default=None)


class ListOffsetsResponse(Message):
    buckets_resp: Sequence[ListOffsetsBucketResponse] = repeated(1, ListOffsetsBucketResponse, default=())


class LimitScanRequest(Message):
    """There is no field 1."""

    table_id: int = int64(2)
    partition_id: int | None = int64(3, default=None)
    bucket_id: int = int32(4)
    limit: int = int32(5)


class LimitScanResponse(Message):
    error_code: int | None = int32(1, default=None)
    error_message: str | None = text(2, default=None)
    is_log_table: bool | None = boolean(3, default=None)
    records: Payload | None = raw(4, default=None)


class InitWriterRequest(Message):
    table_path: Sequence[WireTablePath] = repeated(1, WireTablePath, default=())


class InitWriterResponse(Message):
    writer_id: int = int64(1)
