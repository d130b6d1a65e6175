"""One task of a read: from the servers to Spark in Arrow batches, with no work per row.

Runs in Spark's Python workers. Batches are converted to Spark's form (``types.Fit``, mostly unchanged), and small ones
are combined, because every batch costs the JVM something.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructType

from strom.api.table import Table
from strom.client.plan.filters import filter_of
from strom.client.plan.key_plan import KeyScanPlan
from strom.client.plan.log_plan import ScanPlan
from strom.client.read.changelog import CHANGE_TYPE
from strom.lake.files.joined_batches import joined
from strom.lake.files.storage import Storage
from strom.lake.read.union_plan import UnionPlan
from strom.model.filters.predicate import Predicate
from strom.spark.connect import connections
from strom.spark.connect.options import SourceOptions
from strom.spark.connect.tasks import ReadTask
from strom.spark.connect.types import Fit, arrow_schema
from strom.spark.source.lake_changes import lake_changes

GONE = ("-U", "-D")


@dataclass(frozen=True)
class QueryRead:
    """What every task of a query reads from its ranges."""

    options: SourceOptions
    schema: StructType
    where: Predicate | None = None
    limit: int | None = None

    def rows(self, task: ReadTask) -> Iterator[pa.RecordBatch]:
        """The rows of one task, in Spark's form."""
        if task.rows is not None:
            yield from self._found(task.rows)
            return
        table = connections.known_table(
            self.options.server, self.options.table, task.table_id, task.schema_id
        )
        left = self.limit
        for plan in task.plans:
            for batch in joined(self._scan(table, plan, left)):
                yield batch
                left = None if left is None else left - batch.num_rows

    def _scan(
        self, table: Table, plan: ScanPlan | KeyScanPlan | UnionPlan, limit: int | None
    ) -> Iterator[pa.RecordBatch]:
        if limit is not None and limit <= 0:
            return
        live_only = self._live_only(table, plan)
        changes = self.options.changelog or live_only
        columns = self._columns(table)
        if changes and isinstance(plan, UnionPlan):
            yield from self._changes_of_files(table, plan, columns)
            return
        scan = table.read_plan(plan, columns=columns, where=self.where, limit=limit, changes=changes)
        fit = Fit(scan.schema, arrow_schema(self.schema))
        for batch in scan.to_batches():
            kept = _without_the_gone(batch) if live_only else batch
            if kept.num_rows:
                yield fit(kept)

    def _changes_of_files(
        self, table: Table, plan: UnionPlan, columns: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        schema = table.info.schema
        storage = Storage(connections.database(self.options.server).lake(table.name).config)
        found = filter_of(self.where, schema)
        where = None if found is None else found.predicate
        for batch in lake_changes(storage, plan, schema, columns, where):
            yield Fit(batch.schema, arrow_schema(self.schema))(batch)

    def _live_only(self, table: Table, plan: ScanPlan | KeyScanPlan | UnionPlan) -> bool:
        """Whether only new rows of a primary-key table's changes are wanted."""
        log = isinstance(plan, ScanPlan)
        return log and not self.options.changelog and table.info.description.has_primary_key

    def _columns(self, table: Table) -> Sequence[str]:
        schema = table.info.schema
        named = [name for name in self.schema.names if schema.find(name) is not None]
        return named or [schema.names[0]]

    def _found(self, rows: bytes) -> Iterator[pa.RecordBatch]:
        with pa.ipc.open_stream(rows) as stream:
            fit = Fit(stream.schema, arrow_schema(self.schema))
            for batch in stream:
                yield fit(batch)


def packed_rows(rows: pa.RecordBatch | pa.Table) -> bytes:
    """Rows packed to travel with a task."""
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write(rows)
    return sink.getvalue()


def _without_the_gone(batch: pa.RecordBatch) -> pa.RecordBatch:
    gone = pc.is_in(batch.column(CHANGE_TYPE), value_set=pa.array(GONE))
    return batch.filter(pc.invert(gone))
