"""Which kernels a table needs, as names of groups. Importing this loads no kernel (``kernel_groups`` does)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from strom.model.data_type import Decimal
from strom.model.key_properties import INDEX_PREFIX, MERGE_ENGINE
from strom.model.table import TableEntry

ROWS: Final = "rows"
"""Every primary-key table: writes, deletes, lookups, scans, snapshots."""
LISTS: Final = "lists"
"""Secondary indexes, and lookups by a prefix of the key."""
VERSIONS: Final = "versions"
AGGREGATES: Final = "aggregates"
DECIMALS: Final = "decimals"
"""Aggregates of decimals."""
PEER_ROWS: Final = "peer rows"
"""Calls of the peer's clients, which encode rows and keys differently."""
GROUPS: Final = (ROWS, LISTS, VERSIONS, AGGREGATES, DECIMALS, PEER_ROWS)
"""In the order in which they are compiled."""


def needs_of(table: TableEntry) -> frozenset[str]:
    """The groups that a table's buckets cannot be served without."""
    properties = table.description.properties
    engine = (properties.get(MERGE_ENGINE) or "").lower()
    found = {ROWS}
    if any(name.startswith(INDEX_PREFIX) for name in properties) or _has_prefix(table):
        found.add(LISTS)
    if engine == "versioned":
        found.add(VERSIONS)
    if engine == "aggregation":
        found.add(AGGREGATES)
        if any(isinstance(column.type, Decimal) for column in table.schema.columns):
            found.add(DECIMALS)
    return frozenset(found)


def in_order(needs: Iterable[str]) -> list[str]:
    """The groups in the order in which they are compiled."""
    return sorted(needs, key=GROUPS.index)


def _has_prefix(table: TableEntry) -> bool:
    description = table.description
    return set(description.bucket_key) < set(table.schema.primary_key) - set(description.partition_keys)
