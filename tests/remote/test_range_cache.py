"""What was read of the store is kept on this disk: within its bound, checked, and none the worse for being lost."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from remote.scene import RemoteScene, fill, ids, tell
from strom.runtime.tasks import InlineOffload
from strom.server.remote.range_cache import CachedParts, RangeCache
from strom.testing.disk import ForgettingDisk
from strom.testing.objects import MemoryObjects


class CountedObjects(MemoryObjects):
    """A store that counts what it is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: Counter[tuple[str, int, int]] = Counter()

    async def get_range(self, key: str, position: int, length: int) -> bytes:
        self.asked[key, position, length] += 1
        return await super().get_range(key, position, length)


def cache(disk: ForgettingDisk, bytes_max: int = 1000) -> RangeCache:
    return RangeCache(disk, "/cache", bytes_max, InlineOffload())


async def filled(disk: ForgettingDisk) -> tuple[CountedObjects, CachedParts]:
    objects = CountedObjects()
    await objects.put("a/object", bytes(range(250)) * 10)
    return objects, CachedParts(objects, cache(disk))


def test_a_part_is_fetched_once_also_by_the_next_process() -> None:
    async def main() -> None:
        disk = ForgettingDisk(record=False)
        objects, parts = await filled(disk)
        for reader in (parts, parts, CachedParts(objects, cache(disk))):
            assert await reader.get_range("a/object", 10, 100) == (bytes(range(250)) * 10)[10:110]
        assert objects.asked == {("a/object", 10, 100): 1}

    asyncio.run(main())


@pytest.mark.parametrize("damage", ["flipped", "cut", "gone"])
def test_a_part_that_is_not_what_was_kept_is_fetched_again(damage: str) -> None:
    async def main() -> None:
        disk = ForgettingDisk(record=False)
        objects, parts = await filled(disk)
        wanted = await parts.get_range("a/object", 0, 64)
        [name] = disk.list("/cache")
        content = bytearray(disk.read_whole(f"/cache/{name}"))
        if damage == "gone":
            disk.remove(f"/cache/{name}")
        else:
            content[20] ^= 1
            disk.write_whole(f"/cache/{name}", content if damage == "flipped" else content[:20])
        assert await parts.get_range("a/object", 0, 64) == wanted
        assert objects.asked["a/object", 0, 64] == 2

    asyncio.run(main())


def test_the_bound_holds_and_what_was_used_last_stays() -> None:
    async def main() -> None:
        disk = ForgettingDisk(record=False)
        objects, parts = await filled(disk)
        for position in range(0, 1000, 100):
            await parts.get_range("a/object", position, 100)
            await parts.get_range("a/object", 0, 100)
        await parts.get_range("a/object", 1000, 600)
        await parts.get_range("a/object", 1700, 100)
        assert sum(disk.size(f"/cache/{name}") - 4 for name in disk.list("/cache")) <= 1000
        await parts.get_range("a/object", 0, 100)
        assert objects.asked["a/object", 0, 100] == 1
        await parts.get_range("a/object", 100, 100)
        assert objects.asked["a/object", 100, 100] == 2

    asyncio.run(main())


def test_a_server_reads_columns_again_without_the_store_and_keeps_nothing_of_whole_reads() -> None:
    async def story(scene: RemoteScene) -> None:
        table = await scene.create()
        count = await fill(table)
        await scene.uploads.drain()
        await scene.drop_here()
        await table.scan().to_arrow()
        folder = "/data/remote-cache-0"
        kept = sum(scene.cluster.disk.size(f"{folder}/{one}") for one in scene.cluster.disk.list(folder))
        directories = sum(one.directory_size + 4 for one in (await scene.manifest()).segments)
        assert kept == directories
        await scene.restart()  # what is in memory counts for nothing
        before = scene.count_parts()
        assert await ids(table) == list(range(count))
        assert scene.count_parts() > before
        await scene.restart()
        before = scene.count_parts()
        assert await ids(table) == list(range(count))
        assert scene.count_parts() == before

    tell(story)
