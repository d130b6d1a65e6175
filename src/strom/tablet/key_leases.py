"""Leases: instants that readers are using, and that must therefore stay readable.

A scan leases its instant for a while with every slice. A leased instant holds back the horizon and the retention of the
changelog, so that a stream can go on from where its scan ended. A lease expires; nobody gives it back.
"""

from __future__ import annotations

from collections import deque


class Leases:
    """Instants and until when each is kept. Guarded by the tablet's lock."""

    def __init__(self, lease_ms: int) -> None:
        self._lease_ms = lease_ms
        self._until: dict[int, int] = {}

    def renew(self, at: int, now_ms: int) -> None:
        """Keep an instant for ``lease_ms`` from now on."""
        self._until[at] = max(now_ms + self._lease_ms, self._until.get(at, 0))

    def lowest(self, now_ms: int) -> int | None:
        """The lowest instant that is leased."""
        for at in [at for at, until in self._until.items() if until < now_ms]:
            del self._until[at]
        return min(self._until, default=None)

    def forget_above(self, end: int) -> None:
        """The log was cut: nobody reads there any more."""
        for at in [at for at in self._until if at > end]:
            del self._until[at]

    def __len__(self) -> int:
        """How many instants are known."""
        return len(self._until)


class PastInstants:
    """The high watermark as it was some time ago: a plan made since then, leased or not, stays good."""

    def __init__(self, age_ms: int) -> None:
        self._age_ms = age_ms
        self._seen: deque[tuple[int, int]] = deque()
        self._old = 0

    def observe(self, high_watermark: int, now_ms: int) -> int:
        """Note the high watermark now; returns the one of ``age_ms`` ago."""
        if not self._seen or self._seen[-1][1] < high_watermark:
            self._seen.append((now_ms, high_watermark))
        while self._seen and self._seen[0][0] + self._age_ms <= now_ms:
            self._old = self._seen.popleft()[1]
        return self._old
