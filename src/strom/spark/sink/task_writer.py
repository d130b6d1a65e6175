"""One task of a write: Spark's batches in, staged or written, with no work per row.

The driver works out once what a DataFrame's columns mean (``SinkShape``): which are written, and which one says what
happens to a row. A task gets this with the pickled writer, and tells the driver what it staged (``StagedTask``).
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import WriterCommitMessage

from strom.api.staging import Staging
from strom.api.table import Table
from strom.api.writer import Writer
from strom.client.cluster.metadata import TableInfo
from strom.client.read.changelog import FACTS
from strom.client.write.staging import StageFact, StageOrder
from strom.client.write.upsert_call import DELETE, UPSERT
from strom.errors import InvalidRequest, SchemaMismatch
from strom.model.names import nearest
from strom.runtime.units import counted
from strom.spark.connect import connections
from strom.spark.connect.spark_errors import translate_errors
from strom.spark.sink.write_options import WriteOptions

EXTRA = tuple(FACTS.names)
"""Columns of a changelog that describe a row and are not part of it."""

KIND_OF = {
    "+i": UPSERT,
    "+u": UPSERT,
    "+a": UPSERT,
    "i": UPSERT,
    "u": UPSERT,
    "insert": UPSERT,
    "update": UPSERT,
    "upsert": UPSERT,
    "append": UPSERT,
    "update_after": UPSERT,
    "update_postimage": UPSERT,
    "-d": DELETE,
    "d": DELETE,
    "delete": DELETE,
    "-u": b"\0",
    "update_before": b"\0",
    "update_preimage": b"\0",
}
"""What each word in the change column does to its row; rows before an update are skipped."""
SKIP = 0


@dataclass(frozen=True)
class SinkShape:
    """How the columns of a DataFrame map to a table."""

    table_id: int
    schema_id: int
    keyed: bool
    key: tuple[str, ...]
    columns: tuple[str, ...]
    """Columns of the DataFrame that are written."""
    partial: bool
    """Whether the table's other columns stay unchanged."""
    change: str | None
    """The column that says what happens to a row."""

    @classmethod
    def of(cls, info: TableInfo, options: WriteOptions, given: list[str]) -> SinkShape:
        """Checked against the current table, so a wrong column raises before the first task starts."""
        schema, keyed = info.schema, info.description.has_primary_key
        change = options.change_column(given, schema.names)
        wanted = list(options.columns or ())
        _refuse_missing(wanted, given, "columns names {}, which the DataFrame does not have")
        extra = {change, *EXTRA} - set(schema.names)
        written = wanted or [name for name in given if name not in extra]
        for name in written:
            if schema.find(name) is None:
                hint = nearest(name, schema.names)
                raise SchemaMismatch(
                    f"table {info.path} has no column {name!r}{hint}: drop it from the DataFrame, or add it there",
                    column=name,
                )
        _refuse_missing(
            list(schema.primary_key), written, f"the rows need the key of {info.path}: column {{}} is missing"
        )
        settable = [name for name in schema.names if name not in schema.auto_increment]
        partial = keyed and not set(settable) <= set(written)
        return cls(
            info.table_id, schema.schema_id, keyed, tuple(schema.primary_key), tuple(written), partial, change
        )

    def rows(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.Array | None]:
        """The columns that are written, and what happens to each row; None: all are written."""
        rows = batch.select(list(self.columns))
        if self.change is None:
            return rows, None
        kinds = _kinds(batch.column(batch.schema.get_field_index(self.change)), self.change)
        kept = pc.not_equal(kinds, SKIP)
        if not pc.all(kept).as_py():
            rows, kinds = rows.filter(kept), kinds.filter(kept)
        if pc.all(pc.equal(kinds, UPSERT[0])).as_py():
            return rows, None
        if not self.keyed:
            raise SchemaMismatch(
                f"column {self.change!r} asks for deletes, and the table is a log: rows can only be appended"
            )
        return rows, kinds


def _refuse_missing(wanted: list[str], given: list[str], sentence: str) -> None:
    for name in wanted:
        if name not in given:
            raise SchemaMismatch(sentence.format(repr(name)), column=name)


def _kinds(words: pa.Array, column: str) -> pa.Array:
    """A number for each row's word: UPSERT, DELETE or SKIP."""
    if not pa.types.is_string(words.type):
        raise SchemaMismatch(f"column {column!r} says what happens to a row in words, not as {words.type}")
    if words.null_count:
        raise SchemaMismatch(
            f"column {column!r} is NULL in {counted(words.null_count, 'row')}: say +I, +U or -D"
        )
    found = pc.index_in(pc.utf8_lower(words), value_set=pa.array(list(KIND_OF)))
    if found.null_count:
        odd = words.filter(pc.is_null(found))[0].as_py()
        raise SchemaMismatch(
            f"column {column!r} has {odd!r}: it says +I, +U, -D, or insert, update, upsert, delete", found=odd
        )
    numbers = pa.array([kind[0] for kind in KIND_OF.values()], pa.uint8())
    return numbers.take(found)


@dataclass
class StagedTask(WriterCommitMessage):
    """What one task staged. Sent even without rows, since the driver learns the sink from it."""

    sink: str
    query_id: str
    epoch: int
    table_id: int
    facts: tuple[StageFact, ...] = field(default=())
    rows: int = 0
    query_name: str | None = None


class TaskWriter:
    """The part of the writers that runs in tasks."""

    def __init__(self, options: WriteOptions, shape: SinkShape) -> None:
        self._options = options
        self._shape = shape

    def stage(self, batches: Iterator[pa.RecordBatch], order: StageOrder) -> tuple[StageFact, ...]:
        """Stage all rows and seal them."""
        table = self._table()
        database = connections.database(self._options.server)
        staging = Staging(database, table.info, order, self._options.staging_options)
        try:
            for batch in batches:
                self._take(staging, batch)
            return tuple(staging.seal())
        except BaseException:
            staging.give_up()
            raise

    def write(self, batches: Iterator[pa.RecordBatch]) -> int:
        """Write all rows at once; how many."""
        table = self._table()
        rows = 0
        with table.writer(compression=self._options.compression) as writer:
            for batch in batches:
                rows += self._take(writer, batch)
        return rows

    def _table(self) -> Table:
        shape = self._shape
        return connections.known_table(
            self._options.server, self._options.table, shape.table_id, shape.schema_id
        )

    def _take(self, writer: Staging | Writer, batch: pa.RecordBatch) -> int:
        chosen, kinds = self._shape.rows(batch)
        if not self._shape.keyed:
            writer.append(chosen)
        elif kinds is None:
            writer.upsert(chosen, self._targets)
        elif self._targets is None:
            writer.change(chosen, kinds)
        else:
            self._take_runs(writer, chosen, kinds, self._targets)
        return int(chosen.num_rows)

    def _take_runs(
        self, writer: Staging | Writer, rows: pa.RecordBatch, kinds: pa.Array, targets: list[str]
    ) -> None:
        """Write some columns of the rows. A delete among them still deletes the whole row."""
        numbers = kinds.to_numpy()
        cuts = [0, *(np.flatnonzero(numbers[1:] != numbers[:-1]) + 1).tolist(), len(numbers)]
        for start, end in pairwise(cuts):
            run = rows.slice(start, end - start)
            if not run.num_rows:
                continue
            if numbers[start] == DELETE[0]:
                writer.delete(run.select(list(self._shape.key)))
            else:
                writer.upsert(run, targets)

    @property
    def _targets(self) -> list[str] | None:
        return list(self._shape.columns) if self._shape.partial else None


class DirectWriter:
    """A writer whose tasks write at once, with no commit."""

    def __init__(self, options: WriteOptions, shape: SinkShape) -> None:
        self._options = options
        self._shape = shape

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """One task: write, and wait until it is acknowledged."""
        translate_errors(
            lambda: TaskWriter(self._options, self._shape).write(iterator), server=self._options.server
        )
        return WriterCommitMessage()


def order_for(sink: str, epoch: int, lease_ms: int) -> StageOrder:
    """A unique name for one attempt of one task."""
    return StageOrder(secrets.token_bytes(16), sink, epoch, lease_ms)


def check_one_table(messages: Sequence[StagedTask]) -> None:
    """Refuse if the table was dropped and recreated while the tasks ran."""
    if len({(one.table_id, one.sink, one.epoch) for one in messages}) > 1:
        raise InvalidRequest("the table was dropped and created again while it was written: write again")
