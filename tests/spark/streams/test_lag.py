"""Lag is what is not in the result at the moment it is asked for; and one can wait until nothing is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

import strom
import strom.spark
from api.place import events
from spark.joining import expected, keep, kept, pair_on
from spark.place import drain, table_on, users, users_on, write
from strom.errors import InvalidRequest, LagUnknown, NotCaughtUp
from strom.testing.process import ServerProcess
from waiting import until_blocking

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SELDOM = {"processingTime": "1 hour"}
"""One batch when the query starts, and no other while a test lasts."""


def stream(spark: SparkSession, server: ServerProcess, table: str, **options: Any) -> DataFrame:
    said = {name: str(value) for name, value in options.items()}
    reader = spark.readStream.format("strom").option("bootstrap.servers", server.address)
    return reader.options(**said).load(table)


def test_a_join_that_was_kept_is_behind_by_what_came_since_and_catches_up_with_it(
    spark: SparkSession, server: ServerProcess, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with pair_on(server, seed=8) as pair:
        pair.change(60)
        join = pair.join("full")
        assert join.initial is None
        with caplog.at_level("INFO", logger="strom.spark"):
            query = keep(join, tmp_path / "checkpoint")
        rows = pair.left.scan().count() + pair.right.scan().count()
        assert f"{join.table}: initial join of {rows} rows" in caplog.text
        assert f"{join.table}: the initial join took" in caplog.text
        initial = join.initial
        assert initial is not None
        assert (initial.over, initial.rows, initial.rows_done) == (True, rows, rows)
        assert initial.tasks == initial.tasks_done > 0
        assert query.lag() == 0
        write(pair.left, [{"id": number, "k": 1, "v": "new"} for number in range(5000, 5090)])
        assert query.lag() == 90
        assert f'strom_join_lag_rows{{table="{join.table}"}} 90' in query.metrics()
        with pytest.raises(NotCaughtUp, match="the query ended, and 90 rows are not in its result") as caught:
            query.wait_until_caught_up(5)
        assert caught.value.facts["behind"] == 90

        again = join.start(str(tmp_path / "checkpoint"), max_rows_per_trigger=40)
        try:
            assert again.lag() <= 90
            again.wait_until_caught_up(60)
            assert kept(pair.db, join.table) == expected(spark, pair, "full")
            assert again.lag() == 0
        finally:
            again.stop()


def test_a_restart_on_a_batch_that_was_planned_does_not_hide_what_waits_behind_it(
    spark: SparkSession, server: ServerProcess, tmp_path: Path
) -> None:
    with pair_on(server, seed=9) as pair:
        pair.change(30)
        join = pair.join("inner")
        write(pair.left, [{"id": 7000, "k": 1, "v": "first"}])
        keep(join, tmp_path / "checkpoint")
        write(pair.left, [{"id": 7001, "k": 1, "v": "second"}])
        keep(join, tmp_path / "checkpoint")
        # As if the driver had ended between publishing its last batch and saying so.
        last = max(tmp_path.glob("checkpoint/commits/[0-9]*"), key=lambda one: int(one.name))
        last.unlink()
        (last.parent / f".{last.name}.crc").unlink(missing_ok=True)
        write(pair.left, [{"id": number, "k": 1, "v": "new"} for number in range(8000, 8300)])
        query = join.start(str(tmp_path / "checkpoint"), trigger=SELDOM, max_rows_per_trigger=10)
        try:
            # The batch that was published is not in the checkpoint yet; then it is, and the others are not made.
            lags = {query.lag()}
            until_blocking(lambda: lags.add(query.lag()) or 300 in lags)
            assert lags <= {300, 301}
            with pytest.raises(NotCaughtUp, match="300 rows are not in its result"):
                query.wait_until_caught_up(0.5, progress=False)
        finally:
            query.stop()


def test_a_stream_from_full_is_behind_by_the_part_of_the_table_that_is_still_to_come(
    spark: SparkSession, server: ServerProcess, tmp_path: Path
) -> None:
    with users_on(server) as source, users_on(server) as copy:
        write(source, users(*range(50)))
        frame = strom.spark.changes(spark, source.name, servers=server.address, maxRowsPerTrigger=20)
        writing = frame.writeStream.format("strom").trigger(**SELDOM)
        said = {"bootstrap.servers": server.address, "checkpointLocation": str(tmp_path)}
        query = writing.options(**said).start(copy.name)
        try:
            until_blocking(lambda: strom.spark.lag(query) == 30)
            assert copy.scan().count() == 20
            with pytest.raises(NotCaughtUp, match=r"after 0\.5 s, and 30 rows are not in its result"):
                strom.spark.wait_until_caught_up(query, 0.5, progress=False)
            write(source, users(*range(100, 107)))
            assert strom.spark.lag(query) == 37
        finally:
            query.stop()
        merged = strom.spark.merge(
            strom.spark.changes(spark, source.name, servers=server.address),
            copy.name,
            servers=server.address,
            checkpoint=str(tmp_path),
            queryName="the_copy",
        )
        assert merged is not None
        try:
            strom.spark.wait_until_caught_up(merged, 60)
            assert copy.scan().count() == 57
            with strom.connect(server.address) as db:
                (sink,) = [one for one in db.sinks() if one.query_id == str(merged.id)]
            assert (sink.query_name, sink.table_names) == ("the_copy", (copy.name,))
            assert strom.spark.lag(merged) == 0
        finally:
            merged.stop()


def test_a_log_of_the_catalog_with_new_partitions_and_one_that_is_dropped(
    spark: SparkSession, server: ServerProcess, tmp_path: Path
) -> None:
    with table_on(server, {"id": "BIGINT", "day": "STRING"}, partition_by="day", buckets=2) as table:
        write(table, [{"id": number, "day": "mon"} for number in range(10)])
        frame = spark.readStream.table(f"strom.{table.name}")
        found = drain(frame, tmp_path)
        assert found.query is not None
        assert strom.spark.lag(found.query) == 0
        write(table, [{"id": number, "day": "tue"} for number in range(7)])
        assert strom.spark.lag(found.query) == 7
        table.drop_partition({"day": "mon"})
        assert strom.spark.lag(found.query) == 7


def test_the_failure_of_a_query_is_what_a_wait_for_it_raises(
    spark: SparkSession, server: ServerProcess, tmp_path: Path
) -> None:
    with table_on(server) as table:
        write(table, events(*range(5)))

        def refuse(frame: DataFrame, number: int) -> None:
            raise ValueError("no room for these")

        writing = stream(spark, server, table.name).writeStream.foreachBatch(refuse)
        query = writing.option("checkpointLocation", str(tmp_path)).start()
        with pytest.raises(StreamingQueryException, match="no room for these"):
            strom.spark.wait_until_caught_up(query, 60)
        assert strom.spark.lag(query) == 5


def test_what_cannot_be_told_is_an_error_that_says_why(
    spark: SparkSession, server: ServerProcess, tmp_path: Path
) -> None:
    with table_on(server) as table:
        write(table, events(*range(5)))
        drained = drain(stream(spark, server, table.name), tmp_path / "one")
        assert drained.query is not None
        with strom.connect(server.address) as db:
            db.drop_table(table.name)
            db.create_table(table.name, {"id": "BIGINT"})
        with pytest.raises(LagUnknown, match="dropped and created again"):
            strom.spark.lag(drained.query)
        other = drain(spark.readStream.format("rate").load().selectExpr("value AS id"), tmp_path / "two")
        assert other.query is not None
        with pytest.raises(InvalidRequest, match="reads no table of Strom"):
            strom.spark.lag(other.query)

    class Elsewhere:
        """A query of Spark Connect."""

    with pytest.raises(LagUnknown, match="Spark Connect"):
        strom.spark.lag(Elsewhere())
