"""An object store in memory, which can fail before and, worse, after it has stored something."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Sequence
from typing import Literal

from strom.errors import StoreUnavailable
from strom.runtime.files import Bytes
from strom.runtime.objects.object_store import ObjectFacts, PutOutcome, check_key, check_prefix


class MemoryObjects:
    """A :class:`strom.runtime.objects.object_store.Objects` in memory. Others get a turn at each call."""

    def __init__(self) -> None:
        self._objects: dict[str, bytes] = {}
        self._put_to_fail: Literal["before", "after"] | None = None

    def fail_next_put(self, when: Literal["before", "after"]) -> None:
        """The next put raises ``StoreUnavailable``, with nothing stored, or although the object is stored."""
        self._put_to_fail = when

    def flip(self, key: str, position: int) -> None:
        """One bit of a stored object changes."""
        content = bytearray(self._objects[key])
        content[position] ^= 1
        self._objects[key] = bytes(content)

    async def put(self, key: str, content: Bytes) -> None:
        await self._put(key, content, replace=True)

    async def put_if_absent(self, key: str, content: Bytes) -> PutOutcome:
        return await self._put(key, content, replace=False)

    async def _put(self, key: str, content: Bytes, *, replace: bool) -> PutOutcome:
        check_key(key)
        await asyncio.sleep(0)
        failing, self._put_to_fail = self._put_to_fail, None
        if failing == "before":
            raise StoreUnavailable(f"the put of {key} is lost", sent=True)
        if key in self._objects and not replace:
            return PutOutcome.TAKEN
        self._objects[key] = bytes(content)
        if failing == "after":
            raise StoreUnavailable(f"the answer to the put of {key} is lost", sent=True)
        return PutOutcome.STORED

    async def get(self, key: str) -> bytes:
        check_key(key)
        await asyncio.sleep(0)
        content = self._objects.get(key)
        if content is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), key)
        return content

    async def get_range(self, key: str, position: int, length: int) -> bytes:
        assert position >= 0
        assert length >= 0
        return (await self.get(key))[position : position + length]

    async def head(self, key: str) -> ObjectFacts:
        return ObjectFacts(key, len(await self.get(key)))

    async def list(self, prefix: str = "", after: str = "") -> list[ObjectFacts]:
        check_prefix(prefix)
        await asyncio.sleep(0)
        return [
            ObjectFacts(key, len(content))
            for key, content in sorted(self._objects.items())
            if key.startswith(prefix) and key > after
        ]

    async def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            check_key(key)
        await asyncio.sleep(0)
        for key in keys:
            self._objects.pop(key, None)
