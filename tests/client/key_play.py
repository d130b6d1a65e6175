"""The cluster in memory, with a primary-key table: the rules a client relies on, kept in dicts."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import pyarrow as pa

from client.play import Play, playing
from strom.client.cluster.metadata import TableInfo
from strom.client.lookup.lookups import Lookups
from strom.errors import Expired, OutOfOrderSequence, StromError
from strom.model.bucket import BucketId
from strom.model.schema import Schema
from strom.model.table import TableDescription
from strom.protocol.error_codes import code_of, message_of
from strom.protocol.message import whole
from strom.protocol.messages import own_keys as wire
from strom.record.batch import read_header
from strom.record.decode import changes, decode
from strom.record.encode import encode

ARROW = pa.schema([("id", pa.int64()), ("name", pa.string()), ("score", pa.int32())])
DELETE = 4


def keyed(buckets: int = 1, **options: Any) -> TableDescription:
    return TableDescription(schema=Schema.from_arrow(ARROW, ["id"]), bucket_count=buckets, **options)


class KeyPlay(Play):
    """Rows by key, per bucket."""

    def begin(self) -> None:
        self.rows_by_key: dict[BucketId, dict[Any, dict[str, Any]]] = defaultdict(dict)
        self.changes: list[tuple[int, str, Any]] = []
        """(bucket, what, key) in the order they were applied."""
        self.expired = 0
        """So many scans are told that their instant has gone."""

    def answer_upsert_rows(self, request: wire.UpsertRowsRequest) -> wire.UpsertRowsResponse:
        answers = []
        for one in request.buckets_req:
            bucket = BucketId(request.table_id, one.partition_id, one.bucket_id)
            answer = wire.UpsertRowsBucketResponse(partition_id=one.partition_id, bucket_id=one.bucket_id)
            try:
                self._apply(bucket, request.columns, whole(one.records))
                answer.base_offset, answer.log_end_offset, answer.epoch = 0, self.logs[bucket].end, 7
            except StromError as error:
                answer.error_code, answer.error_message = code_of(error), message_of(error)
            answers.append(answer)
        return wire.UpsertRowsResponse(buckets_resp=answers)

    def _apply(self, bucket: BucketId, columns: Any, records: Any) -> None:
        header = read_header(records)
        log = self.logs[bucket]
        seen = log.sequences[header.writer_id]
        if header.batch_sequence in seen[-5:]:
            return
        if header.batch_sequence != (seen[-1] + 1 if seen else 0):
            raise OutOfOrderSequence(f"expected {seen[-1] + 1 if seen else 0}, not {header.batch_sequence}")
        seen.append(header.batch_sequence)
        log.end += header.record_count
        schema = ARROW if not columns else pa.schema([ARROW.field(at) for at in columns])
        kinds = changes(records, header)
        assert kinds is not None
        rows = self.rows_by_key[bucket]
        for kind, row in zip(kinds, decode(records, schema).to_pylist(), strict=True):
            self.changes.append((bucket.bucket, "-" if kind == DELETE else "+", row["id"]))
            if kind == DELETE:
                rows.pop(row["id"], None)
            else:
                rows[row["id"]] = rows.get(row["id"], dict.fromkeys(ARROW.names)) | row

    def answer_lookup_rows(self, request: wire.LookupRowsRequest) -> wire.LookupRowsResponse:
        keys = pa.schema([ARROW.field("id")])
        answers = []
        for one in request.buckets_req:
            rows = self.rows_by_key[BucketId(request.table_id, one.partition_id, one.bucket_id)]
            asked = decode(whole(one.keys), keys).column(0).to_pylist()
            there = [(at, rows[key]) for at, key in enumerate(asked) if key in rows]
            found = pa.RecordBatch.from_pylist([row for _, row in there], ARROW)
            if request.columns:
                found = found.select([ARROW.field(at).name for at in request.columns])
            answers.append(
                wire.LookupRowsBucketResponse(
                    partition_id=one.partition_id,
                    bucket_id=one.bucket_id,
                    records=bytes(encode(found, schema_id=request.schema_id)),
                    positions=np.array([at for at, _ in there], "<u4").tobytes(),
                    high_watermark=0,
                    epoch=7,
                )
            )
        return wire.LookupRowsResponse(buckets_resp=answers)

    def answer_key_facts(self, request: wire.KeyFactsRequest) -> wire.KeyFactsResponse:
        answers = []
        for one in request.buckets:
            bucket = BucketId(request.table_id, one.partition_id, one.bucket_id)
            answers.append(
                wire.KeyFactsBucketResponse(
                    partition_id=one.partition_id,
                    bucket_id=one.bucket_id,
                    live_rows=len(self.rows_by_key[bucket]),
                    high_watermark=self.logs[bucket].end,
                    epoch=7,
                )
            )
        return wire.KeyFactsResponse(buckets_resp=answers)

    def answer_scan_rows(self, request: wire.ScanRowsRequest) -> wire.ScanRowsResponse:
        """A row at a time: the smallest slices there are."""
        if self.expired:
            self.expired -= 1
            error = Expired("this instant is not kept any more")
            return wire.ScanRowsResponse(error_code=code_of(error), error_message=message_of(error))
        bucket = BucketId(request.table_id, request.partition_id, request.bucket_id)
        rows = list(self.rows_by_key[bucket].values())
        at = request.cursor or 0
        batch = pa.RecordBatch.from_pylist(rows[at : at + 1], ARROW)
        if request.columns:
            batch = batch.select([ARROW.field(one).name for one in request.columns])
        more = at + 1 < len(rows)
        return wire.ScanRowsResponse(
            at=request.at,
            at_epoch=7,
            records=bytes(encode(batch, schema_id=1)) if batch.num_rows else b"",
            next_cursor=at + 1 if more else None,
        )


def lookups_of(cluster: Any, table: TableInfo) -> Lookups:
    return Lookups(cluster, lambda: table)


def key_playing(description: TableDescription | None = None, **options: Any) -> Any:
    """As ``playing``, with a primary-key table."""
    return playing(description or keyed(), kind=KeyPlay, **options)
