"""Calls between the copies of buckets: Pull, CopyBase, CopyStage, and Position for the coordinator.

Only for inner listeners (``server/links/inner_link.py``).
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import Any

from strom.protocol.api_keys import COPY_BASE, COPY_STAGE, POSITION, PULL, Api
from strom.protocol.message import Message
from strom.protocol.messages.replication import PositionResponse, WireBucket, WirePosition
from strom.rpc.call import Answer, Call
from strom.server.calls.bucket_errors import error_fields
from strom.server.calls.dispatch import CallHandler
from strom.server.replicas.replicas import Replicas
from strom.server.replicas.wire import bucket_of
from strom.server.tablets.tablets import Tablets, wait_for


class ReplicationCalls:
    """Answers for the copies of this server."""

    def __init__(self, replicas: Replicas, tablets: Tablets) -> None:
        self._replicas = replicas
        self._tablets = tablets

    def handlers(self) -> Mapping[Api[Any, Any], CallHandler]:
        return {
            PULL: self.pull,
            POSITION: self.position,
            COPY_BASE: self.copy_base,
            COPY_STAGE: self.copy_stage,
        }

    def pull(self, call: Call) -> Answer:
        """New questions of a follower; answered when there is something to say."""
        return self._replicas.sessions.pull(call.request)

    def copy_base(self, call: Call) -> Awaitable[Message]:
        """A piece of a base, for a follower that is below the log."""
        return self._replicas.bases.copy_base(call.request)

    def copy_stage(self, call: Call) -> Awaitable[Message]:
        """A piece of a sealed stage."""
        return self._replicas.bases.copy_stage(call.request)

    async def position(self, call: Call) -> Message:
        """What copies hold, for the coordinator that must choose one (R10)."""
        home = self._replicas.home
        return PositionResponse(
            server_id=home.server_id,
            incarnation=home.incarnation,
            positions=[await self._position(one) for one in call.request.buckets_req],
        )

    async def _position(self, wanted: WireBucket) -> WirePosition:
        facts: dict[str, Any]
        try:
            slot = self._tablets.copy(bucket_of(wanted))
            tablet = await wait_for(slot.opened(any_role=True))
            tablet.check_online()
            found = tablet.copy.position()
            disk = self._replicas.home.disk_of(slot.bucket)
            facts = {
                "placement": 0 if slot.role is None else slot.role.placement,
                "last_epoch": found.last_epoch,
                "start": found.start,
                "end": found.end,
                "synced": found.synced,
                "disk": disk.disk,
                "lineage": disk.lineage,
            }
        except Exception as error:
            facts = error_fields(error)
        return WirePosition(
            table_id=wanted.table_id, partition_id=wanted.partition_id, bucket_id=wanted.bucket_id, **facts
        )
