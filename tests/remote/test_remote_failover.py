"""The remote log of a bucket with copies on several servers: leaders change, and it goes on whole."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from replicas.scene import BUCKET, ReplicaScene, play
from strom.remote.remote_chain import ChainHead, RemoteChain
from strom.remote.remote_names import RemoteNames
from strom.server.tablets.tablet_slot import in_lane
from strom.testing.faulty_objects import FaultyObjects, StoreFaults
from strom.testing.random import SeededRandomness

NAMES = RemoteNames("cluster", BUCKET.table_id, None, BUCKET.bucket)


class Failovers:
    """A cluster and its store."""

    def __init__(self, scene: ReplicaScene, store: FaultyObjects) -> None:
        self.scene = scene
        self.store = store
        self.count = 0

    async def append(self, batches: int) -> None:
        """More rows, numbered on."""
        for _ in range(batches):
            await self.scene.append(*range(self.count, self.count + 50))
            self.count += 50

    async def head(self) -> ChainHead:
        """The newest manifest."""
        return await RemoteChain(self.store.inner, NAMES).head()

    async def uploaded(self) -> None:
        """Everything is in the store."""
        async with asyncio.timeout(600):
            while (await self.head()).manifest.end_offset < self.count:  # noqa: ASYNC110 - nobody tells of it
                await asyncio.sleep(1)

    async def drop_at_leader(self) -> None:
        """Remove what is in the store from the leader's disk."""
        end = (await self.head()).manifest.end_offset
        slot = self.scene.leader.replicas.find(BUCKET).slot  # type: ignore[union-attr]
        await in_lane(slot, lambda tablet: tablet.log.drop_before(end))
        assert slot.tablet is not None
        assert slot.tablet.log.start_offset > 0


def told(story: Callable[[Failovers], Awaitable[None]], *, faults: StoreFaults | None = None) -> None:
    """Run a story."""
    store: list[FaultyObjects] = []

    def make() -> FaultyObjects:
        store.append(FaultyObjects(SeededRandomness(7), faults or StoreFaults()))
        return store[0]

    async def scenario(scene: ReplicaScene) -> None:
        await scene.begin()
        await story(Failovers(scene, store[0]))

    settings = {
        "remote.data.dir": "s3://history/prefix",
        "remote.upload.max-age": "3 s",
        "remote.upload.size": "64kb",
        "log.segment.file-size": "4096",
    }
    play(scenario, store=make, **settings)


def test_a_new_leader_goes_on_where_the_old_one_was() -> None:
    async def story(now: Failovers) -> None:
        await now.append(5)
        await now.uploaded()
        first = await now.head()
        await now.scene.kill_leader()
        await now.append(5)
        await now.uploaded()
        after = (await now.head()).manifest
        assert after.segments[: len(first.manifest.segments)] == first.manifest.segments
        assert after.epoch > first.manifest.epoch
        assert [one.epoch for one in after.epochs] == sorted({one.epoch for one in after.epochs})
        await now.drop_at_leader()
        assert await now.scene.numbers() == list(range(now.count))

    told(story)


def test_a_store_that_is_down_stops_no_failover() -> None:
    async def story(now: Failovers) -> None:
        await now.append(3)
        now.store.faults = StoreFaults(lost=1.0)
        await now.scene.kill_leader()
        await now.append(3)
        assert await now.scene.numbers() == list(range(now.count))
        now.store.faults = StoreFaults()
        await now.uploaded()

    told(story)


def test_only_what_all_copies_have_synced_goes_up() -> None:
    async def story(now: Failovers) -> None:
        await now.append(2)
        await now.uploaded()
        for follower in now.scene.followers:
            follower.kill()
        leading = now.scene.leading()
        writing = asyncio.ensure_future(now.scene.append(*range(1000, 1050)))
        await asyncio.sleep(0.4)
        assert leading.tablet.log.end_offset > now.count
        await asyncio.sleep(10)
        assert (await now.head()).manifest.end_offset <= max(leading.stable, now.count)
        writing.cancel()

    told(story)
