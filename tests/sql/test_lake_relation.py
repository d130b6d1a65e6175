"""Lake files as a relation: what DuckDB cannot read itself it reads through Arrow, and its errors stay Strom's."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from strom.client.plan.log_plan import ScanPlan
from strom.errors import StromError
from strom.lake.files.file_reader import LakeFile
from strom.lake.files.storage import Storage
from strom.lake.read.union_plan import UnionPlan
from strom.model.lake.lake import LakeConfig
from strom.model.schema import Schema
from strom.sql.lake_relation import LakeRelation
from strom.sql.query import _Told
from strom.sql.streaming import StreamedRows

SCHEMA = Schema.from_arrow(pa.schema([("a", pa.int64())]))


def test_a_lake_file_that_cannot_be_read_through_arrow_is_told_as_it_is(tmp_path: Path) -> None:
    file = LakeFile(
        f"file://{tmp_path}/[a].parquet", 10, 1, 0, 0, 0
    )  # for DuckDB itself, brackets are a pattern
    plan = UnionPlan(1, 7, (file,), ScanPlan(1, ()))
    streams: list[StreamedRows] = []
    relation = LakeRelation(SCHEMA, {"a": "BIGINT"}, plan, Storage(LakeConfig(f"file://{tmp_path}")), streams)
    with duckdb.connect() as connection:
        query = relation.select(connection.register, "t", frozenset({"a"}), None)
        with pytest.raises(StromError, match=r"\[a\]\.parquet") as told, _Told(streams):
            connection.sql(query).fetchall()
    assert [stream.problem for stream in streams] == [told.value]
