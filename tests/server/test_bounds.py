"""One request costs what it asks for, and no more: not the square of it, and not a multiple."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pyarrow as pa

from integration.wire import Wire, encoded
from strom.protocol import api_keys as api
from strom.protocol.messages import log, metadata, tables
from strom.server.local import LocalServer

SCHEMA = pa.schema([("id", pa.int64())])


def serve(folder: Path, test: Callable[[Wire], Awaitable[None]]) -> None:
    async def main(address: str) -> None:
        async with Wire(address) as wire:
            await asyncio.wait_for(test(wire), 60)

    with LocalServer(folder) as server:
        asyncio.run(main(server.address))


def test_a_table_is_described_once_however_often_it_is_asked_for(tmp_path: Path) -> None:
    async def test(wire: Wire) -> None:
        for name in ("t", "u"):
            await wire.create(name, SCHEMA)
        paths = [tables.TablePath(database_name="fluss", table_name=name) for name in ("t", "u")]
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
            began = time.perf_counter()
            answer = await wire.call(api.FETCH_LOG, request)
            assert len(answer.tables_resp[0].buckets_resp) == count
            return time.perf_counter() - began

        # In turns, and the best of each: a busy machine slows both down.
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
            await asyncio.sleep(0.05)
            began = time.process_time()
            async with Wire(wire.address) as other:
                await other.produce(table, large + large + large)
            answer = await waiting
            assert len(answer.records or b"") == len(large)
            assert time.process_time() - began < 0.6, "it looked again and again"

    serve(tmp_path, test)
