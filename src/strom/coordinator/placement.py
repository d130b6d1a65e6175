"""Which server leads which bucket: round robin over the live servers, starting at a position derived from the id.

The same id, bucket count and servers always give the same leaders. So a restart with the same servers moves nothing,
and tables of one bucket spread as evenly as tables of many.
"""

from __future__ import annotations

from collections.abc import Iterable


def leaders(id_of_buckets: int, bucket_count: int, server_ids: Iterable[int]) -> tuple[int, ...]:
    """The leader of each bucket of a table or partition; empty while there are no servers."""
    live = sorted(server_ids)
    if not live:
        return ()
    return tuple(live[(id_of_buckets + bucket) % len(live)] for bucket in range(bucket_count))
