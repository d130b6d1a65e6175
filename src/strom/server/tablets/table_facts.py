"""What serving a table needs, worked out once per version of the table instead of once per call."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import pairwise

from strom.errors import InvalidProjection, LimitExceeded, NotPrimaryKeyTable, UnknownBucket
from strom.model import properties
from strom.model.schema import Schema
from strom.model.table import TableEntry
from strom.record.columns import ColumnLayout
from strom.record.project import Projection
from strom.runtime.metrics import Metrics
from strom.server.tablets.catalog_view import CatalogChange, CatalogView
from strom.server.tablets.key_forms import KeyForms
from strom.tablet.tablet import Durability

PROJECTIONS_KEPT_MAX = 256


class TableTraffic:
    """What went in and out of one table, as metrics."""

    def __init__(self, metrics: Metrics, table: str) -> None:
        self.rows_in = metrics.counter("strom_table_rows_in_total", "Rows appended", table=table)
        self.keys_in = metrics.counter("strom_table_lookups_total", "Keys looked up", table=table)
        self.bytes_in = metrics.counter("strom_table_bytes_in_total", "Bytes appended", table=table)
        self.bytes_out = metrics.counter("strom_table_bytes_out_total", "Record bytes sent", table=table)
        self.bytes_followed = metrics.counter(
            "strom_table_bytes_out_followed_total",
            "Record bytes sent by copies that follow, which planned reads ask so that leaders need not answer",
            table=table,
        )
        self.rows_out = metrics.counter("strom_table_rows_out_total", "Rows sent", table=table)
        self.bytes_skipped = metrics.counter(
            "strom_table_bytes_skipped_total",
            "Record bytes that columns and filters kept from being sent",
            table=table,
        )

    def counted(self) -> dict[str, float]:
        """The counters by name."""
        return {name: counter.value for name, counter in vars(self).items()}


class _Unknown:
    """A projection that was not computed yet; None is one that takes all columns."""


_UNKNOWN = _Unknown()


class TableFacts:
    """One table, ready to serve. In any thread: computing something twice gives the same result."""

    def __init__(
        self,
        table: TableEntry,
        durability: Durability,
        counting: Callable[[TableEntry], TableTraffic],
        newest: Callable[[], TableFacts],
        check_peer_rows: Callable[[], None],
    ) -> None:
        self.table = table
        self._counting = counting
        self._traffic: TableTraffic | None = None
        self._newest = newest
        self._check_peer_rows = check_peer_rows
        self.durability: Durability = properties.durability(table.description.properties) or durability
        self._layouts: dict[int, ColumnLayout] = {}
        self._projections: dict[tuple[int, tuple[int, ...]], Projection | None] = {}
        self._keys: KeyForms | None = None

    @property
    def traffic(self) -> TableTraffic:
        """Its counters, created at first use: thousands of tables may be open and unused."""
        if self._traffic is None:
            self._traffic = self._counting(self.table)
        return self._traffic

    @property
    def keys(self) -> KeyForms:
        """How rows and keys travel; raises NotPrimaryKeyTable for a log table."""
        if self._keys is None:
            if not self.table.schema.primary_key:
                raise NotPrimaryKeyTable(f"{self.table.path} has no primary key", table=str(self.table.path))
            self._keys = KeyForms(self.table, self._check_peer_rows)
        return self._keys

    def knowing(self, schema_id: int) -> TableFacts:
        """These facts, or newer ones that have the schema: a waiting fetch may outlive a change of its table."""
        return self if self.layout_of(schema_id) is not None else self._newest()

    def schema(self, schema_id: int) -> Schema:
        """One version of the table's schema, including newer ones."""
        return self.knowing(schema_id).table.schema_by_id(schema_id)

    def layout_of(self, schema_id: int) -> ColumnLayout | None:
        """The nodes and buffers of a batch written under one of the table's schemas."""
        layout = self._layouts.get(schema_id)
        if layout is None:
            schema = next((one for one in self.table.schemas if one.schema_id == schema_id), None)
            if schema is None:
                return None
            layout = self._layouts[schema_id] = ColumnLayout.of(schema.to_arrow())
        return layout

    def projection(self, schema_id: int, positions: tuple[int, ...]) -> Projection | None:
        """Columns by ascending position; None when that is all of them."""
        key = (schema_id, positions)
        # Reader threads share this: what was found or made here is the answer, whoever clears the cache meanwhile.
        found = self._projections.get(key, _UNKNOWN)
        if isinstance(found, _Unknown):
            found = self._make_projection(schema_id, positions)
            if len(self._projections) >= PROJECTIONS_KEPT_MAX:
                self._projections = {}
            self._projections[key] = found
        return found

    def _make_projection(self, schema_id: int, positions: tuple[int, ...]) -> Projection | None:
        layout = self.layout_of(schema_id)
        if layout is None:
            return None
        if positions == tuple(range(len(layout.columns))):
            return None
        return Projection(layout, positions)


def check_positions(positions: tuple[int, ...], column_count: int, *, columns_max: int) -> None:
    """Refuse a projection that names no column, too many, or one that does not exist."""
    if not positions or len(positions) > columns_max:
        raise LimitExceeded(
            f"a projection has 1 to {columns_max} columns, not {len(positions)}", columns=len(positions)
        )
    ascending = all(left < right for left, right in pairwise(positions))
    if not ascending or positions[0] < 0 or positions[-1] >= column_count:
        raise InvalidProjection(
            f"projected columns are ascending positions below {column_count}", columns=list(positions[:100])
        )


class Tables:
    """The facts of every table that was used, renewed when the table changes.

    Used by the loop, by lanes that open buckets and by reader threads. Facts are added under the lock, after a look at
    the catalog; the loop forgets a table after the catalog did, so nothing of a dropped table comes back.
    """

    def __init__(
        self,
        view: CatalogView,
        metrics: Metrics,
        durability: Durability,
        check_peer_rows: Callable[[], None] = lambda: None,
    ) -> None:
        self._view = view
        self._metrics = metrics
        self._durability: Durability = durability
        self._check_peer_rows = check_peer_rows
        self._facts: dict[int, TableFacts] = {}
        self._traffic: dict[int, TableTraffic] = {}
        self._adding = threading.Lock()
        view.watch(self._forget_dropped)

    def of(self, table_id: int) -> TableFacts:
        """The facts of a table, or UnknownBucket."""
        table = self._view.catalog.table_by_id(table_id) or self._view.fresh().table_by_id(table_id)
        if table is None:
            raise UnknownBucket(f"there is no table with id {table_id}", table_id=table_id)
        facts = self._facts.get(table_id)
        return facts if facts is not None and facts.table is table else self._add(table)

    def _add(self, table: TableEntry) -> TableFacts:
        """The facts of a table, cached if the catalog still has this version of it."""
        table_id = table.table_id
        with self._adding:
            known = self._facts.get(table_id)
            if known is not None and known.table is table:
                return known
            current = self._view.catalog.table_by_id(table_id)
            facts = TableFacts(
                table, self._durability, self._counted_for, lambda: self.of(table_id), self._check_peer_rows
            )
            if current is table:
                self._facts[table_id] = facts
            return facts

    def _counted_for(self, table: TableEntry) -> TableTraffic:
        """The counters of a table, the same for all its versions; a dropped table gets some that nobody sees."""
        with self._adding:
            traffic = self._traffic.get(table.table_id)
            if traffic is None and self._view.catalog.table_by_id(table.table_id) is None:
                return TableTraffic(Metrics(), str(table.path))
            if traffic is None:
                traffic = self._traffic[table.table_id] = TableTraffic(self._metrics, str(table.path))
            return traffic

    def with_schema(self, table_id: int, schema_id: int) -> TableFacts:
        """As ``of``, after a look for a newer version when this one lacks the schema."""
        facts = self.of(table_id)
        if facts.layout_of(schema_id) is None:
            self._view.fresh()
            facts = self.of(table_id)
        return facts

    def counted(self) -> dict[int, dict[str, float]]:
        """The counters of every table that was written or read."""
        with self._adding:
            known = dict(self._traffic)
        return {table_id: traffic.counted() for table_id, traffic in known.items()}

    def _forget_dropped(self, change: CatalogChange) -> None:
        for table_id in change.tables:
            if change.catalog.table_by_id(table_id) is None:
                self._forget(table_id)

    def _forget(self, table_id: int) -> None:
        with self._adding:
            facts, traffic = self._facts.pop(table_id, None), self._traffic.pop(table_id, None)
            # Another table of the same name may count already.
            if (
                facts is not None
                and traffic is not None
                and self._view.catalog.find_table(facts.table.path) is None
            ):
                self._metrics.forget(table=str(facts.table.path))
