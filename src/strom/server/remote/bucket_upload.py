"""The next stretch of one bucket's log goes into the store; on the loop of the store.

Whoever leads claims the chain when there is first something to upload (C3), and compares the logs before it adds
anything (C4): a log that lost rows, or got others, since they were uploaded is not continued, and nothing of it is
removed. Then each stretch is put under a new name, and named by the next manifest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from strom.errors import Fenced
from strom.remote.chain_leader import ChainLeader
from strom.remote.reader_pins import ReaderPins
from strom.remote.remote_chain import ChainHead
from strom.remote.remote_expiry import removal_due
from strom.remote.remote_manifest import RemoteEpoch, RemoteManifest, RetiredSegment
from strom.remote.settling import settle
from strom.runtime.tasks import Offload
from strom.server.remote.log_stretch import LayoutOf, LogStretch, take_stretch
from strom.server.remote.remote_log import RemoteLog
from strom.tablet.tablet import Tablet

FIRST_EPOCH = 1
"""Logs count their epochs from 0, leaders of a chain from 1."""


@dataclass(frozen=True)
class UploadGoal:
    """What may go up, as the server's loop sees it."""

    tablet: Tablet
    stable: int
    """Nothing from here on."""
    size: int
    about: Mapping[str, Any]
    layout_of: LayoutOf
    lake_offset: int
    now_ms: int
    writers_from_ms: int

    @property
    def epoch(self) -> int:
        """The epoch in which the bucket is led."""
        return self.tablet.log.epoch + FIRST_EPOCH


class Progress(NamedTuple):
    """What one step did."""

    end_offset: int
    """Where the remote log ends now."""
    bytes: int
    again: bool
    """Whether something came between: the same once more."""


class BucketUpload:
    """One bucket's, as long as one tablet is open in one epoch. Its steps are taken one after the other."""

    def __init__(self, log: RemoteLog, goal: UploadGoal, threads: Offload, new_id: Callable[[], str]) -> None:
        self._log = log
        self._threads = threads
        self.tablet, self.epoch, self._about = goal.tablet, goal.epoch, goal.about
        self._leader = ChainLeader(log.chain, epoch=goal.epoch, new_id=new_id, about=goal.about)

    def fits(self, goal: UploadGoal) -> bool:
        """Whether it can go on with this goal."""
        return self.tablet is goal.tablet and self.epoch == goal.epoch and self._about == goal.about

    async def step(self, goal: UploadGoal) -> Progress:
        """Upload one stretch. Fenced: another leader has the chain, or the logs differ."""
        leader = self._leader
        if not leader.claimed and not await self._claimed(goal):
            return self._progress(again=True)
        if leader.manifest.end_offset < goal.tablet.log.start_offset:
            await self._pass_over(goal)
            return self._progress(again=True)
        stretch = await self._threads.run(self._take, goal)
        if stretch is None:
            return self._progress()
        segment = await leader.upload(stretch.content, stable=goal.stable)
        if segment is None or not await leader.name(segment, stretch.state):
            return self._progress(again=True)
        return self._progress(len(stretch.content.content))

    async def expire(self, goal: UploadGoal, below: int, grace_ms: int) -> Progress:
        """Let segments that end at or below an offset leave the manifest, and remove what left it long ago (C9)."""
        leader = self._leader
        if not leader.claimed and not await self._claimed(goal):
            return self._progress(again=True)
        retired = await leader.retire(below, goal.now_ms)
        names = frozenset(one.name for one in leader.manifest.retired)
        if retired and removal_due(leader.manifest, now_ms=goal.now_ms, grace_ms=grace_ms):
            held = await ReaderPins(self._log.chain).held(names, goal.now_ms)
            retired = await leader.remove_retired(goal.now_ms, grace_ms=grace_ms, held=held)
        return self._progress(again=not retired)

    async def _claimed(self, goal: UploadGoal) -> bool:
        if not await self._leader.claim():
            return False
        try:
            _compare(self._leader.manifest, goal)
        except Fenced:
            self._leader.claimed = False
            raise
        await self._leader.remove(await self._leader.orphans())
        return True

    async def _pass_over(self, goal: UploadGoal) -> bool:
        """Rows expired before they were uploaded: the remote log goes on where the local one begins."""
        start = goal.tablet.log.start_offset

        def passed(manifest: RemoteManifest) -> RemoteManifest:
            gone = [RetiredSegment(one.name, goal.now_ms) for one in manifest.segments]
            return replace(
                manifest,
                start_offset=start,
                end_offset=start,
                segments=(),
                retired=(*manifest.retired, *gone),
            )

        return await self._leader.change(passed)

    def _take(self, goal: UploadGoal) -> LogStretch | None:
        """In a thread."""
        return take_stretch(
            goal.tablet.log,
            self._leader.manifest,
            goal.stable,
            goal.size,
            goal.layout_of,
            lake_offset=goal.lake_offset,
            writers_from_ms=goal.writers_from_ms,
        )

    def _progress(self, size: int = 0, *, again: bool = False) -> Progress:
        self._log.head = ChainHead(self._leader.number, self._leader.manifest)
        return Progress(self._leader.manifest.end_offset, size, again)


def _compare(manifest: RemoteManifest, goal: UploadGoal) -> None:
    """Refuse a log that is not a continuation of the remote one (C4)."""
    log = goal.tablet.log
    start, end = log.start_offset, log.end_offset
    settlement = settle(manifest, [RemoteEpoch(*one) for one in log.epochs.starts], start, end)
    if settlement.cut_at == end and not settlement.begins_anew:
        return
    bucket = goal.tablet.bucket
    raise Fenced(
        f"the object store has bucket {bucket} up to offset {manifest.end_offset}, and this log has other rows, or "
        f"none, from {settlement.cut_at} on: rows were lost here after they were uploaded. Nothing of the bucket is "
        "uploaded or removed until that is settled",
        bucket=str(bucket),
        cut_at=settlement.cut_at,
        remote_end=manifest.end_offset,
    )
