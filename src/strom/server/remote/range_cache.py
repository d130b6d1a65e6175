"""Parts of objects on this disk, within a bound of bytes: what is asked for again need not be fetched again.

Each part is a file with its checksum in front, written beside and renamed; it is checked at each read, and one that
does not fit is no part. Nothing here has to survive anything: a part that is lost is fetched. The parts that were not
used for longest give way. Belongs to one loop; the disk's work is done by ``offload``.
"""

from __future__ import annotations

import hashlib
import logging
from collections import OrderedDict
from itertools import count

from strom.errors import StromError
from strom.record.checksum import crc32c
from strom.runtime.files import TEMPORARY_SUFFIX, Files
from strom.runtime.objects.object_store import Objects
from strom.runtime.tasks import Offload

CHECKSUM_BYTES = 4
DIGEST_BYTES = 16

logger = logging.getLogger(__name__)


class RangeCache:
    """The parts in one folder, which is its own."""

    def __init__(self, files: Files, folder: str, bytes_max: int, offload: Offload) -> None:
        self._files, self._folder, self._bytes_max, self._offload = files, folder, bytes_max, offload
        self._sizes: OrderedDict[str, int] | None = None
        self._numbers = count()
        self.size = 0
        self.hits = self.misses = 0

    async def get(self, key: str, position: int, length: int) -> bytes | None:
        """A part of an object, if it is here and sound."""
        sizes, name = await self._known(), _name(key, position, length)
        content = None if name not in sizes else await self._offload.run(self._read, name)
        if content is None:
            self._drop(name)
            self.misses += 1
            return None
        self.hits += 1
        if name in sizes:
            sizes.move_to_end(name)
        return content

    async def keep(self, key: str, position: int, length: int, content: bytes) -> None:
        """Keep a part; others give way."""
        sizes, name = await self._known(), _name(key, position, length)
        if name in sizes or len(content) > self._bytes_max // 2:
            return
        if not await self._offload.run(self._write, name, content):
            return
        sizes[name] = len(content)
        self.size += len(content)
        while self.size > self._bytes_max:
            await self._offload.run(self._remove, next(iter(sizes)))
            self._drop(next(iter(sizes)))

    async def forget(self, key: str) -> None:
        """Fetch an object anew: something in it was not what was written."""
        prefix = _digest(key)
        for name in [one for one in await self._known() if one.startswith(prefix)]:
            await self._offload.run(self._remove, name)
            self._drop(name)

    async def _known(self) -> OrderedDict[str, int]:
        """What is here, by name; what an earlier process left counts as not used for longest."""
        if self._sizes is None:
            found = await self._offload.run(self._list)
            if self._sizes is None:  # somebody else asked meanwhile
                self._sizes = found
                self.size = sum(found.values())
        return self._sizes

    def _drop(self, name: str) -> None:
        assert self._sizes is not None
        self.size -= self._sizes.pop(name, 0)

    # --- on the disk -----------------------------------------------------------------------------------------

    def _list(self) -> OrderedDict[str, int]:
        self._files.make_folder(self._folder)
        found: OrderedDict[str, int] = OrderedDict()
        for name in self._files.list(self._folder):
            path = f"{self._folder}/{name}"
            if name.endswith(TEMPORARY_SUFFIX):
                self._files.remove(path)
            else:
                found[name] = max(0, self._files.size(path) - CHECKSUM_BYTES)
        return found

    def _read(self, name: str) -> bytes | None:
        try:
            content = self._files.read_whole(f"{self._folder}/{name}")
        except OSError:
            return None
        part = content[CHECKSUM_BYTES:]
        sound = crc32c(part) == int.from_bytes(content[:CHECKSUM_BYTES], "little")
        return part if sound else None

    def _write(self, name: str, content: bytes) -> bool:
        path = f"{self._folder}/{name}"
        beside = f"{path}-{next(self._numbers)}{TEMPORARY_SUFFIX}"
        try:
            file = self._files.open(beside, create=True)
            try:
                file.append([crc32c(content).to_bytes(CHECKSUM_BYTES, "little"), content])
            finally:
                file.close()
            self._files.rename(beside, path)
        except (StromError, OSError) as error:  # no room: then it is fetched again
            logger.debug("a part of an object is not kept: %s", error)
            return False
        return True

    def _remove(self, name: str) -> None:
        self._files.remove(f"{self._folder}/{name}")


class CachedParts:
    """Parts of objects of a store, by way of a cache."""

    def __init__(self, objects: Objects, cache: RangeCache) -> None:
        self._objects, self._cache = objects, cache

    async def get_range(self, key: str, position: int, length: int) -> bytes:
        """As the store's."""
        found = await self._cache.get(key, position, length)
        if found is None:
            found = await self._objects.get_range(key, position, length)
            await self._cache.keep(key, position, length, found)
        return found


def _name(key: str, position: int, length: int) -> str:
    return f"{_digest(key)}-{position}-{length}"


def _digest(key: str) -> str:
    return hashlib.blake2b(key.encode(), digest_size=DIGEST_BYTES).hexdigest()
