"""Which servers get the copies of new buckets.

Copies of a bucket stand in as many racks as there are, leaders and copies are spread evenly, and the leaders of a
server that dies fall to many others. The same servers with the same loads always give the same assignment.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from typing import NamedTuple


class ServerLoad(NamedTuple):
    """A server that takes copies, and what it has already."""

    server_id: int
    rack: str = ""
    leaders: int = 0
    copies: int = 0


def assign(servers: Sequence[ServerLoad], bucket_count: int, factor: int) -> list[tuple[int, ...]]:
    """The servers of each new bucket, the preferred leader first. There must be at least ``factor`` servers."""
    assert 0 < factor <= len(servers)
    return list(_Assigning(servers, factor).buckets(bucket_count))


class _Place(NamedTuple):
    """A server in a heap."""

    copies: int
    turn: int
    server_id: int


def _place(copies: int, server_id: int) -> _Place:
    """Among equals the order differs at each number of copies, so that not always the same servers meet."""
    mixed = ((server_id + 1) * 2_654_435_761 + copies * 2_246_822_519) & 0xFFFFFFFF
    return _Place(copies, (mixed ^ (mixed >> 15)) * 2_246_822_519 & 0xFFFFFFFF, server_id)


class _Assigning:
    """Takes the least loaded server again and again; heaps, because there may be a thousand servers.

    A server stands in each heap once. Loads only grow, so what stands there is too low at worst: whoever comes to the
    top is compared with its load, and put back if that has grown.
    """

    def __init__(self, servers: Sequence[ServerLoad], factor: int) -> None:
        self._factor = factor
        self._rack = {one.server_id: one.rack for one in servers}
        self._copies = {one.server_id: one.copies for one in servers}
        self._leaders = [(one.leaders, one.copies, one.server_id) for one in servers]
        heapify(self._leaders)
        self._by_rack: dict[str, list[_Place]] = {}
        for one in servers:
            heappush(self._by_rack.setdefault(one.rack, []), _place(one.copies, one.server_id))
        self._pairs: Counter[tuple[int, int]] = Counter()

    def buckets(self, count: int) -> Iterable[tuple[int, ...]]:
        for _ in range(count):
            leader = self._take_leader()
            others = self._take_others(leader)
            # The first of the others leads when this one dies: another one each time.
            others.sort(key=lambda one: (self._pairs[leader, one], one))
            self._pairs[leader, others[0] if others else leader] += 1
            yield (leader, *others)

    def _take_leader(self) -> int:
        """The server that leads least, then has the fewest copies."""
        leaders, copies, server = heappop(self._leaders)
        while copies != self._copies[server]:  # it has become a follower since it was put here
            heappush(self._leaders, (leaders, self._copies[server], server))
            leaders, copies, server = heappop(self._leaders)
        self._copies[server] += 1
        heappush(self._leaders, (leaders + 1, self._copies[server], server))
        return server

    def _take_others(self, leader: int) -> list[int]:
        """The servers with the fewest copies, from racks that have none of this bucket as long as there are any."""
        taken, racks = [leader], Counter({self._rack[leader]: 1})
        while len(taken) < self._factor:
            tops = {rack: top for rack in self._by_rack if (top := self._top(rack, taken)) is not None}
            rack = min(tops, key=lambda one: (racks[one], tops[one]))
            server = tops[rack].server_id
            taken.append(server)
            racks[rack] += 1
            self._copies[server] += 1
        return taken[1:]

    def _top(self, rack: str, taken: Sequence[int]) -> _Place | None:
        """The server of a rack with the fewest copies that is not taken; what is out of date goes down the heap."""
        heap, aside = self._by_rack[rack], []
        found = None
        while heap and found is None:
            copies, _, server = heap[0]
            if server in taken:
                aside.append(heappop(heap))
            elif copies != self._copies[server]:
                heapreplace(heap, _place(self._copies[server], server))
            else:
                found = heap[0]
        for one in aside:
            heappush(heap, one)
        return found
