"""Which tablet servers are there, from what was heard of them. Pure: time is an argument, in seconds that never jump.

A process that was killed is noticed at once: its connection ends, and a new one is refused. It has a short grace to
come back, since a connection also ends for lesser reasons. A machine that lost power, is cut off or is paused says
nothing: it is suspected after some silence. Suspicion decides only *when* others are elected; epochs are for the case
that two servers believe to lead.

Silence counts while somebody listens. After a pause of our own everybody seems to have been silent; so the part of a
gap between two looks that is longer than looks are apart is not counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

REFUSED_GRACE_S = 0.05
LATE_LOOKS = 2.0
"""Looks are a heartbeat apart; one that is this many heartbeats after the last was delayed by ourselves."""


class Suspected(NamedTuple):
    """A server does not answer any longer."""

    server_id: int
    why: str


class Returned(NamedTuple):
    """A server that was suspected answers again."""

    server_id: int


Verdict = Suspected | Returned


class Gone(NamedTuple):
    """A server that does not answer."""

    silent_s: float
    why: str


@dataclass(slots=True)
class _Watched:
    heard_at: float
    """When it last answered, or was first followed."""
    closed_at: float | None = None
    """Since when there is no connection."""
    refused: bool = False
    """Whether a new connection was refused since then."""
    suspected: bool = False
    why: str = ""
    """It is suspected."""
    news: bool = field(default=False)
    """Whether ``suspected`` changed since the last look."""


class Liveness:
    """What one coordinator heard of all servers."""

    def __init__(
        self, *, heartbeat_s: float, suspect_after_s: float, grace_s: float = REFUSED_GRACE_S
    ) -> None:
        self._heartbeat_s = heartbeat_s
        self._suspect_after_s = suspect_after_s
        self._grace_s = grace_s
        self._watched: dict[int, _Watched] = {}
        self._looked_at: float | None = None

    # --- what happens ----------------------------------------------------------------------------------------------

    def follow(self, server_id: int, now: float) -> None:
        """The server is registered. A new one counts as alive and has the usual time to answer."""
        self._watched.setdefault(server_id, _Watched(now))

    def forget(self, server_id: int) -> None:
        """The server left the cluster, or stopped in order."""
        self._watched.pop(server_id, None)

    def heard(self, server_id: int, now: float) -> None:
        """The server answered."""
        watched = self._watched.get(server_id)
        if watched is None:
            return
        watched.heard_at, watched.closed_at, watched.refused = now, None, False
        if watched.suspected:
            watched.suspected, watched.news = False, True

    def closed(self, server_id: int, now: float) -> None:
        """The connection to the server ended."""
        watched = self._watched.get(server_id)
        if watched is not None and watched.closed_at is None:
            watched.closed_at = now

    def refused(self, server_id: int, now: float) -> None:
        """The server's machine answers, but nobody listens there."""
        watched = self._watched.get(server_id)
        if watched is not None:
            watched.closed_at = now if watched.closed_at is None else watched.closed_at
            watched.refused = True

    # --- what follows ----------------------------------------------------------------------------------------------

    def look(self, now: float) -> list[Verdict]:
        """What changed since the last look."""
        self._forgive(now)
        for watched in self._watched.values():
            if not watched.suspected and self._due_at(watched) <= now:
                watched.suspected, watched.news = True, not watched.news
                watched.why = self._why(watched)
        return list(self._news())

    def _news(self) -> Iterator[Verdict]:
        for server_id, watched in self._watched.items():
            if watched.news:
                watched.news = False
                if watched.suspected:
                    yield Suspected(server_id, watched.why)
                else:
                    yield Returned(server_id)

    def look_again_at(self, now: float) -> float:
        """When the next suspicion is due if nothing is heard until then; at the latest a heartbeat from now."""
        due = [self._due_at(one) for one in self._watched.values() if not one.suspected]
        return min([now + self._heartbeat_s, *due])

    @property
    def alive(self) -> frozenset[int]:
        """The servers that are not suspected."""
        return frozenset(one for one, watched in self._watched.items() if not watched.suspected)

    def is_suspected(self, server_id: int) -> bool:
        """Whether a server that is followed does not answer."""
        watched = self._watched.get(server_id)
        return watched is not None and watched.suspected

    def gone(self, now: float) -> dict[int, Gone]:
        """The servers that are suspected: for how long nothing was heard of them, and why."""
        return {
            server_id: Gone(now - watched.heard_at, watched.why)
            for server_id, watched in self._watched.items()
            if watched.suspected
        }

    def _due_at(self, watched: _Watched) -> float:
        silent_at = watched.heard_at + self._suspect_after_s
        if watched.refused and watched.closed_at is not None:
            return min(silent_at, watched.closed_at + self._grace_s)
        return silent_at

    def _why(self, watched: _Watched) -> str:
        if watched.refused:
            return "its process has ended"
        return f"it was silent for {self._suspect_after_s:g} s"

    def _forgive(self, now: float) -> None:
        """Do not count a pause of our own as silence of others."""
        passed = 0.0 if self._looked_at is None else now - self._looked_at
        self._looked_at = now
        if passed > LATE_LOOKS * self._heartbeat_s:
            ours = passed - self._heartbeat_s
            for watched in self._watched.values():
                watched.heard_at = min(now, watched.heard_at + ours)
