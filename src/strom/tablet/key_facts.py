"""Facts about a primary-key bucket: the offsets that bound reads, and the state of its indexes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from strom.kv.store import KeyStore


class IndexState(NamedTuple):
    """A secondary index, as shown to people."""

    name: str
    columns: tuple[int, ...]
    state: str
    """``ready`` or ``building``."""
    rows: int
    """Rows linked so far."""


class Horizons(NamedTuple):
    """The offsets that bound reads (see keys: H, R, S, L, C)."""

    high_watermark: int
    epoch: int
    """Of the record before the high watermark."""
    horizon: int
    series_start: int
    snapshot_offset: int
    carried: int


def described(store: KeyStore, indexes: Sequence[IndexState]) -> dict[str, object]:
    """The store of a bucket, as shown to people."""
    rows, resident = store.rows, store.index.resident
    return {
        "live_rows": rows.live_count,
        "stored_rows": rows.stored_rows,
        "dead_share": 1 - rows.live_count / rows.stored_rows if rows.stored_rows else 0.0,
        "tail_rows": rows.tail_rows,
        "base_files": len(rows.base_files),
        "base_bytes": sum(file.bytes for file in rows.base_files),
        "keys": store.index.keys,
        "index_bytes": store.index.memory_bytes,
        "index_disk_bytes": 0 if resident is None else resident.tiles.bytes,
        "index_disk_keys": 0 if resident is None else max(0, resident.keys - store.index.here),
        "series_bytes": 8 * (store.series.end - store.series.start),
        "list_bytes": sum(one.links.memory_bytes for one in store.lists.values()),
        "indexes": [state._asdict() for state in indexes],
        "series_start": store.series.start,
        "carried": rows.carried,
    }
