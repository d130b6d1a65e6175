"""Spark reads lake and log together: every row once, also where a server has only the newest of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import strom
import strom.spark
from lake.small_tierer import SmallTierer, small_tierer
from strom.testing.process import ServerProcess
from waiting import until_blocking

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TIERED = {"table.datalake.enabled": "true"}
SHORT = TIERED | {"table.log.retention-bytes": "1", "table.log.arrow.compression.type": "NONE"}
"""Servers let go of every sealed segment that the lake holds."""
COLUMNS = {"id": "BIGINT", "small": "SMALLINT", "name": "STRING", "at": "TIMESTAMP(6)"}


@pytest.fixture(scope="module")
def forgetful(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server that seals small segments and looks often for what may go."""
    settings = {
        "log.segment.file-size": "4kb",
        "log.retention.check-interval": "100ms",
        "durability": "os",
        "lake.warehouse": f"file://{tmp_path_factory.mktemp('warehouse')}",
    }
    with ServerProcess(tmp_path_factory.mktemp("forgetful"), settings=settings) as running:
        yield running


@pytest.fixture(scope="module")
def db(forgetful: ServerProcess) -> Iterator[strom.Database]:
    with strom.connect(forgetful.address) as database:
        yield database


@pytest.fixture(scope="module")
def tierer(db: strom.Database) -> Iterator[SmallTierer]:
    with small_tierer(db) as found:
        yield found


def rows(start: int, count: int) -> list[dict[str, Any]]:
    import datetime as dt

    noon = dt.datetime(2026, 11, 16, 12)
    return [
        {"id": n, "small": n % 100, "name": f"row {n}" * 5, "at": noon + dt.timedelta(microseconds=n)}
        for n in range(start, start + count)
    ]


def append(table: strom.Table, start: int, count: int) -> None:
    for first in range(start, start + count, 50):
        table.append(rows(first, min(50, start + count - first)))
        table.flush()


def wait_until_forgotten(table: strom.Table) -> None:
    """Until the server has let go of what the lake holds."""
    until_blocking(lambda: any(one.start for one in table.extent().ranges))


def read(spark: SparkSession, server: ServerProcess, table: strom.Table, **options: str) -> DataFrame:
    reader = spark.read.format("strom").option("bootstrap.servers", server.address).options(**options)
    return reader.load(table.name)


def ids(frame: DataFrame) -> list[int]:
    return sorted(row["id"] for row in frame.select("id").collect())


def test_a_log_is_read_whole_when_its_server_has_only_the_end(
    spark: SparkSession, forgetful: ServerProcess, db: strom.Database, tierer: SmallTierer
) -> None:
    table = db.create_table("spark_cold_log", COLUMNS, buckets=2, properties=SHORT)
    append(table, 0, 600)
    tierer.round(table)
    wait_until_forgotten(table)
    append(table, 600, 40)
    frame = read(spark, forgetful, table)
    assert ids(frame) == list(range(640))
    assert ids(frame) == list(range(640)), "a second action sees the same rows"
    found = sorted(frame.where("id % 100 = 7").collect())
    expected = [row for row in rows(0, 640) if row["id"] % 100 == 7]
    assert [row["small"] for row in found] == [row["small"] for row in expected]
    assert [row["name"] for row in found] == [row["name"] for row in expected]
    assert dict(frame.dtypes)["small"] == "smallint"
    append(table, 640, 10)
    assert ids(frame) == list(range(640)), "what came later is in the next DataFrame"
    assert read(spark, forgetful, table, columns="id").count() == 650


def test_the_rows_of_a_key_table_are_those_that_live(
    spark: SparkSession, forgetful: ServerProcess, db: strom.Database, tierer: SmallTierer
) -> None:
    table = db.create_table("spark_cold_keys", COLUMNS, primary_key="id", buckets=2, properties=TIERED)
    table.upsert(rows(0, 300))
    table.flush()
    tierer.round(table)
    table.upsert([row | {"name": "changed"} for row in rows(100, 50)])
    table.delete(list(range(20)))
    table.flush()
    tierer.round(table)
    table.upsert([row | {"name": "again"} for row in rows(140, 5)])
    table.delete([299])
    table.upsert(rows(300, 3))
    table.flush()
    expected = {row["id"]: row["name"] for row in rows(0, 303)}
    expected |= dict.fromkeys(range(100, 150), "changed") | dict.fromkeys(range(140, 145), "again")
    for number in (*range(20), 299):
        del expected[number]
    frame = read(spark, forgetful, table)
    assert {row["id"]: row["name"] for row in frame.collect()} == expected
    assert frame.count() == len(expected)
    assert ids(frame.where("name = 'again'")) == list(range(140, 145))


def stream_ids(
    spark: SparkSession, server: ServerProcess, table: strom.Table, place: Path, **options: str
) -> list[int]:
    """What one run of a query gives until nothing is left."""
    found: list[int] = []

    def keep(batch: DataFrame, number: int) -> None:
        found.extend(row["id"] for row in batch.select("id").collect())

    reader = spark.readStream.format("strom").option("bootstrap.servers", server.address).options(**options)
    query = (
        reader.load(table.name)
        .writeStream.foreachBatch(keep)
        .option("checkpointLocation", str(place))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(120)
    assert query.exception() is None
    return sorted(found)


def test_a_stream_from_full_begins_in_the_lake_and_goes_on_in_the_log(
    spark: SparkSession, forgetful: ServerProcess, db: strom.Database, tierer: SmallTierer, tmp_path: Path
) -> None:
    table = db.create_table("spark_cold_stream", COLUMNS, buckets=2, properties=SHORT)
    append(table, 0, 500)
    tierer.round(table)
    wait_until_forgotten(table)
    append(table, 500, 30)
    full = {"start": "full", "maxRowsPerTrigger": "150"}
    assert stream_ids(spark, forgetful, table, tmp_path / "c", **full) == list(range(530))
    append(table, 530, 200)
    tierer.round(table)
    append(table, 730, 20)
    assert stream_ids(spark, forgetful, table, tmp_path / "c", **full) == list(range(530, 750))


def test_a_stream_from_a_time_that_only_the_lake_has_is_refused(
    spark: SparkSession, forgetful: ServerProcess, db: strom.Database, tierer: SmallTierer, tmp_path: Path
) -> None:
    table = db.create_table("spark_cold_time", COLUMNS, buckets=1, properties=SHORT)
    append(table, 0, 300)
    tierer.round(table)
    wait_until_forgotten(table)
    with pytest.raises(Exception, match="start it at full, or at offsets"):
        stream_ids(spark, forgetful, table, tmp_path / "c", start="2026-01-01T00:00:00Z")


def test_the_size_of_a_table_counts_both_tiers(
    spark: SparkSession, forgetful: ServerProcess, db: strom.Database, tierer: SmallTierer
) -> None:
    from strom.spark.catalog.catalog_calls import CatalogCall, _statistics

    table = db.create_table("spark_cold_size", COLUMNS, buckets=1, properties=SHORT)
    append(table, 0, 300)
    tierer.round(table)
    wait_until_forgotten(table)
    found = _statistics(CatalogCall({"bootstrap.servers": forgetful.address, "table": table.name}, {}))
    assert found["rows"] == 300
    assert found["bytes"] > 300 * 40


def test_a_partition_that_only_the_lake_has_is_read_and_streamed(
    spark: SparkSession, forgetful: ServerProcess, db: strom.Database, tierer: SmallTierer, tmp_path: Path
) -> None:
    table = db.create_table(
        "spark_cold_parts", {**COLUMNS, "day": "STRING"}, partition_by="day", buckets=1, properties=SHORT
    )
    for day, first in (("a", 0), ("b", 100)):
        table.append([row | {"day": day} for row in rows(first, 100)])
    table.flush()
    tierer.round(table)
    frame = read(spark, forgetful, table, where="day = 'a'")
    assert ids(frame) == list(range(100))
    assert stream_ids(spark, forgetful, table, tmp_path / "c", start="full") == list(range(200))
