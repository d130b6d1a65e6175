"""How long the answer to a login is delayed: the more failures, the longer.

Failures are counted per address and user, and per address, so guessing gets slow whichever user is guessed. Nobody is
locked out: the longest delay is a few seconds, and other addresses do not wait. A correct password waits as long as a
wrong one, since the delay would otherwise reveal it. Failures expire.

No I/O and no timers: the caller passes the time, and waits.
"""

from __future__ import annotations

from collections import OrderedDict

FIRST_S = 0.1
"""The delay after the first failure of an address and user; each further one doubles it."""
LONGEST_S = 5.0
ADDRESS_FREE = 10
"""Failures of one address, with any users, before the whole address is delayed."""
ADDRESS_LONGEST_S = 1.0
"""Others may come from the same address."""
FORGET_S = 60.0
"""Failures are forgotten after this long without another one."""
REMEMBERED_MAX = 10_000
"""Limit for addresses, and for addresses with users; the oldest failures are forgotten first."""
LINES_PER_USER, LINES_PER_ADDRESS = 3, 100

Key = tuple[str, bytes | None]


class LoginDelays:
    """The failures of one server's listeners."""

    def __init__(self) -> None:
        self._failed: OrderedDict[Key, tuple[int, float]] = OrderedDict()  # how often, and when last

    def __len__(self) -> int:
        return len(self._failed)

    def delay_s(self, address: str, user: bytes, now: float) -> float:
        """How long to delay the answer to this login."""
        own = self._count((address, user), now)
        whole = max(self._count((address, None), now) - ADDRESS_FREE, 0)
        return max(_doubled(own, LONGEST_S), _doubled(whole, ADDRESS_LONGEST_S))

    def failed(self, address: str, user: bytes, now: float) -> tuple[int, bool]:
        """Count a failed login; return the failures of this address, and whether to log it.

        The first failures of each user are logged; of a flood, the first and every one that doubles their number.
        """
        own, whole = self._add((address, user), now), self._add((address, None), now)
        while len(self._failed) > REMEMBERED_MAX:
            self._failed.popitem(last=False)
        return whole, whole & (whole - 1) == 0 or (own <= LINES_PER_USER and whole <= LINES_PER_ADDRESS)

    def succeeded(self, address: str, user: bytes) -> None:
        """The user has logged in: forget the user's failures, but not those of the address."""
        self._failed.pop((address, user), None)

    def _add(self, key: Key, now: float) -> int:
        count = self._count(key, now) + 1
        self._failed[key] = (count, now)
        self._failed.move_to_end(key)
        return count

    def _count(self, key: Key, now: float) -> int:
        count, at = self._failed.get(key, (0, now))
        return count if now - at < FORGET_S else 0


def _doubled(failures: int, longest_s: float) -> float:
    return min(FIRST_S * 2.0 ** min(failures - 1, 30), longest_s) if failures else 0.0
