"""Calls between the servers of a cluster (keys from 20050 up).

Only the inner listener of a server takes them, and only from a caller that knows the cluster's secret. ExpireStages and
ApplyStages (``stages.py``) go the same way.
"""

from __future__ import annotations

from collections.abc import Sequence

from strom.protocol.fields import INT32, boolean, int32, int64, packed, raw, text
from strom.protocol.message import Message
from strom.runtime.files import Bytes


class RegisterServerRequest(Message):
    """A tablet server tells the coordinator that it serves.

    ``ports`` are those of its public listeners, in the order of ``bind.listeners``; ``inner_port`` takes the calls of
    other servers. ``process_id`` tells this life of the server from an earlier one.
    """

    server_id: int = int32(1)
    process_id: int = int64(2)
    ports: Sequence[int] = packed(3, INT32, default=())
    inner_port: int = int32(4)


class RegisterServerResponse(Message):
    pass


class ReportFailedStartRequest(Message):
    """A tablet server tells the coordinator why it cannot start; it ends after this call."""

    server_id: int = int32(1)
    process_id: int = int64(2)
    error_message: str = text(3)


class ReportFailedStartResponse(Message):
    pass


class StopServerRequest(Message):
    """Ends a tablet server: running calls have ``timeout_ms`` to end, then every log is closed."""

    timeout_ms: int = int64(1)


class StopServerResponse(Message):
    """``cleanly``: every log was closed. The process ends once this answer has left."""

    cleanly: bool = boolean(1)


class HoldBucketsRequest(Message):
    """``on``: pause all work on the buckets of a server, for a backup; otherwise let it go on."""

    on: bool = boolean(1)


class HoldBucketsResponse(Message):
    """``held``: whether the buckets are, or were until now, paused without a break."""

    held: bool = boolean(1)


class ServerMetricsRequest(Message):
    pass


class ServerMetricsResponse(Message):
    """The metrics of a server's process, as a JSON array of samples."""

    samples_json: Bytes = raw(1)


class HeartbeatRequest(Message):
    """A coordinator asks a server of its cluster whether it is there."""


class HeartbeatResponse(Message):
    """Which process answers: of a tablet server its registration's number, of a coordinator 0 and its ``name``.

    ``cut_from``: the leaders that a tablet server follows, and has not reached for a while.
    """

    incarnation: int = int64(1)
    name: str | None = text(2, default=None)
    cut_from: Sequence[int] = packed(3, INT32, default=())


class HearRequest(Message):
    """The active coordinator asks a server to know this version of the metadata before it answers."""

    version: int = int64(1)


class HearResponse(Message):
    """``version``: that the server knows now, not lower than the one that was asked for."""

    version: int = int64(1)


class ForwardRequest(Message):
    """A server passes a client's call on to the active coordinator, or to the leader of a bucket."""

    api_key: int = int32(1)
    api_version: int = int32(2)
    message: Bytes = raw(3)
    principal: str | None = text(4, default=None)
    listener_name: str = text(5)


class ForwardResponse(Message):
    """The answer to the client's call; without a message: whoever was asked is not the active coordinator."""

    message: Bytes | None = raw(1, default=None)


class LeaveRequest(Message):
    """A tablet server is about to stop: the active coordinator gives its buckets to other leaders first."""

    server_id: int = int32(1)
    incarnation: int = int64(2)


class LeaveResponse(Message):
    """``led``: how many buckets it still leads, since nobody else can."""

    led: int = int32(1)


class BucketSizesRequest(Message):
    """How large the buckets are that a tablet server leads."""


class BucketSizesResponse(Message):
    """A JSON object from buckets (``table/partition/bucket``) to bytes; buckets that nobody opened yet are left out."""

    sizes_json: Bytes = raw(1)
