"""What goes wrong is told in one sentence; what passes is waited for."""

from __future__ import annotations

import subprocess
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession

import strom.spark
from api.place import EVENTS, events
from spark.place import drain, ids, table_on, users, users_on, write
from strom.errors import Disconnected, Expired
from strom.spark.connect import connections
from strom.spark.connect.options import ConnectOptions
from strom.spark.connect.spark_errors import Problem, problem_of, translate_errors
from strom.testing.process import ServerProcess


def sentence_of(error: BaseException) -> str:
    """What a user sees, without Spark's own frame of words."""
    text = str(error)
    assert "Traceback" not in text, text
    assert "\tat org." not in text, text
    return text.partition("strom.spark.Problem: ")[2].partition("\n")[0]


@pytest.mark.slow
def test_a_table_column_option_or_server_that_is_not_there_is_one_sentence(
    spark: SparkSession, server: ServerProcess
) -> None:
    with table_on(server) as table:
        cases = {
            "there is no table": lambda: strom.spark.table(spark, table.name + "x"),
            "There is no column 'nam' (did you mean 'name'?)": lambda: strom.spark.table(
                spark, table.name, columns=["nam"]
            ),
            "there is no option 'colums' (did you mean 'columns'?)": lambda: strom.spark.table(
                spark, table.name, colums="id"
            ),
            "the server at localhost:1 cannot be reached": lambda: strom.spark.table(
                spark, table.name, servers="localhost:1", user="ann", password="s3cret"
            ),
        }
        for sentence, work in cases.items():
            with pytest.raises(AnalysisException) as caught:
                work()
            assert sentence_of(caught.value).startswith(sentence)
            assert "s3cret" not in str(caught.value)
        with pytest.raises(PySparkException) as caught:
            strom.spark.table(spark, table.name, where="prize > 3").collect()
        assert sentence_of(caught.value).startswith("There is no column 'prize' (did you mean 'price'?)")
        wrong = spark.read.format("strom").schema("id STRING").option("bootstrap.servers", server.address)
        with pytest.raises(PySparkException) as caught:
            wrong.load(table.name).collect()
        assert "is bigint in Spark, and the schema that was given says string" in sentence_of(caught.value)


@pytest.mark.slow
def test_what_is_no_longer_kept_is_told_and_not_left_out(spark: SparkSession, server: ServerProcess) -> None:
    schema = {"id": "BIGINT", "day": "STRING"}
    with table_on(server, schema, partition_by="day") as table:
        write(table, [{"id": 1, "day": "a"}, {"id": 2, "day": "b"}])
        frame = strom.spark.table(spark, table.name)
        table.drop_partition({"day": "a"})
        with pytest.raises(PySparkException) as caught:
            frame.collect()
        assert "no partition" in sentence_of(caught.value)


@pytest.mark.slow
def test_a_restart_of_the_server_in_the_middle_of_a_query_is_waited_for(
    spark: SparkSession, tmp_path: Path
) -> None:
    with ServerProcess(tmp_path / "data") as own, strom.connect(own.address) as db:
        table = db.create_table("restarted", EVENTS, buckets=2)
        keys = db.create_table("restarted_keys", {"id": "BIGINT", "name": "STRING"}, primary_key="id")
        write(table, events(*range(2000)))
        write(keys, [{"id": n, "name": "x"} for n in range(500)])
        frames = [
            strom.spark.table(spark, one.name, servers=own.address, splitRows=400) for one in (table, keys)
        ]
        assert [len(ids(frame)) for frame in frames] == [2000, 500]
        again = threading.Thread(target=own.restart)
        own.kill()
        again.start()
        try:
            assert [ids(frame) for frame in frames] == [list(range(2000)), list(range(500))]
        finally:
            again.join()
        write(db.table("restarted"), events(5000))
        assert strom.spark.table(spark, "restarted", servers=own.address).count() == 2001


@pytest.mark.slow
def test_a_stream_outlives_a_restart_of_the_server(spark: SparkSession, tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as own, strom.connect(own.address) as db:
        table = db.create_table("followed", EVENTS)
        write(table, events(*range(30)))

        def restart(number: int) -> None:
            if number == 0:
                own.kill()
                own.start()

        frame = spark.readStream.format("strom").option("bootstrap.servers", own.address)
        limited = frame.option("maxRowsPerTrigger", "10").load("followed")
        assert drain(limited, tmp_path / "checkpoint", each=restart).ids == list(range(30))


@pytest.mark.slow
def test_a_task_that_failed_once_reads_the_same_rows_again(
    spark: SparkSession, server: ServerProcess, tmp_path: Path
) -> None:
    with users_on(server) as table:
        write(table, users(*range(100)))
        frame = strom.spark.table(spark, table.name, splitRows=25)
        mark = tmp_path / "failed"

        def fail_once(rows):  # type: ignore[no-untyped-def]
            found = list(rows)
            if not mark.exists():
                mark.touch()
                raise RuntimeError("the first attempt fails")
            return iter(found)

        write(table, users(*range(50, 150), score=1))
        found = frame.rdd.mapPartitions(fail_once).collect()
        assert sorted(row.id for row in found) == list(range(100))
        assert {row.score for row in found} == {0}


@pytest.mark.slow
def test_workers_keep_one_connection_and_import_only_the_light_client(
    spark: SparkSession, server: ServerProcess
) -> None:
    with table_on(server, buckets=2) as table:
        write(table, events(*range(100)))
        frame = strom.spark.table(spark, table.name, splitRows=10)
        assert frame.count() == 100

        def look(batches):  # type: ignore[no-untyped-def]
            import os
            import sys

            import pyarrow as pa

            for batch in batches:
                yield pa.RecordBatch.from_pydict({"pid": [os.getpid()], "rows": [batch.num_rows]})
            heavy = {"numba", "duckdb", "pyiceberg", "strom.server", "strom.kv", "strom.log"} & set(
                sys.modules
            )
            assert not heavy, heavy

        found = frame.mapInArrow(look, "pid LONG, rows LONG").collect()
        assert sum(row.rows for row in found) == 100
        # Two tasks at once, each with a worker that reads and one that looks: workers are kept, whoever started them.
        assert len({row.pid for row in found}) <= 4 < len(found)


def test_what_a_worker_imports_is_the_light_client() -> None:
    code = (
        "import sys; import pyspark_strom, strom.spark.source.batch_reader, strom.spark.source.stream_reader; "
        "print([m for m in ('numba','duckdb','pyiceberg','strom.server','strom.kv','strom.log','uvloop') "
        "if m in sys.modules])"
    )
    told_by = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told_by.stdout.strip() == "[]"


def test_a_connection_is_shared_until_it_is_forgotten(server: ServerProcess) -> None:
    where = ConnectOptions(server.address)
    first = connections.database(where)
    assert connections.database(ConnectOptions(server.address)) is first
    connections.forget(where)
    second = connections.database(where)
    assert second is not first
    with table_on(server) as table:
        assert connections.table(where, table.name).table_id == table.table_id
        second.close()  # somebody closed it: the next one who asks gets another
        assert connections.table(where, table.name).table_id == table.table_id
    connections.forget(where)


def test_a_problem_says_what_to_do_and_hides_the_password() -> None:
    server = ConnectOptions("h:1", "ann", "s3cret")
    told_of = problem_of(Disconnected("no answer for ann:s3cret"), server)
    assert str(told_of) == "the server at h:1 cannot be reached: no answer for ann:***"
    assert "load it again" in str(problem_of(Expired("offset 3 is gone")))

    def fail() -> None:
        raise Expired("offset 3 is gone")

    with pytest.raises(Problem, match="offset 3 is gone"):
        translate_errors(fail)


@pytest.mark.slow
def test_a_column_of_another_type_is_told_in_words_of_spark(
    spark: SparkSession, server: ServerProcess
) -> None:
    with table_on(server) as table:
        frame = spark.createDataFrame([("a", "b", 1.0)], "id string, name string, price double")
        writer = frame.write.format("strom").option("bootstrap.servers", server.address).mode("append")
        with pytest.raises(PySparkException) as caught:
            writer.save(table.name)
        told = sentence_of(caught.value)
        assert 'df.withColumn("id", col("id").cast("bigint"))' in told
        assert "pa." not in told


@pytest.mark.slow
def test_what_was_overwritten_is_told_to_be_gone(spark: SparkSession, server: ServerProcess) -> None:
    with table_on(server) as table, strom.connect(server.address) as db:
        write(table, events(1, 2))
        then = datetime.now(UTC)
        frame = strom.spark.table(spark, table.name)
        assert ids(frame) == [1, 2]
        with db.transaction() as tx:
            tx.overwrite(table)
            tx.append(table, events(3))
        for read in (
            lambda: frame.collect(),
            lambda: strom.spark.table(spark, table.name, at=then).collect(),
        ):
            with pytest.raises(PySparkException, match="no longer kept"):
                read()
        assert ids(strom.spark.table(spark, table.name)) == [3]
