"""Rows that are in the object store and not on this disk any more are read as all others are."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from remote.scene import SCHEMA, RemoteScene, fill, ids, rows, tell
from strom import col
from strom.errors import ChecksumMismatch
from strom.protocol.api_keys import FETCH_LOG, LIMIT_SCAN
from strom.protocol.messages.log import (
    FetchLogBucketRequest,
    FetchLogBucketResponse,
    FetchLogRequest,
    FetchLogTableRequest,
    LimitScanRequest,
)
from strom.record.batch import read_header, split
from strom.record.decode import decode
from strom.remote.segment_directory import decode_directory
from strom.testing.faulty_objects import StoreFaults


async def prepared(scene: RemoteScene, **options: Any) -> tuple[Any, int]:
    """A table whose rows are in the store, most of them there alone."""
    table = await scene.create(**options)
    count = await fill(table)
    await scene.uploads.drain()
    await scene.drop_here(options.get("buckets", 1))
    assert scene.tablet().log.start_offset > 0
    return table, count


def test_a_scan_reads_what_is_in_the_store_and_what_is_here() -> None:
    async def story(scene: RemoteScene) -> None:
        table, count = await prepared(scene)
        assert await ids(table) == list(range(count))
        found = (await table.scan().to_arrow()).sort_by("id")
        assert found.column("word").to_pylist() == [f"word {one % 7}" * 3 for one in range(count)]
        assert found.column("price").to_pylist() == [one / 4 for one in range(count)]

    tell(story)


def test_several_buckets_of_a_table() -> None:
    async def story(scene: RemoteScene) -> None:
        table, count = await prepared(scene, buckets=3)
        assert await ids(table) == list(range(count))

    tell(story)


def test_a_filter_is_answered_from_the_store() -> None:
    async def story(scene: RemoteScene) -> None:
        table, count = await prepared(scene, properties={"table.statistics.columns": "id"})
        assert await ids(table, where=col("id") < 75) == list(range(75))
        assert await ids(table, where=col("price") == 5.0) == [20]
        assert await ids(table, where=col("id") >= count) == []

    tell(story)


def test_after_a_restart_the_store_is_asked_where_the_rows_begin() -> None:
    async def story(scene: RemoteScene) -> None:
        table, count = await prepared(scene)
        await scene.restart()
        assert await table.offsets("earliest") == {(None, 0): 0}
        assert await ids(table) == list(range(count))

    tell(story)


def test_a_tail_from_the_beginning_catches_up_through_the_store_and_goes_on_with_new_rows() -> None:
    async def story(scene: RemoteScene) -> None:
        table, count = await prepared(scene)
        found: list[int] = []
        async with table.tail("earliest", columns=["id"], idle=2.0) as tail:
            async for batch in tail:
                found += batch.data.column("id").to_pylist()
                if len(found) == count:
                    await table.append(rows(count, 5))
                    await table.flush()
        assert found == list(range(count + 5))

    tell(story)


def test_a_tail_from_a_time_begins_in_the_store() -> None:
    async def story(scene: RemoteScene) -> None:
        table = await scene.create()
        count = await fill(table)
        await asyncio.sleep(60)
        middle_ms = scene.now_ms()
        await asyncio.sleep(60)
        total = await fill(table, start=count)
        await asyncio.sleep(60)
        late_ms = scene.now_ms()
        assert await fill(table, batches=1, start=total) == total + 50
        await scene.uploads.drain()
        await scene.drop_here()
        assert scene.tablet().log.start_offset > count
        await scene.restart()
        assert await table.offsets(_at(0)) == {(None, 0): 0}
        assert await table.offsets(_at(middle_ms)) == {(None, 0): count}
        assert await table.offsets(_at(late_ms)) == {(None, 0): total}

    tell(story)


def _at(time_ms: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(time_ms / 1000, dt.UTC)


def test_the_changelog_of_a_primary_key_table() -> None:
    async def story(scene: RemoteScene) -> None:
        table = await scene.create(primary_key=["id"], buckets=1)
        async with table.writer() as writer:
            for round_ in range(30):
                await writer.upsert(rows(0, 40).set_column(2, "price", pa.array([float(round_)] * 40)))
                await writer.flush()
        await scene.uploads.drain()
        changes = await _changes(table)
        await scene.drop_here()
        assert scene.tablet().log.start_offset > 0
        assert await _changes(table) == changes
        assert len(changes) == 40 + 29 * 80

    tell(story)


async def _changes(table: Any) -> list[Any]:
    found: list[Any] = []
    async with table.tail("earliest", idle=2.0) as tail:
        async for batch in tail:
            found += batch.data.to_pylist()
    return found


@pytest.mark.parametrize("columns", [(), (0,), (1, 2)])
def test_the_peers_fetch(columns: Sequence[int]) -> None:
    async def story(scene: RemoteScene) -> None:
        _, count = await prepared(scene)
        found: list[Any] = []
        offset = 0
        while offset < count:
            answer = await _fetch(scene, offset, columns)
            assert answer.error_code in (None, 0), answer.error_message
            assert answer.log_start_offset == 0
            for header, view in split(
                bytes(answer.records[0] if isinstance(answer.records, list) else answer.records)
            ):
                wanted = [SCHEMA.field(one) for one in columns] or list(SCHEMA)
                batch = decode(view, pa.schema(wanted), header=header)
                found += batch.to_pylist()
                offset = header.next_offset
        everything = rows(0, count).select([SCHEMA.names[one] for one in columns] or SCHEMA.names)
        assert found == everything.to_pylist()

    tell(story)


async def _fetch(scene: RemoteScene, offset: int, columns: Sequence[int] = ()) -> FetchLogBucketResponse:
    request = FetchLogRequest(
        follower_server_id=-1,
        max_bytes=1 << 20,
        tables_req=[
            FetchLogTableRequest(
                table_id=1,
                projection_pushdown_enabled=bool(columns),
                projected_fields=tuple(columns),
                buckets_req=[
                    FetchLogBucketRequest(bucket_id=0, fetch_offset=offset, max_fetch_bytes=1 << 16)
                ],
            )
        ],
    )
    response = await scene.call(FETCH_LOG, request)
    answer: FetchLogBucketResponse = response.tables_resp[0].buckets_resp[0]
    return answer


def test_the_last_rows_reach_into_the_store() -> None:
    async def story(scene: RemoteScene) -> None:
        _, count = await prepared(scene)
        here = count - scene.tablet().log.start_offset
        for wanted in (here, here + 60, count, count + 10):
            request = LimitScanRequest(table_id=1, bucket_id=0, limit=wanted)
            response = await scene.call(LIMIT_SCAN, request)
            assert not response.error_code, response.error_message
            headers = [read_header(view) for _, view in split(bytes(response.records))]
            assert headers[-1].next_offset == count
            assert sum(one.record_count for one in headers) >= min(wanted, count)

    tell(story)


def test_only_the_wanted_columns_are_fetched() -> None:
    async def story(scene: RemoteScene) -> None:
        table, _ = await prepared(scene)
        log = scene.log()
        await ids(table)
        whole = sum(one.size for one in (await scene.manifest()).segments)
        directories = sum(one.directory_size for one in (await scene.manifest()).segments)
        narrow = log.ranges.costs
        assert narrow.moved <= 1.3 * narrow.wanted
        assert narrow.wanted < directories + (whole - directories) * 0.6

    tell(story)


def test_a_flipped_byte_in_the_store_is_told_with_its_offsets_and_costs_no_other_row() -> None:
    async def story(scene: RemoteScene) -> None:
        table, count = await prepared(scene)
        segment = (await scene.manifest()).segments[0]
        log = scene.log()
        key = log.chain.names.segment(segment.name)
        content = bytearray(await scene.store.get(key))
        directory = decode_directory(bytes(content[: segment.directory_size]), segment.size, key)
        content[directory.extents[0].columns[2].position] ^= 1
        await scene.store.put(key, bytes(content))
        with pytest.raises(ChecksumMismatch) as told:
            await table.scan(columns=["price"]).to_arrow()
        assert "offset" in told.value.message
        assert await ids(table) == list(range(count))

    tell(story)


def test_a_byte_that_was_flipped_on_its_way_is_fetched_again() -> None:
    async def story(scene: RemoteScene) -> None:
        table, count = await prepared(scene)
        flips = scene.flip_next(3)
        assert await ids(table) == list(range(count))
        assert next(flips, None) is None, "nothing was flipped"

    tell(story)


def test_while_the_store_is_down_newer_rows_are_read_and_older_ones_are_waited_for() -> None:
    async def story(scene: RemoteScene) -> None:
        table, count = await prepared(scene)
        start = scene.tablet().log.start_offset
        scene.store.faults = StoreFaults(lost=1.0)
        answer = await _fetch(scene, start)
        assert split(bytes(answer.records))[0][0].base_offset == start
        reading = asyncio.ensure_future(ids(table))
        await asyncio.sleep(10)
        assert not reading.done()
        scene.store.faults = StoreFaults()
        assert await reading == list(range(count))

    tell(story)


def test_what_expired_everywhere_is_out_of_range() -> None:
    async def story(scene: RemoteScene) -> None:
        table = await scene.create()
        await fill(table, batches=150)
        await asyncio.sleep(10)
        await scene.uploads.drain()
        await scene.drop_here()
        first, second, *_ = (await scene.manifest()).segments
        await scene.retire(below=first.end_offset)
        answer = await _fetch(scene, 0)
        assert answer.error_code == 19, answer.error_message
        assert (await ids(table))[0] == second.start_offset

    tell(story)
