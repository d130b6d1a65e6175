"""A stream's reader asked as Spark asks it, call by call, without a Spark."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

import strom
from api.place import events, table_on
from strom.spark.connect.options import SourceOptions
from strom.spark.source.pinned_read import schema_of
from strom.spark.source.stream_position import BEGINNING, Position
from strom.spark.source.stream_reader import StreamReader
from strom.testing.process import ServerProcess


def reader_of(server: ServerProcess, table: strom.Table, start: str = "earliest") -> StreamReader:
    options = SourceOptions.of({"bootstrap.servers": server.address, "table": table.name, "start": start})
    return StreamReader(options, schema_of(options, table.info.schema), None)


def write(table: strom.Table, *ids: int) -> None:
    table.append(events(*ids))
    table.flush()


def end_of(position: dict[str, Any] | None) -> int:
    assert position is not None
    return sum(Position.from_json(position).offsets.values())


@pytest.mark.parametrize("limit", [ReadAllAvailable(), ReadMaxRows(10)], ids=["all", "some"])
def test_where_nothing_is_new_the_answer_is_the_very_place_that_was_given(
    server: ServerProcess, limit: Any
) -> None:
    """Any other JSON would be a batch for Spark: also that of the first batch, which says where it began."""
    with table_on(server, buckets=1) as table:
        write(table, 1, 2)
        reader = reader_of(server, table)
        first = reader.latestOffset(dict(BEGINNING), limit)
        assert reader.latestOffset(first, limit) == first
        write(table, 3)
        second = reader.latestOffset(first, limit)
        assert [end_of(one) for one in (first, second)] == [2, 3]
        assert reader.latestOffset(second, limit) == second


def test_a_query_that_reads_what_there_is_now_ends_there(server: ServerProcess) -> None:
    with table_on(server, buckets=1) as table:
        write(table, 1, 2, 3)
        reader = reader_of(server, table)
        reader.prepareForTriggerAvailableNow()
        write(table, 4)
        first = reader.latestOffset(dict(BEGINNING), ReadMaxRows(2))
        second = reader.latestOffset(first, ReadMaxRows(2))
        assert [end_of(one) for one in (first, second)] == [2, 3]
        assert reader.latestOffset(second, ReadMaxRows(2)) == second


def test_the_lag_is_told_to_the_end_of_the_table_and_not_of_the_batch(server: ServerProcess) -> None:
    with table_on(server, buckets=1) as table:
        write(table, 1, 2, 3)
        reader = reader_of(server, table)
        assert reader.reportLatestOffset() is None, "nothing was looked at yet"
        first = reader.latestOffset(dict(BEGINNING), ReadMaxRows(1))
        assert (end_of(first), end_of(reader.reportLatestOffset())) == (1, 3)


def test_a_spark_that_does_not_say_where_a_batch_begins_begins_once(server: ServerProcess) -> None:
    with table_on(server, buckets=1) as table:
        write(table, 1, 2)
        reader = reader_of(server, table, start="latest")
        first = reader.latestOffset()
        reader.partitions(dict(BEGINNING), first)
        write(table, 3)
        second = reader.latestOffset()
        assert [Position.from_json(one).origin is None for one in (first, second)] == [False, True]
        (task,) = reader.partitions(first, second)
        assert [row["id"] for part in reader.read(task) for row in part.to_pylist()] == [3]
