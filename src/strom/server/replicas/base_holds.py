"""Bases that a leader keeps because somebody copies them (R18).

While a follower copies, the files of the base and the log behind it stay. A follower that does not ask for long gives
its hold up; one that comes back later begins anew.
"""

from __future__ import annotations

from dataclasses import dataclass

from strom.model.bucket import BucketId
from strom.runtime.clock import Clock
from strom.tablet.copies.base_copy import BaseCopy


@dataclass
class _Hold:
    base: BaseCopy
    touched_at: float


class BaseHolds:
    """Who copies what here. Belongs to the loop."""

    def __init__(self, clock: Clock, *, hold_s_max: float) -> None:
        self._clock = clock
        self._hold_s_max = hold_s_max
        self._holds: dict[BucketId, dict[int, _Hold]] = {}

    def held(self, bucket: BucketId, server_id: int) -> BaseCopy | None:
        """The base that a server copies; None if it has none here."""
        hold = self._holds.get(bucket, {}).get(server_id)
        return None if hold is None else hold.base

    def touch(self, bucket: BucketId, server_id: int, base: BaseCopy) -> None:
        """A server copies a base."""
        self._holds.setdefault(bucket, {})[server_id] = _Hold(base, self._clock.monotonic())

    def floor(self, bucket: BucketId) -> int | None:
        """From where on the log of a bucket is needed; None if nobody copies."""
        return min((hold.base.offset for hold in self._holds.get(bucket, {}).values()), default=None)

    def release(self, bucket: BucketId, server_id: int) -> bool:
        """A server copies no more; whether it did."""
        holds = self._holds.get(bucket, {})
        found = holds.pop(server_id, None) is not None
        if found and not holds:
            del self._holds[bucket]
        return found

    def over(self) -> list[tuple[BucketId, int]]:
        """Those who did not ask for long."""
        return [
            (bucket, server_id)
            for bucket, holds in self._holds.items()
            for server_id, hold in holds.items()
            if self._clock.monotonic() - hold.touched_at > self._hold_s_max
        ]

    def forget(self, bucket: BucketId) -> list[int]:
        """The role has changed: whoever copied begins anew at the next leader; returns the servers that did."""
        return list(self._holds.pop(bucket, ()))
