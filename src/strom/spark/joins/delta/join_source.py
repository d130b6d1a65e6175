"""The stream of a delta join: follows both changelogs as one source, and does a batch's work where it is read.

Spark keeps the positions of both tables in the checkpoint. A task of a batch gets ranges of offsets of both changelogs
(``changed_keys.TaskShare``), reads them, recomputes what they touched and stages it. Spark sees one row per task:
what was staged. So no row of a changelog passes through the JVM, nothing is shuffled, and a task is one Python worker.

What a batch's lookups must see is asked for when it is planned: that is after the batch before it was published, and
waits until that is applied everywhere. Spark's number of the batch reaches the tasks as a property of their job
(``EPOCH``, set by ``batches.py``).
"""

from __future__ import annotations

import base64
import logging
import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from strom.api.matching import written_to
from strom.api.table import Table
from strom.client.plan.log_plan import BucketRange, ScanPlan
from strom.lake.read.lake_only_rows import LakeOnlyRows, Place
from strom.spark.connect import connections
from strom.spark.connect.options import ConnectOptions
from strom.spark.connect.spark_errors import translate_errors, translate_errors_each
from strom.spark.connect.tasks import HotPart, LakePart, ReadTask
from strom.spark.joins.delta.join_plan import JoinPlan
from strom.spark.joins.delta.result_table import JoinResult
from strom.spark.joins.delta.task.changed_keys import Following, TaskShare, shared
from strom.spark.joins.delta.task.lake_only_lookup import look
from strom.spark.joins.delta.task.recompute import Recompute
from strom.spark.joins.delta.task.side_rows import SideView
from strom.spark.sink.write_options import STREAM_LEASE_MS
from strom.spark.source.stream_from_lake import in_lake, kept_partitions
from strom.spark.source.stream_position import Position, ids_of, place_of, start_of
from strom.spark.source.stream_reader import LIMITS, StreamReader

if LIMITS:
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
else:
    SupportsTriggerAvailableNow = object  # type: ignore[assignment,misc]

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger("strom.spark")

FORMAT = "strom_join"
SCHEMA = "done binary"
ARROW_SCHEMA = pa.schema([("done", pa.binary())])
EPOCH = "strom.join.batch"
"""The property of a job: the number of its batch."""


@dataclass(frozen=True)
class Driven:
    """All that a query does. Pickled into an option of the source, without the password."""

    plan: JoinPlan
    result: JoinResult
    following: Following

    def at(self, server: ConnectOptions) -> Driven:
        """The same by another address, user or password."""
        found = self.following
        left, right = (
            replace(one, options=replace(one.options, server=server)) for one in (found.left, found.right)
        )
        return replace(
            self, plan=replace(self.plan, server=server), following=replace(found, left=left, right=right)
        )

    def sides(self) -> tuple[SideReader, SideReader]:
        """Who follows each side."""
        left, right = self.following.left, self.following.right
        return SideReader(left.options, left.schema, None), SideReader(right.options, right.schema, None)

    def seen(self, kept: Sequence[LakeOnlyRows | None]) -> SideView:
        """What lookups in both sides and the result must see from now on; ``kept``: what is in the lake alone."""
        plan, result = self.plan, self.result
        # Waits until every decision is applied: what was published before is seen by the lookups.
        connections.known_table(plan.server, result.table, result.table_id).scan(tier="hot").plan()
        database = connections.database(plan.server)
        left, right, own = (
            written_to(database, one.info(plan.server)) for one in (plan.left, plan.right, result)
        )
        return SideView(left, right, own, *kept)


def stream(spark: SparkSession, driven: Driven) -> DataFrame:
    """What the tasks of each batch staged."""
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
        """What stands in ``format(…)``."""
        return FORMAT

    def schema(self) -> StructType | str:
        """What a task tells is one pickled value."""
        return SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Follows both tables."""
        bare: Driven = pickle.loads(base64.b64decode(self.options["driven"]))
        return JoinReader(bare.at(replace(bare.plan.server, password=self.options.get("password"))))


class SideReader(StreamReader):
    """Follows one side. A partition that went with changes nobody read is no loss: its rows are looked for."""

    def _lost_partition(self, sentence: str) -> None:
        log.info("%s; what the result holds of it is recomputed", sentence)

    def gone(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> tuple[str, ...]:
        """Partitions that were dropped between two positions, those that were made again too.

        The lake keeps rows of a partition that its table's retention dropped, and reads of both tiers have them: they
        stay in the result. One that somebody dropped is gone from both.
        """
        last = Position.from_json(end)
        first = start_of(start, last)
        again = {name for name, number in first.partitions.items() if last.partitions.get(name) != number}
        unknown = {name for name, _ in first.offsets if name is not None and name not in last.partitions}
        found = sorted(again | unknown)
        if not found:
            return ()
        # As it is now: a table may have come into the lake since the query began.
        table = connections.table(self._options.server, self._options.table)
        held = kept_partitions(connections.database(self._options.server), table)
        return tuple(name for name in found if first.partitions.get(name) not in held)

    def unread(
        self, start: Mapping[str, Any], end: Mapping[str, Any], kept: LakeOnlyRows | None
    ) -> dict[Place, int]:
        """Buckets that only the lake has, with rows that no batch has seen: from which offset on."""
        if kept is None or not kept.ends:
            return {}
        first = start_of(start, Position.from_json(end))
        # A position in a partition that was made again says nothing of the one before, whose rows were seen by then.
        now = {name for name, number in first.partitions.items() if number in kept.there}
        since = {place: first.offsets.get(place, 0) for place in kept.ends if place[0] not in now}
        return {place: low for place, low in since.items() if low < kept.ends[place]}

    def _begin(self, table: Table) -> Position:
        start = self._options.start
        if not isinstance(start, Mapping):
            return super()._begin(table)
        # Offsets of a partition that went since are kept: by them it is seen that it is gone.
        extent = self._look(table)
        places = {place: at for place, at in start.items() if isinstance(place, tuple) and len(place) == 2}
        return Position(extent.table_id, table.info.schema.schema_id, places, ids_of(extent))

    def missing(self, position: Position, extent: ScanPlan, upto: ScanPlan | None = None) -> int:
        """Changes that no batch has seen; a partition that went is one: the result may hold rows of it."""
        now = ids_of(extent)
        gone = sum(now.get(name) != number for name, number in position.partitions.items())
        return super().missing(position, extent, upto) + gone

    def _first(self, one: BucketRange) -> int:
        """Of a partition that came and went before a batch saw it, the lake has rows that none of them has."""
        return 0 if one.start == one.end else one.start

    # --- what looks like a loss and is none ---------------------------------------------------------------------

    def _checked(self, position: Position, extent: ScanPlan) -> Position:
        """Changes of a partition that went to the lake are not missed: its rows are looked for (``unread``)."""
        late = [
            one
            for one in extent.ranges
            if position.offsets.get(place_of(one), one.end) < one.start == one.end
        ]
        there = self._on_servers() if late else None
        behind = {place_of(one): one.end for one in late if _in_lake_alone(one, there)}
        if behind:
            position = replace(position, offsets={**position.offsets, **behind})
        return super()._checked(position, extent)

    def _still_there(self, part: BucketRange, first: int, *, named: bool) -> BucketRange | None:
        if part.start < first and _in_lake_alone(part, self._on_servers()):
            return None
        return super()._still_there(part, first, named=named)

    def _on_servers(self) -> frozenset[int] | None:
        """The partitions that the servers have; None where nothing is in the lake alone."""
        table = self._table()
        if not table.partition_by or not in_lake(table):
            return None
        return frozenset(one.partition_id for one in table.partitions())


def _in_lake_alone(one: BucketRange, there: frozenset[int] | None) -> bool:
    return there is not None and one.bucket.partition_id not in there


class JoinReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Two readers as one: a position is a position of each."""

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
        """What every task is told. Partitions that went are the first one's."""
        plan = self._driven.plan
        sides = (("left", self._left, plan.left), ("right", self._right, plan.right))
        kept = [look(plan.server, side) for _, _, side in sides]
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
            found = [replace(first, gone=gone, arrived=unread), *found[1:]]
        if not found:
            return []
        seen = self._driven.seen(kept)
        return [InputPartition(pickle.dumps((one, seen))) for one in found]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """What became of a task's share."""
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
        """Nothing to let go of."""

    def stop(self) -> None:
        """The connection stays."""
