"""Appends: ProduceLog."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from functools import partial
from typing import Any, cast

from strom.errors import NotPrimaryKeyTable
from strom.model.bucket import BucketId
from strom.protocol.api_keys import PRODUCE_LOG, Api
from strom.protocol.message import Message, whole
from strom.protocol.messages.log import (
    ProduceLogBucketRequest,
    ProduceLogBucketResponse,
    ProduceLogRequest,
    ProduceLogResponse,
)
from strom.record.batch import heaviest, read_header, work_size
from strom.rpc.call import Call
from strom.server.calls.bucket_errors import refused
from strom.server.calls.dispatch import CallHandler
from strom.server.calls.writes import ALONE_BYTES_MAX, Begun, Write, Writes, answer_all
from strom.server.tablets.table_facts import Tables
from strom.server.tablets.tablets import Tablets
from strom.tablet.log_tablet import LogTablet
from strom.tablet.tablet import Accepted, Tablet


class ProduceCalls:
    """Answers ProduceLog."""

    def __init__(self, tablets: Tablets, tables: Tables, writes: Writes) -> None:
        self._tablets = tablets
        self._tables = tables
        self._writes = writes

    def handlers(self) -> Mapping[Api[Any, Any], CallHandler]:
        return {PRODUCE_LOG: self.produce_log}

    def produce_log(self, call: Call) -> Message | Awaitable[Message]:
        """Append the batches of each bucket; acknowledge each when it is as durable as promised."""
        request: ProduceLogRequest = call.request
        return answer_all(
            request.buckets_req,
            partial(self._append, request),
            whole=lambda answers: ProduceLogResponse(buckets_resp=answers),
            refused=partial(refused, ProduceLogBucketResponse),
            timeout_ms=request.timeout_ms,
            pause_s=self._writes.pause_s,
        )

    def _append(
        self, request: ProduceLogRequest, wanted: ProduceLogBucketRequest
    ) -> Begun[ProduceLogBucketResponse]:
        self._writes.check(request.acks)
        slot = self._tablets.slot(BucketId(request.table_id, wanted.partition_id, wanted.bucket_id))
        records = memoryview(whole(wanted.records))
        facts = self._tables.with_schema(request.table_id, _schema_id(records))
        if facts.table.schema.primary_key:
            raise NotPrimaryKeyTable(f"{facts.table.path} has a primary key: its log is written by upserts")
        now_ms = self._writes.now_ms()

        def job(tablet: Tablet) -> Accepted:
            return cast(LogTablet, tablet).append(records, layout_of=facts.layout_of, now_ms=now_ms)

        def written(tablet: Tablet, accepted: Accepted) -> ProduceLogBucketResponse:
            return ProduceLogBucketResponse(
                partition_id=wanted.partition_id, bucket_id=wanted.bucket_id, base_offset=accepted.base_offset
            )

        size = work_size(records, ALONE_BYTES_MAX)
        return self._writes.begin(
            Write(
                slot,
                facts,
                size=size,
                acks=request.acks,
                job=job,
                written=written,
                refused=partial(refused, ProduceLogBucketResponse, wanted),
                alone_bytes_max=ALONE_BYTES_MAX,
                memory=heaviest(records) if size > min(len(records), ALONE_BYTES_MAX) else 0,
            )
        )


def _schema_id(records: memoryview) -> int:
    """The first batch's schema: the version of the table to check against."""
    return read_header(records).schema_id
