"""The metrics of a listener."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, NamedTuple

from strom.protocol.api_keys import (
    FETCH_LOG,
    FETCH_ROWS,
    LOOKUP,
    LOOKUP_ROW,
    LOOKUP_ROWS,
    PREFIX_LOOKUP,
    PRODUCE_LOG,
    PUT_KV,
    UPSERT_ROWS,
    Api,
)
from strom.rpc.budget import Budget
from strom.runtime.clock import Clock
from strom.runtime.files import Bytes
from strom.runtime.metrics import Histogram, Metrics

NOTES_MAX = 200
SMALL_BYTES_MAX = 64 * 1024
ROW_CALLS = frozenset(
    (PRODUCE_LOG, FETCH_LOG, PUT_KV, LOOKUP, PREFIX_LOOKUP, FETCH_ROWS, UPSERT_ROWS, LOOKUP_ROWS, LOOKUP_ROW)
)
"""A call for rows with at most this many bytes, both ways together, is small: its caller waits for the answer. The
calls that prepare a scan are not."""


logger = logging.getLogger(__name__)


class InFlight(NamedTuple):
    """What is in flight."""

    connections: int
    calls: int
    request_bytes: int
    unsent_bytes: int


class ListenerTraffic:
    """Calls, bytes, errors and connections of one listener.

    Counts per call are only collected here, and passed to the metrics periodically (``flush``).
    """

    def __init__(
        self, listener: str, metrics: Metrics, clock: Clock, budget: Budget, slow_s: float = 0.0
    ) -> None:
        self._listener = listener
        self._budget = budget
        self._metrics = metrics
        self.slow_s = slow_s
        """Calls that take longer are logged, except those that may wait for rows; 0: none."""
        self.now = clock.monotonic
        """Seconds, for ``began``."""
        self._seconds: dict[int, Histogram] = {}
        self._notes: list[tuple[Api[Any, Any] | None, float, int, int]] = []
        self._received = metrics.counter(
            "strom_rpc_request_bytes_total", "Bytes of answered requests", listener=listener
        )
        self._sent = metrics.counter("strom_rpc_response_bytes_total", "Bytes of answers", listener=listener)
        self._logins_failed = metrics.counter(
            "strom_rpc_logins_failed_total", "Logins with a wrong user or password", listener=listener
        )

    def answered(self, api: Api[Any, Any] | None, began: float, received: int, buffers: list[Bytes]) -> None:
        """A call was answered (None: an unknown one)."""
        sent = len(buffers[0]) if len(buffers) == 1 else sum(map(len, buffers))
        now = self.now()
        if received + sent <= SMALL_BYTES_MAX and api in ROW_CALLS:
            self._budget.small_at = now
        self._notes.append((api, now - began, received, sent))
        if self.slow_s and now - began > self.slow_s and api is not None and not api.waits:
            logger.warning(
                "%s took %.3f s, %d bytes asked and %d answered", api.name, now - began, received, sent
            )
        if len(self._notes) >= NOTES_MAX:
            self.flush()

    def flush(self) -> None:
        """Pass the collected counts to the metrics."""
        notes, self._notes = self._notes, []
        for api, seconds, _, _ in notes:
            if api is not None:
                (self._seconds.get(api.key) or self._seconds_of(api)).observe(seconds)
        self._received.inc(sum([note[2] for note in notes]))
        self._sent.inc(sum([note[3] for note in notes]))

    def failed(self, api: Api[Any, Any] | None, code: int) -> None:
        """A call was answered with an error."""
        name = api.name if api is not None else "unknown"
        labels = {"listener": self._listener, "api": name, "code": str(code)}
        self._metrics.counter("strom_rpc_errors_total", "Calls answered with an error", **labels).inc()

    def login_failed(self) -> None:
        """A login failed."""
        self._logins_failed.inc()

    def dropped(self, reason: str) -> None:
        """We dropped a connection."""
        labels = {"listener": self._listener, "reason": reason}
        self._metrics.counter("strom_rpc_dropped_total", "Connections dropped", **labels).inc()

    def follow(self, ask: Callable[[], InFlight]) -> None:
        """Report what is in flight on demand."""
        for name, doc, get in (
            ("strom_rpc_connections", "Open connections", lambda: ask().connections),
            ("strom_rpc_calls", "Calls that wait for their answer", lambda: ask().calls),
            ("strom_rpc_inflight_bytes", "Bytes of unanswered requests", lambda: ask().request_bytes),
            ("strom_rpc_unsent_bytes", "Bytes of answers not read yet", lambda: ask().unsent_bytes),
        ):
            self._metrics.gauge(name, doc, listener=self._listener).follow(get)

    def _seconds_of(self, api: Api[Any, Any]) -> Histogram:
        found = self._metrics.histogram(
            "strom_rpc_seconds", "Time from request to answer", listener=self._listener, api=api.name
        )
        self._seconds[api.key] = found
        return found
