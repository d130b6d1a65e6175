"""Where the copies of this server are: which process, on which disks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from strom.model.bucket import BucketId
from strom.model.properties import Durability
from strom.replication.member import Member, identity_of
from strom.replication.registration import DataDisk


@dataclass(frozen=True)
class CopyHome:
    """This process, as it is registered."""

    server_id: int
    incarnation: int
    disk_of: Callable[[BucketId], DataDisk]

    def member(self, bucket: BucketId, placement: int, durability: Durability) -> Member:
        """The copy of a bucket that this server has for an assignment (R4)."""
        disk = self.disk_of(bucket)
        return Member(self.server_id, identity_of(disk.disk, placement, disk.lineage, durability))
