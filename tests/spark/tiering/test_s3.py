"""A lake on S3 and a real Spark: rounds write it, both ways of reading find every row, a store that refuses is told."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import strom
import strom.spark
from api.place import events
from lake.s3_place import S3Server
from spark.tiering.place import USERS, tiered
from spark.tiering.tiers import facts_of, tier
from strom.testing.process import ServerProcess

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def users(*ids: int, score: int = 0) -> list[dict[str, object]]:
    return [{"id": number, "name": f"n{number}", "score": score} for number in ids]


def read_twice(spark: SparkSession, server: ServerProcess, table: strom.Table) -> list[DataFrame]:
    """By the data source, and by Spark's own Parquet reader where it can reach the files."""
    options = {"bootstrap.servers": server.address}
    return [
        spark.read.format("strom").options(**options).load(table.name),
        strom.spark.table(spark, table.name, servers=server.address),
    ]


def test_spark_writes_the_lake_on_s3_and_reads_both_tiers(
    s3_server: ServerProcess, spark: SparkSession
) -> None:
    with tiered(s3_server, buckets=2) as log, tiered(s3_server, USERS, primary_key="id", buckets=2) as keys:
        log.append(events(*range(100)))
        keys.upsert(users(*range(100)))
        for one in (log, keys):
            one.flush()
        ends = tier(s3_server, spark, log, keys)
        assert [end.error for end in ends] == [None] * len(ends)
        keys.upsert(users(*range(50, 60), score=9))
        keys.delete(list(range(10)))
        keys.flush()
        ends = tier(s3_server, spark, keys)
        assert [end.error for end in ends] == [None] * len(ends)
        log.append(events(*range(100, 120)))
        keys.delete([99])
        keys.upsert(users(200))
        for one in (log, keys):
            one.flush()
        scores = {number: 9 if 50 <= number < 60 else 0 for number in (*range(10, 99), 200)}
        for frame in read_twice(spark, s3_server, log):
            assert sorted(row["id"] for row in frame.collect()) == list(range(120))
        for frame in read_twice(spark, s3_server, keys):
            assert {row["id"]: row["score"] for row in frame.collect()} == scores


def test_a_store_that_refuses_fails_rounds_with_a_sentence_and_the_rows_stay_readable(
    s3: S3Server, spark: SparkSession, tmp_path: Path
) -> None:
    settings = s3.settings("refused") | {"lake.warehouse": "s3://nowhere/refused"}
    with ServerProcess(tmp_path / "data", settings=settings) as server, tiered(server, buckets=1) as table:
        table.append(events(1, 2, 3))
        table.flush()
        (end,) = tier(server, spark, table)
        assert re.search("no bucket 'nowhere' at http://127.0.0.1:.*lake.warehouse", str(end.error)), (
            end.error
        )
        assert not end.quarantined
        facts = facts_of(server, table)
        assert facts.state in ("failing", "waiting", "due", "active"), facts.state
        assert table.scan().to_arrow().num_rows == 3
