"""One SQL query: read, bound to tables, planned at one instant, run by DuckDB.

Parsing and binding happen when it is created, so that errors are raised at once; planning when rows are first read.
After that it returns the same rows however often it runs. For blocking threads; DuckDB calls back for hot rows from
its own threads.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from strom.client.cluster.cluster import Cluster
from strom.client.cluster.metadata import TableInfo
from strom.client.lookup.lookups import Lookups
from strom.client.plan.key_plan import KeyScanPlan
from strom.client.read.direct_scan import Loop
from strom.client.read.source import ReadStatistics
from strom.errors import InvalidQuery
from strom.lake.read.union_plan import UnionPlan
from strom.lake.read.union_planner import FileLister, UnionPlanner, UnionRequest
from strom.lake.read.warehouses import Warehouses
from strom.model.filters.predicate import Predicate
from strom.model.table import TablePath
from strom.sql.duck import open_duck, told
from strom.sql.hot_rows import HotRows
from strom.sql.instants import At, without_instants
from strom.sql.lake_relation import LakeRelation
from strom.sql.parameters import Parameters, filled
from strom.sql.remembered_needs import needs_of_query
from strom.sql.shapes import shape_of
from strom.sql.stand_ins import StandIns
from strom.sql.statement import parse
from strom.sql.streaming import StreamedRows
from strom.sql.table_needs import TableNeed
from strom.sql.tables import SqlTable, TableFinder, mentions

BATCH_ROWS = 100_000


@dataclass(frozen=True)
class House:
    """What a query needs of a connection."""

    cluster: Cluster
    catalog: TableFinder
    warehouses: Warehouses
    lookups_of: Callable[[TableInfo], Lookups]
    flush: Callable[[int], Awaitable[None]]
    """Waits for what this connection wrote to a table."""
    rows_then: Callable[[SqlTable, Sequence[str], Predicate | None], Coroutine[Any, Any, pa.Table]]
    """Columns of a table as it was."""
    run: Loop


@dataclass
class QueryStatistics:
    """What a query read: hot rows by table, and lake files."""

    hot: dict[str, ReadStatistics] = field(default_factory=dict)
    lake_files: int = 0
    """Data files handed to DuckDB; it may have skipped most of them by their footers."""

    @property
    def bytes_fetched(self) -> int:
        """Bytes of hot rows."""
        return sum(one.bytes_fetched for one in self.hot.values())


class Query:
    """A query that fits its tables."""

    def __init__(
        self,
        text: str,
        house: House,
        database: str,
        parameters: Parameters | None = None,
        at: At | None = None,
    ) -> None:
        self._house = house
        self._run = house.run
        self.statistics = QueryStatistics()
        connection = open_duck()
        try:
            if parameters is not None:
                text = filled(text, parameters)
            text, then = without_instants(connection, text)
            self.statement = parse(connection, text)
            found = self._run(house.catalog.find_then(self.statement.tables, then, database, at))
            self._tables = {table.path: table for table in found.values()}
            counts = mentions(self.statement.tables, found)
            everything = self._run(house.catalog.everything()) if self.statement.lists else {}
            self._shapes = self._shapes_of(connection, everything)
            schemas = {path: table.arrow for path, table in self._tables.items()}
            self._stand_ins = StandIns(connection, schemas, database, everything)
            self._needs = needs_of_query(self.statement, database, self._tables, counts, self._stand_ins.plan)
        except BaseException:
            connection.close()
            raise
        self._lock = threading.Lock()
        self._streams: list[StreamedRows] = []
        self._planned: dict[TablePath, UnionPlan] | None = None
        self._closed = False
        self._process = os.getpid()

    def _shapes_of(
        self, connection: Any, everything: Mapping[str, Sequence[SqlTable]]
    ) -> dict[TablePath, str]:
        """The tables whose columns alone are needed: all of a DESCRIBE; of a listing, those it does not read."""
        wanted = list(self._tables.values()) if self.statement.describes else []
        wanted += [
            table for tables in everything.values() for table in tables if table.path not in self._tables
        ]
        return {table.path: shape_of(connection, table) for table in wanted}

    # --- planning ---------------------------------------------------------------------------------------------

    def plan(self) -> dict[TablePath, UnionPlan]:
        """What is read of each table, fixed at first use: all at one instant."""
        if self._planned is None and self._shapes:
            self._stand_ins.shape(self._shapes)
        if self._planned is None and self.statement.describes:
            self._planned = {}
        if self._planned is None:
            paths = [path for path in self._needs if self._tables[path].at is None]
            wanted = [_wanted(self._tables[path], self._needs[path]) for path in paths]
            plans = self._run(self._make_plans(wanted))
            self._planned = dict(zip(paths, plans, strict=True))
            self._prepare()
        return self._planned

    async def _make_plans(self, wanted: Sequence[UnionRequest]) -> list[UnionPlan]:
        for one in wanted:
            await self._house.flush(one.table.table_id)
        files: FileLister = self._house.warehouses
        return await UnionPlanner(self._house.cluster, files).plan(wanted)

    def _prepare(self) -> None:
        """Replace the stand-ins by the planned rows."""
        assert self._planned is not None
        views: dict[TablePath, str] = {}
        for number, (path, table) in enumerate(self._tables.items()):
            name = f"__rows_{number}"
            if table.rows is not None:
                self._stand_ins.register(name, table.rows)
                views[path] = f"SELECT * FROM {name}"
                continue
            if table.at is not None:
                self._stand_ins.register(name, self._rows_then(table, self._needs[path]))
                views[path] = f"SELECT * FROM {name}"
                continue
            parts = self._parts(name, table, self._needs[path], self._planned[path])
            views[path] = " UNION ALL ".join(parts)
        self._stand_ins.replace(views)

    def _rows_then(self, table: SqlTable, need: TableNeed) -> pa.Table:
        """The rows of an instant, in memory: those that pass the filter, with the columns that are used."""
        rows = self._run(self._house.rows_then(table, sorted(need.columns), need.where))
        return pa.table(
            {
                field.name: rows.column(field.name)
                if field.name in need.columns
                else pa.nulls(len(rows), field.type)
                for field in table.arrow
            }
        )

    def _parts(self, name: str, table: SqlTable, need: TableNeed, plan: UnionPlan) -> list[str]:
        parts: list[str] = []
        if plan.files:
            self.statistics.lake_files += len(plan.files)
            types = self._stand_ins.types(table.path)
            storage = self._house.warehouses.storage_of(plan.table_id)
            relation = LakeRelation(table.schema, types, plan, storage, self._streams)
            parts.append(relation.select(self._stand_ins.register, name, need.columns, need.where))
        if plan.hot_buckets or not parts:
            stream = self._hot(table, need, plan)
            self._stand_ins.register(name, stream)
            parts.append(f"SELECT * FROM {name}")
        return parts

    def _hot(self, table: SqlTable, need: TableNeed, plan: UnionPlan) -> StreamedRows:
        house, info = self._house, table.info
        assert info is not None
        keyed = isinstance(plan.hot, KeyScanPlan)
        rows = HotRows(
            house.cluster,
            house.run,
            info,
            house.lookups_of(info) if keyed else None,
            plan,
            need.where,
            self.statistics.hot.setdefault(str(table.path), ReadStatistics()),
        )
        stream = StreamedRows(table.arrow, sorted(need.columns), rows, need.where)
        self._streams.append(stream)
        if plan.hot_buckets and self.statement.reads:
            stream.begin()
        return stream

    # --- running ----------------------------------------------------------------------------------------------

    def reader(self) -> pa.RecordBatchReader:
        """The rows, batch by batch; one reader at a time."""
        if self._process != os.getpid():  # a child has none of the threads that fetch and compute
            raise InvalidQuery("this query was created before this process was forked: create it again here")
        with self._lock:
            if self._closed:
                raise InvalidQuery("this query was closed")
            self.plan()
            with self._told():
                return self._stand_ins.connection.sql(self.statement.text).to_arrow_reader(BATCH_ROWS)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows; Strom's errors are raised as they were."""
        yield from self.rest_of(self.reader())

    def rest_of(self, reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        """What a reader of this query still holds."""
        while True:
            try:
                with self._told():
                    batch = reader.read_next_batch()
            except StopIteration:
                return
            yield batch

    def progress(self) -> float | None:
        """DuckDB's estimate in percent; None when it has none. Any thread may call."""
        found = float(self._stand_ins.connection.query_progress())
        return None if found < 0 else found

    def close(self) -> None:
        """Release everything. A second call does nothing, nor does a call in a forked child."""
        if not self._closed and self._process == os.getpid():
            self._closed = True
            for stream in self._streams:
                stream.close()
            self._stand_ins.close()
            self._streams.clear()

    def _told(self) -> Any:
        return _Told(self._streams)


class _Told:
    """Raise errors that DuckDB wrapped as what they were."""

    def __init__(self, streams: Sequence[StreamedRows]) -> None:
        self._streams = streams
        self._words = told()

    def __enter__(self) -> None:
        self._words.__enter__()

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> bool:
        if error is not None and not isinstance(error, StopIteration):
            for stream in self._streams:
                if stream.problem is not None:
                    raise stream.problem from None
        return bool(self._words.__exit__(kind, error, traceback))


def _wanted(table: SqlTable, need: TableNeed) -> UnionRequest:
    assert table.info is not None
    return UnionRequest(table.info, need.where, tier=table.tier)
