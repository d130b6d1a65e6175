"""The stages of a follower become its leader's (R15).

The journal of the leader is read with the pulls; content that did not come with it is asked for, piece by piece, while
pulling goes on. Everything is done in the order of the journal: first what is missing is added, then dropped what the
leader has not. What was done up to a position is reported when it is as durable as the table promises.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from strom.errors import StageNotFound, StromError
from strom.protocol.message import whole
from strom.protocol.messages.replication import CopyStageResponse, WireStageChange
from strom.replication.stage_journal import JournalRead, MirrorStep, StageMirror
from strom.runtime.tasks import Tasks
from strom.server.background.group_commit import GroupCommit
from strom.server.tablets.tablet_slot import TabletSlot, in_lane
from strom.server.tablets.waiting import reached
from strom.tablet.tablet import Tablet

PIECE_BYTES = 1024 * 1024
PAUSE_S = 0.2

logger = logging.getLogger(__name__)

AskStage = Callable[[bytes, int, int], Awaitable[CopyStageResponse]]
"""Asks the leader for a piece of a stage: its id, the position, the bytes wanted."""


class _Round(NamedTuple):
    """Some of the journal, still to be done."""

    step: MirrorStep
    bodies: dict[bytes, bytes]
    position: int


class StageMirroring:
    """The stages of one bucket, for one epoch of its leader. Belongs to the loop."""

    def __init__(
        self,
        slot: TabletSlot,
        mirror: StageMirror,
        ask: AskStage,
        commit: GroupCommit,
        tasks: Tasks,
    ) -> None:
        self.on_progress: Callable[[], None] | None = None
        self._slot = slot
        self._mirror = mirror
        self._ask = ask
        self._commit = commit
        self._tasks = tasks
        self._rounds: deque[_Round] = deque()
        self._held: set[bytes] | None = None
        self._working = False
        self._stopped = False

    def stop(self) -> None:
        """The role has changed: what is being done is finished, and the rest is left."""
        self._stopped = True

    def take(self, read: JournalRead, changes: Sequence[WireStageChange]) -> None:
        """Some of the leader's journal came with an answer."""
        if self._held is None:
            tablet = self._slot.tablet
            self._held = set() if tablet is None else set(tablet.stages.sealed_ids())
        step = self._mirror.take(read, self._held)
        self._held = (self._held | set(step.install)) - set(step.drop)
        bodies = {bytes(one.stage_id): bytes(whole(one.body)) for one in changes if one.body is not None}
        self._rounds.append(_Round(step, bodies, self._mirror.position))
        if not self._working:
            self._working = True
            self._tasks.spawn(self._work(), f"stages of {self._slot.bucket}")

    async def _work(self) -> None:
        try:
            while self._rounds and not self._stopped:
                if await self._tried(self._rounds[0]):
                    self._rounds.popleft()
        finally:
            self._working = False

    async def _tried(self, one: _Round) -> bool:
        try:
            await self._perform(one)
        except (StromError, OSError) as error:
            if self._stopped:
                return False
            logger.warning("stages of bucket %s: %s; trying again", self._slot.bucket, error)
            await asyncio.sleep(PAUSE_S)
            return False
        self._mirror.synced(one.position)
        if self.on_progress is not None and not self._stopped:
            self.on_progress()
        return True

    async def _perform(self, one: _Round) -> None:
        for stage_id in one.step.install:
            body = one.bodies.get(stage_id)
            if body is not None:
                await self._install(stage_id, len(body), 0, body)
            else:
                await self._fetch(stage_id)
        if one.step.drop:
            await in_lane(self._slot, lambda tablet: tablet.drop_stages(one.step.drop), any_role=True)

    async def _fetch(self, stage_id: bytes) -> None:
        """Ask for a long stage, piece by piece."""
        position, size = 0, 1
        while position < size and not self._stopped:
            try:
                answer = await self._ask(stage_id, position, PIECE_BYTES)
            except StageNotFound:
                return  # the leader dropped it; its journal says so behind this place
            content = bytes(whole(answer.content))
            size = answer.size
            await self._install(stage_id, size, position, content)
            position += len(content)

    async def _install(self, stage_id: bytes, size: int, at: int, content: bytes) -> None:
        """Write a piece; the last one seals the stage, as durable as the table promises."""

        def install(tablet: Tablet) -> tuple[Tablet, int]:
            if self._stopped:
                raise StageNotFound("the role has changed")
            return tablet, tablet.stages.copies.add(stage_id, size, at, content).seal

        tablet, seal = await in_lane(self._slot, install, any_role=True)
        if seal:
            self._commit.request(tablet.stages)
            if tablet.stages.seals_durable < seal:
                await reached(tablet.stages.pending, seal)
