"""The rows of a plan that are on the servers.

Does not reference the query: reading ahead must not keep a query alive that its owner dropped.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from strom.client.cluster.cluster import Cluster
from strom.client.cluster.metadata import TableInfo
from strom.client.lookup.lookups import Lookups
from strom.client.plan.filters import Filter
from strom.client.plan.key_plan import KeyScanPlan
from strom.client.read.direct_scan import Loop
from strom.client.read.key_scan import KeyScan
from strom.client.read.log_scan import LogScan
from strom.client.read.row_scan import RowScan
from strom.client.read.source import ReadStatistics
from strom.lake.read.union_plan import UnionPlan
from strom.model.filters.predicate import Predicate
from strom.protocol.predicate_wire import to_wire
from strom.sql.streaming import scan_batches


@dataclass(frozen=True)
class HotRows:
    """Call it with columns to read them; every call reads again."""

    cluster: Cluster
    run: Loop
    table: TableInfo
    lookups: Lookups | None
    """Lookups, for a primary-key table."""
    plan: UnionPlan
    where: Predicate | None
    """Applied by the servers."""
    statistics: ReadStatistics

    def __call__(self, columns: Sequence[str]) -> Generator[pa.RecordBatch, None, None]:
        if not self.plan.hot_buckets:
            return
        scan = self._scan(columns)
        scan.statistics = self.statistics
        yield from scan_batches(scan, self.run)

    def _scan(self, columns: Sequence[str]) -> RowScan:
        table, where, hot = self.table, self.where, self.plan.hot
        filter = None if where is None else Filter(where, to_wire(where, table.schema))
        if isinstance(hot, KeyScanPlan):
            assert self.lookups is not None
            return KeyScan(self.cluster, table, columns=columns, where=filter, lookups=self.lookups, plan=hot)
        return LogScan(self.cluster, table, columns=columns, where=filter, plan=hot)
