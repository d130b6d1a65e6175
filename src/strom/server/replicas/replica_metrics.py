"""What the copies of a server are doing, as metrics."""

from __future__ import annotations

from strom.runtime.metrics import Metrics
from strom.server.replicas.copy_watch import CopyWatch
from strom.server.replicas.replicas import Replicas


def follow_replicas(metrics: Metrics, replicas: Replicas, watch: CopyWatch) -> None:
    """Register the gauges of a server's copies."""
    metrics.gauge("strom_copies", "Copies of buckets on this server").follow(lambda: watch.facts()["copies"])
    metrics.gauge("strom_copies_leading", "Buckets that this server leads").follow(
        lambda: watch.facts()["led"]
    )
    metrics.gauge("strom_copies_bytes", "Bytes of the copies on this server that are open").follow(
        lambda: watch.facts()["bytes"]
    )
    metrics.gauge(
        "strom_buckets_under_replicated", "Buckets led here with fewer copies in sync than they shall have"
    ).follow(lambda: watch.facts()["under_replicated"])
    metrics.gauge(
        "strom_buckets_under_min_insync",
        "Buckets led here that acknowledge nothing: too few copies are in sync",
    ).follow(lambda: watch.facts()["under_min_insync"])
    metrics.gauge(
        "strom_buckets_not_serving", "Buckets led here whose readers wait until other copies have answered"
    ).follow(lambda: watch.facts()["not_serving"])
    metrics.gauge(
        "strom_buckets_waiting",
        "Buckets led here whose writes wait for a copy in sync that is late and cannot be done without",
    ).follow(lambda: watch.facts()["waiting"])
    metrics.gauge(
        "strom_replica_lag_offsets_max", "How far the copy that is furthest behind is behind its leader here"
    ).follow(lambda: max((one.leading.lag() for one in replicas if one.leading is not None), default=0))
    metrics.gauge(
        "strom_replica_lagging", "Copies that were behind their leader here for longer than replica.lag.max"
    ).follow(lambda: sum(one["buckets"] for one in watch.facts()["lagging"].values()))
    metrics.gauge("strom_replica_lag_bytes", "Bytes that those copies lack").follow(
        lambda: sum(one["bytes"] for one in watch.facts()["lagging"].values())
    )
    metrics.gauge("strom_replica_lag_seconds_max", "For how long one of those copies has been behind").follow(
        lambda: max((one["seconds"] for one in watch.facts()["lagging"].values()), default=0.0)
    )
