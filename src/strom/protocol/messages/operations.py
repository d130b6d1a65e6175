"""Rebalances, servers that leave, and elections that a person asks for (keys from 20072 up).

The active coordinator answers.
"""

from __future__ import annotations

from collections.abc import Sequence

from strom.protocol.fields import INT32, boolean, int32, int64, nested, packed, repeated, text
from strom.protocol.message import Message
from strom.protocol.messages.copies import WireCopies
from strom.protocol.messages.tables import WireTablePath


class PlanRebalanceRequest(Message):
    """What would even out the cluster. ``leaving``: a server that shall give all its copies away; nothing else moves.

    ``leaders_alone``: no copy moves. ``fewer_racks``: copies of a bucket may end up in fewer racks than now.
    """

    leaders_alone: bool = boolean(1)
    leaving: int | None = int32(2, default=None)
    fewer_racks: bool = boolean(3)


class WireMove(Message):
    """A bucket whose copies, or whose preferred leader (the first), change; ``bytes`` are to be copied, where known."""

    table_path: WireTablePath = nested(1, WireTablePath)
    partition_name: str | None = text(2, default=None)
    bucket_id: int = int32(3)
    leader_id: int = int32(4)
    before: Sequence[int] = packed(5, INT32, default=())
    after: Sequence[int] = packed(6, INT32, default=())
    bytes: int = int64(7)


class WireServerShare(Message):
    """What a server has before and after a plan. ``state``: up, away, leaving or resting."""

    server_id: int = int32(1)
    rack: str = text(2)
    state: str = text(3)
    leaders_before: int = int32(4)
    leaders_after: int = int32(5)
    copies_before: int = int32(6)
    copies_after: int = int32(7)
    bytes_in: int = int64(8)


class PlanRebalanceResponse(Message):
    """``moves`` are the first ones; ``move_count`` counts all."""

    plan_id: str = text(1)
    moves: Sequence[WireMove] = repeated(2, WireMove, default=())
    move_count: int = int32(3)
    servers: Sequence[WireServerShare] = repeated(4, WireServerShare, default=())


class StartRebalanceRequest(Message):
    """Carry out a plan, as it was shown."""

    plan_id: str = text(1)


class StartRebalanceResponse(Message):
    pass


class RebalanceProgressRequest(Message):
    """How far the newest rebalance is."""


class RebalanceProgressResponse(Message):
    """Without an id: there was none. ``under_way``: the first of the moves that are."""

    rebalance_id: str | None = text(1, default=None)
    state: str | None = text(2, default=None)
    started_ms: int | None = int64(3, default=None)
    ended_ms: int | None = int64(4, default=None)
    waiting: int | None = int32(5, default=None)
    moving: int | None = int32(6, default=None)
    done: int | None = int32(7, default=None)
    given_up: int | None = int32(8, default=None)
    bytes: int | None = int64(9, default=None)
    bytes_left: int | None = int64(10, default=None)
    leaving: Sequence[int] = packed(11, INT32, default=())
    under_way: Sequence[WireMove] = repeated(12, WireMove, default=())
    waits_for: Sequence[int] = packed(13, INT32, default=())


class StopRebalanceRequest(Message):
    """Cancel the rebalance that is under way. ``staying``: the server whose leaving is taken back with it."""

    staying: int | None = int32(1, default=None)


class StopRebalanceResponse(Message):
    pass


class CopyPositionsRequest(Message):
    """What the copies of a bucket hold, asked of their servers."""

    table_path: WireTablePath = nested(1, WireTablePath)
    partition_name: str | None = text(2, default=None)
    bucket_id: int = int32(3)


class WireCopyPosition(Message):
    """A copy. Without ``end`` its server does not answer, or has lost it."""

    server_id: int = int32(1)
    in_sync: bool = boolean(2)
    last_epoch: int | None = int32(3, default=None)
    end: int | None = int64(4, default=None)


class CopyPositionsResponse(Message):
    bucket: WireCopies = nested(1, WireCopies)
    positions: Sequence[WireCopyPosition] = repeated(2, WireCopyPosition, default=())


class ElectLeaderRequest(Message):
    """Let the preferred servers lead the buckets of a table, or one of them.

    ``unclean_id``: let this server lead a bucket that has no leader, whatever its copy lacks; ``epoch`` is the one that
    was shown with the positions.
    """

    table_path: WireTablePath = nested(1, WireTablePath)
    partition_name: str | None = text(2, default=None)
    bucket_id: int | None = int32(3, default=None)
    unclean_id: int | None = int32(4, default=None)
    epoch: int | None = int32(5, default=None)


class ElectLeaderResponse(Message):
    """The buckets as they are now."""

    buckets: Sequence[WireCopies] = repeated(1, WireCopies, default=())


class ListLossesRequest(Message):
    """Elections that may have lost acknowledged rows."""


class WireLoss(Message):
    """A leader that was elected though acknowledged rows from ``end`` on may be lost. ``by``: who decided, if any."""

    table_path: WireTablePath = nested(1, WireTablePath)
    partition_name: str | None = text(2, default=None)
    bucket_id: int = int32(3)
    time_ms: int = int64(4)
    epoch: int = int32(5)
    leader_id: int = int32(6)
    end: int = int64(7)
    missing: Sequence[int] = packed(8, INT32, default=())
    by: str = text(9)


class ListLossesResponse(Message):
    losses: Sequence[WireLoss] = repeated(1, WireLoss, default=())
