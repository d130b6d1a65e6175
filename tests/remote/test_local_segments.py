"""Segments go from this disk once they were read back from the store, as the table says; and from there in the end."""

from __future__ import annotations

import asyncio

import pyarrow as pa
import pytest

from remote.scene import RemoteScene, fill, ids, rows, tell
from strom.testing.faulty_objects import StoreFaults

SETTINGS = {"log.retention.check-interval": "1 min", "remote.upload.max-age": "30 s"}
HOUR_S = 3600


async def quiet(minutes: int = 10) -> None:
    """Long enough for uploads and for retention."""
    await asyncio.sleep(60 * minutes)


def test_segments_leave_this_disk_by_age_and_some_stay() -> None:
    async def story(scene: RemoteScene) -> None:
        table = await scene.create(
            properties={"table.log.local-ttl": "1 h", "table.log.tiered.local-segments": "3"}
        )
        count = await fill(table)
        await quiet()
        assert scene.tablet().log.start_offset == 0
        await asyncio.sleep(HOUR_S)
        log = scene.tablet().log
        assert log.segment_count == 3
        assert 0 < log.start_offset <= (await scene.manifest()).end_offset
        assert await ids(table) == list(range(count))
        await scene.restart(kill=True, power_loss=True)
        assert await ids(table) == list(range(count))

    tell(story, SETTINGS)


def test_nothing_leaves_this_disk_while_it_cannot_be_read_back() -> None:
    async def story(scene: RemoteScene) -> None:
        table = await scene.create(properties={"table.log.local-ttl": "1 min"})
        scene.store.faults = StoreFaults(lost=1.0)
        count = await fill(table)
        await asyncio.sleep(HOUR_S)
        assert scene.tablet().log.start_offset == 0, "nothing was uploaded"
        scene.store.faults = StoreFaults()
        await scene.uploads.drain()
        scene.store.faults = StoreFaults(lost=1.0)
        await asyncio.sleep(HOUR_S)
        assert scene.tablet().log.start_offset == 0, "nobody could read it back"
        assert await ids(table) == list(range(count))

    tell(story, SETTINGS)


def test_an_object_that_is_damaged_keeps_the_segments_here() -> None:
    async def story(scene: RemoteScene) -> None:
        table = await scene.create(properties={"table.log.local-ttl": "1 h"})
        count = await fill(table)
        await quiet()
        segment = (await scene.manifest()).segments[0]
        key = scene.log().chain.names.segment(segment.name)
        content = bytearray(await scene.store.get(key))
        content[-1] ^= 1
        await scene.store.put(key, bytes(content))
        await asyncio.sleep(2 * HOUR_S)
        assert scene.tablet().log.start_offset == 0
        assert await ids(table) == list(range(count))

    tell(story, SETTINGS)


@pytest.mark.parametrize("property_", ["table.log.ttl", "table.log.retention-bytes"])
def test_rows_expire_in_the_store_too(property_: str) -> None:
    async def story(scene: RemoteScene) -> None:
        value = "3 h" if property_ == "table.log.ttl" else "200kb"
        table = await scene.create(properties={property_: value, "table.log.local-ttl": "1 min"})
        count = 0
        for _ in range(6):
            count = await fill(table, start=count)
            await asyncio.sleep(HOUR_S)
        manifest = await scene.manifest()
        assert 0 < manifest.start_offset < count - 2000
        assert await ids(table) == list(range(manifest.start_offset, count))
        assert manifest.retired, "within the grace"
        await asyncio.sleep(2 * HOUR_S)
        there = await scene.objects()
        assert sorted(one.rpartition("/")[2] for one in there) == sorted(
            [one.name for one in (await scene.manifest()).segments]
            + [one.name for one in (await scene.manifest()).retired]
        )
        assert len(there) < 6

    tell(story, {**SETTINGS, "remote.delete.grace": "90 min"})


def test_what_was_overwritten_is_not_read_from_the_store() -> None:
    async def story(scene: RemoteScene) -> None:
        table = await scene.create(properties={"table.log.local-ttl": "1 min"})
        await fill(table)
        await quiet()
        async with scene.database.transaction() as tx:
            await tx.overwrite(table)
            await tx.append(table, [{"id": 7, "word": "new", "price": 1.0}])
        assert await ids(table) == [7]
        await quiet(200)
        assert await ids(table) == [7]
        assert (await scene.manifest()).start_offset > 0

    tell(story, SETTINGS)


def test_a_changelog_leaves_this_disk_as_far_as_the_table_does_not_need_it() -> None:
    async def story(scene: RemoteScene) -> None:
        table = await scene.create(primary_key=["id"], buckets=1, properties={"table.log.local-ttl": "1 min"})
        async with table.writer() as writer:
            for number in range(40):
                await writer.upsert(rows(0, 30).set_column(2, "price", pa.array([float(number)] * 30)))
                await writer.flush()
        await quiet(30)
        start = scene.tablet().log.start_offset
        assert 0 < start <= (await scene.manifest()).end_offset
        await scene.restart(kill=True, power_loss=True)
        live = await table.scan(columns=["id", "price"]).to_arrow()
        assert sorted(live.to_pylist(), key=lambda row: row["id"]) == [
            {"id": one, "price": 39.0} for one in range(30)
        ]
        count = 0
        async with table.tail("earliest", idle=2.0) as tail:
            async for batch in tail:
                count += batch.num_rows
        assert count == 30 + 39 * 60

    tell(story, {**SETTINGS, "kv.snapshot.interval": "2 min", "kv.snapshot.bytes": "1kb"})
