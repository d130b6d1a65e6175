"""NaN is the greatest number and -0.0 is 0.0, wherever a row lies: what files say of their columns loses no row."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import strom.spark
from lake.union_place import lake_table
from strom.lake.files.file_reader import LakeFile
from strom.lake.files.storage import Storage
from strom.model.bucket import BucketId
from strom.model.lake.lake import LakeConfig
from strom.model.schema import Schema
from strom.spark.cold.cold_frames import ColdFrames
from strom.spark.connect.tasks import LakePart
from strom.testing.process import ServerProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = {"id": "BIGINT", "d": "DOUBLE", "f": "FLOAT", "s": "ROW<x DOUBLE, r ROW<y FLOAT>>"}


@pytest.mark.parametrize("column", ["d", "f", "s.x", "s.r.y"])
def test_rows_with_nan_pass_filters_that_spark_gives_to_its_reader(
    spark: SparkSession, server: ServerProcess, column: str
) -> None:
    values = [0.5, math.nan, None, -0.0, 2.0, math.inf]
    rows = [
        {"id": at, "d": one, "f": one, "s": {"x": one, "r": {"y": one}} if at % 4 != 2 else None}
        for at, one in enumerate(values)
    ]
    with lake_table(server, COLUMNS, buckets=1) as (_, table, tierer):
        table.append(rows[:5])
        tierer.round(table)
        table.append(rows[5:])
        table.flush()
        frame = strom.spark.table(spark, table.name, servers=server.address)
        assert [(row.id, row.s) for row in frame.where("id = 2").collect()] == [(2, None)]

        def found(where: str) -> list[int]:
            return sorted(row.id for row in frame.where(where).select("id").collect())

        assert found(f"{column} > 5") == [1, 5]
        assert found(f"{column} >= 2") == [1, 4, 5]
        assert found(f"{column} = double('NaN')") == [1]
        assert found(f"{column} != 0.5") == [1, 3, 4, 5]
        assert found(f"{column} = 0") == [3]
        assert found(f"{column} in (double('NaN'), 0.5)") == [0, 1]
        assert found(f"not {column} <= 2") == [1, 5]
        assert found(f"{column} is null") == [2]
        if "." not in column:
            told = strom.spark.table(spark, table.name, servers=server.address, where=f"{column} > 5")
            assert "FileScan parquet" in str(told._jdf.queryExecution())
            assert sorted(row.id for row in told.collect()) == [1, 5]


def test_statistics_without_nan_leave_no_row_out(spark: SparkSession, tmp_path: Path) -> None:
    schema = Schema.from_arrow(pa.schema([("d", pa.float64())]))
    field = pa.field(
        "d", pa.float64(), metadata={b"PARQUET:field_id": str(schema.columns[0].id + 1).encode()}
    )
    path = tmp_path / "foreign.parquet"
    pq.write_table(pa.table([pa.array([0.5, math.nan, None, 2.0])], pa.schema([field])), path)
    file = LakeFile(str(path), path.stat().st_size, 4, 0, 0, 3)
    cold = ColdFrames(spark, Storage(LakeConfig(f"file://{tmp_path}")), schema, ["d"])
    frame = cold.whole([LakePart(BucketId(1, None, 0), None, file)])
    assert frame.where("d > 5").count() == 1
    assert frame.where("d = double('NaN')").count() == 1
    assert frame.where("d < 5").count() == 2
