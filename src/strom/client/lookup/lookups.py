"""The lookups of one table, created on first use and kept while the schema stays the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa

from strom.client.cluster.cluster import Cluster
from strom.client.cluster.metadata import TableInfo
from strom.client.cluster.written import WrittenTo
from strom.client.lookup.batch_lookup import BatchLookup
from strom.client.lookup.lookup import Lookup, LookupShape
from strom.client.lookup.row_lookup import RowLookup
from strom.errors import IndexNotFound, InvalidRequest, NotPrimaryKeyTable
from strom.model.key_properties import indexes_of
from strom.model.names import nearest

PREFIX = "$prefix"
"""The servers' name for the index by bucket key."""
KEPT_MAX = 64


class Lookups:
    """The lookups of one table. ``info`` returns the table as currently known."""

    def __init__(self, cluster: Cluster, info: Callable[[], TableInfo]) -> None:
        self._cluster = cluster
        self._info = info
        self._kept: dict[object, Lookup] = {}
        self._row_lookups: tuple[TableInfo, dict[tuple[str, ...] | None, RowLookup | None]] | None = None
        """By columns, for the table as last seen."""
        self._quick_many: dict[Lookup, BatchLookup | None] = {}

    # --- which way --------------------------------------------------------------------------------------------

    def by_key(self, columns: Sequence[str] | None) -> Lookup:
        """By the whole primary key."""
        table = self._info()
        _check(table)
        given = table.schema.primary_key
        sent = tuple(name for name in given if name not in table.description.partition_keys)
        return self._lookup(table, LookupShape(None, given, sent), columns)

    def one_by_key(self, columns: Sequence[str] | None) -> RowLookup | None:
        """The shortcut for a single key in a blocking thread; None where it does not apply."""
        table, wanted = self._info(), None if columns is None else tuple(columns)
        known = self._row_lookups  # a local copy: another thread may replace it at any time
        if known is None or known[0] is not table or len(known[1]) >= KEPT_MAX:
            known = self._row_lookups = (table, {})
        try:
            return known[1][wanted]
        except KeyError:
            found = known[1][wanted] = RowLookup.of(self.by_key(columns))
            return found

    def many_by_key(self, lookup: Lookup) -> BatchLookup | None:
        """The shortcut for many keys, likewise."""
        try:
            return self._quick_many[lookup]
        except KeyError:
            found = self._quick_many[lookup] = BatchLookup.of(lookup)
            return found

    def by_prefix(self, names: Sequence[str], columns: Sequence[str] | None) -> Lookup:
        """By the bucket key, with the partition keys or without them (then all partitions are searched)."""
        table = self._info()
        _check(table)
        description = table.description
        prefix, partition = description.bucket_key, description.partition_keys
        given = (*partition, *prefix) if partition and set(partition) & set(names) else prefix
        if set(names) != set(given):
            also = f" (and {', '.join(partition)})" if partition else ""
            raise IndexNotFound(
                f"a prefix of {table.path} is its bucket key: {', '.join(prefix)}{also}, not {', '.join(names)}"
            )
        whole = tuple(name for name in table.schema.primary_key if name not in partition)
        if set(whole) == set(prefix):  # the bucket key is the whole key: at most one row
            return self._lookup(table, LookupShape(None, given, whole), columns)
        return self._lookup(table, LookupShape(PREFIX, given, prefix), columns)

    def by_index(self, name: str, columns: Sequence[str] | None) -> Lookup:
        """By a secondary index."""
        table = self._info()
        _check(table)
        known = indexes_of(table.description.properties, table.schema)
        if name not in known:
            raise IndexNotFound(f"{table.path} has no index {name!r}{nearest(name, known)}", index=name)
        return self._lookup(table, LookupShape(name, known[name], known[name]), columns)

    def _lookup(self, table: TableInfo, shape: LookupShape, columns: Sequence[str] | None) -> Lookup:
        key = (shape, table.schema.schema_id, None if columns is None else tuple(columns))
        found = self._kept.get(key)
        if found is None:
            if len(self._kept) >= KEPT_MAX:
                self._kept.clear()
                self._quick_many.clear()
            found = self._kept[key] = Lookup(self._cluster, table, shape, columns)
        return found

    # --- on the loop ------------------------------------------------------------------------------------------

    async def many(
        self, keys: object, columns: Sequence[str] | None, at_least: WrittenTo | None, strong: bool = False
    ) -> pa.Table:
        """A row for every key, in the caller's order; NULLs for keys without a row."""
        lookup = self.by_key(columns)
        batch = lookup.keys(keys)
        return lookup.in_order(await lookup.find(batch, at_least, strong), batch.num_rows)

    async def rows_of(self, keys: pa.RecordBatch, columns: Sequence[str]) -> pa.RecordBatch:
        """The existing rows of these keys."""
        lookup = self.by_key(columns)
        [batch] = lookup.by_key(await lookup.find(keys)).combine_chunks().to_batches() or [lookup.empty]
        return batch

    async def matching(
        self, lookup: Lookup, keys: object, at_least: WrittenTo | None, strong: bool = False
    ) -> pa.Table:
        """All rows that match any of the keys, those of the first key first."""
        return lookup.by_key(await lookup.find(lookup.keys(keys), at_least, strong))


def names_of(keys: object) -> list[str]:
    """The columns of keys given by name."""
    if isinstance(keys, Mapping):
        return list(keys)
    if isinstance(keys, list | tuple) and keys and isinstance(keys[0], Mapping):
        return list(keys[0])
    names = getattr(getattr(keys, "schema", None), "names", None) or getattr(keys, "columns", None)
    if names is None:
        raise InvalidRequest("a prefix is given by column: {'user': 7}, or a table with these columns")
    return list(names)


def _check(table: TableInfo) -> None:
    if not table.description.has_primary_key:
        raise NotPrimaryKeyTable(f"{table.path} is a log table: it has no key to look up by; scan it")
