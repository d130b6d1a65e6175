"""When to retry, and when to give up."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from strom.client.cluster.options import ClientOptions
from strom.client.cluster.patience import Patience
from strom.errors import (
    Disconnected,
    LeaderNotAvailable,
    NotConfirmed,
    NotLeader,
    RequestTimeout,
    Retry,
    ServerStopping,
    StromError,
    UnknownBucket,
)
from strom.runtime.clock import Clock
from strom.runtime.random import Randomness

Result = TypeVar("Result")

PASSING = (Retry, ServerStopping)
"""Transient errors: the same call may succeed later. A stopping server usually restarts."""

MISPLACED = (NotLeader, NotConfirmed, UnknownBucket, LeaderNotAvailable, Disconnected, ServerStopping)
"""Errors after which the metadata should be refreshed."""

UNCERTAIN = (Disconnected, RequestTimeout, ServerStopping)
"""Errors after which the call may have happened."""


class Backoff:
    """Growing pauses with jitter, so that many clients do not return at the same moment."""

    def __init__(self, options: ClientOptions, randomness: Randomness) -> None:
        self._options = options
        self._randomness = randomness

    def seconds(self, failures: int) -> float:
        """How long to wait after this many failures in a row (from 1)."""
        longest = self._options.backoff_ms << min(failures - 1, 20)
        pause_ms = min(longest, self._options.backoff_ms_max)
        return pause_ms * (500 + self._randomness.below(501)) / 1_000_000


class Retrying:
    """Retries a call on transient errors, up to a timeout that restarts whenever a server reports progress."""

    def __init__(self, options: ClientOptions, clock: Clock, randomness: Randomness) -> None:
        self._options = options
        self._clock = clock
        self.backoff = Backoff(options, randomness)
        self.patience = Patience(clock)

    async def run(
        self,
        attempt: Callable[[], Awaitable[Result]],
        *,
        between: Callable[[StromError], Awaitable[None]] | None = None,
    ) -> Result:
        """The result of ``attempt``; ``between`` is called with each error before the next attempt."""
        began = self._clock.monotonic()
        failures = 0
        while True:
            try:
                return await attempt()
            except PASSING as error:
                failures += 1
                self.patience.hear(error)
                deadline = max(began, self.patience.moved_at) + self._options.retry_timeout_ms / 1000
                pause = self._pause(failures, error)
                if self._clock.monotonic() + pause > deadline:
                    error.facts["attempts"] = failures
                    raise
                if pause:
                    await asyncio.sleep(pause)
                if between is not None:
                    await between(error)

    def _pause(self, failures: int, error: StromError) -> float:
        """None before the first look for a leader that has moved: whoever says so knows that there is another."""
        return 0.0 if failures == 1 and isinstance(error, NotLeader) else self.backoff.seconds(failures)
