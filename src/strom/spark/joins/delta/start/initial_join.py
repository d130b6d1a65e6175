"""The first result of a delta join: Spark's own join of both tables at an instant, written in one decision."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType

from strom.lake.read.lake_only_rows import LakeOnlyRows
from strom.spark import frames
from strom.spark.connect.types import spark_type
from strom.spark.joins.definition import JK, LK, RK, Output
from strom.spark.joins.delta.join_plan import Input, JoinPlan
from strom.spark.joins.delta.result_table import JoinResult
from strom.spark.joins.key_bytes import LEFT_ALONE, ORDINARY, RIGHT_ALONE, arrow_of, encoded

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


@dataclass(frozen=True)
class SideInstant:
    """What a side holds at an instant: rows of the servers up to these offsets, and what only the lake has."""

    offsets: Mapping[Any, int]
    kept: LakeOnlyRows | None = None

    @property
    def place(self) -> dict[Any, int]:
        """Where the changes of every bucket begin."""
        return {**({} if self.kept is None else self.kept.ends), **self.offsets}


def write_initial(
    spark: SparkSession, plan: JoinPlan, result: JoinResult, left: SideInstant, right: SideInstant
) -> None:
    """Replace the result by the join of both tables at these instants."""
    frame = joined(
        _rows(spark, plan, plan.left, LEFT_ALONE, left),
        _rows(spark, plan, plan.right, RIGHT_ALONE, right),
        plan,
    )
    writer = frame.write.format("strom").mode("overwrite").option("table", result.table)
    writer = writer.option("bootstrap.servers", plan.server.address)
    if plan.server.user:
        writer = writer.option("user", plan.server.user).option("password", plan.server.password or "")
    writer.save()


def _rows(spark: SparkSession, plan: JoinPlan, side: Input, number: int, moment: SideInstant) -> DataFrame:
    columns = list(dict.fromkeys([*side.columns, *side.join]))
    options: dict[str, Any] = {"servers": plan.server.address}
    if plan.server.user:
        options |= {"user": plan.server.user, "password": plan.server.password}
    frame = frames.table(spark, side.table, columns=columns, where=side.where, at=moment.offsets, **options)
    if moment.kept is not None and moment.kept.files:
        kept = frames.files(
            spark,
            side.table,
            [one.file for one in moment.kept.files],
            columns=columns,
            where=side.where,
            **options,
        )
        frame = frame.unionByName(kept)
    return keyed(frame, plan, side, number)


def keyed(frame: DataFrame, plan: JoinPlan, side: Input, number: int) -> DataFrame:
    """Rows of a side with their keys as bytes: join key (NULL if it is), group, row."""
    join = [F.col(name).cast(spark_type(kind)) for name, kind in zip(side.join, plan.common, strict=True)]
    key = [F.col(name).cast(spark_type(kind)) for name, kind in zip(side.key, side.key_types, strict=True)]
    missing = join[0].isNull()
    for one in join[1:]:
        missing = missing | one.isNull()
    prefix = f"__{number}_"
    by_join = F.when(~missing, _bytes([arrow_of(one) for one in plan.common], ORDINARY)(*join))
    by_row = _bytes([arrow_of(one) for one in side.key_types], None)(*key)
    apart = F.when(missing, _bytes([arrow_of(one) for one in side.key_types], number)(*key))
    own = [F.col(name).alias(prefix + name) for name in side.columns]
    return frame.select(
        by_join.alias(prefix + "jk"),
        F.coalesce(by_join, apart).alias(prefix + "group"),
        by_row.alias(prefix + "row"),
        *own,
    )


def joined(left: DataFrame, right: DataFrame, plan: JoinPlan) -> DataFrame:
    """Spark's join of both sides, as rows of the result."""
    both = left.join(right, on=F.col("__1_jk") == F.col("__2_jk"), how=plan.how)
    empty = F.lit(b"")
    return both.select(
        F.coalesce("__1_group", "__2_group").alias(JK),
        F.coalesce(F.col("__1_row"), empty).alias(LK),
        F.coalesce(F.col("__2_row"), empty).alias(RK),
        *(_output(one).alias(one.name) for one in plan.outputs),
    )


def _output(output: Output) -> Column:
    kind = spark_type(output.type)
    parts = [
        F.col(prefix + name).cast(kind)
        for prefix, name in (("__1_", output.left), ("__2_", output.right))
        if name is not None
    ]
    return parts[0] if len(parts) == 1 else F.coalesce(*parts)


def _bytes(kinds: list[pa.DataType], first: int | None) -> Any:
    """``key_bytes.encoded`` for columns of a DataFrame."""

    def encode(*columns: pa.Array) -> pa.Array:
        return encoded([one.cast(kind) for one, kind in zip(columns, kinds, strict=True)], first)

    return F.arrow_udf(encode, BinaryType())  # type: ignore[attr-defined]
