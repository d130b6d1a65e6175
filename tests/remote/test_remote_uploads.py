"""Logs go into the object store by size and by age, from any life of a server, whatever the store does."""

from __future__ import annotations

import asyncio

import pytest

from remote.scene import RemoteScene, fill, ids, rows, tell
from strom.testing.faulty_objects import StoreFaults

BAD_DAY = StoreFaults(lost=0.1, answer_lost=0.1, throttled=0.1, done_later=0.05, listing_lag_s=2.0)


def test_enough_rows_go_up_at_once_and_the_rest_when_it_is_old() -> None:
    async def story(scene: RemoteScene) -> None:
        table = await scene.create()
        count = await fill(table, batches=120)
        await asyncio.sleep(20)
        by_size = await scene.manifest()
        assert 0 < by_size.end_offset < count
        assert all(one.size >= 48 * 1024 for one in by_size.segments)
        await asyncio.sleep(400)
        assert (await scene.manifest()).end_offset == count

    tell(story, {"remote.upload.max-age": "5 min"})


def test_a_manifest_says_what_a_table_is_restored_from() -> None:
    async def story(scene: RemoteScene) -> None:
        table = await scene.create(properties={"table.log.ttl": "30 d"})
        count = await fill(table, batches=3)
        await scene.uploads.drain()
        manifest = await scene.manifest()
        assert manifest.about["table"] == "t"
        assert manifest.about["description"]["properties"]["table.log.ttl"] == "30 d"
        assert [one["columns"][0]["name"] for one in manifest.about["schemas"]] == ["id"]
        [writer] = manifest.writers
        assert (writer.batch_sequence, writer.next_offset) == (2, count)

    tell(story)


def test_nothing_is_uploaded_without_the_setting() -> None:
    async def story(scene: RemoteScene) -> None:
        assert scene.node.remote is None
        table = await scene.create()
        count = await fill(table)
        await asyncio.sleep(1000)
        assert await ids(table) == list(range(count))
        assert await scene.store.inner.list() == []

    tell(story, {"remote.data.dir": ""})


def test_only_what_survives_power_loss_goes_up() -> None:
    """Under ``os`` rows are acknowledged before they are synced: what the store has, the disk must not lose."""

    async def story(scene: RemoteScene) -> None:
        table = await scene.create(properties={"table.durability": "os"})
        count = await fill(table)
        await scene.uploads.drain()
        end = (await scene.manifest()).end_offset
        assert end == count
        await fill(table, batches=1, start=count)
        await scene.restart(kill=True, power_loss=True)
        assert len(await ids(table)) >= end

    tell(story)


@pytest.mark.parametrize("seed", range(4))
def test_on_a_bad_day_every_row_gets_there_once_through_kills_of_the_server(seed: int) -> None:
    async def story(scene: RemoteScene) -> None:
        table = await scene.create(properties={"table.durability": "group"})
        scene.store.faults = BAD_DAY
        count = 0
        for _ in range(5):
            count = await fill(table, batches=12, start=count)
            await asyncio.sleep(7)
            scene.cluster.kill_after(seed * 3)
            await asyncio.sleep(3)
            await scene.restart(kill=True)
        assert scene.store.count["answers lost"] > 0
        await asyncio.sleep(700)
        manifest = await scene.manifest()
        assert manifest.end_offset == count
        await scene.drop_here()
        scene.store.faults = StoreFaults()
        assert await ids(table) == list(range(count))

    tell(story, {"remote.upload.max-age": "2 s", "remote.upload.size": "64kb"}, seed=seed)


def test_a_store_that_is_down_stops_no_write_and_is_told() -> None:
    async def story(scene: RemoteScene) -> None:
        scene.store.faults = StoreFaults(lost=1.0)
        table = await scene.create()
        count = await fill(table, batches=10)
        await asyncio.sleep(900)
        count = await fill(table, batches=5, start=count)
        assert await ids(table) == list(range(count))
        told = scene.uploads.facts.summary()
        assert told["failing"] == 1
        assert "does not answer" in told["error"]
        assert told["pending_bytes"] > 0
        assert told["behind_s"] > 800
        summary = await scene.node.status.summary()
        assert summary["remote"]["failing"] == 1
        scene.store.faults = StoreFaults()
        await asyncio.sleep(400)
        assert (await scene.manifest()).end_offset == count
        assert scene.uploads.facts.summary() == {
            "pending_bytes": 0,
            "behind_s": 0.0,
            "failing": 0,
            "error": "",
        }

    tell(story)


def test_rows_that_expired_before_they_were_uploaded_are_passed_over() -> None:
    async def story(scene: RemoteScene) -> None:
        scene.store.faults = StoreFaults(lost=1.0)
        table = await scene.create(properties={"table.log.ttl": "1 h"})
        count = await fill(table)
        await asyncio.sleep(3 * 3600)
        start = scene.tablet().log.start_offset
        assert start == count
        scene.store.faults = StoreFaults()
        total = await fill(table, batches=5, start=count)
        await asyncio.sleep(900)
        manifest = await scene.manifest()
        assert (manifest.start_offset, manifest.end_offset) == (start, total)
        assert await ids(table) == list(range(count, total))

    tell(story, {"log.retention.check-interval": "1 min"})


def test_a_log_that_lost_rows_which_are_in_the_store_is_not_continued_there() -> None:
    """The disk of another day, as after a backup was restored: nothing may be named after rows that differ."""

    async def story(scene: RemoteScene) -> None:
        table = await scene.create(properties={"table.durability": "group"})
        await fill(table, batches=5)
        await scene.uploads.drain()
        manifest = await scene.manifest()
        await scene.cut_here(100)
        await fill(table, batches=10, start=1000)
        await asyncio.sleep(900)
        assert (await scene.manifest()).segments == manifest.segments
        told = scene.uploads.facts.summary()
        assert "has other rows" in told["error"]

    tell(story)


def test_a_copy_of_the_folder_does_not_upload_beside_the_original() -> None:
    """When it may, it uploads what is there, though its log was closed for being idle meanwhile."""

    async def story(scene: RemoteScene) -> None:
        table = await scene.create()
        await fill(table, batches=2)
        await scene.uploads.drain()
        assert scene.node.remote is not None
        cluster = scene.node.remote.access.owner.cluster
        await scene.store.put(f"{cluster}/owner", b"another folder")
        await scene.restart()
        count = await fill(table, batches=2, start=100)
        await asyncio.sleep(900)
        assert (await scene.manifest()).end_offset == 100
        assert "another folder" in scene.uploads.facts.summary()["error"]
        await scene.store.delete([f"{cluster}/owner"])
        await asyncio.sleep(100)
        assert (await scene.manifest()).end_offset == count

    tell(story)


def test_the_objects_of_a_dropped_table_go_and_nothing_can_be_named_any_more() -> None:
    async def story(scene: RemoteScene) -> None:
        table = await scene.create()
        await fill(table, batches=5)
        await scene.uploads.drain()
        chain = scene.log().chain
        scene.store.faults = StoreFaults(lost=1.0)
        await scene.database.drop_table("t")
        await asyncio.sleep(60)
        await scene.restart()
        scene.store.faults = StoreFaults()
        await asyncio.sleep(700)
        assert (await chain.head()).manifest.dropped
        left = [one.key for one in await scene.store.list(f"{chain.names.folder}/")]
        assert left == [chain.names.manifest((await chain.head()).number)]
        late = chain.names.segment("1-250-260-late")
        await scene.store.put(late, b"landed late")
        scene.cluster.clock_shift_ms += 8 * 24 * 3600 * 1000
        await scene.restart()
        await asyncio.sleep(60)
        assert late not in await scene.objects()

    tell(story)


def test_a_bucket_of_a_partition_goes_with_it() -> None:
    async def story(scene: RemoteScene) -> None:
        table = await scene.create(partition_by=["word"])
        await table.append([{"id": one, "word": f"part{one}", "price": 0.5} for one in range(5)])
        await table.flush()
        await scene.uploads.drain()
        before = {one.split("/")[2] for one in await scene.objects()}
        assert len(before) == 5
        await table.drop_partition({"word": "part3"})
        await asyncio.sleep(400)
        assert len({one.split("/")[2] for one in await scene.objects()}) == 4

    tell(story)


def test_an_object_ends_between_two_groups() -> None:
    """A log that is opened from the store has whole transactions, or nothing of them."""

    async def story(scene: RemoteScene) -> None:
        table = await scene.create(properties={"table.log.arrow.compression.type": "NONE"})
        for _ in range(3):
            async with scene.database.transaction() as tx:
                for number in range(4):
                    await tx.append(table, rows(20_000 * number, 20_000))
        await scene.uploads.drain()
        manifest, groups = await scene.manifest(), scene.tablet().log.groups
        assert manifest.end_offset == 240_000
        assert [groups.boundary(one.end_offset) for one in manifest.segments] == [
            one.end_offset for one in manifest.segments
        ]
        assert manifest.group_number == groups.newest

    tell(story, {"remote.upload.size": "4mb"})
