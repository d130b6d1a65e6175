"""One copy of a bucket: its role, and how that changes.

The entry of the bucket decides (R2). A change of role takes effect on the loop at once: whoever waits is sent to the
next leader, and nothing more is begun under the old role. Then the tablet changes its role in its lane, behind the work
that was begun before. A role that was left meanwhile is not taken up any more.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TypeVar

from strom.errors import LeaderNotAvailable, NotLeader, StromError
from strom.model.bucket import BucketId
from strom.replication.bucket_entry import BucketEntry
from strom.replication.leadership import Leadership
from strom.replication.role import FollowEpoch, LeadEpoch, Standing, StepDown, role_in
from strom.replication.stage_journal import StageJournal
from strom.server.replicas.following import FollowingBucket
from strom.server.replicas.leader_waits import SERVES, LeaderWaits
from strom.server.replicas.leading import LeadingBucket
from strom.server.replicas.replica_services import ReplicaServices
from strom.server.tablets.tablet_slot import TabletSlot
from strom.server.tablets.waiting import reached
from strom.tablet.pending import Pending
from strom.tablet.tablet import Tablet

SERVE_S_MAX = 10.0
"""How long a reader waits for a new leader to serve; then it is told to try again."""
TRY_AGAIN_S = 1.0
"""After a role could not be taken up, because the disk was full or kernels failed."""

logger = logging.getLogger(__name__)

T = TypeVar("T")


class BucketReplica:
    """A ``CopyRole``: the part of this server in one bucket. Belongs to the loop."""

    def __init__(self, slot: TabletSlot, placement: int, services: ReplicaServices) -> None:
        self._slot = slot
        self._placement = placement
        self._services = services
        self.turn = 0
        self.leading: LeadingBucket | None = None
        self.following: FollowingBucket | None = None
        self._entry: BucketEntry | None = None
        self._version = -1
        self._led = self._heard = 0
        self._settled = self._following_losses = 0
        """The losses that this copy has got over (R10), and those of the entry that it follows now."""
        self._becoming: LeadEpoch | FollowEpoch | None = None
        self._waits = LeaderWaits()
        self._again: asyncio.TimerHandle | None = None
        self._closed = False

    @property
    def bucket(self) -> BucketId:
        """The bucket."""
        return self._slot.bucket

    @property
    def slot(self) -> TabletSlot:
        """Its place."""
        return self._slot

    @property
    def placement(self) -> int:
        """The assignment that this copy was made for (R19)."""
        return self._placement

    @property
    def entry(self) -> tuple[BucketEntry, int]:
        """The newest entry that was read, and its version."""
        assert self._entry is not None
        return self._entry, self._version

    @property
    def epoch_known(self) -> int:
        """The newest epoch that this server knows of."""
        return max(self._heard, 0 if self._entry is None else self._entry.epoch)

    # --- what calls of clients ask ---------------------------------------------------------------------------

    @property
    def leads(self) -> bool:
        return self.leading is not None or isinstance(self._becoming, LeadEpoch)

    @property
    def stable(self) -> int:
        return 0 if self.leading is None else self.leading.stable

    @property
    def promised(self) -> Pending:
        return self._waits.promised

    @property
    def serves(self) -> bool:
        return self.leading is not None and self.leading.serves

    def check_leads(self) -> None:
        if not self.leads:
            self._services.look()  # it may have been elected a moment ago
            if not self.leads:
                raise self._not_leader()

    def check_turn(self, turn: int) -> None:
        if turn != self.turn:
            raise self._not_leader()

    def check_enough(self) -> None:
        if self.leading is not None:
            self.leading.check_enough()

    async def wait_to_serve(self) -> None:
        self.check_leads()
        if not self.serves:
            try:
                async with asyncio.timeout(SERVE_S_MAX):
                    await reached(self._waits.serving, SERVES)
            except TimeoutError:
                raise LeaderNotAvailable(
                    f"bucket {self.bucket} has a new leader, and too few of its copies answer: try again",
                    bucket=str(self.bucket),
                ) from None

    async def sealed(self, stage_id: bytes) -> None:
        if self.leading is None:
            raise self._not_leader()
        await reached(self._waits.seals, self.leading.sealed(stage_id), self.leading.advance)

    def standby(self, cut: int) -> Tablet:
        following = self.following
        if following is None or following.tablet.high_watermark < cut:
            raise self._not_leader()
        return following.tablet

    async def confirmed(self, wait_s: float) -> None:
        leading = self.leading
        if leading is None:
            raise self._not_leader()
        number = leading.leadership.raise_barrier()
        try:
            async with asyncio.timeout(wait_s):
                await reached(self._waits.barriers, number, leading.advance)
        except TimeoutError:
            raise leading.not_confirmed(number, wait_s) from None

    def _not_leader(self) -> NotLeader:
        leader = None if self._entry is None else self._entry.leader
        return NotLeader(
            f"server {leader} leads bucket {self.bucket}, or somebody will be elected shortly",
            bucket=str(self.bucket),
            leader=leader,
        )

    # --- roles -----------------------------------------------------------------------------------------------

    def read(self, entry: BucketEntry, version: int) -> None:
        """The entry as the metadata has it."""
        if self._closed or version < self._version:
            return
        self._entry, self._version = entry, version
        change = role_in(entry, self._standing())
        match change.step:
            case LeadEpoch() as step:
                self._become(step, change.forget_watermarks)
            case FollowEpoch() as step:
                self._become(step, change.forget_watermarks)
            case StepDown():
                self._leave()
            case _:
                if self.leading is not None:
                    self.leading.entry_read(entry, version)

    def heard_of(self, epoch: int) -> None:
        """Somebody knows of this epoch: whoever leads an older one is deposed (R2)."""
        if epoch <= self._heard:
            return
        self._heard = epoch
        if self.leading is not None and self.leading.epoch < epoch:
            logger.info("bucket %s: deposed by epoch %d", self.bucket, epoch)
            self._leave()
        self._services.look()

    def close(self) -> None:
        """This copy has no part in the bucket any more, or the server stops."""
        self._closed = True
        self._leave()

    def _standing(self) -> Standing:
        following = self.following.epoch if self.following is not None else 0
        if isinstance(self._becoming, FollowEpoch):
            following = self._becoming.epoch
        becoming = self._becoming.epoch if isinstance(self._becoming, LeadEpoch) else 0
        home = self._services.home
        return Standing(
            home.server_id,
            home.incarnation,
            self._placement,
            self._losses_settled(),
            led=max(self._led, becoming),
            heard=self._heard,
            leading=self.leads,
            following=following,
        )

    def _losses_settled(self) -> int:
        """A loss is settled when a leader after it has answered, not when it was heard of: that leader may be gone
        before it says where the logs part."""
        if self.following is None or self.following.unsettled:
            return self._settled
        return self._following_losses

    def _leave(self) -> None:
        """Stop whatever role it has, now."""
        self.turn += 1
        self._settled = self._losses_settled()
        self._becoming = None
        if self._again is not None:
            self._again.cancel()
            self._again = None
        following, self.following = self.following, None
        if following is not None:
            self._services.unfollow(following)
        leading, self.leading = self.leading, None
        tablet = self._slot.tablet
        if tablet is not None:
            tablet.moved = None
        error = self._not_leader()
        self._waits.fail(error)
        if leading is not None:
            leading.tablet.pending.fail(error)
            leading.stop()
            self._services.left(self.bucket, leading.tablet)

    def _become(self, step: LeadEpoch | FollowEpoch, lost: bool) -> None:
        self._leave()
        self._becoming = step
        turn, entry = self.turn, self._entry
        assert entry is not None

        def done(changed: asyncio.Future[Tablet]) -> None:
            if turn != self.turn or changed.cancelled():
                changed.cancelled() or changed.exception()  # somebody has looked at it
                return
            error = changed.exception()
            if error is not None:
                self._failed(error)
            elif isinstance(step, LeadEpoch):
                self._settled = entry.losses
                self._leads(step, changed.result())
            else:
                self._following_losses = entry.losses
                self._follows(step, changed.result(), lost)

        job = partial(self._lead, step.epoch) if isinstance(step, LeadEpoch) else _follow
        try:
            changing = self._slot.do(job, small=False, patient=True, any_role=True)
        except StromError as error:
            self._failed(error)
            return
        assert isinstance(changing, asyncio.Future)
        changing.add_done_callback(done)

    def _lead(self, epoch: int, tablet: Tablet) -> Tablet:
        """In the lane."""
        tablet.copy.lead(epoch)
        self._services.guard(tablet)
        return tablet

    def _failed(self, error: BaseException) -> None:
        """The tablet cannot be opened, or cannot take up its role: somebody else may, and this one tries again."""
        logger.warning("bucket %s cannot take up its role: %s", self.bucket, error)
        self._becoming = None
        self._again = asyncio.get_running_loop().call_later(TRY_AGAIN_S, self._try_again)

    def _try_again(self) -> None:
        self._again = None
        if self._entry is not None:
            self.read(self._entry, self._version)

    def _leads(self, step: LeadEpoch, tablet: Tablet) -> None:
        assert self._entry is not None
        services, entry = self._services, self._entry
        self._becoming, self._led = None, step.epoch
        promise = services.promise(self.bucket)
        log = tablet.log
        leadership = Leadership(
            entry,
            self._version,
            services.home.member(self.bucket, self._placement, promise.durability),
            promise,
            start=log.end_offset,
            high=tablet.high_watermark,
            stable=min(tablet.high_watermark, log.synced_end),
        )
        journal = StageJournal(tablet.stages.sealed_ids(), durable=True)
        self.leading = LeadingBucket(
            tablet, leadership, journal, self._waits, services.wake, services.clock.monotonic()
        )
        self.leading.start()
        self.leading.advance()
        services.took_over(self.bucket)
        logger.info("bucket %s: leads in epoch %d from offset %d", self.bucket, step.epoch, log.end_offset)

    def _follows(self, step: FollowEpoch, tablet: Tablet, lost: bool) -> None:
        self._becoming = None
        self.following = self._services.follow(self._slot, self._placement, step, tablet, lost=lost)
        tablet.moved = self.following.moved


def _follow(tablet: Tablet) -> Tablet:
    """In the lane."""
    tablet.copy.follow()
    return tablet
