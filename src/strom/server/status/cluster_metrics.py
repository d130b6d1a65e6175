"""The state of a cluster as metrics. Only the active coordinator has them, so that nothing is counted twice."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from strom.runtime.metrics import Gauge, Metrics
from strom.server.status.cluster_concerns import unevenness


class ClusterGauges:
    """Set from the facts of the cluster whenever somebody looks."""

    def __init__(self, metrics: Metrics, active: Callable[[], bool]) -> None:
        """``active``: whether this is the active coordinator."""
        self._active = active
        self._values: dict[str, float] = {}
        metrics.gauge(
            "strom_cluster_active", "1 for the active coordinator, 0 for one that stands by"
        ).follow(lambda: float(active()))
        made = {
            "coordinators": metrics.gauge(
                "strom_cluster_coordinators", "Coordinators that are there, the active one included"
            ),
            "servers": metrics.gauge("strom_cluster_servers", "Tablet servers that are registered"),
            "servers_gone": metrics.gauge("strom_cluster_servers_gone", "Tablet servers that do not answer"),
            "all": metrics.gauge("strom_cluster_buckets", "Buckets of the cluster"),
            "without_leader": metrics.gauge(
                "strom_cluster_buckets_without_leader", "Buckets that nobody leads: neither written nor read"
            ),
            "under_min_insync": metrics.gauge(
                "strom_cluster_buckets_under_min_insync",
                "Buckets with too few copies in sync to be written to",
            ),
            "under_replicated": metrics.gauge(
                "strom_cluster_buckets_under_replicated",
                "Buckets with fewer copies in sync than they shall have",
            ),
            "moving": metrics.gauge("strom_cluster_buckets_moving", "Buckets whose copies are being moved"),
            "losses": metrics.gauge(
                "strom_cluster_buckets_with_losses",
                "Buckets in which acknowledged rows may have been given up",
            ),
            "leads_uneven": metrics.gauge(
                "strom_cluster_leaders_uneven", "Buckets that the busiest server leads, in averages; 1: even"
            ),
            "copies_uneven": metrics.gauge(
                "strom_cluster_copies_uneven", "Copies that the fullest server has, in averages; 1: even"
            ),
        }
        for name, gauge in made.items():
            self._follow(name, gauge)

    def _follow(self, name: str, gauge: Gauge) -> None:
        gauge.follow(lambda: self._values.get(name) if self._active() else None)

    def take(self, facts: Mapping[str, Any]) -> None:
        """What ``cluster_facts`` found."""
        servers = facts["servers"]
        there = [one for one in servers if one["alive"]]
        self._values = {
            **facts["buckets"],
            "coordinators": len(facts["coordinators"]),
            "servers": len(servers),
            "servers_gone": len(servers) - len(there),
            "leads_uneven": unevenness([one["leads"] for one in there]),
            "copies_uneven": unevenness([one["copies"] for one in there]),
        }
