"""Upserts and deletes: PutKv, the peer's rows, and UpsertRows, ours in columns.

Both become changes of one bucket, applied in the bucket's lane: the store folds them and writes the changelog. Cheap
checks come first; those that look at every row run in the lane.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from strom.errors import (
    InvalidTargets,
    LimitExceeded,
    MalformedBatch,
    RecordTooLarge,
    UnsupportedVersion,
)
from strom.kv.peer_rows.kv_batch_header import read_kv_header
from strom.model.bucket import BucketId
from strom.model.schema import Schema
from strom.protocol.api_keys import PUT_KV, UPSERT_ROWS, Api
from strom.protocol.message import Message, whole
from strom.protocol.messages.keys import (
    PutKvBucketRequest,
    PutKvBucketResponse,
    PutKvRequest,
    PutKvResponse,
)
from strom.protocol.messages.own_keys import (
    UpsertRowsBucketRequest,
    UpsertRowsBucketResponse,
    UpsertRowsRequest,
    UpsertRowsResponse,
)
from strom.record.batch import BatchHeader, BatchLimits, check, heaviest, read_header
from strom.record.columns import ColumnLayout
from strom.record.decode import changes, decode
from strom.record.layout import CHANGE_DELETE, CHANGE_UPDATE_AFTER
from strom.rpc.call import Call
from strom.server.calls.bucket_errors import refused
from strom.server.calls.dispatch import CallHandler
from strom.server.calls.writes import Begun, Write, Writes, answer_all
from strom.server.tablets.key_forms import KeyForms, key_tablet
from strom.server.tablets.table_facts import TableFacts, Tables
from strom.server.tablets.tablets import Tablets
from strom.tablet.publishing import KeyChanges
from strom.tablet.tablet import Accepted, Tablet

INLINE_BYTES_MAX = 16 * 1024
"""Changes take longer per byte than appends: more than this leaves the loop."""
ROWS_MAX = 1 << 21
"""Changes in one batch; each can become two records of the changelog."""
PLAIN_MODE = 0
KEY_COPIES = 2
"""How often rows are in memory while they are written: decompressed, and in the changelog."""


class UpsertCalls:
    """Answers PutKv and UpsertRows."""

    def __init__(self, tablets: Tablets, tables: Tables, writes: Writes, limits: BatchLimits) -> None:
        self._tablets = tablets
        self._tables = tables
        self._writes = writes
        self._limits = limits

    def handlers(self) -> Mapping[Api[Any, Any], CallHandler]:
        return {PUT_KV: self.put_kv, UPSERT_ROWS: self.upsert_rows}

    # --- PutKv -----------------------------------------------------------------------------------------

    def put_kv(self, call: Call) -> Message | Awaitable[Message]:
        """Rows as the peer encodes them."""
        request: PutKvRequest = call.request
        return answer_all(
            request.buckets_req,
            partial(self._put, request),
            whole=lambda answers: PutKvResponse(buckets_resp=answers),
            refused=partial(refused, PutKvBucketResponse),
            timeout_ms=request.timeout_ms,
            pause_s=self._writes.pause_s,
        )

    def _put(self, request: PutKvRequest, wanted: PutKvBucketRequest) -> Begun[PutKvBucketResponse]:
        self._writes.check(request.acks)
        if request.agg_mode not in (None, PLAIN_MODE):
            raise UnsupportedVersion(
                f"writes of mode {request.agg_mode} are not supported", mode=request.agg_mode
            )
        slot = self._tablets.slot(BucketId(request.table_id, wanted.partition_id, wanted.bucket_id))
        records = memoryview(whole(wanted.records))
        facts, schema = self._table(request.table_id, _kv_schema_id(records, self._limits))
        targets = facts.keys.targets(schema, request.target_columns)
        now_ms = self._writes.now_ms()

        def put(tablet: Tablet) -> Accepted:
            facts.keys.check_peer_rows()
            return key_tablet(tablet).put_kv(records, targets=targets, now_ms=now_ms)

        return self._writes.begin(
            Write(
                slot,
                facts,
                size=len(records),
                acks=request.acks,
                job=put,
                written=lambda tablet, accepted: PutKvBucketResponse(
                    partition_id=wanted.partition_id,
                    bucket_id=wanted.bucket_id,
                    log_end_offset=accepted.next_offset,
                ),
                refused=partial(refused, PutKvBucketResponse, wanted),
                inline_bytes_max=_inline_bytes_max(facts),
            )
        )

    # --- UpsertRows ------------------------------------------------------------------------------------

    def upsert_rows(self, call: Call) -> Message | Awaitable[Message]:
        """Rows in columns."""
        request: UpsertRowsRequest = call.request
        return answer_all(
            request.buckets_req,
            partial(self._upsert, request),
            whole=lambda answers: UpsertRowsResponse(buckets_resp=answers),
            refused=partial(refused, UpsertRowsBucketResponse),
            timeout_ms=request.timeout_ms,
            pause_s=self._writes.pause_s,
        )

    def _upsert(
        self, request: UpsertRowsRequest, wanted: UpsertRowsBucketRequest
    ) -> Begun[UpsertRowsBucketResponse]:
        self._writes.check(request.acks)
        slot = self._tablets.slot(BucketId(request.table_id, wanted.partition_id, wanted.bucket_id))
        records = memoryview(whole(wanted.records))
        header = read_header(records)
        facts, schema = self._table(request.table_id, header.schema_id)
        batch = UpsertBatch(records, header, facts.keys, schema, request.columns, self._limits)
        now_ms = self._writes.now_ms()
        memory = KEY_COPIES * heaviest(records)
        return self._writes.begin(
            Write(
                slot,
                facts,
                size=max(len(records), memory),
                acks=request.acks,
                job=lambda tablet: batch.apply(tablet, now_ms),
                written=lambda tablet, accepted: UpsertRowsBucketResponse(
                    partition_id=wanted.partition_id,
                    bucket_id=wanted.bucket_id,
                    base_offset=accepted.base_offset,
                    log_end_offset=accepted.next_offset,
                    epoch=key_tablet(tablet).epoch_before(accepted.next_offset),
                ),
                refused=partial(refused, UpsertRowsBucketResponse, wanted),
                inline_bytes_max=_inline_bytes_max(facts),
                memory=memory,
            )
        )

    # --- both ------------------------------------------------------------------------------------------

    def _table(self, table_id: int, schema_id: int) -> tuple[TableFacts, Schema]:
        facts = self._tables.with_schema(table_id, schema_id)
        facts.keys  # noqa: B018  # a log table is refused before its schema is looked at
        return facts, facts.schema(schema_id)


class UpsertBatch:
    """One bucket's part of an UpsertRows request."""

    def __init__(
        self,
        records: memoryview,
        header: BatchHeader,
        forms: KeyForms,
        schema: Schema,
        columns: Sequence[int],
        limits: BatchLimits,
    ) -> None:
        if header.record_count > ROWS_MAX:
            raise LimitExceeded(
                f"a batch has at most {ROWS_MAX} changes, not {header.record_count}", rows=header.record_count
            )
        if list(columns) != sorted(columns):
            raise InvalidTargets(
                "the columns of a batch are ascending positions", columns=list(columns[:100])
            )
        self._records = records
        self._header = header
        self._limits = limits
        self._targets = forms.targets(schema, columns)
        self._schema = forms.written(schema, self._targets)

    def read(self, *, checked: bool = False) -> KeyChanges:
        """Check every row; in the bucket's lane. ``checked``: they were checked before, and no byte changed since."""
        if checked:
            header = self._header
        else:
            layout = ColumnLayout.of(self._schema)
            header, _ = check(self._records, layout=layout, limits=self._limits, content=False)
        rows = decode(
            self._records,
            self._schema,
            header=header,
            check_crc=False,
            decompressed_bytes_max=self._limits.decompressed_bytes_max,
            full_validation=not checked,
            aligned=True,
        )
        return KeyChanges(rows, self._deletes(), self._targets, header.schema_id)

    def apply(self, tablet: Tablet, now_ms: int) -> Accepted:
        """Check every row and write it; in the bucket's lane."""
        changes = self.read()
        return key_tablet(tablet).upsert(
            changes.rows,
            changes.deletes,
            targets=changes.targets,
            schema_id=changes.schema_id,
            writer_id=self._header.writer_id,
            batch_sequence=self._header.batch_sequence,
            now_ms=now_ms,
        )

    def _deletes(self) -> npt.NDArray[np.bool_] | None:
        """Which rows are deleted; None if none is."""
        kinds = changes(self._records, self._header)
        if kinds is None:
            return None
        deletes = kinds == CHANGE_DELETE
        if not (deletes | (kinds == CHANGE_UPDATE_AFTER)).all():
            raise MalformedBatch(
                f"the change of a row is {CHANGE_UPDATE_AFTER} (write it) or {CHANGE_DELETE} (delete it)"
            )
        return deletes if deletes.any() else None


def _inline_bytes_max(facts: TableFacts) -> int:
    """A bucket with an auto-increment column may have to wait for a block of numbers: never on the loop."""
    return INLINE_BYTES_MAX if facts.keys.auto_increment is None else -1


def _kv_schema_id(records: memoryview, limits: BatchLimits) -> int:
    """The schema that a batch of the peer's rows names; everything else is checked in the lane."""
    if len(records) > limits.batch_bytes_max:
        raise RecordTooLarge(
            f"a batch of {len(records)} bytes is larger than the limit of {limits.batch_bytes_max}",
            size=len(records),
        )
    header = read_kv_header(records)
    if header.record_count > ROWS_MAX:
        raise LimitExceeded(
            f"a batch has at most {ROWS_MAX} changes, not {header.record_count}", rows=header.record_count
        )
    return header.schema_id
