"""The stream of a delta join: follows both changelogs as one source, and does the work of a batch in its readers.

Spark keeps the positions of both tables in the checkpoint. A task of a batch gets ranges of offsets of both changelogs
(``changed_keys.TaskShare``), reads them, recomputes what they touched and stages it. Spark sees one row per task:
what was staged. So no row of a changelog passes through the JVM, nothing is shuffled, and a task is one Python worker.

What a batch's lookups must see is decided when the batch is planned, after the previous one was published and applied
everywhere. Spark's batch number reaches the tasks as a property of their job (``EPOCH``, set by ``batches.py``).
"""

from __future__ import annotations

import base64
import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from strom.api.matching import written_to
from strom.lake.read.lake_only_rows import LakeOnlyRows
from strom.spark.connect import connections
from strom.spark.connect.options import ConnectOptions
from strom.spark.connect.spark_errors import translate_errors, translate_errors_each
from strom.spark.connect.tasks import HotPart, LakePart, ReadTask
from strom.spark.joins.delta.join_plan import JoinPlan
from strom.spark.joins.delta.lake_only import lake_only_rows_of
from strom.spark.joins.delta.result_table import JoinResult
from strom.spark.joins.delta.side_reader import SideReader
from strom.spark.joins.delta.task.changed_keys import Following, TaskShare, shared
from strom.spark.joins.delta.task.recompute import Recompute
from strom.spark.joins.delta.task.side_rows import SideView
from strom.spark.sink.write_options import STREAM_LEASE_MS
from strom.spark.source.stream_reader import LIMITS

if LIMITS:
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
else:
    SupportsTriggerAvailableNow = object  # type: ignore[assignment,misc]

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMAT = "strom_join"
SCHEMA = "done binary"
ARROW_SCHEMA = pa.schema([("done", pa.binary())])
EPOCH = "strom.join.batch"
"""A property of a job: the number of its batch."""


@dataclass(frozen=True)
class Driven:
    """Everything a query needs. Pickled into an option of the source, without the password."""

    plan: JoinPlan
    result: JoinResult
    following: Following

    def at(self, server: ConnectOptions) -> Driven:
        """The same with another address, user or password."""
        found = self.following
        left, right = (
            replace(one, options=replace(one.options, server=server)) for one in (found.left, found.right)
        )
        return replace(
            self, plan=replace(self.plan, server=server), following=replace(found, left=left, right=right)
        )

    def sides(self) -> tuple[SideReader, SideReader]:
        """The readers of both sides."""
        left, right = self.following.left, self.following.right
        return SideReader(left.options, left.schema, None), SideReader(right.options, right.schema, None)

    def seen(self, kept: Sequence[LakeOnlyRows | None]) -> SideView:
        """What lookups in both sides and in the result must see from now on; ``kept`` are the lake-only rows."""
        plan, result = self.plan, self.result
        # Waits until every decision is applied, so that lookups see what was published before.
        connections.known_table(plan.server, result.table, result.table_id).scan(tier="hot").plan()
        database = connections.database(plan.server)
        left, right, own = (
            written_to(database, one.info(plan.server)) for one in (plan.left, plan.right, result)
        )
        return SideView(left, right, own, *kept)


def stream(spark: SparkSession, driven: Driven) -> DataFrame:
    """The stream of what the tasks of each batch staged."""
    spark.dataSource.register(JoinSource)
    server = driven.plan.server
    bare = driven.at(replace(server, password=None))
    said = {"driven": base64.b64encode(pickle.dumps(bare)).decode()}
    if server.password:
        said["password"] = server.password  # an option of this name is redacted by Spark
    return spark.readStream.format(FORMAT).schema(SCHEMA).options(**said).load()


class JoinSource(DataSource):
    """Both changelogs of a delta join as one stream."""

    @classmethod
    def name(cls) -> str:
        """The name in ``format(…)``."""
        return FORMAT

    def schema(self) -> StructType | str:
        """A task reports one pickled value."""
        return SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A reader of both tables."""
        bare: Driven = pickle.loads(base64.b64decode(self.options["driven"]))
        return JoinReader(bare.at(replace(bare.plan.server, password=self.options.get("password"))))


class JoinReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Two readers as one: its position holds a position of each."""

    def __init__(self, driven: Driven) -> None:
        self._driven = driven
        self._left, self._right = driven.sides()

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
        """The limit of each side."""
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
        parts: list[tuple[str, ReadTask, HotPart]] = []
        for which, reader in (("left", self._left), ("right", self._right)):
            for task in reader.partitions(start[which], end[which]):
                if isinstance(task, ReadTask):
                    # The changes of a primary-key table are in its log alone: no part is a file.
                    parts += [(which, task, part) for part in task.parts if not isinstance(part, LakePart)]
        found = shared(parts, self._driven.following.tasks)
        return translate_errors(lambda: self._shares(found, start, end), server=self._driven.plan.server)

    def _shares(
        self, found: list[TaskShare], start: Mapping[str, Any], end: Mapping[str, Any]
    ) -> list[InputPartition]:
        """The tasks' shares. Dropped partitions go to the first task."""
        plan = self._driven.plan
        sides = (("left", self._left, plan.left), ("right", self._right, plan.right))
        kept = [lake_only_rows_of(plan.server, side) for _, _, side in sides]
        unread = {
            which: reader.unread(start[which], end[which], one)
            for (which, reader, _), one in zip(sides, kept, strict=True)
        }
        gone = {
            which: tuple(
                {
                    **dict.fromkeys(reader.gone(start[which], end[which])),
                    **{name: None for name, _ in unread[which] if name is not None},
                }
            )
            for which, reader, _ in sides
        }
        if any(gone.values()):
            first = found[0] if found else TaskShare(None, None)
            found = [replace(first, dropped=gone, unread=unread), *found[1:]]
        if not found:
            return []
        seen = self._driven.seen(kept)
        return [InputPartition(pickle.dumps((one, seen))) for one in found]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The outcome of a task's share."""
        if not isinstance(partition.value, bytes):
            return iter(())
        return translate_errors_each(lambda: self._told(partition.value), server=self._driven.plan.server)

    def _told(self, planned: bytes) -> Iterator[pa.RecordBatch]:
        share, seen = pickle.loads(planned)
        context = TaskContext.get()
        epoch = None if context is None else context.getLocalProperty(EPOCH)
        assert epoch is not None, "only the batches of a delta join read this"
        driven = self._driven
        work = Recompute(driven.plan, driven.result, driven.following, int(epoch), STREAM_LEASE_MS, seen)
        done = work.done(share)
        if done is not None:
            yield pa.RecordBatch.from_pydict({"done": [pickle.dumps(done)]}, ARROW_SCHEMA)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing to release."""

    def stop(self) -> None:
        """The connection stays open."""
