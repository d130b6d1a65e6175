"""The words of the specification in those of ``strom.replication``, and back.

Every entry also goes through its JSON, as it would on its way through the metadata.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Literal, cast

from replication.specification.metadata import Bucket, Identity, Server
from replication.specification.metadata import Member as SpecifiedMember
from replication.specification.records import Disk
from strom.replication import bucket_entry, member, registration
from strom.replication.bucket_entry import Assignment, BucketEntry
from strom.replication.divergence import EpochHistory
from strom.replication.member import CopyIdentity, CopyPromise, Member
from strom.replication.registration import DataDisk, Registration

Durability = Literal["os", "group"]
KEY = "replicas/1/-/0"


def promise(durability: str, min_insync: int) -> CopyPromise:
    return CopyPromise(cast(Durability, durability), min_insync)


def identity_to(identity: Identity) -> CopyIdentity:
    disk, placement, *lineage = identity
    return CopyIdentity(f"disk-{disk}", placement, *lineage)


def identity_from(identity: CopyIdentity, durability: str) -> Identity:
    disk = int(identity.disk.removeprefix("disk-"))
    if durability == "os":
        return disk, identity.placement, identity.lineage
    return disk, identity.placement


def member_to(one: SpecifiedMember) -> Member:
    return Member(one[0], identity_to(one[1]))


@lru_cache(maxsize=4096)
def entry_of(bucket: Bucket) -> BucketEntry:
    """The entry of a specified one."""
    entry = BucketEntry(
        replicas=tuple(Assignment(*one) for one in bucket.replicas),
        wanted=bucket.wanted,
        leader=bucket.leader,
        incarnation=bucket.incarnation,
        epoch=bucket.epoch,
        in_sync=tuple(sorted(map(member_to, bucket.isr))),
        losses=bucket.losses,
        drawn=bucket.drawn,
    )
    return bucket_entry.decode_bucket(KEY, bucket_entry.encode_bucket(entry))


def bucket_of(entry: BucketEntry, durability: str) -> Bucket:
    """A specified entry of an entry."""
    read = bucket_entry.decode_bucket(KEY, bucket_entry.encode_bucket(entry))
    return Bucket(
        replicas=tuple((one.server_id, one.placement) for one in read.replicas),
        wanted=read.wanted,
        leader=read.leader,
        incarnation=read.incarnation,
        epoch=read.epoch,
        isr=frozenset((one.server_id, identity_from(one.identity, durability)) for one in read.in_sync),
        losses=read.losses,
        drawn=read.drawn,
    )


def registration_of(server_id: int, server: Server) -> Registration:
    disks = (DataDisk(f"disk-{server.disk}", server.lineage),)
    return registration.Registration(server_id, server.incarnation, disks)


def member_of(server_id: int, disk: Disk, durability: str) -> Member:
    """The member that a server with this disk is."""
    identity = member.identity_of(
        f"disk-{disk.identity}", disk.placement, disk.lineage, cast(Durability, durability)
    )
    return Member(server_id, identity)


def history_of(disk: Disk) -> EpochHistory:
    """A log as a comparison sees it."""
    starts: list[tuple[int, int]] = []
    if disk.base.offset:
        starts.append((disk.base.epoch, disk.base.offset - 1))
    for offset, record in enumerate(disk.log, disk.base.offset):
        if not starts or starts[-1][0] != record.epoch:
            starts.append((record.epoch, offset))
    return EpochHistory(disk.base.offset, disk.end, starts)
