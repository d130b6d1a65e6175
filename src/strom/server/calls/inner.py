"""What servers of a cluster ask each other: the coordinator its tablet servers, and they the coordinator.

Only for inner listeners (``server/process/inner_link.py``).
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from strom.protocol.api_keys import (
    APPLY_STAGES,
    EXPIRE_STAGES,
    HOLD_BUCKETS,
    REGISTER_SERVER,
    REPORT_FAILED_START,
    SERVER_METRICS,
    STOP_SERVER,
    Api,
)
from strom.protocol.message import Message
from strom.protocol.messages import inner
from strom.rpc.call import Call
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
