"""``spark.read.format("strom")``: what is read, from where to where, and that it stays the same."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import strom.spark
from api.place import EVENTS, events
from spark.place import ids, table_on, users, users_on, write
from strom.testing.process import ServerProcess

pytestmark = pytest.mark.slow


def read(spark: SparkSession, server: ServerProcess, name: str, **options: Any) -> Any:
    said = {key: str(value) for key, value in options.items()}
    return spark.read.format("strom").option("bootstrap.servers", server.address).options(**said).load(name)


def test_a_log_table_is_read_whole_in_spark_by_its_own_words(
    spark: SparkSession, server: ServerProcess
) -> None:
    with table_on(server, buckets=3) as table:
        write(table, events(*range(500)))
        frame = (
            spark.read.format("strom")
            .option("bootstrap.servers", server.address)
            .option("table", table.name)
            .load()
        )
        assert frame.schema.simpleString() == "struct<id:bigint,name:string,price:double>"
        assert [field.nullable for field in frame.schema] == [False, True, True]
        assert ids(frame) == list(range(500))
        assert frame.agg({"price": "sum"}).first()[0] == sum(range(500)) / 2


def test_a_primary_key_table_gives_every_live_row_once(spark: SparkSession, server: ServerProcess) -> None:
    with users_on(server) as table:
        write(table, users(*range(200)))
        write(table, users(*range(0, 200, 2), score=1))
        table.delete([3, 5])
        table.flush()
        frame = strom.spark.table(spark, table.name, splitRows=20)
        assert ids(frame) == [number for number in range(200) if number not in (3, 5)]
        assert frame.where("score = 1").count() == 100
        assert frame.rdd.getNumPartitions() > 5


def test_an_empty_table_has_columns_and_no_rows(spark: SparkSession, server: ServerProcess) -> None:
    with table_on(server) as table, users_on(server) as keys:
        assert read(spark, server, table.name).collect() == []
        assert read(spark, server, keys.name).collect() == []
        assert read(spark, server, keys.name, changelog="true").count() == 0


def test_buckets_are_split_by_offsets_and_small_ones_packed(
    spark: SparkSession, server: ServerProcess
) -> None:
    with table_on(server, buckets=1) as table:
        write(table, events(*range(1000)))
        split = read(spark, server, table.name, splitRows=100)
        assert split.rdd.getNumPartitions() == 10
        assert ids(split) == list(range(1000))
    with table_on(server, buckets=8) as table:
        write(table, events(*range(100)))
        assert read(spark, server, table.name).rdd.getNumPartitions() == 1


def test_only_the_columns_asked_for_leave_the_server(spark: SparkSession, server: ServerProcess) -> None:
    with table_on(server, buckets=1) as table:
        write(table, [{"id": n, "name": "x" * 200, "price": 1.0} for n in range(300)])
        assert read(spark, server, table.name, columns="price, id").columns == ["price", "id"]
        narrow = strom.spark.table(spark, table.name, columns=["id"])
        assert ids(narrow) == list(range(300))
        by_schema = (
            spark.read.format("strom").schema("price DOUBLE").option("bootstrap.servers", server.address)
        )
        assert by_schema.load(table.name).collect()[0].asDict() == {"price": 1.0}


def test_filters_and_limits_are_the_servers_work(spark: SparkSession, server: ServerProcess) -> None:
    with table_on(server, buckets=2) as table:
        write(table, events(*range(100)))
        assert ids(strom.spark.table(spark, table.name, where="id < 7 and name <> 'n3'")) == [
            0,
            1,
            2,
            4,
            5,
            6,
        ]
        assert strom.spark.table(spark, table.name, limit=5).count() == 5
        assert strom.spark.table(spark, table.name, where="id >= 90", limit=4).count() == 4
        assert strom.spark.table(spark, table.name, limit=0).count() == 0


def test_spark_filters_mean_the_same_whether_they_are_pushed_or_not(
    spark: SparkSession, server: ServerProcess
) -> None:
    schema = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            ("name", pa.string()),
            ("price", pa.float64()),
            ("at", pa.timestamp("us", "UTC")),
            ("wall", pa.timestamp("us")),
            ("fine", pa.timestamp("ns")),
            ("day", pa.date32()),
            ("amount", pa.decimal128(9, 2)),
            ("raw", pa.binary()),
            ("ok", pa.bool_()),
            ("s", pa.struct([("a", pa.int32())])),
        ]
    )
    moment = dt.datetime(2026, 3, 8, 7, 0, 0, 5, dt.UTC)
    rows = [
        {
            "id": n,
            "name": None if n % 7 == 0 else f"n{n}",
            "price": float("nan") if n == 5 else n / 2,
            "at": moment + dt.timedelta(hours=n),
            "wall": dt.datetime(2026, 3, 8) + dt.timedelta(hours=n),
            "fine": dt.datetime(2026, 3, 8) + dt.timedelta(hours=n),
            "day": dt.date(2026, 3, 1) + dt.timedelta(days=n),
            "amount": None if n == 9 else f"{n}.25",
            "raw": bytes([n]),
            "ok": [True, False, None][n % 3],
            "s": {"a": n},
        }
        for n in range(20)
    ]
    conditions = [
        "id = 3 or id = 4",
        "name = 'n3'",
        "name <=> 'n3'",
        "not (name <=> 'n3')",
        "name is null",
        "name like 'n1%' and name not like '%2'",
        "name not in ('n1', 'n2')",
        "price > 8 and price <> 9",
        "at >= timestamp'2026-03-08 05:00:00'",
        "wall < timestamp_ntz'2026-03-08 05:00:00'",
        "fine < timestamp_ntz'2026-03-08 05:00:00'",
        "day between date'2026-03-04' and date'2026-03-06'",
        "amount >= 4.25 and amount < 12",
        "raw = X'07'",
        "ok",
        "not ok",
        "s.a > 17",
    ]
    with table_on(server, schema, buckets=2) as table:
        write(table, rows)
        plain = strom.spark.table(spark, table.name).cache()
        for condition in conditions:
            pushed = strom.spark.table(spark, table.name, pushFilters=True).where(condition)
            assert ids(pushed) == ids(plain.where(condition)), condition
        plain.unpersist()


def test_filters_of_one_query_do_not_leak_into_another(spark: SparkSession, server: ServerProcess) -> None:
    with table_on(server) as table:
        write(table, events(*range(50)))
        frame = strom.spark.table(spark, table.name)
        assert frame.where("id < 3").count() == 3
        assert frame.count() == 50
        assert frame.where("id < 3").union(frame.where("id >= 48")).count() == 5


def test_an_action_later_sees_the_rows_of_the_moment_when_the_frame_was_made(
    spark: SparkSession, server: ServerProcess
) -> None:
    with table_on(server) as table, users_on(server) as keys:
        write(table, events(1, 2))
        write(keys, users(1, 2))
        log, live = strom.spark.table(spark, table.name), strom.spark.table(spark, keys.name)
        write(table, events(3))
        write(keys, users(3))
        keys.delete([1])
        keys.flush()
        log.explain()
        assert (ids(log), ids(live)) == ([1, 2], [1, 2])
        assert (log.count(), live.count()) == (2, 2)
        assert ids(strom.spark.table(spark, keys.name)) == [2, 3]


def test_a_table_is_read_as_it_was_at_offsets_or_at_a_time(
    spark: SparkSession, server: ServerProcess
) -> None:
    with users_on(server) as table:
        write(table, users(1, 2, 3))
        then = table.scan().plan().offsets
        write(table, users(4))
        table.delete([2])
        table.flush()
        assert ids(strom.spark.table(spark, table.name, at=then)) == [1, 2, 3]
        by_text = json.dumps({str(bucket): offset for (_, bucket), offset in then.items()})
        assert ids(read(spark, server, table.name, at=by_text)) == [1, 2, 3]
        assert ids(strom.spark.table(spark, table.name, at=dt.datetime.now(dt.UTC))) == [1, 3, 4]
    with table_on(server, buckets=1) as log:
        write(log, events(*range(10)))
        assert ids(strom.spark.table(spark, log.name, start={(None, 0): 3}, end={(None, 0): 6})) == [3, 4, 5]


def test_a_changelog_between_two_moments(spark: SparkSession, server: ServerProcess) -> None:
    with users_on(server, buckets=1) as table:
        write(table, users(1, 2))
        between = table.offsets()
        write(table, users(1, score=5))
        table.delete([2])
        table.flush()
        whole = spark.read.format("strom").options(**{"bootstrap.servers": server.address})
        found = whole.load(f"{table.name}$changelog")
        assert found.columns == [
            "_change_type",
            "_log_offset",
            "_commit_timestamp",
            "_bucket",
            "id",
            "name",
            "score",
        ]
        kinds = [(row["_change_type"], row.id, row.score) for row in found.orderBy("_log_offset").collect()]
        assert kinds == [("+I", 1, 0), ("+I", 2, 0), ("-U", 1, 0), ("+U", 1, 5), ("-D", 2, 0)]
        later = strom.spark.changes(spark, table.name, start=between, stream=False)
        assert sorted(row["_change_type"] for row in later.collect()) == ["+U", "-D", "-U"]
        first = strom.spark.changes(spark, table.name, end=between)
        assert sorted(row["_change_type"] for row in first.collect()) == ["+I", "+I"]
        seconds = abs((dt.datetime.now() - found.first()["_commit_timestamp"]).total_seconds())
        assert seconds < 13 * 3600  # Spark shows it in the session's time zone; a wrong unit would be years
        names = strom.spark.changes(spark, table.name, stream=False, columns=["_change_type", "name"])
        assert names.columns == ["_change_type", "name"]


def test_a_log_has_a_changelog_too(spark: SparkSession, server: ServerProcess) -> None:
    with table_on(server, buckets=1) as table:
        write(table, events(7, 8))
        found = strom.spark.changes(spark, table.name, stream=False).orderBy("_log_offset").collect()
        assert [(row["_change_type"], row["_log_offset"], row.id) for row in found] == [
            ("+A", 0, 7),
            ("+A", 1, 8),
        ]


def test_partitions_that_cannot_hold_a_row_are_not_planned(
    spark: SparkSession, server: ServerProcess
) -> None:
    schema = pa.schema([*EVENTS, ("day", pa.string())])
    with table_on(server, schema, partition_by="day", buckets=1) as table:
        for day in ("a", "b", "c"):
            write(table, [row | {"day": day} for row in events(*range(100))])
        assert strom.spark.table(spark, table.name).count() == 300
        one = strom.spark.table(spark, table.name, where="day = 'b'", splitRows=50)
        assert one.count() == 100
        assert one.rdd.getNumPartitions() == 2
    with table_on(
        server, {"day": "STRING", "id": "BIGINT"}, primary_key=["id", "day"], partition_by="day"
    ) as keys:
        keys.upsert([{"id": n, "day": f"d{n % 2}"} for n in range(10)])
        keys.flush()
        assert ids(strom.spark.table(spark, keys.name, where="day = 'd1'")) == [1, 3, 5, 7, 9]


def test_a_column_added_later_is_null_in_older_rows(spark: SparkSession, server: ServerProcess) -> None:
    with table_on(server) as table, users_on(server) as keys:
        for one in (table, keys):
            write(one, [{"id": 1, "name": "ann"}])
            one.add_column("country", "STRING")
            write(one, [{"id": 2, "name": "bob", "country": "FR"}])
            found = {row.id: row.country for row in strom.spark.table(spark, one.name).collect()}
            assert found == {1: None, 2: "FR"}


def test_a_key_that_a_filter_names_is_looked_up_while_planning(
    spark: SparkSession, server: ServerProcess
) -> None:
    with users_on(server) as table:
        write(table, users(*range(50)))
        found = strom.spark.table(spark, table.name, where="id = 7", pin="query")
        write(table, users(7, score=9))
        assert [(row.id, row.score) for row in found.collect()] == [(7, 9)]
        assert strom.spark.table(spark, table.name, where="id in (1, 2, 99)", pin="query").count() == 2


def test_without_our_settings_the_source_is_found_and_reads(
    spark: SparkSession, server: ServerProcess
) -> None:
    with table_on(server) as table:
        write(table, events(1, 2, 3))
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")
        try:
            assert ids(strom.spark.table(spark, table.name, pushFilters=True).where("id > 1")) == [2, 3]
        finally:
            spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")


def test_a_temporary_view_in_sql(spark: SparkSession, server: ServerProcess) -> None:
    with table_on(server) as table:
        write(table, events(1, 2, 3))
        options = f"'bootstrap.servers' '{server.address}', table '{table.name}'"
        spark.sql(f"CREATE TEMPORARY VIEW events_view USING strom OPTIONS ({options})")
        assert spark.sql("SELECT sum(id) FROM events_view").first()[0] == 6
        spark.catalog.dropTempView("events_view")
