"""What may be lost when all copies lose power, looked at in the moment in which it is declared (R10, R23)."""

from __future__ import annotations

from typing import NamedTuple

from cluster_histories.scene import Scene
from strom.model.bucket import BucketId
from strom.replication.bucket_entry import BucketEntry
from strom.replication.member import Member
from strom.tablet.tablet import Tablet


class Standing(NamedTuple):
    """What a copy had on all disks that count."""

    offset: int
    content: bytes


class LossWatch:
    """Follows the metadata: when a loss is declared, all were asked, and the copy with most leads."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._known: dict[BucketId, BucketEntry] = {}
        self._stable: dict[BucketId, Standing] = {}
        self._forget = scene.machines.store.watch(self._changed)

    def close(self) -> None:
        """Follow no more."""
        self._forget()

    def _changed(self, version: int) -> None:
        entries = self._scene.entries()
        for bucket, entry in entries.items():
            before = self._known.get(bucket)
            if before is not None and entry is not before and entry.losses > before.losses:
                self._declared(bucket, before, entry)
        self._known = entries

    def _declared(self, bucket: BucketId, before: BucketEntry, entry: BucketEntry) -> None:
        kept = [one for one in before.in_sync if (one.identity.disk, None) not in self._scene.lost]
        for member in kept:
            if self._was_never_back(member):
                self._scene.report("AllAreWaitedFor", f"{bucket}: {member.server_id} was not back yet")
        # Also those that have ended again since they were asked.
        found = {one.server_id: self._scene.tablet(one.server_id, bucket, also_dead=True) for one in kept}
        ends = {server: _end(tablet) for server, tablet in found.items() if tablet is not None}
        if entry.leader in ends and ends[entry.leader] < max(ends.values()):
            self._scene.report("WhoHasMostLeads", f"{bucket} is led by {entry.leader} of {ends}")

    def _was_never_back(self, member: Member) -> bool:
        server_id = member.server_id
        nobody = object()
        return self._scene.powerless.get(server_id, nobody) is self._scene.machines[f"t{server_id}"].life

    def power_goes(self) -> None:
        """All are about to lose power: keep what is said to survive it."""
        for bucket, entry in self._scene.entries().items():
            tablet = self._scene.tablet(entry.leader, bucket)
            replicas = self._scene.replicas(entry.leader)
            replica = None if replicas is None else replicas.find(bucket)
            if tablet is None or not tablet.online or replica is None or replica.leading is None:
                continue
            if replica.leading.epoch == entry.epoch:
                offset = tablet.settled
                self._stable[bucket] = Standing(offset, log_content(tablet, offset))

    def check_stable(self) -> None:
        """What was stable when all lost power is there still."""
        for bucket, (offset, content) in self._stable.items():
            entry = self._scene.entries()[bucket]
            tablet = self._scene.tablet(entry.leader, bucket)
            if tablet is None or tablet.end_offset < offset or log_content(tablet, offset) != content:
                self._scene.report("StableIsKept", f"{bucket} has not all below {offset} that was stable")


def _end(tablet: Tablet) -> tuple[int, int]:
    found = tablet.copy.position()
    return found.last_epoch, found.end


def log_content(tablet: Tablet, until: int) -> bytes:
    """The log up to an offset, byte by byte."""
    at, content = tablet.start_offset, b""
    while at < until:
        part = tablet.log.read(at, until=until, max_bytes=1 << 20)
        at, content = part.next_offset, content + b"".join(part.buffers)
    return content
