"""What stands beside a table in the lake, and the table as it was: by the reader, by ``table()`` and in SQL."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import pytest

import strom.spark
from lake.union_place import lake_table, rows
from strom.testing.process import ServerProcess

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def by_reader(spark: SparkSession, server: ServerProcess, name: str, **options: str) -> DataFrame:
    return (
        spark.read.format("strom").option("bootstrap.servers", server.address).options(**options).load(name)
    )


def ids(frame: DataFrame) -> list[int]:
    return sorted(row.id for row in frame.select("id").collect())


def test_the_lake_alone_its_snapshots_and_its_offsets_are_tables(
    spark: SparkSession, server: ServerProcess
) -> None:
    with lake_table(server, buckets=2, file_rows=10) as (db, table, tierer):
        table.append(rows(*range(30)))
        tierer.round(table)
        table.append(rows(*range(30, 45)))
        table.flush()
        for name in (f"{table.name}$lake", f"{table.name}$snapshots", f"{table.name}$offsets"):
            expected = db.system_table(name).scan().to_arrow()
            for frame in (
                by_reader(spark, server, name),
                strom.spark.table(spark, name),
                spark.table("strom." + name.replace("$", ".")),
            ):
                found = frame.toArrow()
                assert found.column_names == expected.column_names
                key = [(name, "ascending") for name in expected.column_names if not name.endswith("amount")]
                want = expected.cast(found.schema).sort_by(key)
                assert found.sort_by(key).to_pylist() == want.to_pylist()
        lake = f"{table.name}$lake"
        assert ids(by_reader(spark, server, lake, columns="__offset, id", where="id < 7")) == list(range(7))
        assert by_reader(spark, server, lake, limit="4").count() == 4
        sql = spark.sql(
            f"SELECT max(__offset) AS last, count(*) AS n FROM strom.{table.name}.lake WHERE id >= 10"
        )
        assert sql.collect()[0].n == 20
        pending = spark.sql(f"SELECT sum(pending) AS n FROM strom.{table.name}.offsets").collect()
        assert pending[0].n == 15


def test_they_can_only_be_read(spark: SparkSession, server: ServerProcess) -> None:
    with lake_table(server, buckets=1) as (_, table, tierer):
        table.append(rows(1))
        tierer.round(table)
        stream = spark.readStream.format("strom").option("bootstrap.servers", server.address)
        query = stream.load(f"{table.name}$lake").writeStream.format("noop").start()
        with pytest.raises(Exception, match="only a table itself is a stream"):
            query.processAllAvailable()
        with pytest.raises(Exception, match="TABLE_OR_VIEW_NOT_FOUND"):
            spark.table(f"strom.{table.name}.lakes")
        with pytest.raises(Exception, match="does not support"):
            spark.sql(f"INSERT INTO strom.{table.name}.snapshots SELECT * FROM strom.{table.name}.snapshots")


@pytest.mark.parametrize("keyed", [False, True], ids=["log", "keys"])
def test_a_table_is_read_as_it_was_in_a_snapshot_or_at_a_time(
    spark: SparkSession, server: ServerProcess, keyed: bool
) -> None:
    kind: dict[str, Any] = {"primary_key": "id"} if keyed else {}
    with lake_table(server, buckets=2, **kind) as (_, table, tierer):
        put = table.upsert if keyed else table.append
        put(rows(*range(10)))
        first = tierer.round(table).snapshot_id
        put(rows(*range(10, 15)))
        second = tierer.round(table).snapshot_id
        put(rows(20))
        if keyed:
            put(rows(3, name="new"))
        table.flush()
        name = f"strom.{table.name}"
        assert ids(spark.table(name)) == [*range(15), 20]
        assert ids(spark.sql(f"SELECT * FROM {name} VERSION AS OF {first}")) == list(range(10))
        assert ids(spark.sql(f"SELECT * FROM {name} VERSION AS OF '{second}' WHERE id > 2")) == list(
            range(3, 15)
        )
        one = spark.sql(f"SELECT name FROM {name} VERSION AS OF {first} WHERE id = 3")
        assert [row.name for row in one.collect()] == ["n3"], "a key is looked up in the past, not now"
        assert ids(by_reader(spark, server, table.name, at=str(first))) == list(range(10))
        assert ids(spark.sql(f"SELECT * FROM {name}.lake VERSION AS OF {first}")) == list(range(10))
        (when,) = (
            spark.sql(f"SELECT committed_at AS at FROM {name}.snapshots WHERE snapshot_id = {second}")
            .toArrow()["at"]
            .to_pylist()
        )
        assert isinstance(when, dt.datetime)
        text = when.astimezone(dt.UTC).isoformat()
        later = spark.sql(f"SELECT * FROM {name}.lake TIMESTAMP AS OF '{text}'")
        assert ids(later) == list(range(15))
        at_time = spark.sql(f"SELECT * FROM {name} TIMESTAMP AS OF '{text}'")
        assert set(range(15)) >= set(ids(at_time)) >= set(range(10))
        with pytest.raises(Exception, match="snapshot"):
            spark.sql(f"SELECT * FROM {name} VERSION AS OF {2**50}").collect()
