"""Rows of files that do not count are left out by their bits, and by a join where bits are too many or unknown."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from strom.lake.files.field_ids import BUCKET_ID, OFFSET_ID
from strom.lake.files.file_reader import LakeFile
from strom.lake.files.storage import Storage
from strom.model.bucket import BucketId
from strom.model.lake.lake import LakeConfig
from strom.model.schema import Schema
from strom.spark.cold import dead_bits
from strom.spark.cold.cold_frames import ColdFrames
from strom.spark.cold.dead_offsets import Longs
from strom.spark.connect.tasks import LakePart

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

JOIN, BITS = "BroadcastHashJoin", "UnsafeArrayData"
SCHEMA = Schema.from_arrow(pa.schema([("a", pa.int64())]))
FAR = 1 << 40


class Files:
    """Lake files whose rows are numbered through."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.cold = ColdFrames(spark, Storage(LakeConfig(f"file://{folder}")), SCHEMA, ["a"])
        self._folder = folder
        self.parts: list[LakePart] = []
        self.rows: dict[tuple[int, int], int] = {}
        """By bucket and offset what the row has in its column."""

    def add(self, bucket: int, offsets: list[int]) -> None:
        def field(name: str, kind: pa.DataType, number: int) -> pa.Field:
            return pa.field(name, kind, metadata={b"PARQUET:field_id": str(number).encode()})

        names = [
            field("a", pa.int64(), SCHEMA.columns[0].id + 1),
            field("__bucket", pa.int32(), BUCKET_ID),
            field("__offset", pa.int64(), OFFSET_ID),
        ]
        path = self._folder / f"{len(self.parts)}.parquet"
        numbers = [len(self.rows) + at for at in range(len(offsets))]
        self.rows |= {(bucket, offset): number for offset, number in zip(offsets, numbers, strict=True)}
        columns = [pa.array(numbers), pa.array([bucket] * len(offsets), pa.int32()), pa.array(offsets)]
        pq.write_table(pa.table(columns, pa.schema(names)), path)
        file = LakeFile(str(path), path.stat().st_size, len(offsets), bucket, offsets[0], offsets[-1])
        self.parts.append(LakePart(BucketId(1, None, bucket), None, file))

    def without(self, dead: dict[str, Longs]) -> DataFrame:
        (frame,) = self.cold.without(self.parts, dead)
        return frame

    def alive(self, dead: dict[str, Longs]) -> list[int]:
        gone = {
            (part.file.bucket, int(offset)) for part in self.parts for offset in dead[part.file.path].tolist()
        }
        return sorted(number for place, number in self.rows.items() if place not in gone)


def some_files(spark: SparkSession, folder: Path, chance: random.Random) -> tuple[Files, dict[str, Longs]]:
    """Files of several buckets, with gaps and without, and offsets of each that are dead, some of them twice."""
    files = Files(spark, folder)
    dead: dict[str, Longs] = {}
    for bucket in chance.sample(range(12), 3):
        first = chance.choice([0, 1, 7, 8, 65_500, 3 * 65_536, FAR - 3])
        for _ in range(chance.randrange(1, 4)):
            first += chance.choice([0, 1, 13])
            span = range(first, first + chance.choice([1, 7, 8, 9, 64, 200]))
            offsets = sorted(chance.sample(span, chance.randrange(1, len(span) + 1)))
            files.add(bucket, offsets)
            found = chance.choices(offsets, k=chance.randrange(0, 2 * len(offsets)))
            dead[files.parts[-1].file.path] = np.array(found, np.int64)
            first = span.stop
    return files, dead


def found(frame: DataFrame) -> list[int]:
    return sorted(row.a for row in frame.collect())


def plan(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution())


@pytest.mark.parametrize("seed", range(6))
def test_bits_leave_out_what_is_dead_and_nothing_else(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    files, dead = some_files(spark, tmp_path, random.Random(seed))
    frame = files.without(dead)
    assert JOIN not in plan(frame)
    assert BITS in plan(frame)
    assert found(frame) == files.alive(dead)


@pytest.mark.parametrize("seed", range(2))
def test_a_join_leaves_out_the_same_where_the_bits_would_be_too_many(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    files, dead = some_files(spark, tmp_path, random.Random(seed))
    monkeypatch.setattr(dead_bits, "BYTES_MAX", 0)
    frame = files.without(dead)
    assert JOIN in plan(frame)
    assert found(frame) == files.alive(dead)


def test_a_join_leaves_out_the_same_where_spark_takes_no_bits(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, dead = some_files(spark, tmp_path, random.Random(7))
    monkeypatch.setattr(dead_bits, "_EXPRESSIONS", "org.apache.spark.sql.elsewhere")
    frame = files.without(dead)
    assert JOIN in plan(frame)
    assert found(frame) == files.alive(dead)


@pytest.mark.parametrize(("apart", "way"), [(1 << 33, BITS), (FAR, JOIN)])
def test_files_far_apart_take_no_bits_for_what_lies_between(
    spark: SparkSession, tmp_path: Path, apart: int, way: str
) -> None:
    files = Files(spark, tmp_path)
    for bucket, first in ((0, 0), (0, apart), (5, apart // 2)):
        files.add(bucket, [first, first + 1, first + 2])
    dead = {part.file.path: np.array([part.file.first_offset + 1]) for part in files.parts}
    frame = files.without(dead)
    assert way in plan(frame)
    assert found(frame) == files.alive(dead) == [0, 2, 3, 5, 6, 8]


def test_rows_of_many_blocks_find_their_bits(spark: SparkSession, tmp_path: Path) -> None:
    files = Files(spark, tmp_path)
    chance = np.random.default_rng(3)
    dead = {}
    for bucket, first in ((0, 40_000), (0, 340_000), (2, 65_536)):
        files.add(bucket, list(range(first, first + 200_000)))
        gone = np.unique(chance.integers(first, first + 70_000, 5000))
        dead[files.parts[-1].file.path] = gone
    frame = files.without(dead)
    assert BITS in plan(frame)
    assert found(frame) == files.alive(dead)


def test_an_offset_that_its_file_cannot_hold_takes_no_row_of_another(
    spark: SparkSession, tmp_path: Path
) -> None:
    files = Files(spark, tmp_path)
    files.add(0, [4, 5, 6])
    files.add(1, [4, 5, 6])
    first, second = (part.file.path for part in files.parts)
    dead = {first: np.array([5, 12, -3, FAR]), second: np.array([], np.int64)}
    assert found(files.without(dead)) == [0, 2, 3, 4, 5]


def test_a_plan_does_not_write_the_bits_down(spark: SparkSession, tmp_path: Path) -> None:
    files = Files(spark, tmp_path)
    files.add(0, [0, 400_000])
    dead = {files.parts[0].file.path: np.array([400_000])}
    frame = files.without(dead)
    assert len(plan(frame)) < 20_000
    assert found(frame) == [0]
