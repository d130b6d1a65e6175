"""``delta_join``: keeps the join of two tables in a third, change by change, with no state in Spark.

A micro-batch is a range of offsets of both changelogs (``join_source.py``). Its tasks read the join keys in it, look
up, join and stage (``task/recompute.py``); one decision publishes what all of them staged (``batches.py``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from strom.errors import IndexNotFound, InvalidRequest
from strom.spark.connect import connections
from strom.spark.connect.options import ConnectOptions
from strom.spark.connect.spark_errors import translate_errors
from strom.spark.frames import servers_of
from strom.spark.joins.access_path import access_path_of, check_ready
from strom.spark.joins.definition import OnLike, SelectLike, Side, pairs_of
from strom.spark.joins.delta.batches import Batches
from strom.spark.joins.delta.explain import explained
from strom.spark.joins.delta.join_plan import JoinPlan, join_plan
from strom.spark.joins.delta.join_query import JoinQuery
from strom.spark.joins.delta.join_source import Driven, stream
from strom.spark.joins.delta.result_table import JoinResult, result_of
from strom.spark.joins.delta.start.initial_progress import InitialJoin, watched
from strom.spark.joins.delta.start.starting import begin
from strom.spark.joins.delta.task.changed_keys import following

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS_PER_TRIGGER = 1_000_000
"""Per side: the join keys of a batch are held in the memory of its tasks."""
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
    a ``Side`` with a filter and columns, or another delta join, whose result is then the input. ``select`` names the
    columns of the result, ``index`` what else it can be looked up by. ``into`` is created if it does not exist.

    >>> wide = strom.spark.delta_join("shop.orders", "shop.payments", on={"id": "order_id"}, into="shop.wide")
    >>> print(wide.explain())
    >>> query = wide.start(checkpoint="/data/checkpoints/wide")
    """
    session = spark or _active()
    if not hasattr(session, "sparkContext") or "connect" in type(session).__module__:
        raise InvalidRequest("a delta join is driven by its own process: use a classic Spark session")
    said = servers_of(session, servers)
    server = ConnectOptions.of(said)
    upstream = tuple(one for one in (left, right) if isinstance(one, DeltaJoin))

    def made() -> DeltaJoin:
        pair = [_input(side, number, on) for number, side in enumerate((left, right))]
        plan = join_plan(server, pair[0], pair[1], on, how, select)
        result = result_of(plan, into, buckets=buckets, indexes=_indexes(index), properties=properties or {})
        return DeltaJoin(session, plan, result, upstream)

    return translate_errors(made, server=server)


@dataclass(frozen=True)
class _Said:
    """The arguments of ``start``, for all joins of a chain."""

    start: str
    trigger: Mapping[str, Any]
    rebuild: bool
    tasks: int
    rows: int
    fail_on_data_loss: bool
    progress: bool

    @property
    def ends(self) -> bool:
        """Whether the query ends once it has caught up."""
        return bool(self.trigger.get("availableNow") or self.trigger.get("once"))


class DeltaJoin:
    """A join that is ready to be explained and started."""

    def __init__(
        self, spark: SparkSession, plan: JoinPlan, result: JoinResult, upstream: tuple[DeltaJoin, ...]
    ) -> None:
        self._spark = spark
        self._upstream = upstream
        self.plan = plan
        self.result = result
        self.initial: InitialJoin | None = None
        """Progress of the initial join; another thread may read it while ``start`` waits."""

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
        return translate_errors(lambda: explained(self.plan, self.result), server=self.plan.server)

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
        progress: bool = True,
    ) -> JoinQuery:
        """Start the query that keeps the result up to date.

        A new ``checkpoint`` begins with Spark's join of both tables as they are (``start="full"``), or with nothing and
        the changes from ``"earliest"`` or ``"latest"`` on. ``rebuild`` takes over a result that belongs to another
        checkpoint. ``trigger`` is Spark's; ``tasks`` is the number of tasks per batch. ``progress`` shows the progress
        of the first join: a line on a terminal, elsewhere the log ``strom.spark``; see ``initial``.

        >>> wide.start("/data/checkpoints/wide", trigger={"availableNow": True}).wait()
        """
        if start not in STARTS:
            raise InvalidRequest(f"start is {', '.join(STARTS)}, not {start!r}")
        count = tasks or self._spark.sparkContext.defaultParallelism
        said = _Said(start, trigger or {}, rebuild, count, max_rows_per_trigger, fail_on_data_loss, progress)
        running: dict[str, JoinQuery] = {}
        try:
            return self._chained(checkpoint, said, running)
        except BaseException:
            for query in reversed(running.values()):
                query.query.stop()
            raise

    def _chained(self, checkpoint: str, said: _Said, running: dict[str, JoinQuery]) -> JoinQuery:
        """Start the joins before this one, each once even if several joins read it, then this one."""
        before: dict[str, JoinQuery] = {}
        for number, one in enumerate(self._upstream):
            if one.table not in running:
                query = one._chained(f"{checkpoint}/input-{number}", said, running)
                if said.ends:  # what it writes is read in the same run
                    query.wait()
            before[one.table] = running[one.table]
        running[self.table] = self._started(checkpoint, said, tuple(before.values()))
        return running[self.table]

    def _making(self, *, progress: bool) -> AbstractContextManager[None]:
        """Around the initial join."""
        plan = self.plan
        rows = sum(side.row_count(plan.server) for side in (plan.left, plan.right))
        self.initial = InitialJoin(self.table, rows)
        return watched(self._spark, self.initial, progress=progress)

    def _started(self, checkpoint: str, said: _Said, before: tuple[JoinQuery, ...]) -> JoinQuery:
        plan, result = self.plan, self.result

        def ready() -> Any:
            database = connections.database(plan.server)
            for side in (plan.left, plan.right):
                check_ready(database, side.table, side.access)
            return begin(
                self._spark,
                plan,
                result,
                checkpoint,
                said.start,
                rebuild=said.rebuild,
                making=lambda: self._making(progress=said.progress),
            )

        note = translate_errors(ready, server=plan.server)
        starts = {"left": note.left, "right": note.right}
        found = following(
            plan, starts, tasks=said.tasks, rows=said.rows, fail_on_data_loss=said.fail_on_data_loss
        )
        batches = Batches(plan, result)
        driven = Driven(plan, result, found)
        writer = stream(self._spark, driven).writeStream.foreachBatch(batches)
        writer = writer.option("checkpointLocation", checkpoint).queryName(result.sink)
        if said.trigger:
            writer = writer.trigger(**said.trigger)
        query = writer.start()
        batches.belong_to(str(query.id))
        return JoinQuery(query, result.table, batches.progress, batches.metrics, driven.sides(), before)


def _active() -> SparkSession:
    from pyspark.sql import SparkSession

    found = SparkSession.getActiveSession()
    if found is None:
        raise InvalidRequest(
            "there is no Spark session: make one with strom.spark.session(servers), or say spark="
        )
    return found


def _input(side: str | Side | DeltaJoin, number: int, on: OnLike) -> Side:
    """A side to read; the result of another join gets the index that this one needs."""
    if isinstance(side, str):
        return Side(side)
    if isinstance(side, Side):
        return side
    names = [pair[number] for pair in pairs_of(on)]
    table = connections.table(side.plan.server, side.table)
    try:
        access_path_of(table.info, names)
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
