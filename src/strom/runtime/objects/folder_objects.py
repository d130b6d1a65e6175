"""Objects as files below one folder of a disk: an object is durable when ``put`` returns, as files of logs are."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar, TypeVarTuple

from strom.errors import StoreRefused
from strom.runtime.files import TEMPORARY_SUFFIX, Bytes, Files
from strom.runtime.objects.object_store import ObjectFacts, PutOutcome, check_key, check_prefix
from strom.runtime.tasks import Offload

Result = TypeVar("Result")
Arguments = TypeVarTuple("Arguments")


class FolderObjects:
    """An :class:`~strom.runtime.objects.object_store.Objects` on a disk. The work is done by ``offload``."""

    def __init__(self, folder: str, files: Files, offload: Offload) -> None:
        self._folder = folder.rstrip("/")
        self._files = files
        self._offload = offload

    async def put(self, key: str, content: Bytes) -> None:
        await self._run(self._put, self._path(key), content)

    async def put_if_absent(self, key: str, content: Bytes) -> PutOutcome:
        stored = await self._run(self._put_if_absent, self._path(key), content)
        return PutOutcome.STORED if stored else PutOutcome.TAKEN

    async def get(self, key: str) -> bytes:
        return await self._run(self._files.read_whole, self._path(key))

    async def get_range(self, key: str, position: int, length: int) -> bytes:
        return await self._run(self._read, self._path(key), position, length)

    async def head(self, key: str) -> ObjectFacts:
        return await self._run(self._facts, key, self._path(key))

    async def delete(self, keys: Sequence[str]) -> None:
        await self._run(self._remove, [self._path(key) for key in keys])

    async def _run(self, work: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result:
        try:
            return await self._offload.run(work, *arguments)
        except PermissionError:
            raise StoreRefused(
                f"this user may not use the folder {self._folder}: let it read and write there",
                cause="credentials",
                folder=self._folder,
            ) from None

    def _path(self, key: str) -> str:
        check_key(key)
        return f"{self._folder}/{key}"

    def _put(self, path: str, content: Bytes) -> None:
        self._files.make_folder(posixpath.dirname(path))
        self._files.write_whole(path, content)

    def _put_if_absent(self, path: str, content: Bytes) -> bool:
        self._files.make_folder(posixpath.dirname(path))
        return self._files.write_whole_if_absent(path, content)

    def _read(self, path: str, position: int, length: int) -> bytes:
        file = self._files.open(path)
        try:
            return file.read_at(position, length)
        finally:
            file.close()

    def _facts(self, key: str, path: str) -> ObjectFacts:
        return ObjectFacts(key, self._files.size(path))

    def _found(self, parent: str, prefix: str, after: str) -> Sequence[ObjectFacts]:
        found = []
        for key in sorted(self._keys_below(parent)):
            if key.startswith(prefix) and key > after:
                try:
                    found.append(self._facts(key, f"{self._folder}/{key}"))
                except FileNotFoundError:
                    continue  # removed meanwhile
        return found

    def _remove(self, paths: Sequence[str]) -> None:
        there = [path for path in paths if self._files.exists(path)]
        for path in there:
            self._files.remove(path)
        for folder in sorted({posixpath.dirname(path) for path in there}):
            self._files.sync_folder(folder)

    def _keys_below(self, start: str) -> Iterator[str]:
        for name in self._files.list(f"{self._folder}/{start}".rstrip("/")):
            key = start + name
            if self._files.is_folder(f"{self._folder}/{key}"):
                yield from self._keys_below(key + "/")
            elif not name.endswith(TEMPORARY_SUFFIX):
                yield key

    async def list(self, prefix: str = "", after: str = "") -> list[ObjectFacts]:
        parent = check_prefix(prefix)
        return list(await self._run(self._found, parent, prefix, after))
