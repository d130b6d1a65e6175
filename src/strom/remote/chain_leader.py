"""What a leader does with its bucket's chain: claim it, put objects, name them, sweep, drop (rules C3 to C7, C9, C10).

A leader claims before anything else: a manifest with its epoch. Whoever had the chain before finds it when he next
creates, and is fenced (``StaleEpoch``): he stops. So a leader that was deposed and does not know it names nothing;
and what he puts is not named, and goes with the sweep of a later leader, which needs no clock for it.

One object of this class is one incarnation in one epoch. Its calls are made one after the other. ``False`` and None
mean: not this time, somebody or something came between; claim and try again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from strom.errors import StaleEpoch
from strom.remote.remote_chain import NO_HEAD, ChainHead, Creation, RemoteChain
from strom.remote.remote_manifest import (
    DROPPED_EPOCH,
    RemoteEpoch,
    RemoteManifest,
    RemoteSegment,
    RemoteWriter,
    RetiredSegment,
)
from strom.remote.remote_names import SegmentName
from strom.runtime.files import Bytes
from strom.runtime.objects.object_store import PutOutcome

Change = Callable[[RemoteManifest], RemoteManifest]


class SegmentContent(NamedTuple):
    """The bytes of a segment, and what a manifest says of them."""

    start_offset: int
    end_offset: int
    content: Bytes
    directory_size: int
    directory_crc: int
    first_timestamp_ms: int
    last_timestamp_ms: int


class LogState(NamedTuple):
    """What belongs to E beside the rows, when E moves."""

    epochs: tuple[RemoteEpoch, ...]
    writers: tuple[RemoteWriter, ...] = ()
    group_number: int = 0
    lake_offset: int = 0


class ChainLeader:
    """A leader at work on its chain."""

    def __init__(
        self, chain: RemoteChain, *, epoch: int, new_id: Callable[[], str], about: Mapping[str, Any]
    ) -> None:
        assert 0 < epoch < DROPPED_EPOCH
        self._chain = chain
        self._epoch = epoch
        self._new_id = new_id
        self._about = about
        self._head = NO_HEAD
        self.claimed = False

    @property
    def epoch(self) -> int:
        """The epoch that it leads in."""
        return self._epoch

    @property
    def manifest(self) -> RemoteManifest:
        """The newest manifest that it knows; after a claim, its own."""
        return self._head.manifest

    @property
    def number(self) -> int:
        """The number of it."""
        return self._head.number

    # --- the chain ---------------------------------------------------------------------------------------------------

    async def claim(self) -> bool:
        """Make the chain this leader's (C3). StaleEpoch when a later one has it."""
        await self._look()
        self.claimed = await self._create(lambda manifest: manifest)
        return self.claimed

    async def name(self, segment: RemoteSegment, state: LogState) -> bool:
        """Add an uploaded segment: the end of what is remote moves on (C5)."""
        if segment.start_offset != self.manifest.end_offset:
            return False  # a manifest came between
        return await self.change(
            lambda manifest: replace(
                manifest,
                segments=(*manifest.segments, segment),
                end_offset=segment.end_offset,
                epochs=state.epochs,
                writers=state.writers,
                group_number=state.group_number,
                lake_offset=state.lake_offset,
            )
        )

    async def change(self, change: Change) -> bool:
        """The next manifest; only on a chain that is claimed."""
        assert self.claimed, "claim the chain first"
        return await self._create(change)

    async def _create(self, change: Change) -> bool:
        known = self._head
        mine = replace(change(known.manifest), epoch=self._epoch, by=self._new_id(), about=self._about)
        creation = await self._chain.create(known.number + 1, mine)
        if creation is Creation.MINE:
            self._head = ChainHead(known.number + 1, mine)
            return True
        self.claimed = False
        if creation is Creation.TAKEN:
            await self._look()
        return False  # in doubt it may still land: who claims anew finds it, or takes its number

    async def _look(self) -> None:
        """Read the newest manifest, and stop when it is of a later epoch."""
        self._head = await self._chain.head(self._head)
        newest = self._head.manifest
        if newest.epoch > self._epoch:
            self.claimed = False
            what = "the table was dropped" if newest.dropped else f"a leader of epoch {newest.epoch} has it"
            raise StaleEpoch(
                f"the remote log {self._chain.names.folder} is not this leader's (epoch {self._epoch}): {what}",
                epoch=self._epoch,
                newest=newest.epoch,
            )

    # --- objects -----------------------------------------------------------------------------------------------------

    async def upload(self, content: SegmentContent, *, stable: int) -> RemoteSegment | None:
        """Put a segment from E on, under a name that is never used again (C6); it counts once it is named."""
        assert self.claimed, "claim the chain first"
        assert content.start_offset == self.manifest.end_offset, "a segment begins where the remote log ends"
        assert content.start_offset < content.end_offset <= stable, "only what is stable goes up"
        name = str(SegmentName(self._epoch, content.start_offset, content.end_offset, self._new_id()))
        outcome = await self._chain.objects.put_if_absent(self._chain.names.segment(name), content.content)
        if outcome is not PutOutcome.STORED:
            return None  # it may be there, or come: nobody names it, and a later leader sweeps it
        return RemoteSegment(
            name,
            content.start_offset,
            content.end_offset,
            len(content.content),
            content.directory_size,
            content.directory_crc,
            content.first_timestamp_ms,
            content.last_timestamp_ms,
        )

    async def orphans(self) -> list[str]:
        """Segments that nobody will ever name: of an earlier epoch, and not in the manifest of this claim (C7)."""
        assert self.claimed, "claim the chain first"
        named = {segment.name for segment in self.manifest.segments}
        named |= {segment.name for segment in self.manifest.retired}
        names = self._chain.names
        listed = await self._chain.objects.list(names.segments)
        return [
            one.key
            for one in listed
            if (name := names.segment_of(one.key)) is not None
            and str(name) not in named
            and name.epoch < self._epoch
        ]

    async def remove(self, keys: Sequence[str]) -> None:
        """Remove orphans. Whenever: what was an orphan stays one."""
        await self._chain.objects.delete(keys)

    # --- the end of rows, and of the table
    # ------------------------------------------------------------------------------

    async def retire(self, below: int, now_ms: int) -> bool:
        """Let segments that end at or below an offset leave the manifest (C9). They are removed later."""
        leaving = [one for one in self.manifest.segments if one.end_offset <= below]
        if not leaving:
            return True
        gone = tuple(RetiredSegment(one.name, now_ms) for one in leaving)
        return await self.change(
            lambda manifest: replace(
                manifest,
                start_offset=max(manifest.start_offset, leaving[-1].end_offset),
                segments=manifest.segments[len(leaving) :],
                retired=(*manifest.retired, *gone),
            )
        )

    async def remove_retired(self, now_ms: int, *, grace_ms: int, held: frozenset[str]) -> bool:
        """Remove what left the manifest longer than ``grace_ms`` ago and no reader holds (C9)."""
        over = {one.name for one in self.manifest.retired if now_ms - one.retired_ms >= grace_ms} - held
        if not over:
            return True
        await self._chain.objects.delete([self._chain.names.segment(name) for name in sorted(over)])
        return await self.change(
            lambda manifest: replace(
                manifest, retired=tuple(one for one in manifest.retired if one.name not in over)
            )
        )

    async def drop(self) -> bool:
        """The last manifest of the chain: whoever comes is fenced (C10). Then everything may go."""
        await self._look()
        known = self._head
        last = replace(known.manifest, epoch=DROPPED_EPOCH, by=self._new_id(), about=self._about)
        self.claimed = False
        creation = await self._chain.create(known.number + 1, last)
        if creation is Creation.MINE:
            self._head = ChainHead(known.number + 1, last)
        return creation is Creation.MINE
