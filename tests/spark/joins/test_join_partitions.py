"""Partitions of a join's inputs: new ones are followed, and what came from a dropped one leaves the result."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import strom
import strom.spark
from spark.joining import keep, kept
from spark.place import table_on
from strom.testing.process import ServerProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

VISITS = {"id": "BIGINT", "day": "STRING", "who": "BIGINT"}
USERS = {"user": "BIGINT", "name": "STRING"}


def visits(day: str, *ids: int) -> list[dict[str, Any]]:
    return [{"id": number, "day": day, "who": number % 7 if number % 5 else None} for number in ids]


@pytest.mark.parametrize(("how", "lake"), [("inner", False), ("full", False), ("inner", True)])
def test_rows_of_a_dropped_partition_leave_the_result(
    spark: SparkSession, server: ServerProcess, tmp_path: Path, how: str, lake: bool
) -> None:
    with (
        table_on(
            server,
            VISITS,
            primary_key=["id", "day"],
            partition_by="day",
            buckets=2,
            indexes={"by_who": "who"},
            properties={"table.datalake.enabled": "true"} if lake else {},
        ) as left,
        table_on(server, USERS, primary_key="user", buckets=2) as right,
        strom.connect(server.address) as db,
    ):
        into = f"{left.info.path}_wide"
        for day in ("d1", "d2"):
            left.create_partition({"day": day}, if_exists="ignore")
        left.upsert([*visits("d1", *range(40)), *visits("d2", *range(20, 60))])
        right.upsert([{"user": number, "name": f"u{number}"} for number in range(5)])
        left.flush(), right.flush()
        join = strom.spark.delta_join(
            str(left.info.path),
            str(right.info.path),
            on={"who": "user"},
            how=how,
            into=into,
            spark=spark,
            servers=server.address,
        )

        def check() -> None:
            one, other = (
                strom.spark.table(spark, str(table.info.path), servers=server.address)
                for table in (left, right)
            )
            rows = one.join(other, one.who == other.user, how).collect()
            wanted = sorted(((row.day, row.id, row.name, row.user, row.who) for row in rows), key=repr)
            assert kept(db, into) == wanted

        try:
            keep(join, tmp_path / "checkpoint")
            check()
            # Changes of it that nobody read are no loss, and another partition goes on.
            left.upsert([*visits("d1", 100, 101, 3), *visits("d2", 102)])
            left.flush()
            left.drop_partition({"day": "d1"})
            keep(join, tmp_path / "checkpoint")
            check()
            left.create_partition({"day": "d1"}, if_exists="ignore")
            left.upsert(visits("d1", 1, 2, 3))
            left.flush()
            keep(join, tmp_path / "checkpoint")
            check()
            left.drop_partition({"day": "d1"})
            left.drop_partition({"day": "d2"})
            keep(join, tmp_path / "checkpoint")
            check()
        finally:
            db.drop_table(into, if_missing="ignore")
