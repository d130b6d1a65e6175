"""At a follower: copying the base files of a leader, when its log does not reach back to this copy (R18).

The files of one base are copied piece by piece into a folder beside the copy; a copy that was interrupted goes on where
it was, if the leader still has the same base. A few pieces are asked for ahead, so that none waits for the disk; they
are written in order. When all of them are there, they take the place of the copy, and pulling goes on behind them. Few
are copied at a time, at a bounded rate, so that what is served here does not suffer.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, suppress

from strom.errors import NotLeader, StromError
from strom.protocol.message import whole
from strom.protocol.messages.replication import CopyBaseRequest, CopyBaseResponse
from strom.runtime.clock import Clock
from strom.runtime.files import Files
from strom.runtime.tasks import Offload, Tasks
from strom.server.replicas.following import FollowingBucket
from strom.server.tablets.tablets import Tablets, wait_for
from strom.tablet.copies.base_copy import BaseCopy, CopyFile
from strom.tablet.copies.base_install import BaseInstall, WantedPiece

AT_ONCE = 2
PIECE_BYTES = 1024 * 1024
PIECES_AHEAD = 4
"""Asked for at a time, of one base: while one is written, others are read and on their way."""
AGAIN_S = 0.2
"""After a copy that failed, before the leader is asked again."""
BURST_S = 0.1
"""How far ahead of its rate copying may get."""

logger = logging.getLogger(__name__)

AskBase = Callable[[int, CopyBaseRequest], Awaitable[CopyBaseResponse]]
"""Asks a tablet server."""


class CopyRate:
    """Bytes per second, over all copies of a server."""

    def __init__(self, clock: Clock, bytes_per_s: int) -> None:
        self._clock = clock
        self._bytes_per_s = bytes_per_s
        self._free_at = clock.monotonic()

    async def take(self, size: int) -> None:
        """Wait until this much more is within the rate."""
        now = self._clock.monotonic()
        self._free_at = max(self._free_at, now - BURST_S) + size / self._bytes_per_s
        if self._free_at > now:
            await asyncio.sleep(self._free_at - now)


class _AnotherBase(Exception):
    """The leader does not have the base any more that was being copied."""


class BaseCopying:
    """Copies bases for the followers of this server. Belongs to the loop."""

    def __init__(
        self,
        server_id: int,
        tablets: Tablets,
        files: Files,
        offload: Offload,
        tasks: Tasks,
        ask: AskBase,
        rate: CopyRate,
    ) -> None:
        self._server_id = server_id
        self._tablets = tablets
        self._files = files
        self._offload = offload
        self._tasks = tasks
        self._ask = ask
        self._rate = rate
        self._room = asyncio.Semaphore(AT_ONCE)

    def begin(self, following: FollowingBucket) -> None:
        """Copy the base of a follower's leader, in a task."""
        self._tasks.spawn(self._copy(following), f"copy the base of {following.bucket}")

    async def _copy(self, following: FollowingBucket) -> None:
        try:
            async with self._room:
                if following.stopped:
                    return
                await self._install(following, await self._files_of(following))
        except (_AnotherBase, StromError, OSError) as error:
            if not following.stopped:
                logger.warning("bucket %s: its base was not copied: %s", following.bucket, error)
                await asyncio.sleep(AGAIN_S)
                await self._go_on(following)

    async def _files_of(self, following: FollowingBucket) -> BaseInstall:
        """Copy what is not here yet."""
        listing = await self._ask_for(following)
        base = BaseCopy(listing.at, tuple(CopyFile(one.name, one.size) for one in listing.files))
        folder = self._folder(following)
        install = await self._offload.run(BaseInstall, self._files, folder, base)
        logger.info("bucket %s: copies the base at offset %d", following.bucket, base.offset)
        async with aclosing(self._pieces(following, install)) as pieces:
            async for wanted, piece in pieces:
                await self._offload.run(
                    install.add, wanted.file, wanted.position, whole(piece.content or b""), piece.crc or 0
                )
        return install

    async def _pieces(
        self, following: FollowingBucket, install: BaseInstall
    ) -> AsyncGenerator[tuple[WantedPiece, CopyBaseResponse], None]:
        """What is not here yet, in order; a few pieces are asked for ahead."""
        wanted = install.pieces(PIECE_BYTES)
        asked: deque[tuple[WantedPiece, asyncio.Task[CopyBaseResponse]]] = deque()
        try:
            while True:
                while len(asked) < PIECES_AHEAD and (one := next(wanted, None)) is not None:
                    call = self._ask_for_piece(following, install.base.offset, one)
                    asked.append((one, asyncio.create_task(call, name=f"copy {one}")))
                if not asked:
                    return
                one, answer = asked[0]
                piece = await answer
                asked.popleft()
                _check_goes_on(following)
                yield one, piece
        finally:
            await _end([answer for _, answer in asked])

    async def _ask_for_piece(
        self, following: FollowingBucket, offset: int, wanted: WantedPiece
    ) -> CopyBaseResponse:
        await self._rate.take(wanted.size)
        piece = await self._ask_for(
            following, at=offset, file=wanted.file, position=wanted.position, max_bytes=wanted.size
        )
        if piece.content is None or piece.at != offset:
            raise _AnotherBase(f"its leader has the base at {piece.at} by now, not at {offset}")
        return piece

    async def _install(self, following: FollowingBucket, install: BaseInstall) -> None:
        """Put the base in the place of the copy, and open it; the leader need not keep it any longer."""
        _check_goes_on(following)
        slot = following.slot
        await slot.reopen(NotLeader(f"bucket {slot.bucket} is copied anew"), install.finish)
        await self._go_on(following)
        with suppress(StromError):  # otherwise the leader notices that nobody asks
            await self._ask_for(following, at=install.base.offset, ended=True)

    async def _go_on(self, following: FollowingBucket) -> None:
        """Follow with whatever is there now."""
        tablet = await wait_for(following.slot.opened(any_role=True, patient=True))
        if not following.stopped:
            tablet.moved = following.moved
            following.goes_on(tablet)

    async def _ask_for(
        self,
        following: FollowingBucket,
        *,
        at: int | None = None,
        file: int | None = None,
        position: int | None = None,
        max_bytes: int = PIECE_BYTES,
        ended: bool | None = None,
    ) -> CopyBaseResponse:
        _check_goes_on(following)
        bucket = following.bucket
        return await self._ask(
            following.leader_id,
            CopyBaseRequest(
                table_id=bucket.table_id,
                partition_id=bucket.partition_id,
                bucket_id=bucket.bucket,
                leader_epoch=following.epoch,
                server_id=self._server_id,
                placement=following.followership.member.identity.placement,
                at=at,
                file=file,
                position=position,
                max_bytes=max_bytes,
                ended=ended,
            ),
        )

    def _folder(self, following: FollowingBucket) -> str:
        placement = following.followership.member.identity.placement
        return self._tablets.folder_of_copy(following.bucket, placement)


async def _end(calls: list[asyncio.Task[CopyBaseResponse]]) -> None:
    """Their answers are not needed any more."""
    for call in calls:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)


def _check_goes_on(following: FollowingBucket) -> None:
    if following.stopped:
        raise NotLeader("the role has changed")
