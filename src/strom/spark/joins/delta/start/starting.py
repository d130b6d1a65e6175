"""How a delta join begins: with the join of both tables at an instant, made by Spark, and every change after it.

The offsets of the instant are planned first, the join of exactly these rows replaces the result in one decision, and
only then the offsets are noted in the checkpoint. A start that finds the note continues from it; one that does not
begins again. So no change is lost in between, whenever a driver is killed.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from strom.client.plan.key_plan import KeyScanPlan
from strom.errors import InvalidRequest, SinkConflict
from strom.spark.connect import connections
from strom.spark.joins.delta.join_plan import Input, JoinPlan
from strom.spark.joins.delta.lake_only import lake_only_rows_of
from strom.spark.joins.delta.result_table import JoinResult
from strom.spark.joins.delta.start.checkpoint_note import Note, read_note, write_note
from strom.spark.joins.delta.start.initial_join import SideInstant, write_initial

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOMENTS_MAX = 5


def begin(
    spark: SparkSession,
    plan: JoinPlan,
    result: JoinResult,
    checkpoint: str,
    start: str,
    *,
    rebuild: bool,
    making: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> Note:
    """Where the changes begin: as noted, or after the initial result, which is written within ``making``."""
    note = read_note(spark, checkpoint)
    if note is not None:
        if note.fingerprint != plan.fingerprint:
            raise InvalidRequest(
                f"checkpoint {checkpoint} belongs to another join (other tables, filters, columns, on or how): use a "
                "new one"
            )
        return note
    _check_free(plan, result, rebuild=rebuild)
    if start == "full":
        left, right = (_moment(plan, side) for side in (plan.left, plan.right))
        note = Note(plan.fingerprint, left.place, right.place)
        with making():
            write_initial(spark, plan, result, left, right)
    else:
        _empty(plan, result)
        note = Note(plan.fingerprint, start, start)
    write_note(spark, checkpoint, note)
    return note


def _check_free(plan: JoinPlan, result: JoinResult, *, rebuild: bool) -> None:
    """Refuse a result that another checkpoint's query may still write, unless ``rebuild`` takes it over."""
    database = connections.database(plan.server)
    if not any(one.name == result.sink for one in database.sinks()):
        return
    if not rebuild:
        raise SinkConflict(
            f"{result.table} is kept by a query with another checkpoint. Start from that one, or stop it and say "
            "rebuild=True: the result is rebuilt in one step",
            sink=result.sink,
        )
    database.drop_sink(result.sink)


def _empty(plan: JoinPlan, result: JoinResult) -> None:
    """Empty the result: rows of an earlier query would stay forever, as no change mentions them."""
    if connections.known_table(plan.server, result.table, result.table_id).count():
        with connections.database(plan.server).transaction() as transaction:
            transaction.overwrite(result.table)


def _moment(plan: JoinPlan, side: Input) -> SideInstant:
    """Both tiers at an instant, checking that no partition moved from one to the other meanwhile."""
    for _ in range(MOMENTS_MAX):
        before = lake_only_rows_of(plan.server, side)
        offsets = _instant(plan, side)
        if before is None:
            return SideInstant(offsets)
        after = lake_only_rows_of(plan.server, side)
        if after is not None and before.there <= after.there and before.ends == after.ends:
            return SideInstant(offsets, after)
    raise InvalidRequest(f"partitions of {side.table} come and go while the join begins: start it again")


def _instant(plan: JoinPlan, side: Input) -> dict[Any, int]:
    """The current offset of every bucket, at the boundary of a transaction."""
    table = connections.table(plan.server, side.table)
    found = table.scan(tier="hot").plan()
    assert isinstance(found, KeyScanPlan)
    empty = {(one.partition, one.bucket.bucket): 0 for one in table.extent().ranges}
    return {**empty, **found.offsets}
