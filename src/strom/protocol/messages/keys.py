"""Primary-key tables: put, look up."""

from __future__ import annotations

from collections.abc import Sequence

from strom.protocol.fields import INT32, RAW, boolean, float32, int32, int64, packed, raw, repeated, text
from strom.protocol.message import Message, Payload
from strom.runtime.files import Bytes


class PutKvBucketRequest(Message):
    partition_id: int | None = int64(1, default=None)
    bucket_id: int = int32(2)
    records: Payload = raw(3)


class PutKvRequest(Message):
    """``target_columns``: positions of the columns to write; empty means all."""

    acks: int = int32(1)
    table_id: int = int64(2)
    timeout_ms: int = int32(3)
    target_columns: Sequence[int] = packed(4, INT32, default=())
    buckets_req: Sequence[PutKvBucketRequest] = repeated(5, PutKvBucketRequest, default=())
    agg_mode: int | None = int32(6, default=None)


class PutKvBucketResponse(Message):
    partition_id: int | None = int64(1, default=None)
    bucket_id: int = int32(2)
    error_code: int | None = int32(3, default=None)
    error_message: str | None = text(4, default=None)
    log_end_offset: int | None = int64(5, default=None)
    pressure: float | None = float32(6, default=None)


class PutKvResponse(Message):
    buckets_resp: Sequence[PutKvBucketResponse] = repeated(1, PutKvBucketResponse, default=())


class LookupBucketRequest(Message):
    partition_id: int | None = int64(1, default=None)
    bucket_id: int = int32(2)
    keys: Sequence[Bytes] = repeated(3, RAW, default=())
    original_partition_name: str | None = text(4, default=None)


class LookupRequest(Message):
    table_id: int = int64(1)
    buckets_req: Sequence[LookupBucketRequest] = repeated(2, LookupBucketRequest, default=())
    insert_if_not_exists: bool | None = boolean(3, default=None)
    acks: int | None = int32(4, default=None)
    timeout_ms: int | None = int32(5, default=None)


class Value(Message):
    """An empty message: there is no row."""

    values: Bytes | None = raw(1, default=None)


class LookupBucketResponse(Message):
    """One value per key, in the order of the request."""

    partition_id: int | None = int64(1, default=None)
    bucket_id: int = int32(2)
    error_code: int | None = int32(3, default=None)
    error_message: str | None = text(4, default=None)
    values: Sequence[Value] = repeated(5, Value, default=())
    original_partition_name: str | None = text(6, default=None)


class LookupResponse(Message):
    buckets_resp: Sequence[LookupBucketResponse] = repeated(1, LookupBucketResponse, default=())


class PrefixLookupBucketRequest(Message):
    partition_id: int | None = int64(1, default=None)
    bucket_id: int = int32(2)
    keys: Sequence[Bytes] = repeated(3, RAW, default=())


class PrefixLookupRequest(Message):
    table_id: int = int64(1)
    buckets_req: Sequence[PrefixLookupBucketRequest] = repeated(2, PrefixLookupBucketRequest, default=())


class ValueList(Message):
    values: Sequence[Bytes] = repeated(1, RAW, default=())


class PrefixLookupBucketResponse(Message):
    """One list per prefix, in the order of the request."""

    partition_id: int | None = int64(1, default=None)
    bucket_id: int = int32(2)
    error_code: int | None = int32(3, default=None)
    error_message: str | None = text(4, default=None)
    value_lists: Sequence[ValueList] = repeated(5, ValueList, default=())


class PrefixLookupResponse(Message):
    buckets_resp: Sequence[PrefixLookupBucketResponse] = repeated(1, PrefixLookupBucketResponse, default=())
