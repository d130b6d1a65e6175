"""A stream of a log in the lake, asked as Spark asks it: each row once, or an error that says why that cannot be."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.streaming.datasource import ReadMaxRows

from lake.read.test_union_edges import let_retention_drop
from lake.union_place import lake_table
from strom.spark.connect.options import SourceOptions
from strom.spark.source.batch_reader import BatchReader
from strom.spark.source.pinned_read import pin, schema_of
from strom.spark.source.stream_position import BEGINNING
from strom.spark.source.stream_reader import StreamReader
from strom.testing.process import ServerProcess

pytestmark = pytest.mark.slow

DAYS = {"day": "STRING", "id": "BIGINT"}


def reader_of(server: ServerProcess, table: Any, **more: str) -> StreamReader:
    said = {"bootstrap.servers": server.address, "table": table.name, "start": "full"}
    options = SourceOptions.of(said | more)
    return StreamReader(options, schema_of(options, table.info.schema), None)


def batch(reader: StreamReader, start: Mapping[str, Any]) -> tuple[list[int], dict[str, Any]]:
    """The ids of the next batch, and where it ends."""
    found, end = changes(reader, start)
    return sorted(one["id"] for one in found), end


def changes(
    reader: StreamReader, start: Mapping[str, Any], limit: Any = None
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The rows of the next batch, and where it ends."""
    end = reader.latestOffset(dict(start), limit)
    tasks = reader.partitions(dict(start), end)
    return [row for task in tasks for part in reader.read(task) for row in part.to_pylist()], end


def test_a_partition_made_again_is_streamed_with_the_rows_of_the_one_before(server: ServerProcess) -> None:
    with lake_table(server, DAYS, partition_by="day", buckets=1) as (_, table, tierer):
        table.append({"day": ["a", "a", "b"], "id": [1, 2, 3]})
        tierer.round(table)
        let_retention_drop(tierer, table, "a")
        table.append({"day": ["a"], "id": [4]})
        table.flush()
        reader = reader_of(server, table)
        found, end = batch(reader, BEGINNING)
        assert found == [1, 2, 3, 4]
        table.append({"day": ["a", "b"], "id": [5, 6]})
        table.flush()
        found, end = batch(reader, end)
        assert found == [5, 6]
        tierer.round(table)
        table.append({"day": ["a"], "id": [7]})
        table.flush()
        assert batch(reader, end)[0] == [7]


def test_a_stream_of_changes_from_the_earliest_on_says_that_they_are_gone(server: ServerProcess) -> None:
    keys: dict[str, Any] = {"primary_key": ["day", "id"], "partition_by": "day", "buckets": 1}
    with lake_table(server, DAYS, **keys) as (_, table, tierer):
        table.upsert({"day": ["a", "b"], "id": [1, 2]})
        tierer.round(table)
        early = {"start": "earliest", "changelog": "true"}
        assert batch(reader_of(server, table, **early), BEGINNING)[0] == [1, 2]
        let_retention_drop(tierer, table, "a")
        with pytest.raises(PySparkException, match="does not reach back to its beginning"):
            batch(reader_of(server, table, **early), BEGINNING)
        without = reader_of(server, table, **early, failOnDataLoss="false")
        assert batch(without, BEGINNING)[0] == [2]


@pytest.mark.parametrize("place", ["a snapshot", "a time", "offsets"])
def test_a_row_that_its_key_names_is_read_as_it_was(server: ServerProcess, place: str) -> None:
    """Keys are looked up while Spark plans, and that only knows the present."""
    with lake_table(server, DAYS, primary_key="id", buckets=1) as (_, table, tierer):
        table.upsert({"day": ["then"], "id": [7]})
        head = tierer.round(table)
        then = dt.datetime.now(dt.UTC) + dt.timedelta(milliseconds=2)
        while dt.datetime.now(dt.UTC) <= then + dt.timedelta(milliseconds=2):
            pass  # the next change has a later time, by the millisecond
        table.upsert({"day": ["now"], "id": [7]})
        table.flush()
        at = {"a snapshot": str(head.snapshot_id), "a time": then.isoformat(), "offsets": '{"0": 1}'}[place]
        said = {"bootstrap.servers": server.address, "table": table.name, "where": "id = 7", "pin": "query"}
        for more, expected in (({"at": at}, ["then"]), ({}, ["now"])):
            options = SourceOptions.of(said | more)
            reader = BatchReader(options, schema_of(options, table.info.schema), None)
            found = [
                row for task in reader.partitions() for part in reader.read(task) for row in part.to_pylist()
            ]
            assert [one["day"] for one in found] == expected


def test_a_batch_of_the_changes_of_a_log_begins_in_the_lake(server: ServerProcess) -> None:
    with lake_table(server, DAYS, partition_by="day", buckets=1) as (_, table, tierer):
        table.append({"day": ["a", "a", "b"], "id": [1, 2, 3]})
        tierer.round(table)
        let_retention_drop(tierer, table, "a")
        said = {"bootstrap.servers": server.address, "table": table.name, "changelog": "true"}
        options = SourceOptions.of(said)
        reader = BatchReader(options, schema_of(options, table.info.schema), pin(options, table))
        found = [
            row for task in reader.partitions() for part in reader.read(task) for row in part.to_pylist()
        ]
        assert sorted((one["id"], one["_change_type"]) for one in found) == [(1, "+A"), (2, "+A"), (3, "+A")]


@pytest.mark.parametrize("tiered", [False, True], ids=["before its round", "after its round"])
def test_a_stream_that_knew_the_partition_before_does_not_repeat_it(
    server: ServerProcess, tiered: bool
) -> None:
    with lake_table(server, DAYS, partition_by="day", buckets=1) as (_, table, tierer):
        table.append({"day": ["a", "a", "b"], "id": [1, 2, 3]})
        tierer.round(table)
        reader = reader_of(server, table)
        found, end = batch(reader, BEGINNING)
        assert found == [1, 2, 3]
        let_retention_drop(tierer, table, "a")
        table.append({"day": ["a"], "id": [4]})
        table.flush()
        if tiered:
            tierer.round(table)
        with pytest.raises(Exception, match="dropped and made again"):
            batch(reader, end)


KEYED: dict[str, Any] = {"primary_key": ["day", "id"], "partition_by": "day", "buckets": 2}


def kinds(found: list[dict[str, Any]]) -> list[tuple[str, int]]:
    return sorted((row["_change_type"], row["id"]) for row in found)


@pytest.mark.parametrize("rows", [None, 2])
def test_a_stream_of_keys_begins_with_partitions_that_only_the_lake_keeps(
    server: ServerProcess, rows: int | None
) -> None:
    with lake_table(server, DAYS, file_rows=3, **KEYED) as (_, table, tierer):
        table.upsert({"day": ["a"] * 9 + ["b"], "id": list(range(10))})
        tierer.round(table)
        table.delete([{"day": "a", "id": 0}])
        table.upsert({"day": ["a"], "id": [1]})
        tierer.round(table)
        let_retention_drop(tierer, table, "a")
        table.upsert({"day": ["b"], "id": [20]})
        table.flush()
        reader = reader_of(server, table, changelog="true")
        limit = None if rows is None else ReadMaxRows(rows)
        found, end = changes(reader, BEGINNING, limit)
        again = reader_of(server, table, changelog="true").partitions(dict(BEGINNING), end)
        repeated = [row for task in again for part in reader.read(task) for row in part.to_pylist()]
        assert kinds(repeated) == kinds(found), "a first batch that failed is the same after a restart"
        while "full" in end:
            assert rows is not None
            more, end = changes(reader, end, limit)
            found += more
        assert kinds(found) == [("+I", number) for number in [*range(1, 10), 20]]
        assert all(row["_commit_timestamp"] is None for row in found)
        table.upsert({"day": ["b", "c"], "id": [21, 30]})
        table.flush()
        more, end = changes(reader, end)
        assert kinds(more) == [("+I", 21), ("+I", 30)]
        assert changes(reader, end)[0] == []


def test_a_partition_of_keys_that_was_read_to_its_end_may_go(server: ServerProcess) -> None:
    with lake_table(server, DAYS, **KEYED) as (_, table, tierer):
        table.upsert({"day": ["a", "a", "b"], "id": [1, 2, 3]})
        tierer.round(table)
        reader = reader_of(server, table, changelog="true")
        found, end = changes(reader, BEGINNING)
        assert kinds(found) == [("+I", 1), ("+I", 2), ("+I", 3)]
        let_retention_drop(tierer, table, "a")
        table.upsert({"day": ["b"], "id": [4]})
        table.flush()
        found, end = changes(reader, end)
        assert kinds(found) == [("+I", 4)]
        behind = reader_of(server, table, changelog="true")
        assert changes(behind, end)[0] == []


def test_changes_that_went_with_a_partition_of_keys_are_missed(server: ServerProcess) -> None:
    with lake_table(server, DAYS, **KEYED) as (_, table, tierer):
        table.upsert({"day": ["a", "a", "b"], "id": [1, 2, 3]})
        table.flush()
        reader = reader_of(server, table, changelog="true")
        _, end = changes(reader, BEGINNING)
        table.delete([{"day": "a", "id": 1}])
        tierer.round(table)
        let_retention_drop(tierer, table, "a")
        with pytest.raises(Exception, match="went before it was read"):
            changes(reader, end)


def test_a_stream_does_not_begin_with_keys_of_a_partition_that_was_made_again(server: ServerProcess) -> None:
    with lake_table(server, DAYS, **KEYED) as (_, table, tierer):
        table.upsert({"day": ["a", "b"], "id": [1, 2]})
        tierer.round(table)
        let_retention_drop(tierer, table, "a")
        table.upsert({"day": ["a"], "id": [3]})
        table.flush()
        with pytest.raises(Exception, match="a stream cannot begin with them"):
            changes(reader_of(server, table, changelog="true"), BEGINNING)


def test_the_changelog_of_a_log_begins_in_the_lake(server: ServerProcess) -> None:
    with lake_table(server, DAYS, partition_by="day", buckets=1) as (_, table, tierer):
        table.append({"day": ["a", "a", "b"], "id": [1, 2, 3]})
        tierer.round(table)
        let_retention_drop(tierer, table, "a")
        table.append({"day": ["b"], "id": [4]})
        table.flush()
        found, _ = changes(reader_of(server, table, changelog="true"), BEGINNING)
        assert kinds(found) == [("+A", number) for number in (1, 2, 3, 4)]
        assert {row["id"]: row["_log_offset"] for row in found} == {1: 0, 2: 1, 3: 0, 4: 1}
        assert all(row["_commit_timestamp"] is not None for row in found)
