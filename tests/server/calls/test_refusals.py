"""What no call may ask for: each is told so with a typed error, and nothing is written or taken away."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from integration.key_wire import KeyTable
from integration.wire import Wire, encoded
from kv.plain_rows import plain
from strom.errors import (
    InvalidRequest,
    InvalidTargets,
    LimitExceeded,
    StromError,
    TornBatch,
    UnsupportedVersion,
)
from strom.protocol import api_keys as api
from strom.protocol.error_codes import error_of
from strom.protocol.messages import damage, keys, log, own, own_keys, partitions, stages, tables
from strom.server.calls.keys import scan_rows
from strom.server.process.local import LocalServer

EVENTS = pa.schema([("id", pa.int64()), ("name", pa.string())])
PEOPLE = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string()), ("age", pa.int64())])
DAILY = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("day", pa.string(), nullable=False)])
STRICT = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("age", pa.int64(), nullable=False)])
MANY = 10_001
FIRST_PARTITION = 1

Refusal = tuple[type[StromError], str, Callable[[], Awaitable[object]]]


class Place:
    """A server with a log table and three primary-key tables, of which one is partitioned."""

    def __init__(self, wire: Wire, events: int, people: KeyTable, strict: KeyTable, daily: KeyTable) -> None:
        self.wire, self.events, self.people, self.strict, self.daily = wire, events, people, strict, daily

    async def asked(self, which: api.Api[Any, Any], request: Any) -> Any:
        """The answer, or the first error in it."""
        answer = await self.wire.call(which, request)
        for one in (answer, *(getattr(answer, "buckets_resp", None) or ())):
            if getattr(one, "error_code", None):
                raise error_of(one.error_code, one.error_message)
        return answer

    async def list_offsets(self, count: int) -> Any:
        request = log.ListOffsetsRequest(
            follower_server_id=-1, offset_type=0, table_id=self.events, bucket_id=(0,) * count
        )
        return await self.asked(api.LIST_OFFSETS, request)

    async def facts(self, count: int) -> Any:
        buckets = [own_keys.KeyFactsBucketRequest(bucket_id=0)] * count
        request = own_keys.KeyFactsRequest(table_id=self.people.table_id, buckets=buckets)
        return await self.asked(api.KEY_FACTS, request)

    async def limit_scan(self, table_id: int, limit: int) -> Any:
        return await self.asked(
            api.LIMIT_SCAN, log.LimitScanRequest(table_id=table_id, bucket_id=0, limit=limit)
        )

    async def put(self, records: bytes, **more: Any) -> Any:
        bucket = keys.PutKvBucketRequest(bucket_id=0, records=records)
        request = keys.PutKvRequest(
            acks=-1, table_id=self.people.table_id, timeout_ms=1000, buckets_req=[bucket], **more
        )
        return await self.asked(api.PUT_KV, request)

    async def insert_by_lookup(self, table: KeyTable, partition_id: int | None = None) -> Any:
        key = plain(pa.schema([table.arrow.field("id")]), {"id": 9})
        bucket = keys.LookupBucketRequest(partition_id=partition_id, bucket_id=0, keys=[key])
        request = keys.LookupRequest(
            table_id=table.table_id,
            buckets_req=[bucket],
            insert_if_not_exists=True,
        )
        return await self.asked(api.LOOKUP, request)

    async def mark(self, **more: Any) -> Any:
        return await self.asked(
            api.MARK_DAMAGE, damage.MarkDamageRequest(table_id=self.events, bucket_id=0, **more)
        )

    async def backup(self, action: str, backup_id: str | None = None) -> Any:
        return await self.asked(api.BACKUP, own.BackupRequest(action=action, backup_id=backup_id))

    async def stage(self, columns: Sequence[int] = (), **more: Any) -> Any:
        facts: dict[str, Any] = {"stage_id": b"s" * 16, "lease_ms": 1000, "records": _some(EVENTS), **more}
        request = stages.StageRowsRequest(
            table_id=self.events,
            bucket_id=0,
            sink="s",
            epoch=0,
            sequence=0,
            seal=True,
            columns=columns,
            **facts,
        )
        return await self.asked(api.STAGE_ROWS, request)


def _some(schema: pa.Schema, **more: Any) -> bytes:
    row = {field.name: 1 if field.type == pa.int64() else "x" for field in schema}
    return encoded(pa.RecordBatch.from_pylist([row], schema), **more)


def _refusals(place: Place) -> list[Refusal]:
    people = place.people
    backwards = _some(pa.schema([PEOPLE.field(name) for name in ("id", "age", "name")]), changes=b"\3")
    return [
        (LimitExceeded, "10000 buckets", lambda: place.list_offsets(MANY)),
        (LimitExceeded, "10000 buckets", lambda: place.facts(MANY)),
        (LimitExceeded, "limit of a scan", lambda: place.limit_scan(place.events, 0)),
        (LimitExceeded, "limit of a scan", lambda: place.limit_scan(place.events, 10_000_001)),
        (LimitExceeded, "limit of a scan", lambda: place.limit_scan(people.table_id, -1)),
        (UnsupportedVersion, "mode 1", lambda: place.put(_some(PEOPLE), agg_mode=1)),
        (TornBatch, "header", lambda: place.put(b"torn")),
        (InvalidTargets, "ascending", lambda: people.send(backwards, (0, 2, 1))),
        (InvalidTargets, "NOT NULL", lambda: place.insert_by_lookup(place.strict)),
        (InvalidTargets, "partitioned", lambda: place.insert_by_lookup(place.daily, FIRST_PARTITION)),
        (InvalidRequest, "first offset and an end", lambda: place.mark(start_offset=0)),
        (InvalidRequest, "first offset and an end", lambda: place.mark(end_offset=1)),
        (InvalidRequest, "begin, renew and end", lambda: place.backup("begin", "x")),
        (InvalidRequest, "begin, renew and end", lambda: place.backup("renew")),
        (InvalidRequest, "this backup is unknown", lambda: place.backup("renew", "x")),
        (InvalidRequest, "all columns", lambda: place.stage((0, 1))),
        (InvalidRequest, "16 bytes", lambda: place.stage(stage_id=b"short")),
        (InvalidRequest, "lease", lambda: place.stage(lease_ms=0)),
        (InvalidRequest, "starts at 0", lambda: people.scan_slice(start=-1)),
        (InvalidRequest, "starts at 0", lambda: people.scan_slice(at=-2)),
        (InvalidRequest, "at least one row", lambda: people.scan_slice(limit=0)),
    ]


def test_what_no_call_may_ask_for_is_refused(tmp_path: Path) -> None:
    async def test(place: Place) -> None:
        for kind, words, attempt in _refusals(place):
            with pytest.raises(kind, match=words):
                await attempt()
        assert len((await place.list_offsets(MANY - 1)).buckets_resp) == MANY - 1
        assert (await place.limit_scan(place.events, 10_000_000)).is_log_table
        assert await place.people.scan() == {}
        assert await place.strict.scan() == {}
        assert not (await place.mark()).marks

    _serve(tmp_path, test)


def test_a_few_rows_for_a_look_are_bounded_in_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan_rows, "LIMIT_BYTES_MAX", 4000)

    async def test(place: Place) -> None:
        await place.people.upsert([{"id": n, "name": "x" * 1000} for n in range(10)])
        with pytest.raises(LimitExceeded, match="ask for fewer"):
            await place.limit_scan(place.people.table_id, 10)
        assert not (await place.limit_scan(place.people.table_id, 2)).is_log_table

    _serve(tmp_path, test)


def _serve(folder: Path, test: Callable[[Place], Awaitable[None]]) -> None:
    async def main(address: str) -> None:
        async with Wire(address) as wire:
            events = await wire.create("events", EVENTS)
            people = await KeyTable.create(wire, "people", PEOPLE, ["id"])
            strict = await KeyTable.create(wire, "strict", STRICT, ["id"])
            daily = await KeyTable.create(wire, "daily", DAILY, ["id", "day"], partition_by=["day"])
            day = partitions.PartitionSpec(partition_key_values=[partitions.KeyValue(key="day", value="d")])
            path = tables.WireTablePath(database_name="fluss", table_name="daily")
            request = partitions.CreatePartitionRequest(
                table_path=path, partition_spec=day, ignore_if_exists=False
            )
            await wire.call(api.CREATE_PARTITION, request)
            await asyncio.wait_for(test(Place(wire, events, people, strict, daily)), 60)

    with LocalServer(folder) as server:
        asyncio.run(main(server.address))
