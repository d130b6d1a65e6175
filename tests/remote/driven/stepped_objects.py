"""The port of object stores over a history's store: every call is one step, at which the world goes on before it is
done.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Coroutine, Generator, Sequence
from typing import Any

from strom.runtime.files import Bytes
from strom.runtime.objects.object_store import ObjectFacts, PutOutcome

Request = Callable[[], Any]


@types.coroutine
def _turn(request: Request) -> Generator[Request, Any, Any]:
    """Leave the request with whoever steps the coroutine; go on with what he sends."""
    return (yield request)


class SteppedObjects:
    """An :class:`strom.runtime.objects.object_store.Objects` whose requests are done when somebody says so."""

    def __init__(self, world: Any) -> None:
        self._world = world

    async def put(self, key: str, content: Bytes) -> None:
        await _turn(lambda: self._world.stored(key, bytes(content), replaces=True))

    async def put_if_absent(self, key: str, content: Bytes) -> PutOutcome:
        outcome: PutOutcome = await _turn(lambda: self._world.stored(key, bytes(content)))
        return outcome

    async def get(self, key: str) -> bytes:
        found: bytes | None = await _turn(lambda: self._world.content(key))
        if found is None:
            raise FileNotFoundError(key)
        return found

    async def get_range(self, key: str, position: int, length: int) -> bytes:
        return (await self.get(key))[position : position + length]

    async def head(self, key: str) -> ObjectFacts:
        return ObjectFacts(key, len(await self.get(key)))

    async def list(self, prefix: str = "", after: str = "") -> list[ObjectFacts]:
        keys: list[str] = await _turn(lambda: self._world.listed(prefix, after))
        return [ObjectFacts(key, 0) for key in keys]

    async def delete(self, keys: Sequence[str]) -> None:
        await _turn(lambda: self._world.removed(keys))


class Work:
    """A coroutine that goes on one request at a time."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        self._coroutine = coroutine
        self.done = False
        self.result: Any = None
        self._request: Request | None = None
        self._advance(None)

    def step(self) -> None:
        """Do the request that it waits for, and let it go on to the next."""
        assert self._request is not None
        self._advance(self._request())

    def _advance(self, answer: Any) -> None:
        try:
            self._request = self._coroutine.send(answer)
        except StopIteration as end:
            self.done, self.result = True, end.value

    def close(self) -> None:
        """Give it up: a process that died."""
        self._coroutine.close()
