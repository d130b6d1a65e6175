"""Which buckets go back to the leaders they prefer, after those were away.

A leader that moves is a short pause for whoever writes and reads there. So a server gets its buckets back only if
others lead more than a share of them, and only the caller's choice of servers: those that were there for a while.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from strom.model.bucket import BucketId
from strom.replication.bucket_entry import BucketEntry


def due_back(
    entries: Iterable[tuple[BucketId, BucketEntry]], servers: Collection[int], imbalance: int
) -> list[BucketId]:
    """The buckets that these servers shall lead again.

    ``imbalance``: percent of the buckets preferring a server that others may lead without anything being done. A bucket
    on the move is left alone, and so is one whose preferred copy is not in sync.
    """
    preferring: dict[int, int] = dict.fromkeys(servers, 0)
    away: dict[int, list[tuple[BucketId, BucketEntry]]] = {one: [] for one in servers}
    for bucket, entry in entries:
        preferred = entry.wanted[0]
        if preferred in preferring:
            preferring[preferred] += 1
            if entry.leader != preferred:
                away[preferred].append((bucket, entry))
    return [
        bucket
        for server, found in away.items()
        if 100 * len(found) > imbalance * preferring[server]
        for bucket, entry in found
        if not entry.moving and entry.member_of(server) is not None
    ]
