"""Who answers what Spark asks a cluster: followers, what was planned; nobody who is not sure, a strong lookup join."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

import strom
import strom.spark
from spark.tiering.place import TIERED
from spark.tiering.tiers import tier
from strom.errors import InvalidRequest
from strom.testing.cluster_process import ClusterProcess
from waiting import until_blocking

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def followed(db: strom.Database, name: str) -> int:
    """Bytes of a table that followers sent; 0 as long as the status does not know the table."""
    return sum(one["bytes_followed"] for one in db.status()["tables"] if one["name"] == name)


def test_tiering_and_sparks_reads_are_answered_by_followers(
    machines: ClusterProcess, spark: SparkSession
) -> None:
    with strom.connect(machines.address) as db:
        events = db.create_table("read_there", {"id": "BIGINT"}, buckets=2)
        users = db.create_table("looked_at", {"id": "BIGINT", "n": "INT"}, primary_key="id", buckets=2)
        tiered = db.create_table("tiered_there", {"id": "BIGINT"}, buckets=2, properties=TIERED)
        events.append([{"id": one} for one in range(1000)])
        users.upsert([{"id": one, "n": one} for one in range(1000)])
        tiered.append([{"id": one} for one in range(1000)])
        db.flush()
        assert [one.error for one in tier(machines, spark, tiered)] == [None]
        assert sorted(tiered.scan(tier="lake").to_arrow()["id"].to_pylist()) == list(range(1000))
        until_blocking(lambda: followed(db, tiered.name) > 0, 60.0)
        for table in (events, users):
            assert strom.spark.table(spark, table.name, servers=machines.address).count() == 1000
            until_blocking(lambda name=table.name: followed(db, name) > 0, 60.0)


def test_a_strong_lookup_join_gives_nothing_that_it_cannot_be_sure_of(
    machines: ClusterProcess, spark: SparkSession
) -> None:
    with strom.connect(machines.address) as db:
        cities = db.create_table("cities", {"id": "BIGINT", "name": "STRING"}, primary_key="id", buckets=1)
        cities.upsert([{"id": one, "name": f"city {one}"} for one in range(10)])
        cities.flush()
        (copies,) = db.bucket_copies("cities")

    def joined(**said: object) -> list[str]:
        frame = strom.spark.lookup_join(spark.range(10), "cities", on="id", servers=machines.address, **said)
        return sorted(row.name for row in frame.collect())

    everything = [f"city {one}" for one in range(10)]
    assert joined(strong=True) == joined() == everything
    with pytest.raises(InvalidRequest, match="a cached row may be old"):
        joined(strong=True, cache_rows=5)
    followers = [machines.tablets[one] for one in copies.in_sync if one != copies.leader]
    spark.conf.set("spark.sql.catalog.strom.retry.seconds", "2")
    try:
        for one in followers:
            one.pause()
        assert joined() == everything, "an ordinary one asks the leader alone"
        with pytest.raises(PySparkException, match=r"no answer from server \d in 1 s"):
            joined(strong=True)
    finally:
        spark.conf.unset("spark.sql.catalog.strom.retry.seconds")
        for one in followers:
            one.resume()
    assert joined(strong=True) == everything
