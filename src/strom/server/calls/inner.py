"""What servers of a cluster ask each other: the coordinator its tablet servers, and they the coordinator.

Only for inner listeners (``server/links/inner_link.py``).
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from strom.errors import NotCoordinator
from strom.protocol.api_keys import (
    APPLY_STAGES,
    BUCKET_SIZES,
    EXPIRE_STAGES,
    HOLD_BUCKETS,
    LEAVE,
    REGISTER_SERVER,
    REPORT_FAILED_START,
    SERVER_METRICS,
    STOP_SERVER,
    Api,
)
from strom.protocol.message import Message
from strom.protocol.messages import inner
from strom.rpc.call import Answer, Call
from strom.server.calls.dispatch import CallHandler
from strom.server.calls.publish.sinks import SinkCalls
from strom.server.calls.publish.stages import StageCalls
from strom.server.status.status import LocalStatus
from strom.server.tablets.hold import Hold

Stop = Callable[[float], Awaitable[bool]]
"""Stop within some seconds; whether every log was closed."""


class TabletServerCalls:
    """Answers in the process of a tablet server."""

    def __init__(self, hold: Hold, stages: StageCalls, status: LocalStatus, stop: Stop) -> None:
        self._hold = hold
        self._stages = stages
        self._status = status
        self._stop = stop

    def handlers(self) -> Mapping[Api[Any, Any], CallHandler]:
        return {
            APPLY_STAGES: lambda call: self._stages.apply(call.request),
            BUCKET_SIZES: self.bucket_sizes,
            HOLD_BUCKETS: self.hold_buckets,
            SERVER_METRICS: self.server_metrics,
            STOP_SERVER: self.stop_server,
        }

    async def hold_buckets(self, call: Call) -> Message:
        """Pause all work on buckets, or let it go on."""
        return inner.HoldBucketsResponse(held=await self._hold.switch(call.request.on))

    async def server_metrics(self, call: Call) -> Message:
        """Every metric of this process."""
        return inner.ServerMetricsResponse(samples_json=json.dumps(await self._status.samples()).encode())

    def bucket_sizes(self, call: Call) -> Message:
        """The bytes of the buckets that this server leads."""
        return inner.BucketSizesResponse(sizes_json=json.dumps(self._status.sizes()).encode())

    async def stop_server(self, call: Call) -> Message:
        """Close every log; the process ends after the answer."""
        return inner.StopServerResponse(cleanly=await self._stop(call.request.timeout_ms / 1000))


class CoordinatorCalls:
    """Answers in the coordinator's process, where tablet servers have processes of their own."""

    def __init__(
        self,
        sinks: SinkCalls,
        registered: Callable[[inner.RegisterServerRequest], None],
        failed: Callable[[inner.ReportFailedStartRequest], None],
    ) -> None:
        self._sinks = sinks
        self._registered = registered
        self._failed = failed

    def handlers(self) -> Mapping[Api[Any, Any], CallHandler]:
        return {
            EXPIRE_STAGES: lambda call: self._sinks.expire(call.request),
            REGISTER_SERVER: self.register_server,
            REPORT_FAILED_START: self.report_failed_start,
        }

    def register_server(self, call: Call) -> Message:
        """A tablet server serves."""
        self._registered(call.request)
        return inner.RegisterServerResponse()

    def report_failed_start(self, call: Call) -> Message:
        """A tablet server cannot start."""
        self._failed(call.request)
        return inner.ReportFailedStartResponse()


@dataclass(frozen=True)
class ActiveDuty:
    """What servers ask of the active coordinator of a cluster."""

    sinks: SinkCalls
    leave: Callable[[inner.LeaveRequest], Awaitable[int]]
    """Give the buckets of a server to others; returns how many it still leads."""


class ActiveDutyCalls:
    """Answers in every coordinator's process of a cluster, and refuses while that one stands by."""

    def __init__(self) -> None:
        self.duty: ActiveDuty | None = None

    def handlers(self) -> Mapping[Api[Any, Any], CallHandler]:
        return {EXPIRE_STAGES: self.expire_stages, LEAVE: self.leave}

    def expire_stages(self, call: Call) -> Answer:
        """Which stages can go."""
        return self._duty().sinks.expire(call.request)

    async def leave(self, call: Call) -> Message:
        """A tablet server is about to stop."""
        return inner.LeaveResponse(led=await self._duty().leave(call.request))

    def _duty(self) -> ActiveDuty:
        if self.duty is None:
            raise NotCoordinator("this coordinator stands by; the metadata names the active one")
        return self.duty
