"""Tries again, until a deadline, what an object store could not do at once.

Reads, plain puts and deletes may be repeated as they are. A conditional put may be repeated too, but once an answer
was lost nobody can tell its own object from another one by the store's answer: then the outcome is ``UNKNOWN``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import TypeVar

from strom.errors import StoreUnavailable
from strom.runtime.clock import Clock
from strom.runtime.files import Bytes
from strom.runtime.objects.object_store import ObjectFacts, Objects, PutOutcome
from strom.runtime.random import Randomness

Result = TypeVar("Result")

_PARTS = 1024


@dataclass(frozen=True)
class StorePatience:
    """How long to go on."""

    deadline_s: float = 60.0
    """No attempt begins after it, and the one that is under way then is given up."""
    attempts_max: int | None = None
    """None: as many as fit before the deadline."""
    first_pause_s: float = 0.1
    pause_max_s: float = 5.0


class PatientObjects:
    """An :class:`~strom.runtime.objects.object_store.Objects` over another one."""

    def __init__(
        self, objects: Objects, *, clock: Clock, randomness: Randomness, patience: StorePatience | None = None
    ) -> None:
        self._objects = objects
        self._clock = clock
        self._randomness = randomness
        self._patience = patience or StorePatience()
        self.repeats = 0
        """Attempts beyond the first ones: what trouble has cost."""

    def __repr__(self) -> str:
        return f"PatientObjects({self._objects!r})"

    async def put(self, key: str, content: Bytes) -> None:
        await self._until_done(lambda: self._objects.put(key, content))

    async def put_if_absent(self, key: str, content: Bytes) -> PutOutcome:
        in_doubt = False

        async def attempt() -> PutOutcome:
            nonlocal in_doubt
            try:
                outcome = await self._objects.put_if_absent(key, content)
            except StoreUnavailable as trouble:
                in_doubt = in_doubt or bool(trouble.facts.get("sent", True))
                raise
            except asyncio.CancelledError:  # at the deadline
                in_doubt = True
                raise
            return PutOutcome.UNKNOWN if in_doubt and outcome is PutOutcome.TAKEN else outcome

        try:
            return await self._until_done(attempt)
        except StoreUnavailable:
            if in_doubt:
                return PutOutcome.UNKNOWN
            raise

    async def get(self, key: str) -> bytes:
        return await self._until_done(lambda: self._objects.get(key))

    async def get_range(self, key: str, position: int, length: int) -> bytes:
        return await self._until_done(lambda: self._objects.get_range(key, position, length))

    async def head(self, key: str) -> ObjectFacts:
        return await self._until_done(lambda: self._objects.head(key))

    async def list(self, prefix: str = "", after: str = "") -> list[ObjectFacts]:
        return await self._until_done(lambda: self._objects.list(prefix, after))

    async def delete(self, keys: Sequence[str]) -> None:
        await self._until_done(lambda: self._objects.delete(keys))

    async def _until_done(self, attempt: Callable[[], Awaitable[Result]]) -> Result:
        began = self._clock.monotonic()
        pause_s = self._patience.first_pause_s
        last: StoreUnavailable | None = None
        for number in count(1):
            left_s = began + self._patience.deadline_s - self._clock.monotonic()
            try:
                async with asyncio.timeout(left_s):
                    return await attempt()
            except StoreUnavailable as trouble:
                last = trouble
            except TimeoutError:
                raise last or self._late() from None
            # Between half of the pause and all of it: many who were refused together do not come back together.
            waits_s = pause_s * (0.5 + self._randomness.below(_PARTS) / (2 * _PARTS))
            late = self._clock.monotonic() + waits_s >= began + self._patience.deadline_s
            if late or number == self._patience.attempts_max:
                raise last
            await asyncio.sleep(waits_s)
            pause_s = min(2 * pause_s, self._patience.pause_max_s)
            self.repeats += 1
        raise AssertionError("counting has no end")

    def _late(self) -> StoreUnavailable:
        return StoreUnavailable(
            f"no answer of the object store within {self._patience.deadline_s:g} seconds", sent=True
        )
