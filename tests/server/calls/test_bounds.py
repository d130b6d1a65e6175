"""One request costs what it asks for, and no more: not the square of it, and not a multiple."""

from __future__ import annotations

import asyncio
import gc
import statistics
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from integration.attacks import PEOPLE as ATTACKED
from integration.attacks import WIDE, bomb, half, row_bomb, well_compressed
from integration.key_wire import KeyTable
from integration.wire import Wire, encoded
from strom.errors import InvalidRequest, LimitExceeded, RecordTooLarge
from strom.model.schema import Schema
from strom.protocol import api_keys as api
from strom.protocol.error_codes import code_of
from strom.protocol.message import whole
from strom.protocol.messages import keys, log, metadata, own_keys, tables
from strom.protocol.messages.predicate import CompoundPredicate, WirePredicate
from strom.record import batch as batches
from strom.record.batch import split
from strom.record.encode import encode
from strom.server.process.local import LocalServer
from waiting import until

SCHEMA = pa.schema([("id", pa.int64())])


def serve(
    folder: Path, test: Callable[[Wire], Awaitable[None]], settings: dict[str, object] | None = None
) -> None:
    async def main(address: str) -> None:
        async with Wire(address) as wire:
            await asyncio.wait_for(test(wire), 60)

    with LocalServer(folder, settings) as server:
        asyncio.run(main(server.address))


def test_a_table_is_described_once_however_often_it_is_asked_for(tmp_path: Path) -> None:
    async def test(wire: Wire) -> None:
        for name in ("t", "u"):
            await wire.create(name, SCHEMA)
        paths = [tables.WireTablePath(database_name="fluss", table_name=name) for name in ("t", "u")]
        answer = await wire.call(api.GET_METADATA, metadata.GetMetadataRequest(table_path=paths * 1000))
        assert [one.table_path.table_name for one in answer.table_metadata] == ["t", "u"]

    serve(tmp_path, test)


def test_a_fetch_of_very_many_buckets_does_not_hold_up_the_others(tmp_path: Path) -> None:
    """Time grows with the number of buckets, not with its square: four times as many take far less than 16 times."""

    async def test(wire: Wire) -> None:
        table = await wire.create("t", SCHEMA)
        await wire.produce(table, encoded(pa.record_batch([[1]], schema=SCHEMA)))

        async def seconds(count: int) -> float:
            wanted = [log.FetchLogBucketRequest(bucket_id=0, fetch_offset=0, max_fetch_bytes=100)] * count
            of_table = log.FetchLogTableRequest(
                table_id=table, projection_pushdown_enabled=False, buckets_req=wanted
            )
            request = log.FetchLogRequest(follower_server_id=-1, max_bytes=1 << 30, tables_req=[of_table])
            began = time.process_time()
            answer = await wire.call(api.FETCH_LOG, request)
            assert len(answer.tables_resp[0].buckets_resp) == count
            return time.process_time() - began

        # Of the processor, for client and server are in this process; in turns, and the best of each.
        taken = [(await seconds(2000), await seconds(8000)) for _ in range(4)]
        few, many = (min(times) for times in zip(*taken, strict=True))
        assert many < 9 * few

    serve(tmp_path, test)


def test_a_waiting_fetch_is_answered_when_more_comes_than_fits(tmp_path: Path) -> None:
    """What does not fit stays for the next fetch; this one must not look for room for it until its time is over."""

    async def test(wire: Wire) -> None:
        table = await wire.create("t", SCHEMA)
        await wire.produce(table, encoded(pa.record_batch([[1]], schema=SCHEMA)))
        large = encoded(pa.record_batch([list(range(60_000))], schema=SCHEMA))
        for min_bytes in (1, 3 * len(large)):
            offset = (await wire.fetch(table, 0)).high_watermark
            waiting = asyncio.ensure_future(
                wire.fetch(table, offset, wait_ms=1000, max_bytes=len(large), min_bytes=min_bytes)
            )
            await wire.settled()
            began = time.process_time()
            async with Wire(wire.address) as other:
                await other.produce(table, large + large + large)
            answer = await waiting
            assert len(answer.records or b"") == len(large)
            assert time.process_time() - began < 0.6, "it looked again and again"

    serve(tmp_path, test)


# --- what is sent and what is held --------------------------------------------------------------------------

ROWS = 20_000
CONTENT_BYTES = ROWS * (5 * 8 + 4)
"""What one well-compressed batch of so many rows decompresses to."""


def test_a_filter_over_compressed_batches_gives_what_was_asked_for_and_not_what_they_become(
    tmp_path: Path,
) -> None:
    """Stored bytes say nothing: thirty batches of a few kilobytes are 26 MB when their rows leave."""

    async def test(wire: Wire) -> None:
        table = await wire.create("wide", WIDE)
        batch = well_compressed(ROWS)
        assert len(batch) * 50 < CONTENT_BYTES
        for _ in range(30):
            await wire.produce(table, batch)
        predicate = half(Schema.from_arrow(WIDE))
        offset = rows = answers = 0
        while offset < 30 * ROWS:
            found = await wire.fetch_rows(table, offset, predicate=predicate, max_bytes=1 << 20)
            records = whole(found.records or b"")
            assert len(records) <= (1 << 20) + CONTENT_BYTES, "at most one batch more than was asked for"
            rows += sum(header.record_count for header, _ in split(records))
            assert found.next_offset > offset
            offset, answers = found.next_offset, answers + 1
        assert rows == 15 * ROWS
        assert answers >= 10

    serve(tmp_path, test)


def test_batches_that_decompress_to_more_than_the_memory_there_is_are_filtered_one_at_a_time(
    tmp_path: Path,
) -> None:
    """Twelve at once, each of which alone is larger than the budget: slow, and everybody is answered."""

    async def test(wire: Wire) -> None:
        table = await wire.create("wide", WIDE)
        await wire.produce(table, well_compressed(ROWS))
        predicate = half(Schema.from_arrow(WIDE))
        wires = [Wire(wire.address) for _ in range(12)]
        found = await asyncio.gather(*(one.fetch_rows(table, 0, predicate=predicate) for one in wires))
        for answer in found:
            assert sum(header.record_count for header, _ in split(whole(answer.records or b""))) == ROWS // 2
        for one in wires:
            one.close()

    serve(tmp_path, test, {"server.inflight-bytes-max": "1mb"})


def test_a_fetch_of_a_batch_larger_than_asked_for_gives_just_that(tmp_path: Path) -> None:
    async def test(wire: Wire) -> None:
        table = await wire.create("t", SCHEMA)
        large = encoded(pa.record_batch([list(range(60_000))], schema=SCHEMA))
        for _ in range(3):
            await wire.produce(table, large)
        for max_bytes in (1, 1000, len(large) - 1, len(large) + 1):
            assert len((await wire.fetch(table, 0, max_bytes=max_bytes)).records or b"") == len(large)

    serve(tmp_path, test)


def test_a_filter_of_very_many_parts_is_refused_before_all_of_it_is_read(tmp_path: Path) -> None:
    async def test(wire: Wire) -> None:
        table = await wire.create("wide", WIDE)
        part = half(Schema.from_arrow(WIDE))
        few, many = (
            WirePredicate(type=1, compound=CompoundPredicate(function=1, children=[part] * count))
            for count in (900, 15_000)
        )
        await wire.fetch_rows(table, 0, predicate=few)
        with pytest.raises(InvalidRequest, match="too many fields"):
            await wire.fetch_rows(table, 0, predicate=many)

    serve(tmp_path, test)


def test_batches_that_grow_large_are_taken_in_one_after_the_other(tmp_path: Path) -> None:
    """Bombs into many buckets at once: what they decompress to is taken from the budget first, also by upserts."""

    async def test(wire: Wire) -> None:
        table = await wire.create("wide", WIDE, buckets=3)
        held, most = 0, 0
        content = batches.check_content

        def watched(*arguments: Any, **named: Any) -> bool:
            nonlocal held, most
            with lock:
                held += 1
                most = max(most, held)
            try:
                return content(*arguments, **named)
            finally:
                with lock:
                    held -= 1

        lock = threading.Lock()
        wires = [Wire(wire.address) for _ in range(6)]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(batches, "check_content", watched)
            await asyncio.gather(
                *(one.produce(table, bomb(40 << 20), bucket=n % 3) for n, one in enumerate(wires))
            )
        assert most == 1
        for one in wires:
            one.close()

    serve(tmp_path, test, {"server.inflight-bytes-max": "64mb"})


def test_rows_of_a_refused_write_do_not_stay(tmp_path: Path) -> None:
    """Nor those of the last one that was taken: every bucket would hold some."""

    async def test(wire: Wire) -> None:
        table = await KeyTable.create(wire, "people", ATTACKED, ["id"])
        await table.upsert([{"id": 0, "text": "small"}])
        gc.disable()  # as good as in a server, where it runs rarely
        try:
            with pytest.raises(RecordTooLarge):
                await table.send(row_bomb(64 << 20))
            await until(lambda: pa.total_allocated_bytes() <= 32 << 20, 10)
        finally:
            gc.enable()

    serve(tmp_path, test, {"server.request.max-bytes": "10mb"})


def test_fetches_that_wait_make_room_the_oldest_first(tmp_path: Path) -> None:
    """They hold memory and do nothing. With more of them than there is room for, nobody else may feel it."""

    async def test(wire: Wire) -> None:
        table = await wire.create("t", SCHEMA)
        await wire.produce(table, encoded(pa.record_batch([list(range(100))], schema=SCHEMA)))
        asked: dict[str, Any] = {"wait_ms": 50_000, "max_bytes": 1 << 20, "min_bytes": 1 << 20}
        waiting = [asyncio.ensure_future(wire.fetch(table, 100, **asked)) for _ in range(300)]
        async with Wire(wire.address) as other:
            took = []
            for _ in range(20):
                began = time.perf_counter()
                assert (await other.fetch(table, 0)).records
                took.append(time.perf_counter() - began)
            assert statistics.median(took) < 0.9, "it is not what waits for somebody to make room"
            assert not waiting[-1].done()
            found = await asyncio.gather(*waiting[:100])
            assert not any(one.records for one in found), "there was nothing"
            assert not waiting[-1].done()
        for one in waiting:
            one.cancel()

    serve(tmp_path, test, {"server.inflight-bytes-max": "1mb"})


def test_who_waits_for_more_with_rows_at_hand_is_answered_with_them(tmp_path: Path) -> None:
    async def test(wire: Wire) -> None:
        table = await wire.create("t", SCHEMA)
        await wire.produce(table, encoded(pa.record_batch([list(range(1000))], schema=SCHEMA)))
        asked: dict[str, Any] = {"wait_ms": 50_000, "max_bytes": 1 << 20, "min_bytes": 1 << 20}
        waiting = [asyncio.ensure_future(wire.fetch(table, 0, **asked)) for _ in range(100)]
        found = await asyncio.gather(*waiting[:80])
        assert all(len(one.records or b"") > 8000 for one in found)
        assert not waiting[-1].done(), "there is room for some"
        for one in waiting:
            one.cancel()

    serve(tmp_path, test, {"server.inflight-bytes-max": "1mb"})


PEOPLE = pa.schema([pa.field("id", pa.int64(), nullable=False), ("team", pa.int64()), ("text", pa.string())])


def test_lookups_of_many_large_rows_are_refused_before_they_are_copied(tmp_path: Path) -> None:
    """One row, asked for over and over, in one bucket or in many of the same request: their sum counts."""

    async def test(wire: Wire) -> None:
        table = await KeyTable.create(
            wire, "people", PEOPLE, ["id"], properties={"table.index.by_team": "team"}
        )
        for start in (0, 10):
            await table.upsert([{"id": n, "team": 1, "text": "x" * 50_000} for n in range(start, start + 10)])
        assert len(await table.lookup([{"id": 1}] * 15)) == 15
        with pytest.raises(LimitExceeded, match="fewer keys"):
            await table.lookup([{"id": 1}] * 30)
        with pytest.raises(LimitExceeded, match="fewer keys"):
            await table.lookup([{"team": 1}] * 3, index="by_team")
        batch = pa.record_batch([pa.array([1] * 8)], schema=pa.schema([PEOPLE.field(0)]))
        asked = own_keys.LookupRowsBucketRequest(bucket_id=0, keys=bytes(encode(batch, schema_id=1)))
        request = own_keys.LookupRowsRequest(table_id=table.table_id, schema_id=1, buckets_req=[asked] * 10)
        answers = (await wire.call(api.LOOKUP_ROWS, request)).buckets_resp
        sizes = [len(whole(one.records)) for one in answers if one.error_code is None]
        assert sum(sizes) <= 1_000_000
        assert {one.error_code for one in answers if one.error_code is not None} == {
            code_of(LimitExceeded(""))
        }
        peers = keys.LookupBucketRequest(bucket_id=0, keys=[(1).to_bytes(8, "little")] * 8)
        found = (
            await wire.call(api.LOOKUP, keys.LookupRequest(table_id=table.table_id, buckets_req=[peers] * 10))
        ).buckets_resp
        assert sum(len(one.values or b"") for answer in found for one in answer.values) <= 1_000_000
        assert any(answer.error_code for answer in found)

    serve(tmp_path, test, {"server.request.max-bytes": 1_000_000})
