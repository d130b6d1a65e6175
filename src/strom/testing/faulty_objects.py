"""An object store on virtual time that does what real ones do on bad days.

Answers take a while, so that requests overtake each other. A request is lost; it is done and its answer is lost; it
is given up and done later. The store asks to slow down. A listing shows what was there a while ago.

Equal seeds give equal days. What happened is counted in ``count``, so that a test can tell that it happened.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from strom.errors import StoreUnavailable
from strom.runtime.files import Bytes
from strom.runtime.objects.object_store import ObjectFacts, PutOutcome, check_prefix
from strom.runtime.random import Randomness
from strom.testing.objects import MemoryObjects

Result = TypeVar("Result")

_SHARES = 10_000


@dataclass(frozen=True)
class StoreFaults:
    """How often what happens; shares between 0 and 1."""

    lost: float = 0.0
    """The request never arrives."""
    answer_lost: float = 0.0
    """It is done, and nobody is told."""
    done_later: float = 0.0
    """A put is given up, and done afterwards."""
    throttled: float = 0.0
    """The store asks to slow down; nothing is done."""
    answer_s: float = 0.02
    """Up to twice of it passes until an answer."""
    later_s: float = 5.0
    listing_lag_s: float = 0.0
    """A listing shows what was there up to so long ago."""


CALM = StoreFaults()
BAD_DAY = StoreFaults(lost=0.1, answer_lost=0.1, throttled=0.1)


class FaultyObjects:
    """A :class:`strom.runtime.objects.object_store.Objects` that has bad days. For a virtual loop."""

    def __init__(self, randomness: Randomness, faults: StoreFaults = CALM) -> None:
        self.inner = MemoryObjects()
        self.faults = faults
        self.count: Counter[str] = Counter()
        self._randomness = randomness
        self._changes: list[tuple[float, str, int | None]] = []
        """When, which key, its size from then on; None: gone."""
        self._later: set[asyncio.Task[object]] = set()

    async def put(self, key: str, content: Bytes) -> None:
        held = bytes(content)

        async def put() -> None:
            await self.inner.put(key, held)
            self._changed(key, len(held))

        await self._asked(put, later=True)

    async def put_if_absent(self, key: str, content: Bytes) -> PutOutcome:
        held = bytes(content)

        async def put() -> PutOutcome:
            outcome = await self.inner.put_if_absent(key, held)
            if outcome is PutOutcome.STORED:
                self._changed(key, len(held))
            return outcome

        return await self._asked(put, later=True)

    async def get(self, key: str) -> bytes:
        return await self._asked(lambda: self.inner.get(key))

    async def get_range(self, key: str, position: int, length: int) -> bytes:
        return await self._asked(lambda: self.inner.get_range(key, position, length))

    async def head(self, key: str) -> ObjectFacts:
        return await self._asked(lambda: self.inner.head(key))

    async def list(self, prefix: str = "", after: str = "") -> list[ObjectFacts]:
        check_prefix(prefix)

        async def seen() -> list[ObjectFacts]:
            there = self._as_of(self._now() - self.faults.listing_lag_s * self._share())
            return [
                ObjectFacts(key, size)
                for key, size in sorted(there.items())
                if key.startswith(prefix) and key > after
            ]

        return await self._asked(seen)

    async def delete(self, keys: Sequence[str]) -> None:
        async def delete() -> None:
            await self.inner.delete(keys)
            for key in keys:
                self._changed(key, None)

        await self._asked(delete)

    async def _asked(self, work: Callable[[], Awaitable[Result]], *, later: bool = False) -> Result:
        faults = self.faults
        await self._pass()
        if self._happens(faults.throttled, "throttled"):
            raise StoreUnavailable("the object store asks to slow down", sent=False)
        if self._happens(faults.lost, "lost"):
            raise StoreUnavailable("the object store does not answer", sent=True)
        if later and self._happens(faults.done_later, "done later"):
            task = asyncio.ensure_future(self._do_later(work))
            self._later.add(task)
            task.add_done_callback(self._later.discard)
            raise StoreUnavailable("the object store does not answer", sent=True)
        answer = await work()
        await self._pass()
        if self._happens(faults.answer_lost, "answers lost"):
            raise StoreUnavailable("the object store does not answer", sent=True)
        return answer

    async def _do_later(self, work: Callable[[], Awaitable[Result]]) -> object:
        await asyncio.sleep(self.faults.later_s * self._share())
        return await work()

    async def _pass(self) -> None:
        await asyncio.sleep(self.faults.answer_s * self._share())

    def _share(self) -> float:
        return self._randomness.below(_SHARES) / _SHARES

    def _happens(self, share: float, what: str) -> bool:
        happens = share > 0 and self._share() < share
        self.count[what] += happens
        return happens

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def _changed(self, key: str, size: int | None) -> None:
        self._changes.append((self._now(), key, size))

    def _as_of(self, moment: float) -> dict[str, int]:
        there: dict[str, int] = {}
        for at, key, size in self._changes:
            if at > moment:
                break
            if size is None:
                there.pop(key, None)
            else:
                there[key] = size
        return there
