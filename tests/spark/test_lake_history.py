"""A stream of a log in the lake, asked as Spark asks it: each row once, or an error that says why that cannot be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from lake.test_union_edges import let_retention_drop
from lake.union_place import lake_table
from strom.spark.options import ReadOptions
from strom.spark.pinned import schema_of
from strom.spark.stream_position import BEGINNING
from strom.spark.stream_reader import StreamReader
from strom.testing.process import ServerProcess

pytestmark = pytest.mark.slow

DAYS = {"day": "STRING", "id": "BIGINT"}


def reader_of(server: ServerProcess, table: Any) -> StreamReader:
    options = ReadOptions.of({"bootstrap.servers": server.address, "table": table.name, "start": "full"})
    return StreamReader(options, schema_of(options, table.info.schema), None)


def batch(reader: StreamReader, start: Mapping[str, Any]) -> tuple[list[int], dict[str, Any]]:
    """The ids of the next batch, and where it ends."""
    end = reader.latestOffset(dict(start))
    tasks = reader.partitions(dict(start), end)
    found = [one for task in tasks for part in reader.read(task) for one in part["id"].to_pylist()]
    return sorted(found), end


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
