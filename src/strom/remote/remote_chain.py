"""The numbered manifests of one bucket: the newest one, and the creation of the next (rules C1 and C2).

Everybody may read; only leaders create (``chain_leader.py``). A listing may be late, so the newest manifest is sought
from the highest number listed on, one by one, until one is missing.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from strom.remote.remote_manifest import NOTHING, RemoteManifest, decode_manifest, encode_manifest
from strom.remote.remote_names import RemoteNames
from strom.runtime.objects.object_store import Objects, PutOutcome


class ChainHead(NamedTuple):
    """The newest manifest and its number; number 0 is before the first."""

    number: int
    manifest: RemoteManifest


NO_HEAD = ChainHead(0, NOTHING)


class Creation(Enum):
    """What became of a manifest."""

    MINE = "mine"
    TAKEN = "taken"
    """Its number has another one."""
    IN_DOUBT = "in doubt"
    """It is not there, and may still land."""


class RemoteChain:
    """One bucket's manifests."""

    def __init__(self, objects: Objects, names: RemoteNames) -> None:
        self.objects = objects
        self.names = names

    async def head(self, known: ChainHead = NO_HEAD) -> ChainHead:
        """The newest manifest, from one that is known on."""
        after = self.names.manifest(known.number) if known.number else ""
        listed = await self.objects.list(self.names.manifests, after)
        numbers = [number for one in listed if (number := self.names.number_of(one.key)) is not None]
        found = known
        if numbers and (newest := await self.at(max(numbers))) is not None:
            found = ChainHead(max(numbers), newest)
        while (following := await self.at(found.number + 1)) is not None:
            found = ChainHead(found.number + 1, following)
        return found

    async def at(self, number: int) -> RemoteManifest | None:
        """The manifest of a number; None when there is none (any more)."""
        key = self.names.manifest(number)
        try:
            content = await self.objects.get(key)
        except FileNotFoundError:
            return None
        return decode_manifest(content, key)

    async def create(self, number: int, manifest: RemoteManifest) -> Creation:
        """Put a manifest; after a lost answer, look whose it is (C2)."""
        outcome = await self.objects.put_if_absent(self.names.manifest(number), encode_manifest(manifest))
        if outcome is PutOutcome.STORED:
            return Creation.MINE
        if outcome is PutOutcome.TAKEN:
            return Creation.TAKEN
        found = await self.at(number)
        if found is None:
            return Creation.IN_DOUBT
        return Creation.MINE if found.by == manifest.by else Creation.TAKEN
