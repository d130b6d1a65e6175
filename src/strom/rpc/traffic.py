"""What a listener counts about itself."""

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
"""A call for rows with no more bytes, both ways together, is a small one: whoever sent it waits for the answer.
What a scan asks before it begins is not."""


logger = logging.getLogger(__name__)


class InFlight(NamedTuple):
    """What is going on right now."""

    connections: int
    calls: int
    request_bytes: int
    unsent_bytes: int


class ListenerTraffic:
    """Calls, bytes, errors and connections of one listener.

    What happens once per call is only noted here, and handed to the metrics now and again (``flush``).
    """

    def __init__(
        self, listener: str, metrics: Metrics, clock: Clock, budget: Budget, slow_s: float = 0.0
    ) -> None:
        self._listener = listener
        self._budget = budget
        self._metrics = metrics
        self.slow_s = slow_s
        """Calls that take longer are told in the log, but for those that may wait for rows; 0: none."""
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
        """A call is answered (None: one nobody knows)."""
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
        """Hand what was noted to the metrics."""
        notes, self._notes = self._notes, []
        for api, seconds, _, _ in notes:
            if api is not None:
                (self._seconds.get(api.key) or self._seconds_of(api)).observe(seconds)
        self._received.inc(sum([note[2] for note in notes]))
        self._sent.inc(sum([note[3] for note in notes]))

    def failed(self, api: Api[Any, Any] | None, code: int) -> None:
        """A call is answered with an error."""
        name = api.name if api is not None else "unknown"
        labels = {"listener": self._listener, "api": name, "code": str(code)}
        self._metrics.counter("strom_rpc_errors_total", "Calls answered with an error", **labels).inc()

    def login_failed(self) -> None:
        """Somebody did not know the user or the password."""
        self._logins_failed.inc()

    def dropped(self, reason: str) -> None:
        """A connection is closed against its will."""
        labels = {"listener": self._listener, "reason": reason}
        self._metrics.counter("strom_rpc_dropped_total", "Connections dropped", **labels).inc()

    def follow(self, ask: Callable[[], InFlight]) -> None:
        """Show what is in flight whenever somebody looks."""
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
