"""A table in the lake by the SQL catalog: files by Spark's Parquet reader and rows of the servers, each row once."""

from __future__ import annotations

import base64
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import StructType

import strom
from lake.lake_places import Lake, events, planned
from lake.read.test_union_model import KINDS, World, options_of
from lake.union_place import lake_table, rows
from spark.cold.test_union_frame import EVERYTHING, all_values, expected, in_spark
from strom.errors import LakeCorrupt
from strom.lake.read.union_plan import LakeLimits
from strom.model.bucket import BucketId
from strom.model.schema import Schema
from strom.spark.catalog.planned_tasks import plan
from strom.spark.cold import parquet_files
from strom.spark.cold.parquet_files import ParquetFiles
from strom.spark.connect.tasks import LakePart, Part
from strom.spark.connect.types import spark_schema
from strom.testing.process import ServerProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BUCKET = BucketId(1, None, 0)
VECTORS = "spark.sql.parquet.enableVectorizedReader"


def files_of(server: ServerProcess, table: strom.Table, **options: str) -> list[list[list[Any]]]:
    """By task the files that Spark's own reader is given."""
    said = {"bootstrap.servers": server.address, "table": table.name, "pin": "query", **options}
    found: list[list[list[Any]]] = plan(said, spark_schema(table.info.schema), files=True)["files"]
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_whatever_happened_each_row_is_there_once(
    spark: SparkSession, server: ServerProcess, kind: str
) -> None:
    words = ["write", "write", "delete", "round", "unreported", "crash", "late_report", "column"]
    with lake_table(server, file_rows=5, **options_of(kind)) as (db, table, tierer):
        world = World(kind, db, table, tierer)
        chance = random.Random(kind)
        files = bits = 0
        for number in range(40):
            world.do((chance.choice(words), chance.randrange(2**32)))
            if number % 8 != 7:
                continue
            table.flush()
            table.refresh()
            found, schema = expected(table)
            assert in_spark(spark.table(f"strom.{table.name}"), schema) == found
            taken = [one for group in files_of(server, table) for one in group]
            files += len(taken)
            bits += sum(bool(one[2]) for one in taken)
            condition = "id >= 20 AND amount IS NULL"
            narrow = spark.sql(f"SELECT name FROM strom.{table.name} WHERE {condition}")
            found, schema = expected(table, columns=["name"], where=condition.lower())
            assert in_spark(narrow, schema) == found
        assert files
        assert bool(bits) == kind.startswith("keys")


@pytest.mark.parametrize("keyed", [False, True], ids=["log", "keys"])
def test_every_type_is_the_same_from_both_tiers(
    spark: SparkSession, server: ServerProcess, keyed: bool
) -> None:
    types = {name: kind for name, kind in EVERYTHING.items() if not name.startswith("hour")}
    kind: dict[str, Any] = {"primary_key": "id"} if keyed else {}
    with lake_table(server, types, buckets=1, **kind) as (_, table, tierer):
        put = table.upsert if keyed else table.append
        values = [{name: all_values(number)[name] for name in types} for number in range(14)]
        put(values[:10])
        tierer.round(table)
        table.add_column("more", "ROW<x INT>")
        put([one | {"more": {"x": one["id"]}} for one in values[8:]])
        if keyed:
            table.delete([0])
        table.flush()
        assert files_of(server, table)
        found, schema = expected(table)
        assert in_spark(spark.table(f"strom.{table.name}"), schema) == found
        for name in schema.names:
            found, one = expected(table, columns=[name])
            assert in_spark(spark.sql(f"SELECT `{name}` FROM strom.{table.name}"), one) == found


def test_a_session_without_the_reader_of_columns_reads_the_same(
    spark: SparkSession, server: ServerProcess
) -> None:
    with lake_table(server, buckets=2, primary_key="id") as (_, table, tierer):
        table.upsert(rows(*range(100)))
        tierer.round(table)
        table.delete(list(range(10)))
        table.upsert(rows(50, name="new"))
        table.flush()
        found, schema = expected(table)
        spark.conf.set(VECTORS, "false")
        try:
            assert in_spark(spark.table(f"strom.{table.name}"), schema) == found
        finally:
            spark.conf.unset(VECTORS)
        assert in_spark(spark.table(f"strom.{table.name}"), schema) == found


def test_what_only_the_source_can_do_takes_no_file(server: ServerProcess) -> None:
    with lake_table(server, buckets=1) as (_, table, tierer):
        table.append(rows(*range(30)))
        tierer.round(table)
        assert files_of(server, table)
        for options in ({"limit": "4"}, {"_limit": "4"}, {"lakeReader": "strom"}, {"changelog": "true"}):
            assert files_of(server, table, **options) == []


# --- what is taken -----------------------------------------------------------------------------------------------


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


def part_of(
    lake: Lake, offsets: list[int], *rows: int, dead: tuple[int, ...] = (), limits: LakeLimits | None = None
) -> LakePart:
    """A file with these offsets, a file of deletes that names rows of it, and offsets that died since."""
    file = lake.file(events(*offsets), offsets)
    deletes = f"{lake.table.location}/data/deletes-{file.first_offset}.parquet"
    found = pa.table({"file_path": [file.path] * len(rows), "pos": pa.array(rows, pa.int64())})
    pq.write_table(found, lake.table.storage.path(deletes))
    return LakePart(BUCKET, None, planned(file, deletes), np.array(dead, "<i8").tobytes(), limits)


def shared(lake: Lake, *parts: Part, schema: Schema | None = None) -> tuple[ParquetFiles, list[Part]]:
    known = schema or lake.description.schema
    share = ParquetFiles(lake.table.storage, known, spark_schema(known), 2)
    return share, share.take(parts)


def bits(share: ParquetFiles) -> list[list[int]]:
    """Of each file the rows that do not count."""
    told = [one[2:] for group in share.groups for one in group]
    packed = [
        pa.decompress(base64.b64decode(text), decompressed_size=size, codec="zstd", asbytes=True)
        if size
        else b""
        for text, size in told
    ]
    return [
        np.flatnonzero(np.unpackbits(np.frombuffer(one, np.uint8), bitorder="little")).tolist()
        for one in packed
    ]


def test_the_dead_and_the_deleted_are_told_by_their_rows(lake: Lake) -> None:
    parts = [
        part_of(lake, [5, 6, 7, 8], 1, dead=(8,)),
        part_of(lake, [20, 25, 40], 0, dead=(25,)),
        part_of(lake, [50, 51]),
    ]
    share, left = shared(lake, *parts)
    assert left == []
    assert bits(share) == [[1, 3], [0, 1], []]
    assert share.schema.names == ["id", "name"]


def test_a_part_of_a_file_is_left(lake: Lake) -> None:
    whole = part_of(lake, [5, 6], limits=LakeLimits({BUCKET: 5}, {BUCKET: 7}))
    low = part_of(lake, [10, 11], limits=LakeLimits({BUCKET: 11}, {}))
    timed = part_of(lake, [20, 21], limits=LakeLimits({}, {}, after_ms=5))
    share, left = shared(lake, whole, low, timed)
    assert left == [low, timed]
    assert len(share.groups) == 1


def test_files_whose_bits_would_be_too_many_are_left(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_files, "BITS_MAX", 0)
    offsets = list(range(9))
    dying, sound = part_of(lake, offsets, 1), part_of(lake, [50, 51])
    share, left = shared(lake, dying, sound)
    assert left == [dying]
    assert bits(share) == [[]]


def test_names_that_spark_cannot_tell_apart_leave_all_files(lake: Lake) -> None:
    schema = Schema.from_arrow(pa.schema([("a", pa.int64()), ("A", pa.int64())]))
    part = part_of(lake, [5, 6])
    share, left = shared(lake, part, schema=schema)
    assert left == [part]
    assert share.groups == []


def test_deletes_of_rows_that_a_file_does_not_have_are_refused(lake: Lake) -> None:
    with pytest.raises(LakeCorrupt, match="has 2 rows, and deletes name others"):
        shared(lake, part_of(lake, [5, 6], 2))


def test_files_are_spread_over_tasks(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_files, "GROUP_BYTES_MIN", 1)
    parts = [part_of(lake, list(range(first, first + 9))) for first in range(0, 80, 10)]
    share, _ = shared(lake, *parts)
    assert [len(group) for group in share.groups] == [2, 2, 2, 2]
    assert isinstance(share.schema, StructType)
