"""INSERT, OVERWRITE, CTAS, ``writeTo`` and ``toTable`` by names of the SQL catalog."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.functions import col

import strom
from api.place import new_name
from spark.place import ids, table_on, users, users_on, write
from strom.testing.process import ServerProcess

pytestmark = pytest.mark.slow

DAYS = {"id": "BIGINT", "name": "STRING", "day": "STRING"}


def test_rows_are_inserted_by_position_and_by_name(spark: SparkSession, server: ServerProcess) -> None:
    with table_on(server, {"id": "BIGINT", "name": "STRING", "price": "DOUBLE"}, buckets=2) as log:
        name = f"strom.{log.name}"
        spark.sql(f"INSERT INTO {name} VALUES (1, 'ann', 1.5), (2, NULL, NULL)")
        spark.sql(f"INSERT INTO {name} (price, id) VALUES (3, 3)")
        spark.sql(f"INSERT INTO {name} SELECT id + 10, name, price FROM {name}")
        rows = sorted(log.scan().to_arrow().to_pylist(), key=lambda row: row["id"])
        assert [tuple(row.values()) for row in rows[:3]] == [(1, "ann", 1.5), (2, None, None), (3, None, 3.0)]
        assert [row["id"] for row in rows] == [1, 2, 3, 11, 12, 13]


def test_inserts_into_a_primary_key_table_are_upserts(spark: SparkSession, server: ServerProcess) -> None:
    with users_on(server) as table:
        write(table, users(1, 2, 3))
        spark.sql(f"INSERT INTO strom.{table.name} VALUES (2, 'two', 22), (4, 'four', 44)")
        assert table.lookup(2) == {"id": 2, "name": "two", "score": 22}
        assert table.count() == 4
        with pytest.raises(PySparkException):
            spark.sql(f"INSERT INTO strom.{table.name} VALUES (CAST(NULL AS BIGINT), 'x', 1)")
        assert table.count() == 4


def test_a_table_is_overwritten_whole(spark: SparkSession, server: ServerProcess) -> None:
    with table_on(server, buckets=2) as log, users_on(server) as keys:
        for table in (log, keys):
            name = f"strom.{table.name}"
            columns = ", ".join(table.schema.names)
            spark.sql(f"INSERT INTO {name} SELECT id, 'old', 0 FROM range(50)")
            spark.sql(f"INSERT OVERWRITE {name} SELECT id, 'new', 1 FROM range(45, 60)")
            assert ids(spark.sql(f"SELECT {columns} FROM {name}")) == list(range(45, 60))
            assert {row.name for row in spark.table(name).collect()} == {"new"}
        changes = spark.sql(f"SELECT _change_type, count(*) AS n FROM strom.{keys.name}.changelog GROUP BY 1")
        told = {row["_change_type"]: row.n for row in changes.collect()}
        assert told["-D"] + told.get("-U", 0) == 50, "every old row is told to be gone"
        assert told["+I"] + told.get("+U", 0) == 65


def test_one_partition_is_overwritten_and_the_others_stay(spark: SparkSession, server: ServerProcess) -> None:
    with table_on(server, DAYS, partition_by="day", buckets=2) as table:
        name = f"strom.{table.name}"
        spark.sql(f"INSERT INTO {name} VALUES (1, 'a', '2026-11-01'), (2, 'b', '2026-11-02')")
        spark.sql(f"INSERT INTO {name} PARTITION (day = '2026-11-03') SELECT 3, 'c'")
        spark.sql(f"INSERT OVERWRITE {name} PARTITION (day = '2026-11-02') VALUES (20, 'x'), (21, 'y')")
        assert ids(spark.table(name)) == [1, 3, 20, 21]
        frame = spark.createDataFrame([(30, "z", "2026-11-03")], "id long, name string, day string")
        frame.writeTo(name).overwrite(col("day") == "2026-11-03")
        assert ids(spark.table(name)) == [1, 20, 21, 30]
        with pytest.raises(PySparkException, match="replaces the whole table, or a whole partition"):
            frame.writeTo(name).overwrite(col("id") == 3)
        assert ids(spark.table(name)) == [1, 20, 21, 30]


def test_a_table_is_created_as_a_query_says(spark: SparkSession, server: ServerProcess) -> None:
    name, other = new_name("spark"), new_name("spark")
    source = "SELECT id, 'n' || id AS name, array(id, NULL) AS list FROM range(20)"
    properties = "TBLPROPERTIES ('primary.key' = 'id', 'bucket.num' = '2')"
    try:
        spark.sql(f"CREATE TABLE strom.fluss.{name} {properties} AS {source}")
        with strom.connect(server.address) as db:
            table = db.table(name)
            assert (table.primary_key, table.buckets, table.count()) == (("id",), 2, 20)
            assert table.lookup(7) == {"id": 7, "name": "n7", "list": [7, None]}
        spark.sql(f"CREATE OR REPLACE TABLE strom.fluss.{name} AS SELECT 1 AS one")
        assert spark.table(f"strom.fluss.{name}").collect() == [(1,)]
        frame = spark.range(5).withColumnRenamed("id", "k")
        frame.writeTo(f"strom.fluss.{other}").tableProperty("primary.key", "k").create()
        frame.selectExpr("k + 3 AS k").writeTo(f"strom.fluss.{other}").append()
        assert spark.table(f"strom.fluss.{other}").count() == 8
        frame.write.mode("overwrite").saveAsTable(f"strom.fluss.{other}")
        assert spark.table(f"strom.fluss.{other}").count() == 5
    finally:
        for one in (name, other):
            spark.sql(f"DROP TABLE IF EXISTS strom.fluss.{one}")


def test_a_query_that_fails_creates_no_table(spark: SparkSession) -> None:
    name = new_name("spark")
    with pytest.raises(PySparkException):
        spark.sql(f"CREATE TABLE strom.fluss.{name} AS SELECT raise_error('no') AS x").collect()
    assert name not in [row.tableName for row in spark.sql("SHOW TABLES IN strom.fluss").collect()]


def test_a_stream_writes_to_a_table_by_its_name(
    spark: SparkSession, server: ServerProcess, tmp_path: Path
) -> None:
    with (
        table_on(server, {"id": "BIGINT", "name": "STRING"}) as source,
        table_on(server, {"id": "BIGINT", "name": "STRING"}, buckets=2) as target,
    ):
        for round in range(2):
            source.append({"id": [round * 2, round * 2 + 1], "name": ["a", "b"]})
            source.flush()
            query = (
                spark.readStream.option("start", "earliest")
                .table(f"strom.{source.name}")
                .writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
                .trigger(availableNow=True)
                .toTable(f"strom.{target.name}")
            )
            assert query.awaitTermination(60)
        assert ids(spark.table(f"strom.{target.name}")) == [0, 1, 2, 3]


def test_a_changelog_is_not_written(spark: SparkSession, server: ServerProcess) -> None:
    with users_on(server) as table:
        with pytest.raises(PySparkException, match="does not support"):
            spark.sql(f"INSERT INTO strom.{table.name}.changelog SELECT * FROM strom.{table.name}.changelog")
        with pytest.raises(PySparkException, match="cannot be deleted"):
            spark.sql(f"DELETE FROM strom.{table.name}.changelog WHERE id = 1")
        assert table.count() == 0


def test_the_partitions_that_are_written_to_are_overwritten_and_no_others(
    spark: SparkSession, server: ServerProcess
) -> None:
    with table_on(server, DAYS, partition_by="day", buckets=2) as table:
        name = f"strom.{table.name}"
        spark.sql(f"INSERT INTO {name} VALUES (1, 'a', '01'), (2, 'b', '02'), (3, 'c', '03')")
        spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
        try:
            spark.sql(f"INSERT OVERWRITE {name} VALUES (12, 'x', '02'), (14, 'y', '04')")
        finally:
            spark.conf.unset("spark.sql.sources.partitionOverwriteMode")
        assert _ids(table) == [1, 3, 12, 14]
        frame = spark.createDataFrame([(21, "n", "01")], "id long, name string, day string")
        writer = frame.write.format("strom").option("bootstrap.servers", server.address).mode("overwrite")
        writer.option("partitionOverwriteMode", "dynamic").save(table.name)
        assert _ids(table) == [3, 12, 14, 21]
        with pytest.raises(PySparkException, match="static or dynamic"):
            writer.option("partitionOverwriteMode", "some").save(table.name)
        spark.sql(f"INSERT OVERWRITE {name} VALUES (99, 'x', '09')")
        assert _ids(table) == [99], "without the setting the whole table is replaced"


def _ids(table: strom.Table) -> list[int]:
    return sorted(table.scan(columns=["id"]).to_arrow().column("id").to_pylist())


def test_partitions_are_shown_added_and_dropped(spark: SparkSession, server: ServerProcess) -> None:
    schema = {"id": "BIGINT", "day": "DATE", "shop": "STRING"}
    with table_on(server, schema, partition_by=["day", "shop"]) as table, table_on(server) as plain:
        name = f"strom.{table.name}"
        spark.sql(f"INSERT INTO {name} VALUES (1, DATE'2026-11-01', 'a'), (2, DATE'2026-11-02', 'b')")

        def shown(which: str = "") -> list[str]:
            return sorted(row.partition for row in spark.sql(f"SHOW PARTITIONS {name} {which}").collect())

        assert shown() == ["day=2026-11-01/shop=a", "day=2026-11-02/shop=b"]
        assert shown("PARTITION (shop = 'b')") == ["day=2026-11-02/shop=b"]
        spark.sql(f"ALTER TABLE {name} ADD PARTITION (day = DATE'2026-11-03', shop = 'c')")
        assert len(shown()) == 3
        spark.sql(f"ALTER TABLE {name} DROP PARTITION (day = DATE'2026-11-01', shop = 'a')")
        assert shown() == ["day=2026-11-02/shop=b", "day=2026-11-03/shop=c"]
        assert _ids(table) == [2]
        with pytest.raises(PySparkException):
            spark.sql(f"SHOW PARTITIONS strom.{plain.name}")
