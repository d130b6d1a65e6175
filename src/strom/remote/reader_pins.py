"""What readers hold: a pin keeps the objects of one manifest until a deadline, whatever leaves the chain meanwhile
(C9).

A reader puts its pin, *then* reads the newest manifest again: if that is still the one it pinned, the pin was there
before anything of it could leave. Whoever removes looks at the pins after what he removes has left the manifest. A
pin is ``p/<id>``, a JSON object of ``number`` and ``deadline_ms``; one that cannot be read holds everything.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from strom.remote.remote_chain import ChainHead, RemoteChain


class ReaderPin(NamedTuple):
    """One reader's hold on a manifest."""

    number: int
    deadline_ms: int


class ReaderPins:
    """The pins of one bucket."""

    def __init__(self, chain: RemoteChain) -> None:
        self._chain = chain

    async def pin(self, pin_id: str, deadline_ms: int) -> ChainHead:
        """Hold the newest manifest, which is returned. The same id again: hold a newer one instead."""
        head = await self._chain.head()
        while True:
            content = json.dumps(ReaderPin(head.number, deadline_ms)._asdict()).encode()
            await self._chain.objects.put(self._key(pin_id), content)
            newest = await self._chain.head(head)
            if newest.number == head.number:
                return head
            head = newest

    async def release(self, pin_id: str) -> None:
        """Hold nothing any more."""
        await self._chain.objects.delete([self._key(pin_id)])

    async def held(self, names: frozenset[str], now_ms: int) -> frozenset[str]:
        """Which of these segments somebody holds. Pins whose deadline is over are removed."""
        held: set[str] = set()
        over: list[str] = []
        for one in await self._chain.objects.list(self._folder):
            pin = await self._read(one.key)
            if pin is not None and pin.deadline_ms <= now_ms:
                over.append(one.key)
                continue
            manifest = None if pin is None else await self._chain.at(pin.number)
            held |= names if manifest is None else {segment.name for segment in manifest.segments} & names
        if over:
            await self._chain.objects.delete(over)
        return frozenset(held)

    async def _read(self, key: str) -> ReaderPin | None:
        try:
            found = json.loads(await self._chain.objects.get(key))
            return ReaderPin(int(found["number"]), int(found["deadline_ms"]))
        except FileNotFoundError:
            return ReaderPin(0, 0)  # released meanwhile
        except (ValueError, KeyError, TypeError):
            return None

    @property
    def _folder(self) -> str:
        return f"{self._chain.names.folder}/p/"

    def _key(self, pin_id: str) -> str:
        return self._folder + pin_id
