"""A server with an object store, a client, and what the tests ask of them; on virtual time."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from typing import Any

import pyarrow as pa

from strom.aio.database import Database
from strom.aio.table import Table
from strom.client.cluster.options import ClientOptions
from strom.model.bucket import BucketId
from strom.protocol.api_keys import Api, Response
from strom.remote.chain_leader import ChainLeader
from strom.remote.remote_manifest import RemoteManifest
from strom.rpc.caller import Caller
from strom.runtime.random import Randomness
from strom.server.process.tablet_node import TabletNode
from strom.server.remote.remote_log import RemoteLog
from strom.server.remote.uploads import Uploads
from strom.server.tablets.tablet_slot import in_lane
from strom.tablet.tablet import Tablet
from strom.testing import loop as virtual
from strom.testing.cluster import HOST, PORT, SimulatedCluster
from strom.testing.faulty_objects import FaultyObjects
from strom.testing.random import SeededRandomness

SCHEMA = pa.schema([("id", pa.int64()), ("word", pa.string()), ("price", pa.float64())])
OPTIONS = ClientOptions(connect_timeout_ms=500, request_timeout_ms=60_000, retry_timeout_ms=120_000)
SETTINGS = {
    "remote.data.dir": "s3://history/prefix",
    "remote.upload.size": "64kb",
    "log.segment.file-size": "4096",
    "log.retention.check-interval": "1 d",
}


class Nobody:
    """Does not care what the disk gets."""

    def appended(self, path: str, position: int, content: bytes) -> None: ...

    def truncated(self, path: str, size: int) -> None: ...

    def replaced(self, path: str, content: bytes) -> None: ...

    def removed(self, path: str) -> None: ...


class RemoteScene:
    """One server through its lives, and the store behind it."""

    def __init__(self, randomness: Randomness, settings: Mapping[str, str]) -> None:
        self.store = FaultyObjects(randomness)
        self.cluster = SimulatedCluster(
            randomness, Nobody(), settings={**SETTINGS, **settings}, objects=self.store
        )
        self.database: Database
        self.life = self.cluster.client("client")

    async def create(self, schema: pa.Schema = SCHEMA, **options: Any) -> Table:
        """The table."""
        return await self.database.create_table("t", schema, **options)

    @property
    def node(self) -> TabletNode:
        """The tablet server."""
        return self.cluster.node

    @property
    def uploads(self) -> Uploads:
        """What uploads."""
        assert self.node.uploads is not None
        return self.node.uploads

    def tablet(self, bucket: int = 0) -> Tablet:
        """An open bucket of the first table."""
        tablet = self.node.tablets.slot(BucketId(1, None, bucket)).tablet
        assert tablet is not None
        return tablet

    def log(self, bucket: int = 0) -> RemoteLog:
        """The remote log of a bucket, as the server knows it."""
        assert self.node.remote is not None
        return self.node.remote.of(BucketId(1, None, bucket))

    async def objects(self) -> list[str]:
        """The names of all segments that are in the store."""
        return [one.key for one in await self.store.inner.list() if "/s/" in one.key]

    async def manifest(self, bucket: int = 0) -> RemoteManifest:
        """What the store has of a bucket, read from the store."""
        return (await self.log(bucket).chain.head()).manifest

    async def drop_here(self, buckets: int = 1) -> None:
        """Remove what is in the store from this disk, without any of the rules that say when it may go."""
        for number in range(buckets):
            end = (await self.manifest(number)).end_offset
            slot = self.node.tablets.slot(BucketId(1, None, number))

            def drop(tablet: Tablet, end: int = end) -> None:
                tablet.log.drop_before(end)

            await in_lane(slot, drop)

    def now_ms(self) -> int:
        """The server's time."""
        return self.cluster.world_of(self.life).clock.now_ms()

    async def call(self, api: Api[Any, Response], request: Any) -> Response:
        """A call as any client's."""
        world = self.cluster.world_of(self.life)
        caller = await Caller.connect(world, HOST, PORT)
        try:
            return await caller.call(api, request)
        finally:
            caller.close()

    async def cut_here(self, to: int) -> None:
        """Lose rows of the log, as a disk of another day would have."""

        def cut(tablet: Tablet) -> None:
            tablet.was_cut(tablet.log.truncate(to))

        await in_lane(self.node.tablets.slot(BucketId(1, None, 0)), cut)

    async def retire(self, *, below: int) -> None:
        """Let segments leave the manifest, as when they expire, and remove them at once."""
        log, number = self.log(), itertools.count()
        leader = ChainLeader(
            log.chain, epoch=self.tablet().log.epoch + 1, new_id=lambda: f"t{next(number)}", about={}
        )
        assert await leader.claim()
        assert await leader.retire(below, 0)
        assert await leader.remove_retired(1, grace_ms=0, held=frozenset())

    def count_parts(self) -> int:
        """How many parts of objects the store was asked for so far; counts from the first call on."""
        inner = self.store.inner
        if not hasattr(self, "_parts"):
            self._parts = [0]
            whole = inner.get_range

            async def counted(key: str, position: int, length: int) -> bytes:
                self._parts[0] += 1
                return await whole(key, position, length)

            inner.get_range = counted  # type: ignore[method-assign]
        return self._parts[0]

    def flip_next(self, times: int) -> Iterator[None]:
        """Flip a byte in each of the next answers with a part of a segment; yields for each that is left."""
        left = [None] * times
        inner = self.store.inner
        whole = inner.get_range

        async def flipped(key: str, position: int, length: int) -> bytes:
            found = await whole(key, position, length)
            if left and length:
                left.pop()
                return bytes([found[0] ^ 1]) + found[1:]
            return found

        inner.get_range = flipped  # type: ignore[method-assign]
        while left:
            yield left[0]

    async def restart(self, *, kill: bool = False, power_loss: bool = False) -> None:
        """Another life on the same disk."""
        if kill:
            self.cluster.kill(power_loss=power_loss)
        else:
            assert await self.cluster.stop()
        assert await self.cluster.start()


Story = Callable[[RemoteScene], Awaitable[None]]


def tell(story: Story, settings: Mapping[str, str] | None = None, *, seed: int = 1) -> None:
    """Run a story."""

    async def main() -> None:
        scene = RemoteScene(SeededRandomness(seed), settings or {})
        assert await scene.cluster.start()
        await scene.life.spawn(_meet(scene, story), "story")
        await scene.cluster.close()

    virtual.run(main())


def _meet(scene: RemoteScene, story: Story) -> Coroutine[Any, Any, None]:
    async def meet() -> None:
        scene.database = await scene.cluster.connect(scene.life, OPTIONS)
        await story(scene)

    return meet()


def rows(start: int, count: int) -> pa.Table:
    """Rows whose ids go on from ``start``."""
    ids = range(start, start + count)
    return pa.table(
        [list(ids), [f"word {one % 7}" * 3 for one in ids], [one / 4 for one in ids]], schema=SCHEMA
    )


async def fill(table: Table, batches: int = 40, per_batch: int = 50, start: int = 0) -> int:
    """Append rows in batches; the number of rows from 0 on."""
    async with table.writer() as writer:
        for number in range(batches):
            await writer.append(rows(start + number * per_batch, per_batch))
            await writer.flush()
    return start + batches * per_batch


async def ids(table: Table, **scan: Any) -> list[int]:
    """The ids that a scan finds, in order."""
    found = await table.scan(columns=["id"], **scan).to_arrow()
    return sorted(found.column("id").to_pylist())
