"""``strom.spark.table`` of a table in the lake: Spark's own reader and our source together give each row once."""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import strom
import strom.spark
from lake.read.test_union_model import KINDS, World, options_of
from lake.union_place import lake_table, rows
from strom.client.plan.key_plan import Instant
from strom.client.plan.log_plan import BucketRange
from strom.errors import InvalidRequest
from strom.lake.files.field_ids import BUCKET_ID, OFFSET_ID, TIMESTAMP_ID
from strom.lake.files.file_reader import LakeFile
from strom.lake.files.storage import Storage
from strom.lake.read.union_plan import LakeLimits
from strom.model.bucket import BucketId
from strom.model.filters.predicate_text import parse_predicate
from strom.model.lake.lake import LakeConfig
from strom.model.schema import Schema
from strom.spark.cold.cold_frames import ColdFrames, layers
from strom.spark.cold.where_column import where_column
from strom.spark.connect.tasks import LakePart
from strom.spark.connect.types import Fit, arrow_schema, spark_schema
from strom.spark.source.part_json import parts_of_text, text_of_parts
from strom.testing.process import ServerProcess

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BY_SPARK, DEAD_BITS = "FileScan parquet", "UnsafeArrayData"


def read(spark: SparkSession, server: ServerProcess, table: strom.Table, **options: Any) -> DataFrame:
    frame: DataFrame = strom.spark.table(spark, table.name, servers=server.address, **options)
    return frame


def sorted_rows(found: pa.Table) -> list[str]:
    return sorted(map(repr, found.to_pylist()))


def in_spark(frame: DataFrame, schema: pa.Schema) -> list[str]:
    """What Spark has, in the form that it has them from Strom: instants in UTC."""
    return sorted_rows(frame.toArrow().cast(schema))


def expected(table: strom.Table, **options: Any) -> tuple[list[str], pa.Schema]:
    """What Strom itself has, in Spark's form."""
    found = table.scan(**options).to_arrow()
    schema = arrow_schema(spark_schema(table.info.schema, tuple(found.column_names)))
    fit = Fit(found.schema, schema)
    return sorted_rows(pa.Table.from_batches([fit(one) for one in found.to_batches()], schema)), schema


def plan_of(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution())


@pytest.mark.parametrize("kind", KINDS)
def test_whatever_happened_each_row_is_there_once(
    spark: SparkSession, server: ServerProcess, kind: str
) -> None:
    words = ["write", "write", "delete", "round", "unreported", "crash", "late_report", "column"]
    with lake_table(server, file_rows=5, **options_of(kind)) as (db, table, tierer):
        world = World(kind, db, table, tierer)
        chance = random.Random(kind)
        ways = set()
        for number in range(40):
            world.do((chance.choice(words), chance.randrange(2**32)))
            if number % 8 != 7:
                continue
            table.flush()
            table.refresh()
            frame = read(spark, server, table)
            found, schema = expected(table)
            assert in_spark(frame, schema) == found
            wide = read(spark, server, table, where="id >= 0")
            assert in_spark(wide, schema) == found
            ways |= {word for word in (BY_SPARK, DEAD_BITS) if word in plan_of(wide)}
            by_spark = frame.where("id >= 20 and amount is null").select("name")
            narrow = read(spark, server, table, columns=["name"], where="id >= 20 and amount is null")
            found, schema = expected(table, columns=["name"], where="id >= 20 and amount is null")
            assert in_spark(narrow, schema) == found
            assert in_spark(by_spark, schema) == found
        assert BY_SPARK in ways
        assert (DEAD_BITS in ways) == kind.startswith("keys")


EVERYTHING = {
    "id": "BIGINT",
    "yes": "BOOLEAN",
    "tiny": "TINYINT",
    "small": "SMALLINT",
    "whole": "INT",
    "real": "FLOAT",
    "double": "DOUBLE",
    "price": "DECIMAL(9, 2)",
    "large": "DECIMAL(38, 10)",
    "day": "DATE",
    "at": "TIMESTAMP(6)",
    "at_ms": "TIMESTAMP(3)",
    "moment": "TIMESTAMP_LTZ(6)",
    "moment_s": "TIMESTAMP_LTZ(0)",
    "hour": "TIME(6)",
    "hour_s": "TIME(0)",
    "name": "STRING",
    "code": "CHAR(3)",
    "raw": "BYTES",
    "fixed": "BINARY(4)",
    "list": "ARRAY<SMALLINT>",
    "map": "MAP<STRING NOT NULL, TIMESTAMP_LTZ(6)>",
    "row": "ROW<a INT, b ARRAY<ROW<c TINYINT, d DECIMAL(20, 3)>>>",
}


def all_values(number: int) -> dict[str, Any]:
    if number % 5 == 4:
        return {"id": number} | dict.fromkeys(name for name in EVERYTHING if name != "id")
    moment = dt.datetime(2026, 3, 8, 2, 30, tzinfo=dt.UTC) + dt.timedelta(minutes=number, microseconds=7)
    old = dt.datetime(1400 + number, 2, 28, 23, 59, 59)
    return {
        "id": number,
        "yes": number % 2 == 0,
        "tiny": -number,
        "small": 300 * number,
        "whole": -(2**31) + number,
        "real": float("nan") if number == 3 else number / 3,
        "double": -0.0 if number == 2 else number / 7,
        "price": Decimal(number) / 4,
        "large": Decimal("1234567890123456789012345678.0123456789"),
        "day": old.date(),
        "at": old.replace(microsecond=1),
        "at_ms": old.replace(microsecond=1000),
        "moment": moment,
        "moment_s": moment.replace(microsecond=0),
        "hour": dt.time(23, 59, 59, 999_999),
        "hour_s": dt.time(1, 2, 3),
        "name": "Ω" * number,
        "code": "abc",
        "raw": bytes([0, 255, number]),
        "fixed": bytes([1, 2, 3, number]),
        "list": [1, None, -300],
        "map": {"a": moment, "b": None},
        "row": {"a": None, "b": [{"c": 5, "d": Decimal("1.5")}, None]},
    }


@pytest.mark.parametrize("keyed", [False, True], ids=["log", "keys"])
def test_every_type_is_the_same_from_both_tiers(
    spark: SparkSession, server: ServerProcess, keyed: bool
) -> None:
    kind: dict[str, Any] = {"primary_key": "id"} if keyed else {}
    with lake_table(server, EVERYTHING, buckets=1, **kind) as (_, table, tierer):
        put = table.upsert if keyed else table.append
        put([all_values(number) for number in range(10)])
        tierer.round(table)
        table.add_column("more", "ROW<x INT>")
        put([all_values(number) | {"more": {"x": number}} for number in range(8, 14)])
        if keyed:
            table.delete([0])
        table.flush()
        every = read(spark, server, table)
        found, schema = expected(table)
        assert in_spark(every, schema) == found
        columns = [
            name for name in schema.names if not name.startswith("hour")
        ]  # Spark reads no TIME from files
        frame = read(spark, server, table, columns=columns)
        found, schema = expected(table, columns=columns)
        assert in_spark(frame, schema) == found
        filtered = read(spark, server, table, columns=columns, where="id >= 0")
        assert BY_SPARK in plan_of(filtered)
        assert in_spark(filtered, schema) == found
        assert filtered.dtypes == frame.dtypes
        by_source = read(spark, server, table, columns=columns, lakeReader="strom")
        assert BY_SPARK not in plan_of(by_source)
        assert in_spark(by_source, schema) == found
        assert frame.dtypes == by_source.dtypes
        assert [field.metadata for field in frame.schema] == [field.metadata for field in by_source.schema]
        for zone in ("UTC", "Asia/Kathmandu"):
            spark.conf.set("spark.sql.session.timeZone", zone)
            try:
                assert in_spark(read(spark, server, table, columns=columns), schema) == found
            finally:
                spark.conf.set("spark.sql.session.timeZone", "America/St_Johns")


def test_a_second_action_sees_the_same_rows(spark: SparkSession, server: ServerProcess) -> None:
    with lake_table(server, buckets=2, primary_key="id") as (_, table, tierer):
        table.upsert(rows(*range(100)))
        tierer.round(table)
        table.delete(list(range(10)))
        table.upsert(rows(50, name="new"))
        table.flush()
        frame = read(spark, server, table)
        found, schema = expected(table)
        assert in_spark(frame, schema) == found
        table.delete(list(range(10, 90)))
        table.upsert(rows(*range(200, 220)))
        tierer.round(table)
        table.upsert(rows(51, name="newer"))
        table.flush()
        assert in_spark(frame, schema) == found
        assert frame.count() == 90
        assert in_spark(read(spark, server, table), schema) == expected(table)[0]


def test_a_part_of_a_log_is_cut_in_both_tiers(spark: SparkSession, server: ServerProcess) -> None:
    with lake_table(server, buckets=1, file_rows=10) as (db, table, tierer):
        table.append(rows(*range(35)))
        tierer.round(table)
        table.append(rows(*range(35, 50)))
        table.flush()
        late = max(one.committed_ms for one in [db.lake(table.name).facts] if one.committed_ms)
        moment = dt.datetime.fromtimestamp(late / 1000, dt.UTC)
        for places in (
            {"start": {0: 5}, "end": {0: 38}},
            {"start": {0: 30}},
            {"start": {0: 40}},
            {"end": {0: 12}},
            {"start": moment - dt.timedelta(hours=1), "end": moment + dt.timedelta(hours=1)},
            {"end": moment - dt.timedelta(hours=1)},
        ):
            frame = read(spark, server, table, **places)
            assert sorted(row.id for row in frame.select("id").collect()) == sorted(
                table.scan(**places).to_arrow()["id"].to_pylist()
            )


def test_a_snapshot_is_read_as_it_was(spark: SparkSession, server: ServerProcess) -> None:
    with lake_table(server, buckets=2, primary_key="id") as (_, table, tierer):
        table.upsert(rows(*range(20)))
        first = tierer.round(table).snapshot_id
        table.delete(list(range(5)))
        second = tierer.round(table).snapshot_id
        table.delete(list(range(5, 9)))
        table.flush()
        assert first is not None
        assert second is not None
        for snapshot, count in ((first, 20), (second, 15)):
            assert read(spark, server, table, at=snapshot).count() == count
            frame = read(spark, server, table, at=snapshot, where="id >= 0")
            assert frame.count() == count
            assert BY_SPARK in plan_of(frame)
            assert "BatchScan" not in plan_of(frame), "no server is asked for rows"
        assert read(spark, server, table).count() == 11


def test_what_spark_cannot_reach_is_read_by_the_source(
    spark: SparkSession, server: ServerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    from strom.spark import union_frame

    with lake_table(server, buckets=1) as (_, table, tierer):
        table.append(rows(1, 2, 3))
        tierer.round(table)
        monkeypatch.setattr(union_frame, "uri_of", lambda storage, uri: "s3a://nowhere/file.parquet")
        frame = read(spark, server, table)
        assert BY_SPARK not in plan_of(frame)
        assert frame.count() == 3


def test_a_name_that_only_its_case_tells_apart_is_read_by_the_source(
    spark: SparkSession, server: ServerProcess
) -> None:
    with lake_table(server, {"id": "BIGINT", "ID": "STRING"}, buckets=1) as (_, table, tierer):
        table.append({"id": [1], "ID": ["x"]})
        tierer.round(table)
        frame = read(spark, server, table)
        assert [tuple(row) for row in frame.collect()] == [(1, "x")]


# --- the parts ---------------------------------------------------------------------------------------------------


def test_columns_of_a_file_are_known_by_their_ids(spark: SparkSession, tmp_path: Path) -> None:
    schema = Schema.from_arrow(pa.schema([("a", pa.int32()), ("b", pa.int32()), ("c", pa.int32())]))
    ids = {column.name: column.id + 1 for column in schema.columns}

    def field(name: str, number: int) -> pa.Field:
        return pa.field(name, pa.int32(), metadata={b"PARQUET:field_id": str(number).encode()})

    swapped = pa.schema([field("b", ids["a"]), field("old", ids["b"])])
    path = tmp_path / "[x] {y} %20.parquet"
    pq.write_table(pa.table([pa.array([1, 2], pa.int32()), pa.array([3, 4], pa.int32())], swapped), path)
    file = LakeFile(str(path), path.stat().st_size, 2, 0, 0, 1)
    cold = ColdFrames(spark, Storage(LakeConfig(f"file://{tmp_path}")), schema, ["c", "b", "a"])
    part = LakePart(BucketId(1, None, 0), None, file)
    assert [tuple(row) for row in cold.whole([part]).collect()] == [(None, 3, 1), (None, 4, 2)]
    assert [one.metadata for one in cold.clean(cold.whole([part])).schema] == [{}, {}, {}]


def test_of_a_file_only_the_rows_between_two_commit_times_are_read(
    spark: SparkSession, tmp_path: Path
) -> None:
    schema = Schema.from_arrow(pa.schema([("a", pa.int32()), ("b", pa.int32())]))
    moment = pa.timestamp("us", "UTC")
    kinds = [("a", pa.int32(), schema.columns[0].id + 1), ("b", pa.int32(), schema.columns[1].id + 1)]
    own = [("__bucket", pa.int32(), BUCKET_ID), ("__offset", pa.int64(), OFFSET_ID)]
    arrow = pa.schema(
        pa.field(name, kind, metadata={b"PARQUET:field_id": str(number).encode()})
        for name, kind, number in [*kinds, *own, ("__timestamp", moment, TIMESTAMP_ID)]
    )
    times = [1_999_999, 2_000_000, 2_999_999, 3_000_000]
    columns = [[0, 1, 2, 3], [0, 1, 0, 1], [0] * 4, [0, 1, 2, 3], times]
    path = tmp_path / "x.parquet"
    pq.write_table(
        pa.table([pa.array(one, field.type) for one, field in zip(columns, arrow, strict=True)], arrow), path
    )
    file = LakeFile(str(path), path.stat().st_size, 4, 0, 0, 3)
    bucket = BucketId(1, None, 0)
    where = where_column(parse_predicate("b = 1").check(schema))
    storage = Storage(LakeConfig(f"file://{tmp_path}"))
    every = ColdFrames(spark, storage, schema, ["a"])
    some = ColdFrames(spark, storage, schema, ["a"], where, frozenset({"b"}))

    def found(cold: ColdFrames, limits: LakeLimits | None) -> list[int]:
        return [row.a for row in cold.whole([LakePart(bucket, None, file, b"", limits)]).collect()]

    assert found(every, LakeLimits(after_ms=2000, before_ms=3000)) == [1, 2]
    assert found(every, LakeLimits(after_ms=2000)) == [1, 2, 3]
    assert found(every, LakeLimits(before_ms=3000)) == [0, 1, 2]
    assert found(some, LakeLimits(after_ms=2000)) == [1, 3]
    assert found(some, None) == [1, 3]


def test_files_of_several_partitions_do_not_share_their_dead(spark: SparkSession, tmp_path: Path) -> None:
    schema = Schema.from_arrow(pa.schema([("a", pa.int64())]))

    def field(name: str, kind: pa.DataType, number: int) -> pa.Field:
        return pa.field(name, kind, metadata={b"PARQUET:field_id": str(number).encode()})

    arrow = pa.schema(
        [
            field("a", pa.int64(), schema.columns[0].id + 1),
            field("__bucket", pa.int32(), BUCKET_ID),
            field("__offset", pa.int64(), OFFSET_ID),
        ]
    )
    parts = []
    for at, (partition, bucket, first) in enumerate([(1, 0, 0), (1, 0, 4), (1, 3, 0), (2, 0, 2)]):
        path = tmp_path / f"{at}.parquet"
        numbers, offsets = [at * 10 + one for one in range(4)], [first + one for one in range(4)]
        columns = [pa.array(numbers), pa.array([bucket] * 4, pa.int32()), pa.array(offsets)]
        pq.write_table(pa.table(columns, arrow), path)
        file = LakeFile(
            str(path), path.stat().st_size, 4, bucket, first, first + 3, partition, str(partition)
        )
        parts.append(LakePart(BucketId(1, partition, bucket), str(partition), file))
    assert [len(layer) for layer in layers(parts)] == [3, 1]
    cold = ColdFrames(spark, Storage(LakeConfig(f"file://{tmp_path}")), schema, ["a"])
    dead = {part.file.path: np.array([part.file.first_offset + at]) for at, part in enumerate(parts)}
    found = [row.a for frame in cold.without(parts, dead) for row in frame.collect()]
    assert sorted(found) == [1, 2, 3, 10, 12, 13, 20, 21, 23, 30, 31, 32]


def test_parts_come_back_from_their_text_as_they_were() -> None:
    bucket, other = BucketId(7, None, 2), BucketId(7, 3, 0)
    file = LakeFile("file:///w/x.parquet", 10, 4, 0, 5, 9, 3, "2026", ("file:///w/d.parquet",))
    dead = np.array([5, 7], "<i8").tobytes()
    limits = LakeLimits({other: 3}, {other: 9}, 1, None)
    parts = (
        BucketRange(bucket, None, 3, 9),
        Instant(bucket, None, 9, None, 2),
        Instant(other, "2026", 9, 4, 2, 5),
        LakePart(other, "2026", file, dead, limits),
        LakePart(other, "2026", file),
    )
    text = text_of_parts(7, parts)
    assert parts_of_text(text, 7) == parts
    with pytest.raises(InvalidRequest, match="load it again"):
        parts_of_text(text, 8)
    for wrong in ("[]", "{", '{"table": 7, "parts": [["file"]]}', '{"table": 7, "parts": [["x", 1, 2, 3]]}'):
        with pytest.raises(InvalidRequest, match="_planned"):
            parts_of_text(wrong, 7)


@pytest.mark.parametrize("step", [1, 127, 128, 40_000, 3_000_000_000, 1 << 45])
def test_dead_offsets_come_back_however_far_apart_they_are(step: int) -> None:
    first = 1 << 40
    offsets = first + np.array([0, 1, 1 + step, 2 + step, 2 + 2 * step], "<i8")
    file = LakeFile("file:///w/x.parquet", 10, 9, 0, first, int(offsets[-1]) + 3, 3, None, ())
    parts = (LakePart(BucketId(7, None, 2), None, file, offsets.tobytes(), None),)
    text = text_of_parts(7, parts)
    assert parts_of_text(text, 7) == parts
    for wrong in (text.replace(":5:", ":6:"), text.replace(":5:", ":-5:"), text.replace(":5:", ":5:3")):
        with pytest.raises(InvalidRequest, match="_planned"):
            parts_of_text(wrong, 7)


FILTERS = [
    "n = 3",
    "n <> 3",
    "n in (1, 3, 5)",
    "n not in (1, 3)",
    "n < 2.5 or s is null",
    "not (n > 2 and s = 'b')",
    "d > 1.5",
    "d = 'nan'",
    "d <= 0",
    "starts_with(s, 'a') or ends_with(s, 'é')",
    "not contains(s, 'b')",
    "p >= 1.25",
    "day < '2026-01-02'",
    "at >= '2026-01-01 12:00:00.000001'",
    "moment < '2026-01-01T12:00:00+01:00'",
    "raw = X'00ff'",
    "yes = true",
]


@pytest.mark.parametrize("text", FILTERS)
def test_a_filter_means_the_same_to_spark(spark: SparkSession, text: str) -> None:
    noon = dt.datetime(2026, 1, 1, 12)
    table = pa.table(
        {
            "n": pa.array([1, 2, 3, None, 5], pa.int32()),
            "d": pa.array([0.5, float("nan"), None, -0.0, 2.0]),
            "s": ["a", "b", None, "abé", ""],
            "p": pa.array(
                [Decimal("1.25"), None, Decimal("-3.00"), Decimal("9.99"), Decimal(0)], pa.decimal128(9, 2)
            ),
            "day": pa.array([dt.date(2026, 1, 1 + one) for one in range(5)]),
            "at": pa.array([noon, noon + dt.timedelta(microseconds=1), None, noon, noon], pa.timestamp("us")),
            "moment": pa.array(
                [noon - dt.timedelta(hours=one) for one in range(4)] + [None], pa.timestamp("us", "UTC")
            ),
            "raw": pa.array([b"\x00\xff", b"", None, b"x", b"\x00"]),
            "yes": [True, False, None, True, False],
        }
    )
    schema = Schema.from_arrow(table.schema)
    predicate = parse_predicate(text).check(schema)
    column = where_column(predicate)
    assert column is not None
    (batch,) = table.combine_chunks().to_batches()
    numbered = table.append_column("row", pa.array(range(5)))
    found = [row.row for row in spark.createDataFrame(numbered).where(column).collect()]
    assert found == [at for at, passes in enumerate(predicate.mask(batch).to_pylist()) if passes]
