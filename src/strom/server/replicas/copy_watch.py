"""What a tablet server says of its copies, for those who watch the cluster: how large, and who is behind it."""

from __future__ import annotations

from typing import TypedDict

from strom.runtime.clock import Clock
from strom.server.replicas.bucket_replica import BucketReplica
from strom.server.replicas.leading import CopyLag
from strom.server.replicas.replicas import Replicas

KEPT_S = 0.2
"""Whoever asks for one of these numbers asks for the others right after."""
LATE = 2
"""Times that a copy in sync may be behind: until then its leader has taken it out of the set, if it can."""


class FollowerLag(TypedDict):
    """How far one server's copies are behind the leaders here."""

    buckets: int
    bytes: int
    seconds: float
    """Of the one that has been behind for longest."""


class CopySums(TypedDict):
    """The copies of one server."""

    copies: int
    led: int
    bytes: int
    """Of all logs that are open here."""
    offline: int
    """Copies whose storage failed."""
    not_serving: int
    waiting: int
    """Buckets led here whose writes wait for a copy in sync that is late, and that cannot be done without."""
    under_min_insync: int
    under_replicated: int
    lagging: dict[str, FollowerLag]
    """By follower: copies that were behind for longer than a copy in sync may be."""


class CopyWatch:
    """Looks at all copies of a server at once. Belongs to the loop."""

    def __init__(self, replicas: Replicas, clock: Clock, lag_s: float) -> None:
        """``lag_s``: for how long a copy in sync may be behind."""
        self._replicas = replicas
        self._clock = clock
        self._lag_s = lag_s
        self._looked_at = float("-inf")
        self._facts: CopySums

    def facts(self) -> CopySums:
        """As they are, or were a moment ago."""
        now = self._clock.monotonic()
        if now - self._looked_at > KEPT_S:
            self._facts, self._looked_at = self._look(now), now
        return self._facts

    def _look(self, now: float) -> CopySums:
        copies = list(self._replicas)
        led = [one for one in copies if one.leading is not None]
        tablets = [one.slot.tablet for one in copies if one.slot.tablet is not None]
        return CopySums(
            copies=len(copies),
            led=len(led),
            bytes=sum(one.log.size_bytes for one in tablets),
            offline=sum(one.error is not None for one in tablets),
            not_serving=sum(not one.serves for one in led),
            waiting=sum(self._waits(one, now) for one in led),
            under_min_insync=sum(map(_is_under_min_insync, led)),
            under_replicated=sum(len(one.entry[0].in_sync) < len(one.entry[0].wanted) for one in led),
            lagging=self._lagging(led, now),
        )

    def _lagging(self, led: list[BucketReplica], now: float) -> dict[str, FollowerLag]:
        found: dict[str, FollowerLag] = {}
        for replica in led:
            for server_id in replica.entry[0].servers:
                lag = self._lag(replica, server_id, now)
                if lag is not None and lag.seconds > self._lag_s:
                    sums = found.setdefault(str(server_id), FollowerLag(buckets=0, bytes=0, seconds=0.0))
                    sums["buckets"] += 1
                    sums["bytes"] += lag.bytes
                    sums["seconds"] = max(sums["seconds"], lag.seconds)
        return found

    def _waits(self, replica: BucketReplica, now: float) -> bool:
        """A copy that is late leaves the in-sync set, unless too few would remain (R9): then writes wait for it."""
        lags = (self._lag(replica, one.server_id, now) for one in replica.entry[0].in_sync)
        return any(lag is not None and lag.seconds > LATE * self._lag_s for lag in lags)

    def _lag(self, replica: BucketReplica, server_id: int, now: float) -> CopyLag | None:
        if replica.leading is None or server_id == self._replicas.home.server_id:
            return None
        return replica.leading.behind(server_id, self._replicas.sessions.heard_at(server_id), now)


def _is_under_min_insync(replica: BucketReplica) -> bool:
    leading = replica.leading
    return leading is not None and len(replica.entry[0].in_sync) < leading.leadership.promise.min_insync
