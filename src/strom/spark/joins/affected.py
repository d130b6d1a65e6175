"""The stream that drives a delta join: which part of both changelogs a batch has, and the join keys that lie in it.

The stream follows both tables as one source. Spark keeps its positions in the checkpoint and gets one small row per
task: the ranges of offsets that the task will read itself (``Share``). So no row of a changelog passes through the
JVM, and nothing is shuffled. A join key that changed in two tasks is recomputed by both; what they stage is the same,
or is put right by a change that is still to come (``tests/joins/model.py``).

A row that left a side's filter is a change of the row before, one that entered it of the row after: each image is
filtered by itself, and passing once is enough. A changelog without the rows before is read whole.
"""

from __future__ import annotations

import base64
import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from strom.client.filters import filter_of
from strom.client.places import PlaceLike
from strom.client.planning import BucketRange
from strom.spark.joins.groups import names
from strom.spark.joins.keys import arrow_of
from strom.spark.joins.plan import Input, JoinPlan, shows_before
from strom.spark.options import ReadOptions
from strom.spark.reading import Wanted
from strom.spark.stream_reader import LIMITS, StreamReader
from strom.spark.tasks import HotPart, LakePart, Task
from strom.spark.types import spark_schema

if LIMITS:
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
else:
    SupportsTriggerAvailableNow = object  # type: ignore[assignment,misc]

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMAT = "strom_join"
SCHEMA = "share binary"
TASK_ROWS_MIN = 4_000
"""Fewer changes are not worth a task of their own."""


@dataclass(frozen=True)
class Share:
    """What one task reads of each side."""

    left: Task | None
    right: Task | None


@dataclass(frozen=True)
class Following:
    """How both sides are followed. Pickled into an option of the source, without the password."""

    left: Wanted
    right: Wanted
    tasks: int


def following(
    plan: JoinPlan, starts: Mapping[str, Any], *, tasks: int, rows: int, fail_on_data_loss: bool
) -> Following:
    """What is read of both changelogs, from where on, and how much at a time."""
    sides = []
    for which, side in (("left", plan.left), ("right", plan.right)):
        columns = tuple(dict.fromkeys([*side.join, *(side.key if side.nulls else ())]))
        start: PlaceLike = starts[which]
        info = side.info(plan.server)
        # Without the row before, nobody sees that one leaves the filter: then every change counts.
        said = side.where if shows_before(info) else None
        options = ReadOptions(
            server=plan.server,
            table=side.table,
            changelog=True,
            columns=columns,
            where=said,
            start=start,
            rows_per_trigger=rows,
            split_rows=max(-(-rows // tasks), TASK_ROWS_MIN),
            fail_on_data_loss=fail_on_data_loss,
        )
        where = filter_of(said, info.schema)
        schema = spark_schema(info.schema, columns)
        sides.append(Wanted(options, schema, None if where is None else where.predicate))
    return Following(sides[0], sides[1], tasks)


def shares(spark: SparkSession, found: Following) -> DataFrame:
    """The stream: a row for every task of a batch."""
    spark.dataSource.register(JoinSource)
    server = found.left.options.server
    bare = replace(server, password=None)
    left, right = (
        replace(one, options=replace(one.options, server=bare)) for one in (found.left, found.right)
    )
    said = {"following": base64.b64encode(pickle.dumps(Following(left, right, found.tasks))).decode()}
    if server.password:
        said["password"] = server.password  # an option of this name is redacted by Spark
    return spark.readStream.format(FORMAT).schema(SCHEMA).options(**said).load()


class JoinSource(DataSource):
    """Both changelogs of a delta join as one stream."""

    @classmethod
    def name(cls) -> str:
        """What stands in ``format(…)``."""
        return FORMAT

    def schema(self) -> StructType | str:
        """A share is one pickled value."""
        return SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Follows both tables."""
        found: Following = pickle.loads(base64.b64decode(self.options["following"]))
        password = self.options.get("password")
        readers = []
        for one in (found.left, found.right):
            server = replace(one.options.server, password=password)
            readers.append(StreamReader(replace(one.options, server=server), one.schema, None))
        return JoinReader(readers[0], readers[1], found.tasks)


class JoinReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Two readers as one: a position is a position of each."""

    def __init__(self, left: StreamReader, right: StreamReader, tasks: int) -> None:
        self._left = left
        self._right = right
        self._tasks = tasks

    def initialOffset(self) -> dict[str, Any]:
        """Where both begin."""
        return {"left": self._left.initialOffset(), "right": self._right.initialOffset()}

    def latestOffset(self, start: dict[str, Any] | None = None, limit: Any = None) -> dict[str, Any]:
        """Where the next batch ends."""
        known = start or {"left": None, "right": None}
        return {
            "left": self._left.latestOffset(known["left"], limit),
            "right": self._right.latestOffset(known["right"], limit),
        }

    def getDefaultReadLimit(self) -> Any:
        """The same for each side."""
        return self._left.getDefaultReadLimit()

    def prepareForTriggerAvailableNow(self) -> None:
        """From now on nothing newer is read."""
        self._left.prepareForTriggerAvailableNow()
        self._right.prepareForTriggerAvailableNow()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Where both tables end."""
        left, right = self._left.reportLatestOffset(), self._right.reportLatestOffset()
        return None if left is None or right is None else {"left": left, "right": right}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of a batch."""
        parts: list[tuple[str, Task, HotPart]] = []
        for which, reader in (("left", self._left), ("right", self._right)):
            for task in reader.partitions(start[which], end[which]):
                if isinstance(task, Task):
                    # The changes of a primary-key table are in its log alone: no part is a file.
                    parts += [(which, task, part) for part in task.parts if not isinstance(part, LakePart)]
        return [InputPartition(pickle.dumps(one)) for one in _shared(parts, self._tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The share of a task, as it was planned."""
        if isinstance(partition.value, bytes):
            yield pa.RecordBatch.from_pydict(
                {"share": [partition.value]}, pa.schema([("share", pa.binary())])
            )

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing to let go of."""

    def stop(self) -> None:
        """The connection stays."""


def _shared(parts: Sequence[tuple[str, Task, HotPart]], tasks: int) -> list[Share]:
    """Parts by task: those of the same bucket together, where there are buckets enough."""
    rows = sum(part.rows for _, _, part in parts if isinstance(part, BucketRange))
    count = min(tasks, 1 + rows // TASK_ROWS_MIN)
    buckets = {part.bucket.bucket for _, _, part in parts}
    ordered = sorted(parts, key=lambda one: (one[2].bucket.bucket, one[2].start, one[0]))
    members: list[dict[str, list[tuple[Task, HotPart]]]] = [{"left": [], "right": []} for _ in range(count)]
    for number, (which, task, part) in enumerate(ordered):
        place = part.bucket.bucket if len(buckets) >= count else number
        members[place % count][which].append((task, part))
    found = [Share(_task(one["left"]), _task(one["right"])) for one in members]
    return [one for one in found if one.left or one.right]


def _task(members: Sequence[tuple[Task, HotPart]]) -> Task | None:
    if not members:
        return None
    first = members[0][0]
    return Task(first.table_id, first.schema_id, tuple(part for _, part in members))


# --- in a task -----------------------------------------------------------------------------------------------------


def touched(plan: JoinPlan, found: Following, share: Share) -> list[pa.RecordBatch]:
    """The join keys of a share, as ``groups.py`` takes them; those of rows with a NULL in it as the row's own key."""
    batches: list[pa.RecordBatch] = []
    for number, (side, wanted, task) in enumerate(
        ((plan.left, found.left, share.left), (plan.right, found.right, share.right))
    ):
        if task is not None:
            batches += [_keys(plan, side, number, batch) for batch in wanted.rows(task)]
    return [batch for batch in batches if batch.num_rows]


def _keys(plan: JoinPlan, side: Input, number: int, batch: pa.RecordBatch) -> pa.RecordBatch:
    null = _any_null(batch, side.join)
    if null is not None and not side.nulls:
        batch, null = batch.filter(pc.invert(null)), None
    columns = {
        name: batch.column(own).cast(arrow_of(kind), safe=False)
        for name, own, kind in zip(names("j", len(plan.common)), side.join, plan.common, strict=True)
    }
    for which, (letter, one) in enumerate((("l", plan.left), ("r", plan.right))):
        if one.nulls:
            for name, own, kind in zip(names(letter, len(one.key)), one.key, one.key_types, strict=True):
                arrow = arrow_of(kind)
                mine = which == number and null is not None
                columns[name] = (
                    pc.if_else(null, batch.column(own).cast(arrow, safe=False), pa.scalar(None, arrow))
                    if mine
                    else pa.nulls(batch.num_rows, arrow)
                )
    return pa.RecordBatch.from_pydict(columns)


def _any_null(batch: pa.RecordBatch, columns: Sequence[str]) -> pa.BooleanArray | None:
    found = None
    for name in columns:
        column = batch.column(name)
        if column.null_count:
            null = pc.is_null(column)
            found = null if found is None else pc.or_(found, null)
    return found
