"""Ids for writers, given out in blocks so that one commit serves many writers."""

from __future__ import annotations

from strom.coordinator import keys
from strom.coordinator.catalog import Catalog
from strom.coordinator.entries import encode_number
from strom.coordinator.plan import Plan
from strom.metadata.changes import Put


def allocate_writer_ids(catalog: Catalog, count: int) -> Plan[range]:
    """The next ``count`` writer ids. What a server does not use of them is never used."""
    assert count > 0
    first = catalog.next_id(keys.WRITER_COUNTER)
    update = Put(keys.WRITER_COUNTER, encode_number(first + count))
    return Plan(range(first, first + count), [catalog.unchanged(keys.WRITER_COUNTER)], [update])
