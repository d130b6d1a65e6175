"""Delta joins that are inputs of others: started once, stopped together, and heard when they fail."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import StreamingQueryException

import strom.spark
from spark.joining import chained, keep, kept, pair_on, parcels_on
from strom.testing.process import ServerProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def test_a_join_that_is_both_inputs_of_another_is_started_once(
    spark: SparkSession, server: ServerProcess, tmp_path: Path
) -> None:
    with pair_on(server, seed=8) as pair:
        pair.change(100)
        first = pair.join("inner", select=["left.id", "code", "w"])
        couples = strom.spark.delta_join(
            first,
            first,
            on="id",
            select=["id", "left.code as one", "right.code as other"],
            into=pair.new("couples"),
            spark=spark,
            servers=server.address,
        )
        for _ in range(2):
            query = keep(couples, tmp_path / "checkpoint")
            assert [one.table for one in query.all] == [first.table, couples.table]
            rows = strom.spark.table(spark, first.table, servers=server.address)
            one, other = rows.selectExpr("id", "code as one"), rows.selectExpr("id", "code as other")
            wanted = sorted(
                ((row.id, row.one, row.other) for row in one.join(other, "id").collect()), key=repr
            )
            assert wanted
            assert kept(pair.db, couples.table) == wanted
            pair.change(100)


def test_a_join_before_that_fails_is_told_to_who_waits_for_the_last_one(
    spark: SparkSession, server: ServerProcess, tmp_path: Path
) -> None:
    with pair_on(server, seed=9) as pair, parcels_on(server) as parcels:
        pair.change(50)
        parcels.change(20)
        wide = chained(spark, pair.join("inner"), parcels.name, pair.new("chain"))
        query = wide.start(str(tmp_path / "checkpoint"))
        assert query.wait(1) is False
        pair.db.drop_table(pair.names[0])
        with pytest.raises(StreamingQueryException):
            query.wait(60)
        assert [one.query.isActive for one in query.all] == [False, False]
