"""``delta_join``: keeps the join of two tables in a third, change by change, with no state in Spark.

A micro-batch is: a range of offsets of both changelogs (``affected.py``); tasks that read the join keys in it, look up,
join and stage (``recompute.py``); one decision that publishes what all of them staged, under the name of the result
and the number of the batch. A batch that comes again is found decided, or is done again with what the tables hold by
then.

The next batch looks at the result, so it waits until the last decision is applied everywhere.
"""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from strom.api.matching import written_to
from strom.api.staging import publish, published
from strom.client.transaction import Sink
from strom.errors import IndexNotFound, InvalidRequest
from strom.spark import connections
from strom.spark.frames import _servers
from strom.spark.joins.affected import Following, following, shares
from strom.spark.joins.definition import OnLike, SelectLike, Side, pairs_of
from strom.spark.joins.explaining import explained
from strom.spark.joins.plan import JoinPlan, join_plan
from strom.spark.joins.query import JoinQuery, Progress
from strom.spark.joins.recompute import TOLD, Counts, Done, Recompute
from strom.spark.joins.result import Result, result_of
from strom.spark.joins.starting import begin
from strom.spark.joins.ways import check_ready, way_to
from strom.spark.options import Server
from strom.spark.problems import told
from strom.spark.write_options import STREAM_LEASE_MS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS_PER_TRIGGER = 1_000_000
"""Of each side: the join keys of a batch lie in the memory of its tasks."""
STARTS = ("full", "earliest", "latest")

IndexLike = Mapping[str, str | Sequence[str]]


def delta_join(
    left: str | Side | DeltaJoin,
    right: str | Side | DeltaJoin,
    *,
    on: OnLike,
    into: str,
    how: str = "inner",
    select: SelectLike | None = None,
    index: str | Sequence[str] | IndexLike | None = None,
    buckets: int | None = None,
    properties: Mapping[str, object] | None = None,
    spark: SparkSession | None = None,
    servers: str | None = None,
) -> DeltaJoin:
    """The join of two primary-key tables, kept in the table ``into`` by a streaming query.

    ``on`` is a column, several, or ``{"left": "right"}``; each side needs an index on its columns. A side is a table,
    a ``Side`` with a filter and columns, or another delta join: then its result is the input. ``select`` names
    columns of the result, ``index`` what it can be looked up by, too. ``into`` is made when it is not there.

    >>> wide = strom.spark.delta_join("shop.orders", "shop.payments", on={"id": "order_id"}, into="shop.wide")
    >>> print(wide.explain())
    >>> query = wide.start(checkpoint="/data/checkpoints/wide")
    """
    session = spark or _active()
    if not hasattr(session, "sparkContext") or "connect" in type(session).__module__:
        raise InvalidRequest("a delta join is driven by its own process: use a classic Spark session")
    said = _servers(session, servers)
    server = Server.of(said)
    upstream = tuple(one for one in (left, right) if isinstance(one, DeltaJoin))

    def made() -> DeltaJoin:
        pair = [_input(side, number, on) for number, side in enumerate((left, right))]
        plan = join_plan(server, pair[0], pair[1], on, how, select)
        result = result_of(plan, into, buckets=buckets, indexes=_indexes(index), properties=properties or {})
        return DeltaJoin(session, plan, result, upstream)

    return told(made, server=server)


class DeltaJoin:
    """A join that is worked out, and can be explained and started."""

    def __init__(
        self, spark: SparkSession, plan: JoinPlan, result: Result, upstream: tuple[DeltaJoin, ...]
    ) -> None:
        self._spark = spark
        self._upstream = upstream
        self.plan = plan
        self.result = result

    @property
    def table(self) -> str:
        """The table that holds the result."""
        return self.result.table

    def __repr__(self) -> str:
        plan = self.plan
        return f"DeltaJoin({plan.left.table} {plan.how} {plan.right.table} into {self.table})"

    def explain(self) -> str:
        """Which index drives each side, how many rows a key has there, and what a change costs; measured on a sample.

        >>> print(wide.explain())
        """
        return told(lambda: explained(self.plan, self.result), server=self.plan.server)

    def start(
        self,
        checkpoint: str,
        *,
        start: str = "full",
        trigger: Mapping[str, Any] | None = None,
        rebuild: bool = False,
        tasks: int | None = None,
        max_rows_per_trigger: int = ROWS_PER_TRIGGER,
        fail_on_data_loss: bool = True,
    ) -> JoinQuery:
        """Keep the result from now on.

        A new ``checkpoint`` begins with the join of both tables as they are, made by Spark (``start="full"``), or
        with nothing and the changes from ``"earliest"`` or ``"latest"`` on. ``rebuild`` takes over a result that
        another checkpoint kept. ``trigger`` is Spark's, ``tasks`` how many of them a batch has.

        >>> wide.start("/data/checkpoints/wide", trigger={"availableNow": True}).wait()
        """
        if start not in STARTS:
            raise InvalidRequest(f"start is {', '.join(STARTS)}, not {start!r}")
        before = []
        for number, one in enumerate(self._upstream):
            place = f"{checkpoint}/input-{number}"
            before.append(
                one.start(
                    place,
                    start=start,
                    trigger=trigger,
                    rebuild=rebuild,
                    tasks=tasks,
                    max_rows_per_trigger=max_rows_per_trigger,
                    fail_on_data_loss=fail_on_data_loss,
                )
            )
        try:
            if trigger and (trigger.get("availableNow") or trigger.get("once")):
                for query in before:  # what they write is read now, too
                    query.wait()
            return self._started(
                checkpoint, start, trigger, rebuild, tasks, max_rows_per_trigger, fail_on_data_loss, before
            )
        except BaseException:
            for query in before:
                query.stop()
            raise

    def _started(
        self,
        checkpoint: str,
        start: str,
        trigger: Mapping[str, Any] | None,
        rebuild: bool,
        tasks: int | None,
        rows: int,
        fail_on_data_loss: bool,
        before: Sequence[JoinQuery],
    ) -> JoinQuery:
        plan, result = self.plan, self.result

        def ready() -> Any:
            database = connections.database(plan.server)
            for side in (plan.left, plan.right):
                check_ready(database, side.table, side.way)
            return begin(self._spark, plan, result, checkpoint, start, rebuild=rebuild)

        note = told(ready, server=plan.server)
        count = tasks or self._spark.sparkContext.defaultParallelism
        starts = {"left": note.left, "right": note.right}
        found = following(plan, starts, tasks=count, rows=rows, fail_on_data_loss=fail_on_data_loss)
        batches = Batches(plan, result, found)
        writer = shares(self._spark, found).writeStream.foreachBatch(batches)
        writer = writer.option("checkpointLocation", checkpoint).queryName(result.sink)
        if trigger:
            writer = writer.trigger(**trigger)
        query = writer.start()
        batches.belong_to(str(query.id))
        return JoinQuery(query, result.table, batches.progress, tuple(before))


class Batches:
    """What ``foreachBatch`` calls, in the driver."""

    def __init__(self, plan: JoinPlan, result: Result, found: Following) -> None:
        self._plan = plan
        self._following = found
        self._result = result
        self._query_id: str | None = None
        self._known = threading.Event()
        self._first = True
        self.progress: list[Progress] = []

    def belong_to(self, query_id: str) -> None:
        """Whose batches these are: its id lies in the checkpoint."""
        self._query_id = query_id
        self._known.set()

    def __call__(self, frame: DataFrame, epoch: int) -> None:
        """One batch."""
        self._known.wait()
        told(lambda: self._batch(frame, epoch), server=self._plan.server)

    def _batch(self, frame: DataFrame, epoch: int) -> None:
        began = time.time()
        plan, result = self._plan, self._result
        assert self._query_id is not None
        sink = Sink(result.sink, self._query_id)
        database = connections.database(plan.server)
        if self._first:
            last = published(database, sink).get(result.table_id, -1)
            _check_age(result, last, epoch)
            if last == epoch:
                return  # decided before the last driver ended
        self._first = False
        work = self._work(epoch)
        done: list[Done] = [pickle.loads(row.told) for row in frame.mapInArrow(work, TOLD).collect()]
        facts = [fact for one in done for fact in one.facts]
        committed = publish(database, sink, epoch, [result.table_id], facts)
        counts = sum((one.counts for one in done), Counts())
        self.progress.append(
            Progress(
                batch=epoch,
                began=began,
                seconds=time.time() - began,
                warnings=committed.warnings,
                **asdict(counts),
            )
        )
        del self.progress[:-100]

    def _work(self, epoch: int) -> Recompute:
        plan, result = self._plan, self._result
        database = connections.database(plan.server)
        # Waits until every decision is applied: what was published before is seen by the lookups.
        connections.known_table(plan.server, result.table, result.table_id).scan(tier="hot").plan()
        seen = [written_to(database, one.info(plan.server)) for one in (plan.left, plan.right, result)]
        return Recompute(plan, result, self._following, epoch, STREAM_LEASE_MS, *seen)


def _check_age(result: Result, last: int, epoch: int) -> None:
    """A batch that comes again is the last one that was decided. One before it would hold other changes than it did."""
    if last > epoch:
        raise InvalidRequest(
            f"{result.table} holds batch {last} of this join, and its checkpoint is at batch {epoch}: an older copy "
            "of it was restored, or another query goes on from it. Stop that one; if there is none, start with a new "
            "checkpoint and rebuild=True",
            batch=epoch,
            newest=last,
        )


def _active() -> SparkSession:
    from pyspark.sql import SparkSession

    found = SparkSession.getActiveSession()
    if found is None:
        raise InvalidRequest(
            "there is no Spark session: make one with strom.spark.session(servers), or say spark="
        )
    return found


def _input(side: str | Side | DeltaJoin, number: int, on: OnLike) -> Side:
    """A side as it is read; the result of another join gets the index that this one needs."""
    if isinstance(side, str):
        return Side(side)
    if isinstance(side, Side):
        return side
    names = [pair[number] for pair in pairs_of(on)]
    table = connections.table(side.plan.server, side.table)
    try:
        way_to(table.info, names)
    except IndexNotFound:
        table.create_index(f"by_{'_'.join(names)}", names)
    return Side(side.table)


def _indexes(index: str | Sequence[str] | IndexLike | None) -> dict[str, Sequence[str]]:
    if index is None:
        return {}
    if isinstance(index, Mapping):
        return {name: [own] if isinstance(own, str) else list(own) for name, own in index.items()}
    names = [index] if isinstance(index, str) else list(index)
    return {f"by_{'_'.join(names)}": names}
