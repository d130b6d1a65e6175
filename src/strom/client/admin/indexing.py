"""Secondary indexes of a live table: declared as properties, built by the servers in the background."""

from __future__ import annotations

from collections.abc import Sequence

from strom.client.admin.admin import Admin
from strom.client.cluster.cluster import Cluster
from strom.client.cluster.metadata import TableInfo
from strom.client.plan.key_facts import BUILDING, READY, IndexStatus, KeyFacts, indexes_over
from strom.client.plan.partition_choice import chosen_buckets
from strom.errors import IndexNotFound, InvalidConfig, NotPrimaryKeyTable
from strom.model.key_properties import INDEX_PREFIX, indexes_of
from strom.model.names import nearest


class Indexing:
    """The indexes of one table."""

    def __init__(self, admin: Admin, cluster: Cluster, table: TableInfo) -> None:
        if not table.description.has_primary_key:
            raise NotPrimaryKeyTable(f"{table.path} is a log table: only primary-key tables have indexes")
        self._admin = admin
        self._cluster = cluster
        self._table = table

    async def create(self, name: str, columns: Sequence[str]) -> None:
        """Declare an index; the servers start building it."""
        if name in self._declared():
            raise InvalidConfig(f"{self._table.path} already has an index {name!r}", index=name)
        text = ",".join(columns)
        indexes_of({INDEX_PREFIX + name: text}, self._table.schema)
        changed = {INDEX_PREFIX + name: text}
        self._table = await self._admin.alter_table(self._table.path, set_properties=changed)

    async def drop(self, name: str) -> None:
        """Drop an index."""
        declared = self._declared()
        if name not in declared:
            raise IndexNotFound(
                f"{self._table.path} has no index {name!r}{nearest(name, declared)}", index=name
            )
        self._table = await self._admin.alter_table(self._table.path, unset=[INDEX_PREFIX + name])

    async def ready(self, name: str) -> bool:
        """Whether every bucket has built it."""
        found = (await self.all()).get(name)
        return found is not None and found.state == READY

    async def all(self) -> dict[str, IndexStatus]:
        """Every declared index, and how far it is over all buckets."""
        buckets = [bucket for bucket, _ in await chosen_buckets(self._cluster, self._table)]
        facts = await KeyFacts(self._cluster, self._table).of(buckets)
        known = indexes_over(list(facts.values()))
        return {
            name: known.get(name, IndexStatus(name, columns, READY if not buckets else BUILDING, 0))
            for name, columns in self._declared().items()
        }

    def _declared(self) -> dict[str, tuple[str, ...]]:
        return indexes_of(self._table.description.properties, self._table.schema)
