"""Ids for writers and numbers for auto-increment columns, given out in blocks so that one commit serves many."""

from __future__ import annotations

from strom.coordinator import keys
from strom.coordinator.catalog import Catalog
from strom.coordinator.entries import encode_number
from strom.coordinator.plan import UpdatePlan
from strom.errors import LimitExceeded, UnknownBucket
from strom.metadata.changes import Put
from strom.model.data_type import Int

INT_MAX = 2**31 - 1
BIGINT_MAX = 2**63 - 2


def allocate_writer_ids(catalog: Catalog, count: int) -> UpdatePlan[range]:
    """The next ``count`` writer ids. Ids that a server does not use are never used."""
    assert count > 0
    first = catalog.next_id(keys.WRITER_COUNTER)
    update = Put(keys.WRITER_COUNTER, encode_number(first + count))
    return UpdatePlan(range(first, first + count), [catalog.unchanged(keys.WRITER_COUNTER)], [update])


def allocate_numbers(catalog: Catalog, table_id: int, count: int) -> UpdatePlan[range]:
    """The next ``count`` numbers of a table's auto-increment column; unused ones leave a gap."""
    assert count > 0
    table = catalog.table_by_id(table_id)
    if table is None or not table.schema.auto_increment:
        raise UnknownBucket(f"there is no table with id {table_id} that has an auto-increment column")
    key = keys.number_counter(table_id)
    first = catalog.next_id(key)
    (name,) = table.schema.auto_increment
    highest = INT_MAX if isinstance(table.schema.column(name).type, Int) else BIGINT_MAX
    count = min(count, highest - first + 1)
    if count <= 0:
        raise LimitExceeded(f"{table.path} has used up all numbers of column {name!r}", table=str(table.path))
    # Require the table itself, so that a drop at the same time leaves no counter behind.
    requirements = [catalog.unchanged(key), catalog.unchanged(keys.table(table_id))]
    return UpdatePlan(range(first, first + count), requirements, [Put(key, encode_number(first + count))])
