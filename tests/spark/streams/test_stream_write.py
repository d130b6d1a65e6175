"""Spark streams into tables: every batch once, under a name that survives restarts."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

import strom
from spark.place import QUERY_TIMEOUT_S, table_on, users, users_on, write
from strom.api.staging import publish
from strom.client.write.decision import Sink
from strom.testing.process import ServerProcess

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.slow

LOG = {"id": "BIGINT", "name": "STRING"}


def stream(spark: SparkSession, server: ServerProcess, table: strom.Table, **options: Any) -> DataFrame:
    reader = spark.readStream.format("strom").option("bootstrap.servers", server.address)
    for name, value in {"start": "earliest", **options}.items():
        reader = reader.option(name, str(value))
    return reader.load(table.name)


def copy(
    frame: DataFrame,
    table: strom.Table,
    server: ServerProcess,
    checkpoint: Path,
    mode: str = "append",
    **options: Any,
) -> None:
    writer = frame.writeStream.format("strom").option("bootstrap.servers", server.address).outputMode(mode)
    for name, value in options.items():
        writer = writer.option(name, str(value))
    query = (
        writer.option("table", table.name)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    try:
        assert query.awaitTermination(QUERY_TIMEOUT_S), "the stream did not end"
    finally:
        query.stop()


def ids(table: strom.Table) -> list[int]:
    return sorted(table.scan(columns=["id"]).to_arrow().column("id").to_pylist())


def rows(*numbers: int) -> list[dict[str, Any]]:
    return [{"id": number, "name": f"n{number}"} for number in numbers]


def test_a_log_is_copied_batch_by_batch_and_goes_on_after_a_restart(
    spark: SparkSession, server: ServerProcess, tmp_path: Path
) -> None:
    with table_on(server, LOG, buckets=2) as source, table_on(server, LOG, buckets=3) as sink:
        write(source, rows(*range(100)))
        copy(stream(spark, server, source, maxRowsPerTrigger=30), sink, server, tmp_path)
        assert ids(sink) == list(range(100))
        write(source, rows(*range(100, 150)))
        copy(stream(spark, server, source).repartition(3), sink, server, tmp_path)
        assert ids(sink) == list(range(150))
        with strom.connect(server.address) as db:
            (known,) = [one for one in db.sinks() if sink.table_id in one.tables]
        assert known.name == f"spark-{known.query_id}"
        assert known.version >= 4
        assert not known.one_shot


def test_a_primary_key_table_is_copied_with_its_deletes(
    spark: SparkSession, server: ServerProcess, tmp_path: Path
) -> None:
    with users_on(server) as source, users_on(server, buckets=3) as sink:
        for step in range(6):
            write(source, users(*range(step * 10, step * 10 + 25), score=step))
            source.delete(list(range(step * 7, step * 7 + 5)))
            source.flush()
        frame = stream(spark, server, source, changelog="true", maxRowsPerTrigger=40)
        copy(frame, sink, server, tmp_path)
        both = [one.scan().to_arrow().sort_by("id").to_pylist() for one in (source, sink)]
        assert both[0]
        assert both[0] == both[1]


def test_an_older_checkpoint_writes_nothing_twice(
    spark: SparkSession, server: ServerProcess, tmp_path: Path
) -> None:
    with table_on(server, LOG, buckets=2) as source, table_on(server, LOG, buckets=2) as sink:
        write(source, rows(*range(20)))
        copy(stream(spark, server, source), sink, server, tmp_path / "now")
        shutil.copytree(tmp_path / "now", tmp_path / "old")
        write(source, rows(*range(20, 40)))
        copy(stream(spark, server, source), sink, server, tmp_path / "now")
        copy(stream(spark, server, source), sink, server, tmp_path / "old")
        assert ids(sink) == list(range(40))


def test_a_name_belongs_to_one_query(spark: SparkSession, server: ServerProcess, tmp_path: Path) -> None:
    with table_on(server, LOG) as source, table_on(server, LOG) as sink:
        write(source, rows(1, 2))
        name = f"named-{sink.table_id}"
        with strom.connect(server.address) as db:
            publish(db, Sink(name, "another query"), 7, [sink.table_id], [])
            with pytest.raises(PySparkException, match="belongs to query"):
                copy(stream(spark, server, source), sink, server, tmp_path / "one", sink=name)
            assert ids(sink) == []
            db.drop_sink(name)
        copy(stream(spark, server, source), sink, server, tmp_path / "two", sink=name)
        assert ids(sink) == [1, 2]


def test_foreach_batch_writes_many_tables_once_each(
    spark: SparkSession, server: ServerProcess, tmp_path: Path
) -> None:
    with (
        table_on(server, LOG) as source,
        table_on(server, LOG) as evens,
        table_on(server, LOG) as odds,
    ):
        write(source, rows(*range(20)))
        failed = []

        def both(batch: DataFrame, number: int) -> None:
            for table, rest in ((evens, 0), (odds, 1)):
                if rest and not failed:
                    failed.append(number)
                    raise RuntimeError("between the two tables")
                (
                    batch.filter(f"id % 2 = {rest}")
                    .write.format("strom")
                    .mode("append")
                    .option("bootstrap.servers", server.address)
                    .option("txnAppId", f"both-{source.table_id}")
                    .option("txnVersion", number)
                    .save(table.name)
                )

        for attempt in range(2):
            query = (
                stream(spark, server, source)
                .writeStream.foreachBatch(both)
                .option("checkpointLocation", str(tmp_path))
                .trigger(availableNow=True)
                .start()
            )
            if attempt:
                assert query.awaitTermination(QUERY_TIMEOUT_S)
            else:
                with pytest.raises(PySparkException, match="between the two tables"):
                    query.awaitTermination(QUERY_TIMEOUT_S)
            query.stop()
        assert failed == [0]
        assert (ids(evens), ids(odds)) == (list(range(0, 20, 2)), list(range(1, 20, 2)))


def test_the_complete_mode_replaces_the_table_with_every_batch(
    spark: SparkSession, server: ServerProcess, tmp_path: Path
) -> None:
    with table_on(server, LOG) as source, table_on(server, {"name": "STRING", "many": "BIGINT"}) as sink:
        write(source, rows(1, 2))
        counted = stream(spark, server, source).groupBy("name").count().withColumnRenamed("count", "many")
        copy(counted, sink, server, tmp_path, "complete")
        write(source, rows(2, 3))
        counted = stream(spark, server, source).groupBy("name").count().withColumnRenamed("count", "many")
        copy(counted, sink, server, tmp_path, "complete")
        found = {row["name"]: row["many"] for row in sink.scan().to_arrow().to_pylist()}
        assert found == {"n1": 1, "n2": 2, "n3": 1}
        assert sink.scan().count() == 3


def test_at_least_once_writes_without_a_sink(
    spark: SparkSession, server: ServerProcess, tmp_path: Path
) -> None:
    with table_on(server, LOG) as source, table_on(server, LOG) as sink:
        write(source, rows(1, 2, 3))
        copy(stream(spark, server, source), sink, server, tmp_path, delivery="at-least-once")
        assert ids(sink) == [1, 2, 3]
        with strom.connect(server.address) as db:
            assert not [one for one in db.sinks(every=True) if sink.table_id in one.tables]
