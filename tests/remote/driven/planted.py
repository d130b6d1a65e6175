"""Bugs planted in the product's chain, each with the seed of a history that notices it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from strom.remote import settling
from strom.remote.chain_leader import ChainLeader, Change, SegmentContent
from strom.remote.remote_chain import ChainHead, Creation, RemoteChain
from strom.remote.remote_manifest import RemoteManifest, RemoteSegment, encode_manifest
from strom.remote.remote_names import SegmentName
from strom.remote.settling import Settlement
from strom.runtime.objects.object_store import PutOutcome


class Bug(NamedTuple):
    """What is wrong, where, and a history that shows it."""

    rule: str
    where: Any
    name: str
    instead: Callable[..., Any]
    seed: int


async def _replacing(self: RemoteChain, number: int, manifest: RemoteManifest) -> Creation:
    await self.objects.put(self.names.manifest(number), encode_manifest(manifest))
    return Creation.MINE


async def _trusting(self: RemoteChain, number: int, manifest: RemoteManifest) -> Creation:
    outcome = await self.objects.put_if_absent(self.names.manifest(number), encode_manifest(manifest))
    return Creation.TAKEN if outcome is PutOutcome.TAKEN else Creation.MINE


async def _without_epoch(self: ChainLeader, change: Change) -> bool:
    known = self._head
    mine = replace(change(known.manifest), epoch=1, by=self._new_id(), about=self._about)
    creation = await self._chain.create(known.number + 1, mine)
    if creation is Creation.MINE:
        self._head = ChainHead(known.number + 1, mine)
        return True
    self.claimed = False
    return False


async def _unfenced(self: ChainLeader) -> None:
    self._head = await self._chain.head(self._head)


_upload = ChainLeader.upload


async def _believing(self: ChainLeader, content: SegmentContent, *, stable: int) -> RemoteSegment | None:
    found = await _upload(self, content, stable=stable)
    if found is not None:
        return found
    name = str(SegmentName(self.epoch, content.start_offset, content.end_offset, f"r{content.end_offset}"))
    return RemoteSegment(name, content.start_offset, content.end_offset, len(content.content), 1, 0, 0, 0)


async def _same_names(self: ChainLeader, content: SegmentContent, *, stable: int) -> RemoteSegment | None:
    name = str(SegmentName(1, content.start_offset, content.end_offset, "r"))
    outcome = await self._chain.objects.put_if_absent(self._chain.names.segment(name), content.content)
    if outcome is PutOutcome.UNKNOWN:
        return None
    return RemoteSegment(name, content.start_offset, content.end_offset, len(content.content), 1, 0, 0, 0)


async def _every_unnamed(self: ChainLeader) -> list[str]:
    named = {segment.name for segment in self.manifest.segments}
    names = self._chain.names
    listed = await self._chain.objects.list(names.segments)
    return [one.key for one in listed if one.key.removeprefix(names.segments) not in named]


def _local_wins(manifest: RemoteManifest, epochs: Any, start: int, end: int) -> Settlement:
    return Settlement(end, end)


PLANTED = {
    "overwrite": Bug("C1: a manifest replaces one of its number", RemoteChain, "create", _replacing, 61),
    "trust-unknown": Bug("C2: a manifest in doubt is taken for done", RemoteChain, "create", _trusting, 61),
    "trust-upload": Bug("C6: an object in doubt is taken for stored", ChainLeader, "upload", _believing, 0),
    "no-epoch": Bug("C3: manifests name no epoch", ChainLeader, "_create", _without_epoch, 0),
    "ignore-epoch": Bug("C3: a later epoch fences nobody", ChainLeader, "_look", _unfenced, 0),
    "local-wins": Bug("C4: the local log wins", settling, "settle", _local_wins, 0),
    "names-again": Bug("C6: an object's name is its range", ChainLeader, "upload", _same_names, 1),
    "sweep-all": Bug("C7: whatever is not named is swept", ChainLeader, "orphans", _every_unnamed, 5),
}


@contextmanager
def planted(name: str) -> Iterator[None]:
    """With a bug in the product."""
    bug = PLANTED[name]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bug.where, bug.name, bug.instead)
        yield
