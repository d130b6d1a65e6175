"""Scans of primary-key tables: ScanRows, slice by slice at an instant, and LimitScan, a few rows as a preview. KeyFacts
describes what a bucket's store holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from strom.errors import InvalidRequest, LimitExceeded, StromError
from strom.model.bucket import BucketId
from strom.protocol.api_keys import KEY_FACTS, SCAN_ROWS, Api
from strom.protocol.error_codes import code_of, message_of
from strom.protocol.message import Message
from strom.protocol.messages.log import LimitScanRequest, LimitScanResponse
from strom.protocol.messages.own_keys import (
    KeyFactsBucketRequest,
    KeyFactsBucketResponse,
    KeyFactsRequest,
    KeyFactsResponse,
    ScanRowsRequest,
    ScanRowsResponse,
    WireIndexFacts,
)
from strom.protocol.predicate_wire import from_wire
from strom.record.sparse import dense_batch, sparse_batches
from strom.rpc.call import Call
from strom.rpc.call_memory import BudgetShare
from strom.runtime.clock import Clock
from strom.runtime.files import Bytes
from strom.server.calls.dispatch import CallHandler
from strom.server.calls.filtering import FilterLimits
from strom.server.calls.keys.bucket_lookup import COPIES, KeyReads
from strom.server.tablets.key_forms import KeyForms, key_tablet
from strom.server.tablets.table_facts import TableFacts, Tables
from strom.server.tablets.tablets import Tablets
from strom.tablet.tablet import Tablet

BUCKETS_MAX = 10_000
LIMIT_BYTES_MAX = 32 * 1024 * 1024
DEAD_BYTES_MAX = 16 * 1024 * 1024
"""Dead offsets of one slice, as found and as sent."""


class ScanRowsCalls:
    """Answers ScanRows and KeyFacts, and LimitScan where the table has a primary key."""

    def __init__(
        self,
        tablets: Tablets,
        tables: Tables,
        reads: KeyReads,
        limits: FilterLimits,
        clock: Clock,
        *,
        max_bytes: int,
        piece: Callable[[int], int] = lambda size: size,
    ) -> None:
        self._tablets = tablets
        self._tables = tables
        self._reads = reads
        self._limits = limits
        self._clock = clock
        self._max_bytes = max_bytes
        self._piece = piece

    def handlers(self) -> Mapping[Api[Any, Any], CallHandler]:
        return {SCAN_ROWS: self.scan_rows, KEY_FACTS: self.key_facts}

    # --- ScanRows --------------------------------------------------------------------------------------

    async def scan_rows(self, call: Call) -> Message:
        """One slice of the rows that are live at an instant."""
        request: ScanRowsRequest = call.request
        share = call.share
        try:
            bucket = BucketId(request.table_id, request.partition_id, request.bucket_id)
            known = request.at >= 0 and request.at_epoch is not None
            slot = self._tablets.copy(bucket) if known else self._tablets.slot(bucket)
            facts = self._tables.with_schema(request.table_id, request.schema_id)
            wanted = self._wanted(request, facts)
            tablet = await self._reads.opened(slot, request.at if known else None)
            now_ms = self._clock.now_ms()
            await share.need(COPIES * wanted["max_bytes"] + (DEAD_BYTES_MAX if request.dead else 0))
            answer = await self._reads.aside(slot, lambda: _slice(tablet, wanted, request.schema_id, now_ms))
        except StromError as error:
            return ScanRowsResponse(error_code=code_of(error), error_message=message_of(error))
        rows, size, response = answer
        share.keep(size + len(response.dead or b""))
        facts.traffic.rows_out.inc(rows)
        facts.traffic.bytes_out.inc(size)
        if slot.follows:
            facts.traffic.bytes_followed.inc(size)
        return response

    def _wanted(self, request: ScanRowsRequest, facts: TableFacts) -> dict[str, Any]:
        forms = facts.keys
        if len(request.columns) > self._limits.columns_max:
            raise LimitExceeded(
                f"a projection has at most {self._limits.columns_max} columns, not {len(request.columns)}"
            )
        if request.start < 0 or request.at < -1 or (request.limit is not None and request.limit < 1):
            raise InvalidRequest("a scan starts at 0 or later and gives at least one row")
        predicate = None
        if request.predicate is not None:
            predicate = from_wire(
                request.predicate,
                facts.schema(request.schema_id),
                depth_max=self._limits.depth_max,
                nodes_max=self._limits.nodes_max,
            )
        return {
            "at": request.at,
            "at_epoch": request.at_epoch,
            "start": request.start,
            "start_epoch": request.start_epoch,
            "cursor": request.cursor,
            "columns": forms.columns(request.schema_id, request.columns),
            "predicate": predicate,
            "limit": request.limit,
            "max_bytes": self._rows_bytes(request),
            "dead": request.dead,
            "dead_from": request.dead_from,
            "offsets": not request.no_offsets,
        }

    def _rows_bytes(self, request: ScanRowsRequest) -> int:
        if request.dead and request.max_bytes == 0:  # a scan of dead rows alone reads no row
            return 0
        return self._piece(min(max(request.max_bytes, 1), self._max_bytes))

    # --- LimitScan -------------------------------------------------------------------------------------

    async def limit_scan(
        self, request: LimitScanRequest, facts: TableFacts, share: BudgetShare
    ) -> LimitScanResponse:
        """Some rows of one bucket, as the peer encodes them."""
        slot = self._tablets.slot(BucketId(request.table_id, request.partition_id, request.bucket_id))
        tablet = await self._reads.opened(slot)
        now_ms = self._clock.now_ms()
        await share.need(COPIES * LIMIT_BYTES_MAX)
        rows, content = await self._reads.aside(
            slot, lambda: _first_rows(facts.keys, tablet, request.limit, now_ms)
        )
        share.keep(len(content))
        facts.traffic.rows_out.inc(rows)
        facts.traffic.bytes_out.inc(len(content))
        return LimitScanResponse(is_log_table=False, records=content)

    # --- KeyFacts --------------------------------------------------------------------------------------

    async def key_facts(self, call: Call) -> Message:
        """What the stores of some buckets hold."""
        request: KeyFactsRequest = call.request
        if len(request.buckets) > BUCKETS_MAX:
            raise LimitExceeded(
                f"ask for at most {BUCKETS_MAX} buckets at once", buckets=len(request.buckets)
            )
        answers = [await self._bucket_facts(request.table_id, bucket) for bucket in request.buckets]
        return KeyFactsResponse(buckets_resp=answers)

    async def _bucket_facts(self, table_id: int, bucket: KeyFactsBucketRequest) -> KeyFactsBucketResponse:
        try:
            slot = self._tablets.slot(BucketId(table_id, bucket.partition_id, bucket.bucket_id))
            self._tables.of(table_id).keys  # noqa: B018  # refuses a log table
            tablet = await self._reads.opened(slot)
            facts = await self._reads.aside(slot, lambda: _facts(tablet))
        except StromError as error:
            facts = {"error_code": code_of(error), "error_message": message_of(error)}
        return KeyFactsBucketResponse(partition_id=bucket.partition_id, bucket_id=bucket.bucket_id, **facts)


def _slice(
    tablet: Tablet, wanted: dict[str, Any], schema_id: int, now_ms: int
) -> tuple[int, int, ScanRowsResponse]:
    from strom.tablet.key_scan import ScanRequest

    found = key_tablet(tablet).scan(ScanRequest(**wanted), now_ms=now_ms)
    records: list[Bytes] = []
    for batch in found.batches:
        if batch.offsets is None:
            records += dense_batch(batch.rows, schema_id=schema_id)
        else:
            records += sparse_batches(batch.rows, batch.offsets, schema_id=schema_id)
    response = ScanRowsResponse(
        at=found.at,
        at_epoch=found.at_epoch,
        records=records or b"",
        next_cursor=found.next_cursor,
        dead=None if found.dead is None else found.dead.astype("<i8").tobytes(),
        horizon=found.horizon,
        series_start=found.series_start,
        dead_next=found.dead_next,
    )
    return sum(batch.rows.num_rows for batch in found.batches), sum(map(len, records)), response


def _first_rows(forms: KeyForms, tablet: Tablet, limit: int, now_ms: int) -> tuple[int, bytes]:
    """``i32 length, i8 magic 0, i32 count``, then every row: ``i32 length``, schema id and row."""
    from strom.tablet.key_scan import ScanRequest

    parts: list[bytes] = []
    count, size = 0, 0
    request = ScanRequest(limit=limit)
    while count < limit:
        found = key_tablet(tablet).scan(request, now_ms=now_ms)
        for batch in found.batches:
            encoded = forms.rows(batch.rows.slice(0, limit - count))
            parts.append(_with_lengths(encoded.data, encoded.starts))
            count += len(encoded.starts) - 1
            size += len(parts[-1])
        if size > LIMIT_BYTES_MAX:
            raise LimitExceeded(f"{limit} rows take more than {LIMIT_BYTES_MAX} bytes: ask for fewer")
        if found.next_cursor is None:
            break
        request = ScanRequest(
            at=found.at, at_epoch=found.at_epoch, cursor=found.next_cursor, limit=max(limit - count, 1)
        )
    if not count:
        return 0, b""
    body = b"\0" + count.to_bytes(4, "little") + b"".join(parts)
    return count, len(body).to_bytes(4, "little") + body


def _with_lengths(data: Any, starts: Any) -> bytes:
    """Every row after its length."""
    rows = len(starts) - 1
    heads = starts[:-1] - starts[0] + 4 * np.arange(rows)
    out = np.empty(len(data) + 4 * rows, np.uint8)
    is_row = np.ones(len(out), bool)
    lengths = np.diff(starts).astype("<i4").view(np.uint8).reshape(rows, 4)
    for byte in range(4):
        out[heads + byte] = lengths[:, byte]
        is_row[heads + byte] = False
    out[is_row] = data
    return out.tobytes()


def _facts(tablet: Tablet) -> dict[str, Any]:
    keys = key_tablet(tablet)
    described, horizons = keys.describe(), keys.horizons
    return {
        "live_rows": described["live_rows"],
        "stored_rows": described["stored_rows"],
        "high_watermark": horizons.high_watermark,
        "epoch": horizons.epoch,
        "horizon": horizons.horizon,
        "series_start": horizons.series_start,
        "carried": horizons.carried,
        "snapshot_offset": horizons.snapshot_offset,
        "base_files": described["base_files"],
        "base_bytes": described["base_bytes"],
        "index_bytes": described["index_bytes"],
        "indexes": [
            WireIndexFacts(name=one.name, columns=one.columns, state=one.state, rows=one.rows)
            for one in keys.indexes()
        ],
    }
