"""Calls about primary keys: this version stores the tables' descriptions, and refuses their data, bucket by bucket.

Not to know these calls would be worse: the peer's client takes that for a passing trouble and retries an upsert for
ever. An error per bucket reaches the program that made the call.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from strom.errors import UnsupportedVersion
from strom.protocol.api_keys import LOOKUP, PREFIX_LOOKUP, PUT_KV, Api
from strom.protocol.error_codes import code_of
from strom.protocol.message import Message
from strom.protocol.messages.keys import (
    LookupBucketResponse,
    LookupResponse,
    PrefixLookupBucketResponse,
    PrefixLookupResponse,
    PutKvBucketResponse,
    PutKvResponse,
)
from strom.rpc.call import Call
from strom.server.calls.dispatch import CallHandler

REFUSAL = UnsupportedVersion(
    "this version of Strom has no rows of primary-key tables: write to a log table (one without a primary key)"
)


class KeyCalls:
    """Answers PutKv, Lookup and PrefixLookup: no."""

    def handlers(self) -> Mapping[Api[Any, Any], CallHandler]:
        return {
            PUT_KV: lambda call: _refuse(call, PutKvResponse, PutKvBucketResponse),
            LOOKUP: lambda call: _refuse(call, LookupResponse, LookupBucketResponse),
            PREFIX_LOOKUP: lambda call: _refuse(call, PrefixLookupResponse, PrefixLookupBucketResponse),
        }


def _refuse(call: Call, whole: type[Any], one: type[Any]) -> Message:
    answers = [
        one(
            partition_id=bucket.partition_id,
            bucket_id=bucket.bucket_id,
            error_code=code_of(REFUSAL),
            error_message=REFUSAL.message,
        )
        for bucket in call.request.buckets_req
    ]
    answer: Message = whole(buckets_resp=answers)
    return answer
