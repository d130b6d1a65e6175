"""What the stores of primary-key buckets hold, for the status page and as metrics."""

from __future__ import annotations

from functools import partial
from typing import Any, TypedDict

from strom.runtime.metrics import Metrics
from strom.server.key_forms import key_tablet
from strom.server.tablets import Tablets
from strom.tablet.log_tablet import LogTablet


class KeyStoreFacts(TypedDict):
    """What the store of a primary-key bucket holds."""

    live_rows: int
    stored_rows: int
    base_files: int
    base_bytes: int
    index_bytes: int
    snapshot_lag: int
    """Records written since the last snapshot: what a restart reads again."""


def key_facts_of(tablet: LogTablet) -> KeyStoreFacts | None:
    """What the store of an open primary-key bucket holds; None for a bucket of a log table."""
    if not tablet.has_keys or not tablet.online:
        return None
    found: dict[str, Any] = key_tablet(tablet).describe()
    return KeyStoreFacts(
        live_rows=found["live_rows"],
        stored_rows=found["stored_rows"],
        base_files=found["base_files"],
        base_bytes=found["base_bytes"],
        index_bytes=found["index_bytes"],
        snapshot_lag=found["high_watermark"] - found["snapshot_offset"],
    )


def follow_keys(metrics: Metrics, tablets: Tablets) -> None:
    """Gauges of what the open primary-key buckets of this server hold together."""
    gauges = (
        ("live_rows", "strom_key_live_rows", "Live rows of primary-key buckets"),
        ("stored_rows", "strom_key_stored_rows", "Rows that primary-key buckets store, live or not"),
        ("base_files", "strom_key_base_files", "Base files of primary-key buckets"),
        ("base_bytes", "strom_key_base_bytes", "Bytes of base files"),
        ("index_bytes", "strom_key_index_bytes", "Memory of the indexes of primary-key buckets"),
        ("snapshot_lag", "strom_key_snapshot_lag", "Records written since the last snapshots"),
    )
    for fact, name, help_text in gauges:
        metrics.gauge(name, help_text).follow(partial(_sum, tablets, fact))


def _sum(tablets: Tablets, fact: str) -> int:
    total = 0
    for slot in tablets:
        facts = None if slot.tablet is None else key_facts_of(slot.tablet)
        total += 0 if facts is None else int(dict(facts)[fact])  # type: ignore[call-overload]
    return total
