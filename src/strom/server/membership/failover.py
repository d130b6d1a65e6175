"""What the active coordinator does about servers that are gone, back or about to stop: it gives their buckets leaders.

The decisions are commands (``coordinator/replicas.py``); each requires what it was decided on, so a belief that turns
out wrong costs a move and nothing else. Some hundred buckets are changed at a time, until nothing is left to do. What
could not be decided, because nobody is there who could lead, is looked at again whenever a server comes back, and
every second anyway.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from strom.coordinator import commands
from strom.coordinator.catalog import Catalog
from strom.coordinator.liveness import Suspected, Verdict
from strom.coordinator.new_copies import lost_entries
from strom.coordinator.replicas import ChangedBuckets
from strom.errors import InvalidRequest, NotCoordinator, StromError
from strom.model.bucket import BucketId
from strom.protocol.messages.inner import LeaveRequest
from strom.replication.bucket_entry import BucketEntry
from strom.replication.pacing import CopiesToMake, begin_next, copies_being_made, copies_lacking
from strom.runtime.tasks import Tasks
from strom.runtime.units import counted
from strom.server.background.decision_rollout import DecisionRollout
from strom.server.membership.recovery import PowerRecovery
from strom.server.membership.server_watch import ServerWatch
from strom.server.tablets.catalog_view import CatalogChange, TermView

LOOK_S = 1.0
AGAIN_S = 0.1
"""After a failure."""

logger = logging.getLogger(__name__)


class Failover:
    """For one term."""

    def __init__(
        self,
        view: TermView,
        watch: ServerWatch,
        rollout: DecisionRollout,
        recovery: PowerRecovery,
        *,
        moves_max: int,
    ) -> None:
        """``moves_max``: copies that a server makes at once because buckets were moved to it."""
        self._view = view
        self._recovery = recovery
        self._moves_max = moves_max
        self._watch = watch
        self._rollout = rollout
        self._tasks = Tasks()
        self._due: set[int] = set()
        """Servers whose buckets have to be looked at."""
        self._leaderless: set[int] = set()
        """Servers that led buckets which nobody can lead for now: looked at every time, whoever comes back."""
        self._moving: set[BucketId] = set()
        """Buckets whose copies are being moved."""
        self._stopping: set[int] = set()
        """Servers that are about to stop: they get no buckets."""
        self._lost = lost_entries(view.catalog)
        """Of tables whose making or dropping was cut short before this term."""
        self._woken = asyncio.Event()

    def start(self) -> None:
        """Look at everything, then follow what happens."""
        self._watch.on_verdicts.append(self._heard)
        self._view.watch(self._follow)
        self._tasks.spawn(self._run(), "give buckets leaders")

    async def close(self) -> None:
        """The term is over."""
        if self._heard in self._watch.on_verdicts:
            self._watch.on_verdicts.remove(self._heard)
        await self._tasks.close()

    def able(self) -> frozenset[int]:
        """The servers that answer and are not about to stop."""
        return self._watch.alive - self._stopping

    async def leave(self, request: LeaveRequest) -> int:
        """Give the buckets of a server that is about to stop to others; returns how many nobody else can lead."""
        server_id = request.server_id
        registration = self._view.fresh().registrations.get(server_id)
        if registration is None or registration.incarnation != request.incarnation:
            raise InvalidRequest(f"this process is not the tablet server {server_id} that is registered")
        self._stopping.add(server_id)
        await self._all(commands.move_leaders_away, server_id)
        left = self._view.catalog.replicas.leader_count(server_id)
        logger.info(
            "tablet server %s is about to stop%s",
            server_id,
            f", and still leads what nobody else can lead: {counted(left, 'bucket')}" if left else "",
        )
        return left

    # --- what happened ---------------------------------------------------------------------------------------------

    def _heard(self, verdicts: Sequence[Verdict]) -> None:
        for one in verdicts:
            if isinstance(one, Suspected):
                logger.warning("tablet server %s is gone: %s", one.server_id, one.why)
            else:
                logger.info("tablet server %s is back", one.server_id)
        self._look_at(one.server_id for one in verdicts)

    def _follow(self, change: CatalogChange) -> None:
        if change.touched.servers:
            before, now = change.before.registrations, change.catalog.registrations
            started = [one for one, found in now.items() if before.get(one) != found]
            self._stopping.difference_update(started)
            self._look_at(started)
        moved = False
        for bucket in change.touched.buckets:
            entry = change.catalog.replicas.get(bucket)
            moved |= change.before.leader_of(bucket) != change.catalog.leader_of(bucket)
            if entry is not None and entry.moving:
                self._moving.add(bucket)
                self._woken.set()
        if moved:
            self._rollout.hurry()

    def _look_at(self, servers: Iterable[int]) -> None:
        self._due.update(servers)
        self._woken.set()

    # --- what follows ----------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        catalog = self._view.catalog
        self._due.update(catalog.servers)
        self._moving.update(one for one in catalog.replicas if _is_moving(catalog, one))
        swept = False
        while True:
            self._woken.clear()
            pause_s = LOOK_S
            due, self._due = self._due, set()
            try:
                swept = swept or await self._sweep()
                await self._settle(due)
            except NotCoordinator:
                return  # whoever is active now does it
            except StromError as error:
                logger.warning("giving buckets leaders failed: %s", error)
                self._due |= due
                pause_s = AGAIN_S
            try:
                async with asyncio.timeout(pause_s):
                    await self._woken.wait()
            except TimeoutError:
                pass  # look all the same

    async def _sweep(self) -> bool:
        while await self._view.perform(commands.sweep, self._lost):
            pass
        await self._view.perform(commands.forget_losses)
        return True

    async def _settle(self, due: set[int]) -> None:
        gone = set(self._view.fresh().servers) - self._watch.alive
        elected, leaderless = await self._all(commands.elect_leaders, due | gone | self._leaderless)
        if elected:
            logger.info("elected new leaders: %s", counted(elected, "bucket"))
        self._leaderless = {entry.leader for one in leaderless if (entry := self._entry(one)) is not None}
        if leaderless:
            await self._recovery.recover(leaderless, self.able())
        if due & gone:
            await self._all(commands.drop_dead_members, due & gone)
        await self._replace_cut_off()
        if self._moving:
            await self._advance_moves()

    async def _replace_cut_off(self) -> None:
        """Leaders that live, and that their copies cannot reach."""
        cut_from = self._watch.cut_from
        if not cut_from:
            return
        replaced, _ = await self._all(commands.replace_cut_off_leaders, cut_from)
        if replaced:
            logger.warning(
                "%d buckets get other leaders: those that they had are cut off from their copies (%s)",
                replaced,
                "; ".join(f"{one} does not reach {sorted(those)}" for one, those in cut_from.items()),
            )

    def _entry(self, bucket: BucketId) -> BucketEntry | None:
        return self._view.catalog.replicas.get(bucket)

    async def _advance_moves(self) -> None:
        catalog = self._view.catalog
        self._moving = {one for one in self._moving if _is_moving(catalog, one)}
        begun, waiting = _by_progress(catalog, self._moving)
        may = begin_next(begun, waiting, self._moves_max)
        await self._all(commands.advance_moves, [*(one.bucket for one in begun), *may])

    async def _all(self, command: Callable[..., Any], argument: object) -> tuple[int, Sequence[BucketId]]:
        """Perform a command until it has nothing left to do; returns how many buckets it changed, and the others."""
        changed = 0
        while True:
            found: ChangedBuckets = await self._view.perform(command, argument, alive=self.able())
            changed += len(found.changed)
            if not found.left:
                return changed, found.unchanged


def _is_moving(catalog: Catalog, bucket: BucketId) -> bool:
    entry = catalog.replicas.get(bucket)
    return entry is not None and entry.moving


def _by_progress(
    catalog: Catalog, buckets: Iterable[BucketId]
) -> tuple[list[CopiesToMake], list[CopiesToMake]]:
    """The moves that have begun, with the copies they still make, and those that wait to begin."""
    begun, waiting = [], []
    for bucket in sorted(buckets, key=str):
        entry = catalog.replicas.get(bucket)
        assert entry is not None
        lacking = copies_lacking(entry)
        if lacking:
            waiting.append(CopiesToMake(bucket, lacking))
        else:
            begun.append(CopiesToMake(bucket, copies_being_made(entry)))
    return begun, waiting
