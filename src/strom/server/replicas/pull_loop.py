"""All questions to one leader: they go out together, and their answers come back to their buckets.

At most two calls are under way: one that waits at the leader, and one that brings what is new and takes its place. What
becomes new meanwhile goes with the next. When a call fails, nobody knows what was heard and what was answered: a new
session begins, and every bucket asks anew (R12).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator

from strom.errors import Disconnected, RequestTimeout, StromError
from strom.model.bucket import BucketId
from strom.protocol.messages.replication import PullRequest, PullResponse
from strom.runtime.tasks import Tasks
from strom.server.replicas.following import FollowingBucket
from strom.server.replicas.replica_settings import ReplicaSettings
from strom.server.replicas.wire import bucket_of, wire_bucket

CALLS_AT_ONCE = 2
GRACE_S = 2.0
"""How much longer than it may wait a call may take."""
PAUSE_FIRST_S = 0.02
PAUSE_MAX_S = 0.5

logger = logging.getLogger(__name__)

AskPull = Callable[[PullRequest, float], Awaitable[PullResponse]]
"""Makes a call to the leader, within some seconds."""


class PullLoop:
    """The buckets that this server follows at one leader. Belongs to the loop."""

    def __init__(
        self,
        server_id: int,
        incarnation: int,
        ask: AskPull,
        sessions: Iterator[int],
        settings: ReplicaSettings,
        tasks: Tasks,
        name: str,
    ) -> None:
        """``sessions``: counts the sessions of this process, so that a late call is known as one."""
        self._server_id = server_id
        self._incarnation = incarnation
        self._ask = ask
        self._sessions = sessions
        self._settings = settings
        self._tasks = tasks
        self._name = name
        self._followed: dict[BucketId, FollowingBucket] = {}
        self._new: dict[BucketId, None] = {}
        self._given_up: dict[BucketId, None] = {}
        self._woken = asyncio.Event()
        self._broken: StromError | None = None
        self._under_way = 0
        self._running: asyncio.Task[None] | None = None
        self._heard_at = 0.0
        self._unreached = False

    def __len__(self) -> int:
        """How many buckets are followed."""
        return len(self._followed)

    def unreached_s(self, now: float) -> float:
        """For how long the leader has not been reached though it was tried; 0.0 while it is, or nothing is followed."""
        return now - self._heard_at if self._unreached and self._followed else 0.0

    def follow(self, bucket: FollowingBucket) -> None:
        """Ask for a bucket from now on."""
        self._followed[bucket.bucket] = bucket
        self._given_up.pop(bucket.bucket, None)
        bucket.on_change = self._changed
        self._changed(bucket)
        if self._running is None:
            self._running = self._tasks.spawn(self._run(), f"pull from {self._name}")

    def give_up(self, bucket: FollowingBucket) -> None:
        """Ask no more for a bucket."""
        if self._followed.get(bucket.bucket) is bucket:
            del self._followed[bucket.bucket]
            self._new.pop(bucket.bucket, None)
            self._given_up[bucket.bucket] = None
            self._woken.set()

    def hurry(self) -> None:
        """The leader may be there again: try now."""
        self._woken.set()

    def _changed(self, bucket: FollowingBucket) -> None:
        self._new[bucket.bucket] = None
        self._woken.set()

    async def _run(self) -> None:
        """Sessions, one after the other, as long as there is something to follow."""
        pause = PAUSE_FIRST_S
        self._heard_at, self._unreached = asyncio.get_running_loop().time(), False
        try:
            while self._followed:
                began = asyncio.get_running_loop().time()
                error = await self._session()
                lasted = asyncio.get_running_loop().time() - began
                pause = PAUSE_FIRST_S if lasted > PAUSE_MAX_S else min(2 * pause, PAUSE_MAX_S)
                if error is not None and self._followed:
                    logger.info("pulling from %s: %s", self._name, error)
                    await self._rest(pause)
        finally:
            self._running = None

    async def _rest(self, pause: float) -> None:
        self._woken.clear()
        try:
            async with asyncio.timeout(pause):
                await self._woken.wait()
        except TimeoutError:
            pass

    async def _session(self) -> StromError | None:
        """Ask until a call fails, or nothing is followed any more."""
        session, number, calls = next(self._sessions), 0, Tasks()
        self._broken, self._under_way = None, 0
        self._given_up.clear()
        for bucket in self._followed.values():
            bucket.forget_question()
            self._new[bucket.bucket] = None
        try:
            while self._broken is None and self._followed:
                something = self._new or self._given_up or not self._under_way
                if something and self._under_way < CALLS_AT_ONCE:
                    await asyncio.sleep(0)  # what becomes new in this turn goes along
                    request = self._request(session, number)
                    if request.questions or request.given_up or not self._under_way:
                        number, self._under_way = number + 1, self._under_way + 1
                        calls.spawn(self._call(request), f"pull from {self._name}")
                    continue
                self._woken.clear()
                await self._woken.wait()
        finally:
            await calls.close()
        return self._broken

    def _request(self, session: int, number: int) -> PullRequest:
        new, self._new = self._new, {}
        given_up, self._given_up = self._given_up, {}
        entries = (self._followed[one].entry() for one in new if one in self._followed)
        return PullRequest(
            server_id=self._server_id,
            incarnation=self._incarnation,
            session=session,
            number=number,
            questions=[entry for entry in entries if entry is not None],
            given_up=[wire_bucket(one) for one in given_up],
            max_bytes=self._settings.pull_bytes_max,
            wait_ms=self._settings.pull_wait_ms,
        )

    async def _call(self, request: PullRequest) -> None:
        try:
            response = await self._ask(request, self._settings.pull_wait_ms / 1000 + GRACE_S)
            self._heard_at, self._unreached = asyncio.get_running_loop().time(), False
            if response.unknown_session:
                self._broken = StromError("the leader knows nothing of the session")
            for answer in response.answers:
                bucket = self._followed.get(bucket_of(answer))
                if bucket is not None:
                    bucket.answered(answer)
        except StromError as error:
            self._broken = error
            self._unreached = isinstance(error, Disconnected | RequestTimeout)
        finally:
            self._under_way -= 1
            self._woken.set()
