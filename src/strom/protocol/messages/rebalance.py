"""The peer's calls about servers and rebalances: tags, plans, progress, health."""

from __future__ import annotations

from collections.abc import Sequence

from strom.protocol.fields import INT32, int32, int64, nested, packed, repeated, text
from strom.protocol.message import Message


class AddServerTagRequest(Message):
    """Tag servers: 0 they go for good, 1 they go for a while."""

    server_ids: Sequence[int] = packed(1, INT32, default=())
    server_tag: int = int32(2)


class AddServerTagResponse(Message):
    pass


class RemoveServerTagRequest(Message):
    server_ids: Sequence[int] = packed(1, INT32, default=())
    server_tag: int = int32(2)


class RemoveServerTagResponse(Message):
    pass


class RebalanceRequest(Message):
    """Even out the cluster at once: 0 copies, 1 leaders, 2 racks."""

    goals: Sequence[int] = packed(1, INT32, default=())


class RebalanceResponse(Message):
    rebalance_id: str = text(1)


class ListRebalanceProgressRequest(Message):
    rebalance_id: str | None = text(1, default=None)


class WireBucketPlan(Message):
    """A bucket of a rebalance."""

    partition_id: int | None = int64(1, default=None)
    bucket_id: int = int32(2)
    original_leader: int | None = int32(3, default=None)
    new_leader: int | None = int32(4, default=None)
    original_replicas: Sequence[int] = packed(5, INT32, default=())
    new_replicas: Sequence[int] = packed(6, INT32, default=())


class WireBucketProgress(Message):
    """How far it is: 0 not started, 1 running, 2 failed, 3 done, 4 cancelled."""

    rebalance_plan: WireBucketPlan = nested(1, WireBucketPlan)
    rebalance_status: int = int32(2)


class WireTableProgress(Message):
    table_id: int = int64(1)
    buckets_progress: Sequence[WireBucketProgress] = repeated(2, WireBucketProgress, default=())


class ListRebalanceProgressResponse(Message):
    rebalance_id: str | None = text(1, default=None)
    rebalance_status: int | None = int32(2, default=None)
    table_progress: Sequence[WireTableProgress] = repeated(3, WireTableProgress, default=())


class CancelRebalanceRequest(Message):
    rebalance_id: str | None = text(1, default=None)


class CancelRebalanceResponse(Message):
    pass


class GetClusterHealthRequest(Message):
    pass


class GetClusterHealthResponse(Message):
    """``status``: 0 green, 1 yellow (copies lack), 2 red (leaders lack), 3 unknown."""

    num_replicas: int = int32(1)
    in_sync_replicas: int = int32(2)
    num_leader_replicas: int = int32(3)
    active_leader_replicas: int = int32(4)
    status: int = int32(5)
