"""What the copies of a server are doing, as metrics."""

from __future__ import annotations

from strom.runtime.metrics import Metrics
from strom.server.replicas.bucket_replica import BucketReplica
from strom.server.replicas.replicas import Replicas


def follow_replicas(metrics: Metrics, replicas: Replicas) -> None:
    """Register the gauges of a server's copies."""
    metrics.gauge("strom_copies", "Copies of buckets on this server").follow(lambda: len(list(replicas)))
    metrics.gauge("strom_copies_leading", "Buckets that this server leads").follow(
        lambda: sum(one.leading is not None for one in replicas)
    )
    metrics.gauge(
        "strom_buckets_under_replicated", "Buckets led here with fewer copies in sync than they shall have"
    ).follow(lambda: sum(map(_is_under_replicated, replicas)))
    metrics.gauge(
        "strom_buckets_under_min_insync",
        "Buckets led here that acknowledge nothing: too few copies are in sync",
    ).follow(lambda: sum(map(_is_under_min_insync, replicas)))
    metrics.gauge(
        "strom_buckets_not_serving", "Buckets led here whose readers wait until other copies have answered"
    ).follow(lambda: sum(one.leading is not None and not one.serves for one in replicas))
    metrics.gauge(
        "strom_replica_lag_offsets_max", "How far the copy that is furthest behind is behind its leader here"
    ).follow(lambda: max((one.leading.lag() for one in replicas if one.leading is not None), default=0))


def _is_under_replicated(replica: BucketReplica) -> bool:
    if replica.leading is None:
        return False
    entry, _ = replica.entry
    return len(entry.in_sync) < len(entry.wanted)


def _is_under_min_insync(replica: BucketReplica) -> bool:
    leading = replica.leading
    return leading is not None and len(replica.entry[0].in_sync) < leading.leadership.promise.min_insync
