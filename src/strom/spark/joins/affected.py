"""The stream that drives a delta join: the join keys of both changelogs, before and after every change.

Only keys cross Spark. A row that left a side's filter is a change of the row before, one that entered it of the row
after: each image is filtered by itself, and passing once is enough.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from strom.client.changelog import BUCKET
from strom.spark import frames
from strom.spark.joins.groups import names
from strom.spark.joins.plan import Input, JoinPlan
from strom.spark.types import spark_type

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


def affected(
    spark: SparkSession,
    plan: JoinPlan,
    starts: Mapping[str, Any],
    options: Mapping[str, Any],
) -> DataFrame:
    """The join keys that changes touch; those of rows with a NULL in it as the row's own key."""
    sides = [_side(spark, plan, side, starts[side], options) for side in ("left", "right")]
    return sides[0].unionByName(sides[1])


def columns(plan: JoinPlan) -> list[str]:
    """The columns of that stream."""
    found = names("j", len(plan.common))
    for letter, side in (("l", plan.left), ("r", plan.right)):
        found += names(letter, len(side.key)) if side.nulls else []
    return found


def _side(
    spark: SparkSession, plan: JoinPlan, which: str, start: Any, options: Mapping[str, Any]
) -> DataFrame:
    side: Input = plan.left if which == "left" else plan.right
    wanted = [*side.join, *(name for name in side.key if side.nulls and name not in side.join)]
    frame = frames.changes(
        spark,
        side.table,
        start=start,
        columns=[BUCKET, *wanted],  # one of the facts: without any, all of them would be read
        where=side.where,
        stream=True,
        **{**_server(plan), **options},
    )
    missing = _any_null(side)
    if not side.nulls:
        frame = frame.where(~missing)
    chosen = [
        F.col(name).cast(spark_type(kind)).alias(alias)
        for name, kind, alias in zip(side.join, plan.common, names("j", len(plan.common)), strict=True)
    ]
    for letter, one in (("l", plan.left), ("r", plan.right)):
        if one.nulls:
            for name, kind, alias in zip(one.key, one.key_types, names(letter, len(one.key)), strict=True):
                own = F.when(missing, F.col(name)) if one is side else F.lit(None)
                chosen.append(own.cast(spark_type(kind)).alias(alias))
    return frame.select(*chosen)


def _any_null(side: Input) -> Column:
    found = F.col(side.join[0]).isNull()
    for name in side.join[1:]:
        found = found | F.col(name).isNull()
    return found


def _server(plan: JoinPlan) -> dict[str, Any]:
    server = plan.server
    said: dict[str, Any] = {"servers": server.address, "retry.seconds": server.retry_s}
    if server.user:
        said |= {"user": server.user, "password": server.password}
    return said
