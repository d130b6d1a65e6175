"""What the stores of primary-key buckets hold, for the status page and as metrics."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any, TypedDict

from strom.kv.runs.run_layout import PAGE_BYTES
from strom.kv.runs.run_reads import RunReads
from strom.runtime.clock import Clock
from strom.runtime.metrics import Metrics
from strom.server.tablets.key_forms import key_tablet
from strom.server.tablets.tablets import Tablets
from strom.tablet.tablet import Tablet

SUMS_KEPT_S = 0.2
"""Shorter than anyone would wait between two looks."""


class KeyStoreFacts(TypedDict):
    """What the store of a primary-key bucket holds."""

    live_rows: int
    stored_rows: int
    base_files: int
    base_bytes: int
    index_bytes: int
    index_disk_bytes: int
    index_disk_keys: int
    """Keys that are not in memory."""
    snapshot_lag: int
    """Records written since the last snapshot: what a restart has to read."""


def key_facts_of(tablet: Tablet) -> KeyStoreFacts | None:
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
        index_disk_bytes=found["index_disk_bytes"],
        index_disk_keys=found["index_disk_keys"],
        snapshot_lag=found["high_watermark"] - found["snapshot_offset"],
    )


def follow_keys(metrics: Metrics, tablets: Tablets, clock: Clock, reads: RunReads) -> None:
    """What the open primary-key buckets of this server hold together, and what was read of indexes on disk."""
    gauges = (
        ("live_rows", "strom_key_live_rows", "Live rows of primary-key buckets"),
        ("stored_rows", "strom_key_stored_rows", "Rows that primary-key buckets store, live or not"),
        ("base_files", "strom_key_base_files", "Base files of primary-key buckets"),
        ("base_bytes", "strom_key_base_bytes", "Bytes of base files"),
        ("index_bytes", "strom_key_index_bytes", "Memory of the indexes of primary-key buckets"),
        (
            "index_disk_bytes",
            "strom_key_index_disk_bytes",
            "Bytes of indexes that lie on disk for lack of memory",
        ),
        ("index_disk_keys", "strom_key_index_disk_keys", "Keys of such indexes that are not in memory"),
        ("snapshot_lag", "strom_key_snapshot_lag", "Records written since the last snapshots"),
    )
    sums = _Sums(tablets, clock)
    for fact, name, help_text in gauges:
        metrics.gauge(name, help_text).follow(partial(sums.of, fact))
    metrics.counter(
        "strom_key_index_misses_total",
        "Keys that were looked for in an index on disk: they were not in memory",
    ).follow(lambda: reads.asked)
    metrics.counter(
        "strom_key_index_read_bytes_total", "Bytes read from indexes on disk for keys that were asked for"
    ).follow(lambda: reads.pages * PAGE_BYTES)


class _Sums:
    """All sums at once: whoever reads one of them reads the others right after."""

    def __init__(self, tablets: Tablets, clock: Clock) -> None:
        self._tablets = tablets
        self._clock = clock
        self._taken_at = float("-inf")
        self._sums: Counter[str] = Counter()

    def of(self, fact: str) -> int:
        if self._clock.monotonic() - self._taken_at > SUMS_KEPT_S:
            self._sums = Counter()
            for slot in self._tablets:
                facts = None if slot.tablet is None else key_facts_of(slot.tablet)
                self._sums.update({} if facts is None else dict(facts))
            self._taken_at = self._clock.monotonic()
        return self._sums[fact]
