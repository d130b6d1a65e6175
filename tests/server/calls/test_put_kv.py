"""PutKv: what is wrong with one bucket's rows is told for that bucket, in words, and the others are written."""

from __future__ import annotations

import struct
from pathlib import Path

import pyarrow as pa

from integration.key_wire import KeyTable
from integration.wire import Wire
from server.calls.test_key_calls import serve
from strom.errors import SchemaMismatch
from strom.kv.peer_rows.row_encoder import RowEncoder
from strom.protocol import api_keys as api
from strom.protocol.error_codes import CODES
from strom.protocol.messages.keys import PutKvBucketRequest, PutKvRequest
from strom.record.checksum import crc32c

FIELDS = [("id", pa.int32()), ("age", pa.int64())]
SCHEMA = pa.schema([pa.field(name, kind, False) for name, kind in FIELDS])


def kv_batch(number: int, age: int | None) -> bytes:
    """One row as the peer sends it, whether or not the table takes it."""
    encoded = RowEncoder(pa.schema(FIELDS)).encode(
        pa.RecordBatch.from_pylist([{"id": number, "age": age}], pa.schema(FIELDS))
    )
    key = bytes([number])
    record = bytes([len(key)]) + key + bytes(encoded.data)
    body = struct.pack("<hbqii", 1, 0, -1, -1, 1) + struct.pack("<i", len(record)) + record
    return struct.pack("<ibI", len(body) + 5, 0, crc32c(body)) + body


def test_a_missing_value_is_told_for_its_bucket_alone(tmp_path: Path) -> None:
    async def test(wire: Wire) -> None:
        table = await KeyTable.create(wire, "ages", SCHEMA, ["id"], buckets=2)
        rows = {0: kv_batch(1, None), 1: kv_batch(2, 30)}
        answer = await wire.call(
            api.PUT_KV,
            PutKvRequest(
                acks=-1,
                table_id=table.table_id,
                timeout_ms=10_000,
                buckets_req=[
                    PutKvBucketRequest(bucket_id=bucket, records=records) for bucket, records in rows.items()
                ],
            ),
        )
        wrong, right = sorted(answer.buckets_resp, key=lambda one: one.bucket_id)
        assert wrong.error_code == CODES[SchemaMismatch]
        assert wrong.error_message == "column 'age' is NOT NULL, and row 0 has no value for it"
        assert not right.error_code
        assert right.log_end_offset == 1
        assert (await table.facts()).live_rows == 0

    serve(tmp_path, test)
