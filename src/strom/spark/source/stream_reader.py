"""``spark.readStream``: follows a table from a place on, batch by batch, each row once.

Spark asks where the table ends (``latestOffset``), writes that into its checkpoint, and then reads the range in
between; after a failure it asks for the same range again. The position (``stream_position.py``) is the only state: what
a batch reads follows from the checkpoint, for the first batch too. Its start is decided together with its end.

New partitions are found at every trigger and read from their beginning. An added column stops a stream of all
columns before the first row that has it. Rows that expired before they were read stop it too, unless
``failOnDataLoss`` is false.
"""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from strom.api.table import Table
from strom.client.plan.filters import filter_of
from strom.client.plan.key_plan import Instant, KeyScanPlan
from strom.client.plan.log_plan import BucketRange, ScanPlan
from strom.errors import Expired, InvalidRequest, LagUnknown, SchemaMismatch, StromError, TableNotFound
from strom.runtime.units import counted
from strom.spark.connect import connections
from strom.spark.connect.filters import combined
from strom.spark.connect.options import SourceOptions
from strom.spark.connect.spark_errors import translate_errors, translate_errors_each
from strom.spark.connect.tasks import ROW_BYTES, Part, ReadTask, cut_and_packed
from strom.spark.source.bucket_sizes import sizes_of
from strom.spark.source.pinned_read import check_schema
from strom.spark.source.refused_reader import RefusedReader
from strom.spark.source.stream_from_lake import (
    check_changes,
    gone_rows,
    has_history,
    history_of,
    in_lake,
    refuse_namesakes,
    with_history,
)
from strom.spark.source.stream_position import (
    BEGINNING,
    Place,
    Position,
    between,
    cut_to,
    ids_of,
    place_of,
    reaches,
    start_of,
)
from strom.spark.source.task_reader import QueryRead

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )

    LIMITS = True
except ImportError:  # before Spark 4.2 a Python source has no say in how much a trigger reads
    LIMITS = False
    SupportsTriggerAvailableNow = object  # type: ignore[assignment,misc]

log = logging.getLogger("strom.spark")


def stream_reader(
    said: Mapping[str, str], schema: StructType, schema_id: int | None
) -> DataSourceStreamReader:
    """The reader of a stream. An error is raised by its first call: here, Spark would swallow it."""
    server = None
    try:
        options = SourceOptions.of(said)
        server = options.server
        _check(options, schema)
    except StromError as error:
        return RefusedReader(error, server)
    return StreamReader(options, schema, schema_id)


def _check(options: SourceOptions, schema: StructType) -> None:
    if options.at is not None or options.end is not None or options.limit is not None:
        raise InvalidRequest("a stream has a start and no end: at=, end= and limit= are for spark.read")
    if options.system_table:
        raise InvalidRequest(f"{options.table} is read by spark.read: only a table itself is a stream")
    table = connections.table(options.server, options.table)
    info = table.info
    check_schema(options, info.schema, schema)
    filter_of(combined(options.where, ()), info.schema)
    plain = info.description.has_primary_key and not options.changelog
    if plain and options.deletes != "ignore" and not _only_inserts(table):
        raise InvalidRequest(
            f"a stream of {options.table}, which has a primary key, is a stream of changes: add "
            f".option('changelog', 'true') (or read \"{options.table}$changelog\") for inserts, updates and deletes, "
            "or .option('deletes', 'ignore') for new and updated rows only"
        )


def _only_inserts(table: Table) -> bool:
    """Whether rows never change once written."""
    return table.properties.get("table.merge-engine", "").lower() == "first_row"


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows one table. The driver keeps one; a pickled one, plain data only, reads in the tasks."""

    def __init__(self, options: SourceOptions, schema: StructType, schema_id: int | None) -> None:
        self._options = options
        self._schema = schema
        self._schema_id = schema_id
        self._newest: ScanPlan | None = None
        """The buckets at the last look."""
        self._target: ScanPlan | None = None
        """Where an ``availableNow`` query ends."""
        self._seen: ScanPlan | None = None
        """What the last batch was planned from; shows whether a dropped partition had more rows."""
        self._begun = False
        """Whether a batch was planned, so that the next one is not the first."""

    # --- what Spark asks ----------------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:
        """A constant: after a restart Spark asks again, for a first batch whose end is already decided."""
        return dict(BEGINNING)

    def latestOffset(self, start: dict[str, Any] | None = None, limit: Any = None) -> dict[str, Any]:
        """Where the next batch ends. (Spark before 4.2 does not pass its start: then it takes everything.)"""
        return translate_errors(lambda: self._next(start, limit), server=self._options.server).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """How much a batch may hold."""
        options = self._options
        if options.rows_per_trigger is not None:
            return ReadMaxRows(options.rows_per_trigger)
        if options.bytes_per_trigger is not None:
            return ReadMaxBytes(options.bytes_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """From now on nothing newer is read."""
        self._target = translate_errors(lambda: self._look(self._table()), server=self._options.server)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Where the table ends, for the lag in the query's progress."""
        if self._newest is None:
            return None
        return Position.of_extent(self._newest, self._schema_id or 0, ends=True).to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of a batch."""
        return translate_errors(
            lambda: self._planned(start, Position.from_json(end)), server=self._options.server
        )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        if not isinstance(partition, ReadTask):
            return iter(())
        return translate_errors_each(lambda: self._rows(partition), server=self._options.server)

    def _rows(self, task: ReadTask) -> Iterator[pa.RecordBatch]:
        wanted = QueryRead(self._options, self._schema, combined(self._options.where, ()))
        try:
            yield from wanted.rows(task)
        except Expired as error:
            # The checkpoint holds the instant, so the same query would ask for it forever.
            raise InvalidRequest(
                f"the stream begins with {self._options.table} at an instant that is no longer kept "
                f"({error.message}): start the query with a new checkpointLocation, or keep more (table.log.ttl)"
            ) from None

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing to release: the table's retention decides what is kept."""

    def stop(self) -> None:
        """The connection stays open for the next reader."""

    # --- where to begin -----------------------------------------------------------------------------------------

    def _begin(self, table: Table) -> Position:
        start = self._options.start
        schema_id = table.info.schema.schema_id
        if start in (None, "full") and table.info.description.has_primary_key:
            plan = table.scan(tier="hot").plan()
            assert isinstance(plan, KeyScanPlan)
            # A partition created since is only in the second look, and is read from its beginning.
            extent = self._look(table)
            if in_lake(table):
                refuse_namesakes(connections.database(self._options.server), table, extent)
            return Position.of_instant(plan, extent, schema_id)
        extent = self._look(table)
        if start == "earliest" and self._options.fail_on_data_loss:
            check_changes(table, extent)
        if start in (None, "full", "earliest"):
            return Position.of_extent(extent, schema_id, ends=False)
        if start == "latest":
            return Position.of_extent(extent, schema_id, ends=True)
        offsets = {
            key: at for key, at in table.offsets(start).items() if isinstance(key, tuple) and len(key) == 2
        }
        self._check_time(table, offsets)
        return Position(extent.table_id, schema_id, offsets, ids_of(extent))

    def _check_time(self, table: Table, offsets: Mapping[Place, int]) -> None:
        """Refuse a time that may lie before what the servers have: the rows in between are lake-only."""
        if not isinstance(self._options.start, dt.datetime) or not has_history(table):
            return
        first = self._hot_starts(table) or {}
        if any(first.get(place) == offset > 0 for place, offset in offsets.items()):
            raise InvalidRequest(
                f"the servers hold {self._options.table} from a later time than {self._options.start} on, and a stream "
                "finds no time in the lake: start it at full, or at offsets (as JSON; see the table's $offsets)"
            )

    # --- how far it is ------------------------------------------------------------------------------------------

    @property
    def table(self) -> str:
        """The name of the table."""
        return self._options.table

    def look(self) -> ScanPlan:
        """Where the table begins and ends now, in both tiers."""
        return self._look(connections.table(self._options.server, self._options.table))

    def began(self) -> Position:
        """Where the first batch would begin; LagUnknown if only planning it decides."""
        if self._options.start == "latest":
            raise LagUnknown(
                f"the stream of {self._options.table} begins where the table ends when its first batch is planned, "
                "and it is not planned yet: ask again in a moment"
            )
        return self._begin(self._table())

    def missing(self, position: Position, extent: ScanPlan, upto: ScanPlan | None = None) -> int:
        """How many rows (changes, of a primary-key table) of a look lie after a position; with ``upto`` only those that
        an earlier look had and that still exist."""
        self._check_table(position, extent)
        known = position.known(extent)
        unread = sum(one.left for one in known.full.values())
        for one in extent.ranges if upto is None else cut_to(extent, upto).ranges:
            unread += max(one.end - known.offsets.get(place_of(one), self._first(one)), 0)
        return unread

    def _first(self, one: BucketRange) -> int:
        """Where a bucket begins that a position does not name."""
        return one.start

    # --- how far to go ------------------------------------------------------------------------------------------

    def _next(self, start: dict[str, Any] | None, limit: Any) -> Position:
        table = self._table()
        first = start == BEGINNING or (start is None and not self._begun)
        # Before the look, so that the look covers all of it.
        origin = self._begin(table) if first else None
        extent = self._look(table)
        self._newest = extent
        self._check_columns(table)
        if start is None:
            return self._all(origin, extent, table.info.schema.schema_id)
        target = extent if self._target is None else cut_to(extent, self._target)
        known = Position.from_json(start) if origin is None else origin
        position = self._checked(known, extent)
        rows = self._rows_of(limit, table, target)
        end = position.after_snapshot(rows) if position.full else position.after(target, rows)
        if origin is not None:
            return replace(end, origin=position)
        # Spark takes any different JSON for new data.
        return known if end == replace(known, origin=None) else end

    def _all(self, origin: Position | None, extent: ScanPlan, schema_id: int) -> Position:
        """Everything. Spark before 4.2 does not say which batch this ends, so it may be the first."""
        if origin is not None and origin.full:
            end = origin.after_snapshot(None)
        else:
            end = Position.of_extent(extent, schema_id, ends=True)
        return replace(end, origin=origin)

    def _look(self, table: Table) -> ScanPlan:
        extent = table.extent()
        if not in_lake(table):
            return extent
        return with_history(connections.database(self._options.server), table, extent)

    def _hot_starts(self, table: Table) -> Mapping[Place, int] | None:
        """Where the servers begin; a missing partition is lake-only. None: there is no lake."""
        if not in_lake(table):
            return None
        return {place_of(one): one.start for one in table.extent().ranges}

    def _check_columns(self, table: Table) -> None:
        """Stop before the first row with a column that this query lacks. Checked after the ends, so none slips in."""
        if self._schema_id is None:
            return
        names = table.info.schema.names
        newer = table.refresh().info.schema
        if newer.schema_id != self._schema_id:
            added = [name for name in newer.names if name not in names or name not in self._schema.names]
            raise SchemaMismatch(
                f"table {self._options.table} has new columns ({', '.join(added) or 'a new schema'}): start the "
                "query again with the same checkpoint and it reads them too, or name the columns with "
                ".option('columns', …) and it goes on without them",
                columns=added,
            )

    def _rows_of(self, limit: Any, table: Table, extent: ScanPlan) -> int | None:
        if not LIMITS:
            return None
        if isinstance(limit, ReadMaxRows):
            return max(limit.max_rows, 1)
        if isinstance(limit, ReadMaxBytes):
            sizes = sizes_of(table, extent.ranges)
            known = [sizes.bytes_per_offset.get(one.bucket, ROW_BYTES) for one in extent.ranges]
            return max(int(limit.max_bytes / max(known, default=ROW_BYTES)), 1)
        return None

    # --- what was lost ------------------------------------------------------------------------------------------

    def _checked(self, position: Position, extent: ScanPlan) -> Position:
        """The position, after checking that everything behind it still exists."""
        self._check_table(position, extent)
        offsets = dict(position.offsets)
        now = ids_of(extent)
        again = {name for name, number in position.partitions.items() if now.get(name, number) != number}
        for one in extent.ranges:
            place = place_of(one)
            at = offsets.get(place)
            if at is None or one.start <= at <= one.end or one.partition in again:
                continue  # the position is about the old partition of that name
            self._lost(_gap(self._options.table, one, at))
            offsets[place] = min(max(at, one.start), one.end)
        self._check_partitions(position, extent)
        if offsets != position.offsets:
            position = Position(
                position.table_id, position.schema_id, offsets, position.partitions, position.full
            )
        return position.known(extent)

    def _check_table(self, position: Position, extent: ScanPlan) -> None:
        if position.table_id != extent.table_id:
            raise TableNotFound(
                f"the checkpoint is of another table than {self._options.table} is now: it was dropped and created "
                "again. Start the query with a new checkpointLocation",
                table_id=position.table_id,
            )

    def _check_partitions(self, position: Position, extent: ScanPlan) -> None:
        """A dropped partition is fine if all its rows were read, as far as we know."""
        now = ids_of(extent)
        before = {} if self._seen is None else {place_of(one): one.end for one in self._seen.ranges}
        for name, number in position.partitions.items():
            if now.get(name) == number:
                continue
            if name in now:
                self._refuse_repeating(name)
            unread = sum(
                max(end - position.offsets.get(place, 0), 0)
                for place, end in before.items()
                if place[0] == name
            )
            if unread:
                self._lost_partition(
                    f"partition {name} of {self._options.table} was dropped with "
                    f"{counted(unread, 'row')} that {'was' if unread == 1 else 'were'} not read"
                )
            else:
                log.warning("partition %s of %s was dropped", name, self._options.table)
        self._seen = extent

    def _refuse_repeating(self, name: str) -> None:
        """A recreated partition begins at 0, unless the lake has rows of the old one: then it continues behind them, at
        an offset above 0, and we cannot tell which of its rows were read."""
        table = self._table()
        starts = self._hot_starts(table) if has_history(table) else None
        if starts is not None and any(start for (known, _), start in starts.items() if known == name):
            raise InvalidRequest(
                f"partition {name} of {self._options.table} was dropped and made again, and the lake keeps rows from "
                "before: this stream would read them twice. Start the query with a new checkpointLocation",
                partition=name,
            )

    def _lost_partition(self, sentence: str) -> None:
        """A partition was dropped before all of it was read."""
        self._lost(sentence)

    def _lost(self, sentence: str) -> None:
        if self._options.fail_on_data_loss:
            raise InvalidRequest(
                f"{sentence}. To go on without them start the query with .option('failOnDataLoss', 'false')"
            )
        log.warning("%s; going on without them", sentence)

    # --- tasks --------------------------------------------------------------------------------------------------

    def _planned(self, start: dict[str, Any], end: Position) -> list[ReadTask]:
        tasks = self._tasks(start_of(start, end), end)
        self._begun = True
        return tasks

    def _tasks(self, start: Position, end: Position) -> list[ReadTask]:
        table = self._table()
        extent = self._newest if reaches(self._newest, end) else self._look(table)
        assert extent is not None
        hot_starts = self._hot_starts(table)
        self._check_table(end, extent)
        ids = ids_of(extent)
        same = {name for name, number in end.partitions.items() if ids.get(name) == number}
        buckets = {
            place_of(one): one.bucket
            for one in extent.ranges
            if one.partition is None or one.partition in same
        }
        firsts = {place_of(one): one.start for one in extent.ranges}
        logged = has_history(table)
        old: list[BucketRange] = []
        gone: list[Instant] = []
        again = start.made_again(end)
        parts: list[Part] = []
        for place, part in between(start, end, buckets):
            if part is None:
                self._lost_partition(
                    f"partition {place[0]} of {self._options.table} was dropped before its rows were read"
                )
            elif isinstance(part, BucketRange):
                named = place in start.offsets and place[0] not in again
                kept = self._still_there(part, firsts[place], named=named)
                if kept is not None:
                    first = kept.end if hot_starts is None else hot_starts.get(place, kept.end)
                    (old if logged and kept.start < first else parts).append(kept)
            elif hot_starts is not None and place not in hot_starts:
                gone.append(part)
            else:
                parts.append(part)
        parts += [*history_of(table, old), *gone_rows(table, gone)]
        options = self._options
        groups = cut_and_packed(
            parts, sizes_of(table, parts), split_bytes=options.split_bytes, split_rows=options.split_rows
        )
        return [ReadTask(end.table_id, table.info.schema.schema_id, group) for group in groups]

    def _still_there(self, part: BucketRange, first: int, *, named: bool) -> BucketRange | None:
        if part.start < first:
            if named:
                there = BucketRange(part.bucket, part.partition, first, part.end)
                self._lost(_gap(self._options.table, there, part.start))
            if first >= part.end:
                return None
            return replace(part, start=first)
        return part

    def _table(self) -> Table:
        options = self._options
        return connections.known_table(options.server, options.table)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_newest": None, "_target": None, "_seen": None}


def _gap(table: str, there: BucketRange, at: int) -> str:
    where = f"bucket {there.bucket.bucket}" + (f" of partition {there.partition}" if there.partition else "")
    if at < there.start:
        return (
            f"{where} of {table} begins at offset {there.start} now, and the stream is at {at}: "
            f"{counted(there.start - at, 'row')} went before {'it was' if there.start - at == 1 else 'they were'} read "
            "(table.log.ttl, or an overwrite)"
        )
    return f"{where} of {table} ends at offset {there.end}, and the stream is at {at} already: rows were lost"
