"""What one copy needs of all the others: ``Replicas``, as ``BucketReplica`` sees it."""

from __future__ import annotations

from typing import Protocol

from strom.model.bucket import BucketId
from strom.replication.member import CopyPromise
from strom.replication.role import FollowEpoch
from strom.runtime.clock import Clock
from strom.server.replicas.copy_home import CopyHome
from strom.server.replicas.following import FollowingBucket
from strom.server.tablets.tablet_slot import TabletSlot
from strom.tablet.tablet import Tablet


class ReplicaServices(Protocol):
    """Belongs to the loop."""

    home: CopyHome
    clock: Clock

    def look(self) -> None:
        """Look for changes of the metadata; entries that changed are read before this returns."""

    def promise(self, bucket: BucketId) -> CopyPromise:
        """What the bucket's table promises."""

    def wake(self, bucket: BucketId, urgent: bool) -> None:
        """There is something new for the followers of a bucket."""

    def took_over(self, bucket: BucketId) -> None:
        """This server leads a bucket from now on."""

    def left(self, bucket: BucketId, tablet: Tablet) -> None:
        """This server does not lead a bucket any more."""

    def guard(self, tablet: Tablet) -> None:
        """Before a tablet leads: refuse writes if the lake is ahead of it. In the lane."""

    def follow(
        self, slot: TabletSlot, placement: int, step: FollowEpoch, tablet: Tablet, *, lost: bool
    ) -> FollowingBucket:
        """Begin to follow a leader."""

    def unfollow(self, following: FollowingBucket) -> None:
        """Stop that."""
