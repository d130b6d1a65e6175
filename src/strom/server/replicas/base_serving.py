"""At a leader: base files and stages, piece by piece, for followers that copy them (R15, R18)."""

from __future__ import annotations

import asyncio

from strom.errors import InvalidRequest, NotLeader
from strom.model.bucket import BucketId
from strom.protocol.message import Message
from strom.protocol.messages.replication import (
    CopyBaseRequest,
    CopyBaseResponse,
    CopyStageRequest,
    CopyStageResponse,
    WireCopyFile,
)
from strom.runtime.tasks import Offload
from strom.server.replicas.base_holds import BaseHolds
from strom.server.replicas.bucket_replica import BucketReplica
from strom.server.replicas.leading import LeadingBucket
from strom.server.replicas.pull_sessions import FindReplica
from strom.server.tablets.tablet_slot import in_lane
from strom.tablet.copies.base_copy import BaseCopy
from strom.tablet.tablet import Tablet

PIECE_BYTES_MAX = 4 * 1024 * 1024
TIDY_EVERY_S = 30.0


class BaseServing:
    """Answers for the buckets that this server leads."""

    def __init__(self, find: FindReplica, holds: BaseHolds, readers: Offload, copiers: Offload) -> None:
        """``copiers`` read what nobody waits for: base files."""
        self._find = find
        self._holds = holds
        self._readers = readers
        self._copiers = copiers

    async def copy_stage(self, request: CopyStageRequest) -> Message:
        """A piece of a sealed stage; StageNotFound when it was dropped."""
        replica, leading = self._leading(request)
        stages, stage_id = leading.tablet.stages, bytes(request.stage_id)
        most = _bounded(request.max_bytes)
        replica.slot.readers += 1
        try:
            size = stages.size_of(stage_id)
            content = await self._readers.run(stages.copies.read, stage_id, request.position, most)
        finally:
            replica.slot.readers -= 1
        return CopyStageResponse(size=size, content=content)

    async def copy_base(self, request: CopyBaseRequest) -> Message:
        """A piece of the base, or the list of its files; the leader keeps it while somebody asks for it."""
        replica, leading = self._leading(request)
        bucket, server_id = replica.bucket, request.server_id
        if request.ended:
            await self._release(replica, server_id)
            return CopyBaseResponse(leader_epoch=leading.epoch, at=request.at or 0)
        held = self._holds.held(bucket, server_id)
        if held is None or held.offset != request.at or request.file is None:
            base = held if held is not None else await self._hold(replica, server_id)
            self._holds.touch(bucket, server_id, base)
            leading.tablet.keep_from = self._holds.floor(bucket)
            return _listing(leading, base)
        self._holds.touch(bucket, server_id, held)
        position, most = request.position or 0, _bounded(request.max_bytes)
        piece = await self._copiers.run(
            leading.tablet.copy.read_copy_file, server_id, request.file, position, most
        )
        return CopyBaseResponse(
            leader_epoch=leading.epoch, at=held.offset, content=piece.content, crc=piece.crc
        )

    async def _hold(self, replica: BucketReplica, server_id: int) -> BaseCopy:
        return await in_lane(replica.slot, lambda tablet: tablet.copy.begin_copy(server_id), any_role=True)

    async def _release(self, replica: BucketReplica, server_id: int) -> None:
        if self._holds.release(replica.bucket, server_id):
            if replica.slot.tablet is not None:
                replica.slot.tablet.keep_from = self._holds.floor(replica.bucket)
            await in_lane(replica.slot, lambda tablet: tablet.copy.end_copy(server_id), any_role=True)

    def left(self, bucket: BucketId, tablet: Tablet) -> None:
        """The bucket is led by another: whoever copies begins anew there."""
        for server_id in self._holds.forget(bucket):
            tablet.copy.end_copy(server_id)
        tablet.keep_from = None

    async def tidy(self) -> None:
        """Give up what nobody asked for since long; forever."""
        while True:
            await asyncio.sleep(TIDY_EVERY_S)
            for bucket, server_id in self._holds.over():
                replica = self._find(bucket)
                if replica is None:
                    self._holds.release(bucket, server_id)
                else:
                    await self._release(replica, server_id)

    def _leading(self, request: CopyBaseRequest | CopyStageRequest) -> tuple[BucketReplica, LeadingBucket]:
        bucket = BucketId(request.table_id, request.partition_id, request.bucket_id)
        replica = self._find(bucket)
        leading = None if replica is None else replica.leading
        if replica is None or leading is None or leading.epoch != request.leader_epoch:
            raise NotLeader(
                f"this server does not lead bucket {bucket} in epoch {request.leader_epoch}",
                bucket=str(bucket),
            )
        return replica, leading


def _listing(leading: LeadingBucket, base: BaseCopy) -> CopyBaseResponse:
    files = [WireCopyFile(name=one.name, size=one.size) for one in base.files]
    return CopyBaseResponse(leader_epoch=leading.epoch, at=base.offset, files=files)


def _bounded(max_bytes: int) -> int:
    if max_bytes <= 0:
        raise InvalidRequest("a piece has at least one byte", bytes=max_bytes)
    return min(max_bytes, PIECE_BYTES_MAX)
