"""``spark.readStream``: every row once, from any place, whatever happens to the table meanwhile."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

import strom.spark
from api.place import EVENTS, events
from spark.place import drain, table_on, users, users_on, write
from strom.errors import Expired
from strom.spark.connect.spark_errors import Problem
from strom.spark.source.source import StromSource
from strom.spark.source.task_reader import QueryRead
from strom.testing.process import ServerProcess

pytestmark = pytest.mark.slow


def stream(spark: SparkSession, server: ServerProcess, name: str, **options: Any) -> Any:
    said = {key: str(value) for key, value in options.items()}
    reader = spark.readStream.format("strom").option("bootstrap.servers", server.address)
    return reader.options(**said).load(name)


def test_a_stream_goes_on_where_its_checkpoint_is(
    spark: SparkSession, server: ServerProcess, tmp_path: Path
) -> None:
    with table_on(server, buckets=2) as table:
        write(table, events(*range(100)))
        assert drain(stream(spark, server, table.name), tmp_path).ids == list(range(100))
        write(table, events(*range(100, 130)))
        assert drain(stream(spark, server, table.name), tmp_path).ids == list(range(100, 130))
        assert drain(stream(spark, server, table.name), tmp_path).ids == []


def test_it_starts_at_earliest_latest_a_time_or_offsets(
    spark: SparkSession, server: ServerProcess, tmp_path: Path
) -> None:
    with table_on(server, buckets=1) as table:
        write(table, events(*range(10)))
        # A batch has the time of its writing; half a second apart is apart.
        middle = dt.datetime.now(dt.UTC)
        first = table.describe().buckets[0].high_watermark
        while dt.datetime.now(dt.UTC) - middle < dt.timedelta(milliseconds=20):
            pass
        middle = dt.datetime.now(dt.UTC)
        write(table, events(*range(10, 15)))
        assert first == 10
        starts = {
            "earliest": list(range(15)),
            "latest": [],
            middle.isoformat(): list(range(10, 15)),
            json.dumps({"0": 12}): [12, 13, 14],
        }
        for number, (start, wanted) in enumerate(starts.items()):
            found = drain(stream(spark, server, table.name, start=start), tmp_path / str(number))
            assert found.ids == wanted, start
        later = stream(spark, server, table.name, start="latest")
        write(table, events(99))
        assert drain(later, tmp_path / "1").ids == [99]


def test_a_trigger_reads_no_more_than_it_may(
    spark: SparkSession, server: ServerProcess, tmp_path: Path
) -> None:
    with table_on(server, buckets=3) as table:
        write(table, events(*range(100)))
        found = drain(stream(spark, server, table.name, maxRowsPerTrigger=30), tmp_path / "rows")
        assert [len(batch) for batch in found.batches] == [30, 30, 30, 10]
        assert found.ids == list(range(100))
        small = drain(stream(spark, server, table.name, maxBytesPerTrigger="2 kb"), tmp_path / "bytes")
        assert len(small.batches) > 2
        assert small.ids == list(range(100))


def test_available_now_ends_though_rows_keep_coming(
    spark: SparkSession, server: ServerProcess, tmp_path: Path
) -> None:
    with table_on(server, buckets=1) as table:
        write(table, events(*range(20)))
        more = iter(range(100, 200))
        frame = stream(spark, server, table.name, maxRowsPerTrigger=8)
        found = drain(frame, tmp_path, each=lambda _: write(table, events(next(more))))
        assert found.ids == list(range(20))
        assert [len(batch) for batch in found.batches] == [8, 8, 4]
        assert drain(stream(spark, server, table.name), tmp_path).ids == [100, 101, 102]


def test_changes_of_a_primary_key_table_with_their_deletes(
    spark: SparkSession, server: ServerProcess, tmp_path: Path
) -> None:
    with users_on(server) as table:
        write(table, users(1, 2))
        frame = strom.spark.changes(spark, table.name, start="earliest")
        assert drain(frame, tmp_path).kinds == [("+I", 1), ("+I", 2)]
        write(table, users(1, score=1))
        table.delete([2])
        table.flush()
        assert drain(frame, tmp_path).kinds == [("+U", 1), ("-D", 2), ("-U", 1)]


def test_full_is_the_table_at_an_instant_and_then_every_change_after_it(
    spark: SparkSession, server: ServerProcess, tmp_path: Path
) -> None:
    with users_on(server, buckets=3) as table:
        write(table, users(*range(60)))
        write(table, users(*range(0, 60, 2), score=1))
        table.delete([1, 3])
        table.flush()
        frame = strom.spark.changes(spark, table.name, start="full", maxRowsPerTrigger=25)
        live = [number for number in range(60) if number not in (1, 3)]

        def meanwhile(number: int) -> None:
            if number == 0:  # while the table is still being read, it changes
                write(table, users(0, 100, score=7))
                table.delete([5])
                table.flush()

        first = drain(frame, tmp_path, each=meanwhile)
        assert len(first.batches) > 2
        assert [row["_commit_timestamp"] for row in first.rows] == [None] * len(live)
        assert first.kinds == [("+I", number) for number in live]
        then = drain(frame, tmp_path)
        assert then.kinds == [("+I", 100), ("+U", 0), ("-D", 5), ("-U", 0)]
        assert all(row["_commit_timestamp"] is not None for row in then.rows)
        replayed = {row.id: row.score for row in first.rows}
        for row in sorted(then.rows, key=lambda row: row["_log_offset"]):
            if row["_change_type"] == "-D":
                del replayed[row.id]
            elif row["_change_type"] != "-U":
                replayed[row.id] = row.score
        assert replayed == {row["id"]: row["score"] for row in table.scan().to_arrow().to_pylist()}


def test_a_primary_key_table_is_no_plain_stream_unless_deletes_may_be_left_out(
    spark: SparkSession, server: ServerProcess, tmp_path: Path
) -> None:
    with users_on(server) as table:
        write(table, users(1, 2))
        with pytest.raises(StreamingQueryException, match="is a stream of changes: add"):
            drain(stream(spark, server, table.name), tmp_path / "plain")
        frame = stream(spark, server, table.name, deletes="ignore")
        found = drain(frame, tmp_path / "rows")
        assert (found.ids, found.rows[0].__fields__) == ([1, 2], ["id", "name", "score"])
        write(table, users(1, score=3))
        table.delete([2])
        table.flush()
        again = drain(frame, tmp_path / "rows")
        assert [(row.id, row.score) for row in again.rows] == [(1, 3)]


def test_new_partitions_are_found_and_dropped_ones_forgotten(
    spark: SparkSession, server: ServerProcess, tmp_path: Path
) -> None:
    schema = pa.schema([*EVENTS, ("day", pa.string())])
    with table_on(server, schema, partition_by="day", buckets=2) as table:
        write(table, [row | {"day": "a"} for row in events(1, 2)])
        frame = stream(spark, server, table.name, start="latest")
        assert drain(frame, tmp_path).ids == []
        write(table, [row | {"day": "b"} for row in events(3, 4)])
        write(table, [row | {"day": "a"} for row in events(5)])
        assert drain(frame, tmp_path).ids == [3, 4, 5]
        table.drop_partition({"day": "a"})
        write(table, [row | {"day": "b"} for row in events(6)])
        assert drain(frame, tmp_path).ids == [6]
        with strom.connect(server.address) as other:  # the same name, another partition
            write(other.table(table.name), [row | {"day": "a"} for row in events(7)])
        assert drain(frame, tmp_path).ids == [7]


def test_rows_that_went_before_they_were_read_stop_a_stream(
    spark: SparkSession, server: ServerProcess, tmp_path: Path
) -> None:
    schema = pa.schema([*EVENTS, ("day", pa.string())])
    with table_on(server, schema, partition_by="day", buckets=1) as table:
        write(table, [row | {"day": day} for day in "ab" for row in events(*range(5))])

        def lose(number: int) -> None:
            if number == 0:
                table.drop_partition({"day": "a"})

        frame = stream(spark, server, table.name, maxRowsPerTrigger=4)
        with pytest.raises(StreamingQueryException, match="was dropped with 3 rows that were not read"):
            drain(frame, tmp_path / "strict", each=lose)
    with table_on(server, schema, partition_by="day", buckets=1) as table:
        write(table, [row | {"day": day} for day in "ab" for row in events(*range(5))])
        loose = stream(spark, server, table.name, maxRowsPerTrigger=4, failOnDataLoss="false")
        found = drain(loose, tmp_path / "loose", each=lose)
        assert sorted(row.id for row in found.rows if row.day == "b") == list(range(5))
        assert len([row for row in found.rows if row.day == "a"]) == 2


def test_a_table_made_again_is_another_table(
    spark: SparkSession, server: ServerProcess, tmp_path: Path
) -> None:
    with table_on(server) as table, strom.connect(server.address) as db:
        write(table, events(1))
        assert drain(stream(spark, server, table.name), tmp_path).ids == [1]
        db.drop_table(table.name)
        write(db.create_table(table.name, EVENTS), events(2))
        with pytest.raises(StreamingQueryException, match="dropped and created again"):
            drain(stream(spark, server, table.name), tmp_path)


def test_a_new_column_stops_a_stream_of_all_columns_and_the_next_start_reads_it(
    spark: SparkSession, server: ServerProcess, tmp_path: Path
) -> None:
    with table_on(server) as table:
        write(table, events(1))
        running = stream(spark, server, table.name)
        chosen = stream(spark, server, table.name, columns="id")
        assert drain(running, tmp_path / "all").ids == [1]
        table.add_column("country", "STRING")
        write(table, [{"id": 2, "country": "FR"}])
        with pytest.raises(
            StreamingQueryException, match=r"has new columns \(country\): start the query again"
        ):
            drain(running, tmp_path / "all")
        found = drain(stream(spark, server, table.name), tmp_path / "all")
        assert [(row.id, row.country) for row in found.rows] == [(2, "FR")]
        assert drain(chosen, tmp_path / "one").ids == [1, 2]


def test_a_filter_and_columns_of_a_stream_are_the_servers_work(
    spark: SparkSession, server: ServerProcess, tmp_path: Path
) -> None:
    with table_on(server) as table:
        write(table, events(*range(30)))
        found = drain(stream(spark, server, table.name, where="id >= 25", columns="id"), tmp_path)
        assert found.ids == [25, 26, 27, 28, 29]
        assert found.rows[0].__fields__ == ["id"]


def test_a_stream_that_runs_sees_rows_as_they_come(
    spark: SparkSession, server: ServerProcess, tmp_path: Path
) -> None:
    with table_on(server, buckets=2) as table:
        frame = stream(spark, server, table.name)
        query = (
            frame.writeStream.format("memory")
            .queryName("as_they_come")
            .option("checkpointLocation", str(tmp_path))
            .start()
        )
        try:
            for number in range(3):
                write(table, events(number))
                query.processAllAvailable()
                assert spark.table("as_they_come").count() == number + 1
        finally:
            query.stop()


def broken(_: int) -> None:
    raise RuntimeError("the sink is down")


@pytest.mark.parametrize("limit", [None, 2])
def test_a_first_batch_of_full_that_failed_is_the_same_after_a_restart(
    spark: SparkSession, server: ServerProcess, tmp_path: Path, limit: int | None
) -> None:
    with users_on(server, buckets=1) as table:
        write(table, users(0, 1, 2))
        frame = strom.spark.changes(spark, table.name, start="full", maxRowsPerTrigger=limit)
        with pytest.raises(StreamingQueryException, match="the sink is down"):
            drain(frame, tmp_path, each=broken)
        write(table, users(9))
        table.delete([0])
        table.flush()
        again = drain(frame, tmp_path)
        assert again.kinds == [("+I", 0), ("+I", 1), ("+I", 2), ("+I", 9), ("-D", 0)]
        first = [row.id for row in again.batches[0]]
        assert first == ([0, 1, 2] if limit is None else [0, 1])
        assert [row["_log_offset"] for row in again.rows] == [0, 1, 2, 3, 4]


def test_a_first_batch_of_latest_that_failed_loses_nothing_after_a_restart(
    spark: SparkSession, server: ServerProcess, tmp_path: Path
) -> None:
    with table_on(server, buckets=1) as table:
        write(table, events(0, 1, 2))
        frame = stream(spark, server, table.name, start="latest")
        with pytest.raises(StreamingQueryException, match="the sink is down"):
            drain(frame, tmp_path, each=broken)
        write(table, events(3, 4))
        again = drain(frame, tmp_path)
        assert [[row.id for row in batch] for batch in again.batches] == [[], [3, 4]]


def reader_of(server: ServerProcess, name: str, **options: Any) -> Any:
    """What Spark talks to, as a query that starts makes it."""
    said = {"bootstrap.servers": server.address, "table": name, **options}
    source = StromSource(said)
    return source.streamReader(source.schema())  # type: ignore[arg-type]


def parts_of(reader: Any, end: dict[str, Any], start: dict[str, Any] | None = None) -> list[Any]:
    """What a batch reads; the first one unless a start is given."""
    tasks = reader.partitions(reader.initialOffset() if start is None else start, end)
    return [part for task in tasks for part in task.parts]


@pytest.mark.parametrize("limit", [ReadAllAvailable(), ReadMaxRows(2), None])
@pytest.mark.parametrize("start", ["full", "earliest", "latest", "1000", '{"0": 1}'])
def test_the_first_batch_follows_from_its_end_alone(server: ServerProcess, start: str, limit: Any) -> None:
    """A query is started, decides where its first batch ends, and starts again when the table has moved."""
    with users_on(server, buckets=1) as table:
        write(table, users(0, 1, 2))
        first = reader_of(server, table.name, start=start, changelog="true")
        begin = first.initialOffset()
        write(table, users(3))
        end = json.loads(
            json.dumps(first.latestOffset() if limit is None else first.latestOffset(begin, limit))
        )
        planned = parts_of(first, end)
        write(table, users(9))
        table.delete([0])
        table.flush()
        second = reader_of(server, table.name, start=start, changelog="true")
        assert second.initialOffset() == begin
        assert parts_of(second, end) == planned
        parts = list(planned)
        while (after := second.latestOffset(end, ReadAllAvailable())) != end:
            parts += parts_of(second, after, end)
            end = after
        at = {"latest": 4, '{"0": 1}': 1}.get(start, 0)
        assert [offset for part in parts for offset in range(part.start, part.end)] == list(range(at, 6))


def test_a_first_batch_of_a_table_made_again_is_refused(server: ServerProcess) -> None:
    with table_on(server, buckets=1) as table, strom.connect(server.address) as db:
        write(table, events(1))
        reader = reader_of(server, table.name)
        end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
        db.drop_table(table.name)
        write(db.create_table(table.name, EVENTS, buckets=1), events(2))
        with pytest.raises(Problem, match="dropped and created again"):
            parts_of(reader_of(server, table.name), end)


def test_a_stream_that_has_nothing_new_says_the_same_position(server: ServerProcess) -> None:
    with users_on(server, buckets=1) as table:
        write(table, users(1, 2))
        reader = reader_of(server, table.name, changelog="true")
        end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
        assert "from" in end
        assert json.dumps(reader.latestOffset(end, ReadAllAvailable())) == json.dumps(end)
        write(table, users(3))
        assert "from" not in reader.latestOffset(end, ReadAllAvailable())


def test_an_instant_that_is_gone_when_the_query_starts_again_asks_for_a_new_checkpoint(
    server: ServerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    with users_on(server) as table:
        write(table, users(1, 2))
        reader = reader_of(server, table.name, changelog="true")
        tasks = reader.partitions(
            reader.initialOffset(), reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
        )

        def gone(_: QueryRead, task: Any) -> Any:
            raise Expired(f"the table is not kept as it was at offset {task.parts[0].at} any more")

        monkeypatch.setattr(QueryRead, "rows", gone)
        with pytest.raises(Problem, match=r"no longer kept .* start the query with a new checkpointLocation"):
            list(reader.read(tasks[0]))
