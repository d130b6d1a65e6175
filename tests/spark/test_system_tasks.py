"""Tasks of a read of ``t$lake``: many files are shared out, and a limit holds for all of them together."""

from __future__ import annotations

import pytest
from pyspark.sql.types import LongType, StructField, StructType

from strom.lake.files.file_reader import LakeFile
from strom.model.bucket import BucketId
from strom.spark.connect.options import SourceOptions
from strom.spark.connect.tasks import LakePart, ReadTask
from strom.spark.source.system_tables import SystemTableRead, SystemTableReader

FILES = tuple(
    LakePart(BucketId(7, None, 0), None, LakeFile(f"/lake/{number}.parquet", 64 << 20, 1_000, 0, 0, 1))
    for number in range(12)
)
SCHEMA = StructType([StructField("id", LongType())])


@pytest.mark.parametrize("limit", [None, "5"])
def test_a_read_with_a_limit_is_one_task(limit: str | None) -> None:
    said = {"bootstrap.servers": "localhost:1", "table": "t$lake"} | (
        {} if limit is None else {"limit": limit}
    )
    reader = SystemTableReader(
        SourceOptions.of(said), SCHEMA, SystemTableRead(SCHEMA, files=FILES, table_id=7)
    )
    tasks = reader.partitions()
    assert all(isinstance(one, ReadTask) and one.table_id == 7 for one in tasks)
    assert [part for one in tasks for part in one.parts] == list(FILES)  # type: ignore[attr-defined]
    assert (len(tasks) == 1) == (limit is not None), "each task would give as many rows as the limit says"


def test_rows_that_came_with_the_plan_are_one_task() -> None:
    said = SourceOptions.of({"bootstrap.servers": "localhost:1", "table": "t$buckets"})
    [task] = SystemTableReader(said, SCHEMA, SystemTableRead(SCHEMA, rows=b"rows")).partitions()
    assert isinstance(task, ReadTask)
    assert task.rows == b"rows"
