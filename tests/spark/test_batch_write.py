"""Spark writes tables: appends, upserts, deletes, partial updates, overwrites; all at once, and once."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

import strom
from spark.place import ids, table_on, users, users_on, write
from strom.testing.process import ServerProcess

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.slow

LOG = {"id": "BIGINT", "name": "STRING"}


def save(
    frame: DataFrame, table: strom.Table, server: ServerProcess, mode: str = "append", **options: Any
) -> None:
    writer = frame.write.format("strom").mode(mode).option("bootstrap.servers", server.address)
    for name, value in options.items():
        writer = writer.option(name.replace("__", "."), str(value))
    writer.option("table", table.name).save()


def numbers(spark: SparkSession, start: int, end: int, parts: int = 3) -> DataFrame:
    return spark.range(start, end, 1, parts).selectExpr("id", "concat('n', id) as name")


def rows_of(table: strom.Table) -> list[dict[str, Any]]:
    return sorted(table.scan().to_arrow().to_pylist(), key=lambda row: row["id"])


def test_rows_are_appended_to_a_log_as_one_decision(spark: SparkSession, server: ServerProcess) -> None:
    with table_on(server, LOG, buckets=3) as table, strom.connect(server.address) as db:
        save(numbers(spark, 0, 1000), table, server)
        assert rows_of(table) == [{"id": number, "name": f"n{number}"} for number in range(1000)]
        mine = [sink for sink in db.sinks(every=True) if table.table_id in sink.tables]
        assert [(sink.one_shot, sink.pending) for sink in mine] == [(True, 0)]


def test_rows_are_upserted_and_deleted_by_a_column(spark: SparkSession, server: ServerProcess) -> None:
    with users_on(server) as table:
        write(table, users(1, 2, 3))
        frame = spark.createDataFrame(
            [
                (2, "new", 7, "+U"),
                (3, None, None, "-D"),
                (4, "four", 4, "insert"),
                (4, "old", 1, "update_before"),
            ],
            "id long, name string, score int, what string",
        )
        save(frame.coalesce(1), table, server, changeType="what")
        assert [(row["id"], row["name"], row["score"]) for row in rows_of(table)] == [
            (1, "n1", 0),
            (2, "new", 7),
            (4, "four", 4),
        ]


def test_changes_of_one_key_happen_in_the_order_they_have_in_a_task(
    spark: SparkSession, server: ServerProcess
) -> None:
    with users_on(server) as table:
        changes = [
            (1, "a", 1, "+I"),
            (1, None, None, "-D"),
            (2, "b", 1, "+I"),
            (1, "c", 2, "+I"),
            (2, "b", 1, "-D"),
        ]
        frame = spark.createDataFrame(changes, "id long, name string, score int, _change_type string")
        save(frame.coalesce(1), table, server)
        assert rows_of(table) == [{"id": 1, "name": "c", "score": 2}]


@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_a_delete_is_of_the_whole_row_also_when_the_frame_has_some_columns_only(
    spark: SparkSession, server: ServerProcess, delivery: str
) -> None:
    with users_on(server) as table:
        write(table, users(1, 2, 3, 4))
        save(
            spark.createDataFrame([(1, "-D")], "id long, _change_type string"),
            table,
            server,
            delivery=delivery,
        )
        mixed = [(2, "-D", None), (3, "+U", "new"), (4, "-D", "x"), (4, "+I", "again"), (2, "+I", "two")]
        frame = spark.createDataFrame(mixed, "id long, _change_type string, name string")
        save(frame.coalesce(1), table, server, delivery=delivery)
        assert [(row["id"], row["name"], row["score"]) for row in rows_of(table)] == [
            (2, "two", None),
            (3, "new", 0),
            (4, "again", None),
        ]


def test_columns_that_are_not_given_stay_as_they_are(spark: SparkSession, server: ServerProcess) -> None:
    with users_on(server) as table:
        write(table, users(1, 2, score=5))
        save(spark.createDataFrame([(1, "one")], "id long, name string"), table, server)
        frame = spark.createDataFrame([(2, "not this", 9)], "id long, name string, score int")
        save(frame, table, server, columns="id, score")
        assert [(row["name"], row["score"]) for row in rows_of(table)] == [("one", 5), ("n2", 9)]


@pytest.mark.parametrize("keyed", [False, True])
def test_a_table_is_overwritten_at_once(spark: SparkSession, server: ServerProcess, keyed: bool) -> None:
    options = {"primary_key": "id"} if keyed else {}
    with table_on(server, LOG, buckets=2, **options) as table:
        save(numbers(spark, 0, 50), table, server)
        save(numbers(spark, 40, 60), table, server, mode="overwrite")
        assert [row["id"] for row in rows_of(table)] == list(range(40, 60))
        save(numbers(spark, 100, 103), table, server)
        assert [row["id"] for row in rows_of(table)] == [*range(40, 60), 100, 101, 102]


def test_a_partition_is_overwritten_at_once(spark: SparkSession, server: ServerProcess) -> None:
    with table_on(server, {"id": "BIGINT", "day": "STRING"}, partition_by="day", buckets=2) as table:
        days = spark.range(0, 20).selectExpr("id", "if(id < 10, 'a', 'b') as day")
        save(days, table, server)
        new = spark.range(100, 103).selectExpr("id", "'a' as day")
        save(new, table, server, mode="overwrite", overwrite__partition='{"day": "a"}')
        assert [row["id"] for row in rows_of(table)] == [*range(10, 20), 100, 101, 102]


def test_a_write_with_a_name_and_a_version_happens_once(spark: SparkSession, server: ServerProcess) -> None:
    with table_on(server, LOG, buckets=2) as table:
        name = f"job-{table.table_id}"
        for version, start in ((0, 0), (0, 500), (1, 10), (0, 700)):
            save(numbers(spark, start, start + 10), table, server, txnAppId=name, txnVersion=version)
        assert [row["id"] for row in rows_of(table)] == list(range(20))


def test_at_least_once_writes_at_once(spark: SparkSession, server: ServerProcess) -> None:
    with table_on(server, LOG) as table, users_on(server) as keyed, strom.connect(server.address) as db:
        save(numbers(spark, 0, 100), table, server, delivery="at-least-once")
        frame = spark.createDataFrame([(1, "a", 1, "+I"), (1, "a", 1, "-D"), (2, "b", 1, "+I")])
        changes = frame.toDF("id", "name", "score", "_change_type").selectExpr(
            "id", "name", "int(score) as score", "_change_type"
        )
        save(changes.coalesce(1), keyed, server, delivery="at-least-once")
        assert len(rows_of(table)) == 100
        assert [row["id"] for row in rows_of(keyed)] == [2]
        assert not [sink for sink in db.sinks(every=True) if table.table_id in sink.tables]


def test_every_type_arrives_with_nulls_and_nesting(spark: SparkSession, server: ServerProcess) -> None:
    schema = {
        "id": "BIGINT",
        "flag": "BOOLEAN",
        "tiny": "TINYINT",
        "small": "SMALLINT",
        "price": "DECIMAL(12,2)",
        "ratio": "DOUBLE",
        "raw": "BYTES",
        "day": "DATE",
        "at": "TIMESTAMP(6)",
        "seen": "TIMESTAMP_LTZ(6)",
        "tags": "ARRAY<STRING>",
        "counts": "MAP<STRING, INT>",
        "who": "ROW<first STRING, age INT>",
    }
    rows = (
        "select 1L id, true flag, 1Y tiny, 2S small, 3.25BD price, 0.5D ratio, X'00ff' raw, date'2026-11-15' day, "
        "timestamp_ntz'2026-11-15 08:00:00.123456' at, timestamp'2026-11-15 08:00:00.5' seen, "
        "array('a', null) tags, map('k', 1) counts, named_struct('first', 'ann', 'age', 7) who "
        "union all select 2L, null, null, null, null, null, null, null, null, null, null, null, null"
    )
    with table_on(server, schema, buckets=1) as table:
        save(spark.sql(rows).withColumn("price", spark_decimal()), table, server)
        first, second = rows_of(table)
    assert first["price"] == Decimal("3.25")
    assert first["at"] == dt.datetime(2026, 11, 15, 8, 0, 0, 123456)
    assert first["seen"] == dt.datetime(2026, 11, 15, 11, 30, 0, 500000, tzinfo=dt.UTC), (
        "St. John's is 3.5 h behind"
    )
    assert (first["tags"], first["counts"]) == (["a", None], [("k", 1)])
    assert first["who"] == {"first": "ann", "age": 7}
    assert {name: value for name, value in second.items() if value is not None} == {"id": 2}


def spark_decimal() -> Any:
    from pyspark.sql.functions import col

    return col("price").cast("decimal(12,2)")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"delivery": "twice"}, "exactly-once or at-least-once"),
        ({"txnAppId": "a"}, "belong together"),
        ({"lease": "soon"}, "a duration looks like"),
        ({"changeType": "nothing"}, "does not have"),
        ({"columns": "name"}, "column 'id' is missing"),
        ({"deliverey": "x"}, "delivery"),
    ],
)
def test_a_wrong_option_is_one_sentence(
    spark: SparkSession, server: ServerProcess, options: dict[str, str], sentence: str
) -> None:
    with users_on(server) as table, pytest.raises(PySparkException, match=sentence):
        save(
            spark.createDataFrame([(1, "a", 1)], "id long, name string, score int"), table, server, **options
        )


def test_a_wrong_column_or_word_is_one_sentence_and_writes_nothing(
    spark: SparkSession, server: ServerProcess
) -> None:
    with users_on(server) as table:
        with pytest.raises(PySparkException, match="no column 'nam'"):
            save(spark.createDataFrame([(1, "a")], "id long, nam string"), table, server)
        odd = spark.createDataFrame(
            [(1, "a", 1, "gone")], "id long, name string, score int, _change_type string"
        )
        with pytest.raises(PySparkException, match="'gone'"):
            save(odd, table, server)
        assert rows_of(table) == []


def test_a_failing_task_leaves_nothing_and_the_job_can_run_again(
    spark: SparkSession, server: ServerProcess
) -> None:
    with table_on(server, LOG, buckets=2) as table:
        broken = numbers(spark, 0, 200).selectExpr("id", "if(id = 150, raise_error('broken'), name) as name")
        with pytest.raises(PySparkException, match="broken"):
            save(broken, table, server)
        assert rows_of(table) == []
        save(numbers(spark, 0, 200), table, server)
        assert len(rows_of(table)) == 200


def test_what_was_written_is_read_back(spark: SparkSession, server: ServerProcess) -> None:
    with table_on(server, LOG, buckets=2) as table:
        save(numbers(spark, 0, 30), table, server)
        read = spark.read.format("strom").option("bootstrap.servers", server.address).load(table.name)
        assert ids(read) == list(range(30))
