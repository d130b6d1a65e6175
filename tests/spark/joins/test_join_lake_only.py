"""A delta join of tables in the lake: rows of partitions that only the lake keeps are looked up there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import strom
import strom.spark
from lake.read.test_union_edges import let_retention_drop
from lake.small_tierer import SmallTierer, small_tierer
from spark.joining import keep, kept
from spark.place import table_on
from strom.testing.process import ServerProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from strom.spark.joins.delta.delta_join import DeltaJoin

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

VISITS = {"id": "BIGINT", "day": "STRING", "who": "INT"}
USERS = {"user": "BIGINT", "day": "STRING", "name": "STRING"}
TIERED = {"table.datalake.enabled": "true"}


def visits(day: str, *ids: int) -> list[dict[str, Any]]:
    return [{"id": number, "day": day, "who": number % 7 if number % 5 else None} for number in ids]


def users(day: str, *ids: int, name: str = "u") -> list[dict[str, Any]]:
    return [{"user": number, "day": day, "name": f"{name}{number}"} for number in ids]


@dataclass
class Kept:
    """Two tables in the lake, their join, and what Spark's own join makes of them."""

    db: strom.Database
    left: strom.Table
    right: strom.Table
    tierer: SmallTierer
    join: DeltaJoin
    spark: SparkSession
    how: str
    checkpoint: Path

    def drop(self, table: strom.Table, day: str) -> None:
        """As when a partition's time is over."""
        self.tierer.round(table)
        let_retention_drop(self.tierer, table, day)

    def write(self, table: strom.Table, *rows: dict[str, Any]) -> None:
        table.upsert(list(rows))
        table.flush()

    def result(self) -> list[tuple[Any, ...]]:
        """The table that the join keeps, brought up to date."""
        keep(self.join, self.checkpoint)
        return kept(self.db, self.join.table)

    def wanted(self) -> list[tuple[Any, ...]]:
        """The join of what reads of both tiers see."""
        one, other = (
            strom.spark.table(self.spark, str(table.info.path), servers=self.db.address)
            for table in (self.left, self.right)
        )
        rows = one.join(other, one.who == other.user, self.how).select(
            one.id, one.day, one.who, other.user, other.day.alias("since"), other.name
        )
        names = sorted(rows.columns)
        wanted = sorted((tuple(row[name] for name in names) for row in rows.collect()), key=repr)
        assert wanted
        return wanted


@contextmanager
def joined(spark: SparkSession, server: ServerProcess, place: Path, how: str) -> Iterator[Kept]:
    options: dict[str, Any] = {"partition_by": "day", "buckets": 2, "properties": TIERED}
    with (
        table_on(server, VISITS, primary_key=["id", "day"], indexes={"by_who": "who"}, **options) as left,
        table_on(server, USERS, primary_key=["user", "day"], indexes={"by_user": "user"}, **options) as right,
        strom.connect(server.address) as db,
        small_tierer(db) as tierer,
    ):
        left.upsert([*visits("d1", *range(40)), *visits("d2", *range(20, 60))])
        right.upsert([*users("d1", 0, 1, 2), *users("d2", 2, 3, 4)])
        left.flush(), right.flush()
        join = strom.spark.delta_join(
            str(left.info.path),
            str(right.info.path),
            on={"who": "user"},
            how=how,
            select=["id", "left.day", "who", "user", "right.day as since", "name"],
            into=f"{left.info.path}_wide",
            spark=spark,
            servers=server.address,
        )
        try:
            yield Kept(db, left, right, tierer, join, spark, how, place / "checkpoint")
        finally:
            db.drop_table(join.table, if_missing="ignore")


@pytest.mark.parametrize("how", ["inner", "full"])
def test_rows_that_only_the_lake_has_stay_in_the_result_when_their_join_key_changes(
    spark: SparkSession, server: ServerProcess, tmp_path: Path, how: str
) -> None:
    with joined(spark, server, tmp_path, how) as the:
        the.drop(the.left, "d1")
        assert the.result() == the.wanted()
        the.write(the.right, *users("d2", 2, 3, name="other"), *users("d2", 5))
        assert the.result() == the.wanted()
        the.drop(the.right, "d1")
        the.write(the.left, *visits("d2", 20, 99, 100), {"id": 21, "day": "d2", "who": 1})
        assert the.result() == the.wanted()
        the.right.delete([{"user": number, "day": "d2"} for number in (2, 3)])
        the.left.delete([{"id": 22, "day": "d2"}])
        the.left.flush(), the.right.flush()
        assert the.result() == the.wanted()


def test_a_query_that_rested_while_partitions_went_sees_what_it_missed(
    spark: SparkSession, server: ServerProcess, tmp_path: Path
) -> None:
    with joined(spark, server, tmp_path, "left") as the:
        assert the.result() == the.wanted()
        # Nobody read these changes, nor those of a day that came and went.
        the.write(
            the.left, *visits("d1", 70, 71, 73), {"id": 1, "day": "d1", "who": 3}, *visits("d3", 8, 9, 10)
        )
        the.left.delete([{"id": 2, "day": "d1"}])
        the.drop(the.left, "d1")
        let_retention_drop(the.tierer, the.left, "d3")
        assert the.result() == the.wanted()
        the.left.create_partition({"day": "d1"})
        the.write(the.right, *users("d2", 3, name="other"))
        assert the.result() == the.wanted()
