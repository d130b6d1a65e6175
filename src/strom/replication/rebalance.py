"""A plan of moves: who shall have which copies, so that all servers have about as many and lead about as many buckets.

In this order: copies leave servers that leave; the copies of a bucket stand in as many racks as can be; servers with
many copies give some to servers with few; and last, preferred leaders are exchanged among the copies, which moves no
bytes. Nothing else moves, and nothing moves to or from a server that is away, unless that one leaves. The same input
always gives the same plan; a plan that was carried out gives an empty one.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from strom.model.bucket import BucketId


class BucketSite(NamedTuple):
    """A bucket: the servers that shall have its copies, the preferred leader first, and how large one is."""

    bucket: BucketId
    wanted: tuple[int, ...]
    size: int = 0


class ServerSite(NamedTuple):
    """A server. One that leaves gives all its copies away; one that rests keeps them and is preferred by none."""

    server_id: int
    rack: str = ""
    leaving: bool = False
    resting: bool = False
    away: bool = False
    """It does not answer: it keeps what it has, and gets nothing."""


class RebalanceGoals(NamedTuple):
    """What a plan is for."""

    evacuate: bool = True
    """Copies leave the servers that leave."""
    racks: bool = True
    copies: bool = True
    leaders: bool = True


ALL_GOALS = RebalanceGoals()
LEADERS_ALONE = RebalanceGoals(evacuate=False, racks=False, copies=False)
EVACUATION = RebalanceGoals(racks=False, copies=False)
"""Nothing is copied that need not be; who leads is spread anew."""


class BucketMove(NamedTuple):
    """A bucket whose copies, or whose preferred leader, change."""

    bucket: BucketId
    before: tuple[int, ...]
    after: tuple[int, ...]
    bytes: int
    """To be copied."""


def rebalance(
    buckets: Sequence[BucketSite], servers: Iterable[ServerSite], goals: RebalanceGoals = ALL_GOALS
) -> list[BucketMove]:
    """The moves that even out the cluster. A bucket with more copies than servers stay keeps those it has."""
    plan = _Plan(buckets, servers)
    if goals.evacuate:
        plan.evacuate()
    if goals.racks:
        plan.spread_racks()
    if goals.copies:
        plan.level_copies()
    if goals.leaders:
        plan.relieve_leaders()
        plan.level_leaders()
    return list(plan.moves())


class _Plan:
    """Where copies shall be, while it is being decided."""

    def __init__(self, buckets: Sequence[BucketSite], servers: Iterable[ServerSite]) -> None:
        self._before = buckets
        self._wanted = [list(site.wanted) for site in buckets]
        staying = [one for one in servers if not one.leaving]
        self._rack = {one.server_id: one.rack for one in staying}
        self._racks = len(set(self._rack.values()))
        self._open = {one.server_id for one in staying if not one.away}
        """Who gives and takes."""
        self._lead = {one.server_id for one in staying if not one.away and not one.resting}
        self._resting = {one.server_id for one in staying if one.resting}
        self._on: dict[int, dict[int, None]] = {server: {} for server in self._rack}
        """By server that stays: the numbers of its buckets, in order."""
        self._bytes: Counter[int] = Counter()
        for number, site in enumerate(buckets):
            for server in site.wanted:
                if server in self._on:
                    self._on[server][number] = None
                    self._bytes[server] += site.size

    def moves(self) -> Iterator[BucketMove]:
        for site, wanted in zip(self._before, self._wanted, strict=True):
            if site.wanted != tuple(wanted):
                new = len(set(wanted) - set(site.wanted))
                yield BucketMove(site.bucket, site.wanted, tuple(wanted), new * site.size)

    # --- copies ------------------------------------------------------------------------------------------------------

    def evacuate(self) -> None:
        """Give away what stands on servers that leave, or that nobody knows."""
        for number, wanted in enumerate(self._wanted):
            for server in [one for one in wanted if one not in self._rack]:
                target = self._best_target(number, instead_of=server)
                if target is not None:
                    self._replace(number, server, target)

    def spread_racks(self) -> None:
        """A copy that shares its rack goes to a rack that has none."""
        for number, wanted in enumerate(self._wanted):
            while len(self._racks_of(wanted)) < min(self._racks, len(wanted)):
                shared = self._racks_of(wanted)
                crowded = [one for one in wanted if one in self._open and shared[self._rack[one]] > 1]
                source = max(crowded, key=lambda one: (self._load(one), one), default=None)
                target = None if source is None else self._best_target(number, instead_of=source)
                if source is None or target is None or self._rack[target] in shared:
                    break
                self._replace(number, source, target)

    def level_copies(self) -> None:
        """From the servers that have most to the one that has least, until they differ by one at most."""
        open_to_more = set(self._open)
        while open_to_more:
            target = min(open_to_more, key=lambda one: (self._load(one), one))
            if not self._give_one_to(target):
                open_to_more.remove(target)  # nobody has anything that this one can take

    def _give_one_to(self, target: int) -> bool:
        for source in self._fullest_first():
            if len(self._on[source]) - len(self._on[target]) <= 1:
                return False
            number = self._movable(source, target)
            if number is not None:
                self._replace(number, source, target)
                return True
        return False

    def _fullest_first(self) -> Iterator[int]:
        """The one that has most is nearly always enough: the others are put in order only if it is not."""
        yield max(self._open, key=lambda one: (self._load(one), one))
        yield from sorted(self._open, key=lambda one: (self._load(one), one), reverse=True)

    def _movable(self, source: int, target: int) -> int | None:
        """A bucket that can go from one server to another without losing a rack; one that evens out the bytes."""
        gap = (self._bytes[source] - self._bytes[target]) // 2
        best, best_distance = None, None
        for looked, number in enumerate(self._on[source]):
            if not self._fits(number, source, target):
                continue
            distance = abs(self._before[number].size - gap)
            if best_distance is None or distance < best_distance:
                best, best_distance = number, distance
            if best_distance == 0 or looked >= LOOK_MAX:
                break
        return best

    def _fits(self, number: int, source: int, target: int) -> bool:
        wanted = self._wanted[number]
        if target in wanted:
            return False
        after = [target if one == source else one for one in wanted]
        return len(self._racks_of(after)) >= len(self._racks_of(wanted))

    def _best_target(self, number: int, instead_of: int) -> int | None:
        """Of the racks with the fewest copies of the bucket, the server that has least."""
        wanted = self._wanted[number]
        shared = self._racks_of(one for one in wanted if one != instead_of)
        free = [one for one in self._open if one not in wanted]
        return min(free, key=lambda one: (shared[self._rack[one]], self._load(one), one), default=None)

    def _racks_of(self, servers: Iterable[int]) -> Counter[str]:
        return Counter(self._rack[one] for one in servers if one in self._rack)

    def _replace(self, number: int, source: int, target: int) -> None:
        wanted = self._wanted[number]
        wanted[wanted.index(source)] = target
        size = self._before[number].size
        if source in self._on:
            del self._on[source][number]
            self._bytes[source] -= size
        self._on[target][number] = None
        self._bytes[target] += size

    def _load(self, server: int) -> tuple[int, int]:
        return len(self._on.get(server, ())), self._bytes[server]

    # --- leaders -----------------------------------------------------------------------------------------------------

    def relieve_leaders(self) -> None:
        """Prefer others to a server that rests; of the copies of a bucket the one that is preferred least."""
        led = self._by_leader()
        for number, wanted in enumerate(self._wanted):
            able = [one for one in wanted if one in self._lead]
            if wanted[0] in self._resting and able:
                taker = min(able, key=lambda one: (len(led[one]), one))
                wanted.remove(taker)
                wanted.insert(0, taker)
                led[taker][number] = None

    def level_leaders(self) -> None:
        """Exchange preferred leaders, along a chain of buckets where no single one reaches from many to few."""
        led = self._by_leader()
        giving = set(led)
        while giving:
            most = max(giving, key=lambda one: (len(led[one]), -one))
            if len(led[most]) - min(map(len, led.values())) <= 1:
                return
            chain = self._chain(most, led)
            if not chain:
                giving.remove(most)
            for giver, number, taker in chain:
                wanted = self._wanted[number]
                wanted.remove(taker)
                wanted.insert(0, taker)
                del led[giver][number]
                led[taker][number] = None

    def _by_leader(self) -> dict[int, dict[int, None]]:
        led: dict[int, dict[int, None]] = {server: {} for server in self._lead}
        for number, wanted in enumerate(self._wanted):
            if wanted and wanted[0] in led:
                led[wanted[0]][number] = None
        return led

    def _chain(self, most: int, led: Mapping[int, Mapping[int, None]]) -> list[tuple[int, int, int]]:
        """The shortest way to a server that leads at least two fewer: (giver, bucket, taker), each taker gives next.

        Empty: there is none.
        """
        came: dict[int, tuple[int, int]] = {}
        waiting = deque([most])
        while waiting:
            giver = waiting.popleft()
            for number in led[giver]:
                for taker in self._wanted[number][1:]:
                    if taker in came or taker == most or taker not in led:
                        continue
                    came[taker] = (giver, number)
                    if len(led[taker]) <= len(led[most]) - 2:
                        return _path(taker, most, came)
                    waiting.append(taker)
        return []


LOOK_MAX = 64
"""Buckets of a server that are compared by their size before one is chosen."""


def _path(taker: int, most: int, came: Mapping[int, tuple[int, int]]) -> list[tuple[int, int, int]]:
    path = []
    while taker != most:
        giver, number = came[taker]
        path.append((giver, number, taker))
        taker = giver
    return path[::-1]
