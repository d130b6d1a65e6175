"""An unmodified pyfluss appends to log tables and scans them: rows and Arrow, projections, filters, offsets."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, date, datetime
from datetime import time as clock_time
from decimal import Decimal
from typing import Any

import fluss
import pandas as pd
import pyarrow as pa
import pytest
from fluss import OffsetSpec

import strom
from integration.peer import connected, error_code, make_table, poll_rows, poll_table, run, write
from strom.testing.process import ServerProcess
from waiting import next_millisecond

SCHEMA = pa.schema([("id", pa.int32()), ("name", pa.string()), ("score", pa.float64())])
STATISTICS = {"table.statistics.columns": "*"}


def rows(start: int, count: int) -> pa.RecordBatch:
    ids = list(range(start, start + count))
    return pa.record_batch(
        [pa.array(ids, pa.int32()), pa.array([f"name {i:04}" for i in ids]), pa.array([i / 2 for i in ids])],
        schema=SCHEMA,
    )


def test_rows_come_back_in_order_with_offsets_and_timestamps(either: ServerProcess) -> None:
    async def test() -> None:
        async with connected(either.address) as connection:
            _, table = await make_table(connection, SCHEMA)
            before_ms = int(time.time() * 1000)
            writer = table.new_append().create_writer()
            for i in range(1000):
                writer.append({"id": i, "name": f"n{i}", "score": i / 2})
            await writer.append([1000, None, None]).wait()
            await writer.flush()
            scanner = await table.new_scan().create_log_scanner()
            scanner.subscribe(0, fluss.EARLIEST_OFFSET)
            records = await poll_rows(scanner, 1001)
            assert [record.offset for record in records] == list(range(1001))
            assert [record.row["id"] for record in records] == list(range(1001))
            assert records[-1].row == {"id": 1000, "name": None, "score": None}
            assert all(record.change_type == fluss.ChangeType.AppendOnly for record in records)
            stamps = [record.timestamp for record in records]
            assert stamps == sorted(stamps)
            assert before_ms - 1000 <= stamps[0]
            assert stamps[-1] <= time.time() * 1000 + 1000

    run(test)


@pytest.mark.parametrize("compression", ["NONE", "LZ4_FRAME", "ZSTD"])
def test_arrow_batches_come_back_whatever_their_compression(either: ServerProcess, compression: str) -> None:
    async def test() -> None:
        async with connected(either.address) as connection:
            _, table = await make_table(
                connection, SCHEMA, properties={"table.log.arrow.compression.type": compression}
            )
            batches = [rows(i * 500, 500) for i in range(4)]
            await write(table, *batches)
            scanner = await table.new_scan().create_record_batch_log_scanner()
            scanner.subscribe(0, fluss.EARLIEST_OFFSET)
            found = await scanner.to_arrow()
            assert found.combine_chunks().equals(pa.Table.from_batches(batches).combine_chunks())

    run(test)


def test_batches_know_their_bucket_and_offsets(either: ServerProcess) -> None:
    async def test() -> None:
        async with connected(either.address) as connection:
            _, table = await make_table(connection, SCHEMA)
            await write(table, rows(0, 10), rows(10, 5))
            scanner = await table.new_scan().create_record_batch_log_scanner()
            scanner.subscribe(0, 12)
            found: list[Any] = []
            while sum(one.batch.num_rows for one in found) < 3:
                found += await scanner.poll_record_batch(1000)
            assert found[0].bucket.bucket_id == 0
            assert found[-1].last_offset == 14
            assert [i for one in found for i in one.batch.column(0).to_pylist()][-3:] == [12, 13, 14]

    run(test)


def test_tables_frames_and_readers_are_written_and_read(either: ServerProcess) -> None:
    async def test() -> None:
        async with connected(either.address) as connection:
            _, table = await make_table(connection, SCHEMA)
            writer = table.new_append().create_writer()
            writer.write_arrow(pa.Table.from_batches([rows(0, 20), rows(20, 20)]))
            writer.write_pandas(pd.DataFrame(rows(40, 20).to_pydict()).astype({"id": "int32"}))
            await writer.flush()
            scanner = await table.new_scan().create_record_batch_log_scanner()
            scanner.subscribe(0, fluss.EARLIEST_OFFSET)
            frame = await scanner.to_pandas()
            assert frame["id"].tolist() == list(range(60))
            again = await table.new_scan().create_record_batch_log_scanner()
            again.subscribe(0, fluss.EARLIEST_OFFSET)
            reader = await asyncio.to_thread(again.to_arrow_batch_reader)
            found = await asyncio.to_thread(reader.read_all)
            assert found.column("id").to_pylist() == list(range(60))

    run(test)


def test_rows_with_a_bucket_key_are_spread_and_none_is_lost(either: ServerProcess) -> None:
    async def test() -> None:
        async with connected(either.address) as connection:
            path, table = await make_table(connection, SCHEMA, bucket_count=6, bucket_keys=["id"])
            await write(table, rows(0, 3000))
            offsets = await connection.get_admin().list_offsets(path, list(range(6)), OffsetSpec.latest())
            assert sum(offsets.values()) == 3000
            assert min(offsets.values()) > 0
            scanner = await table.new_scan().create_record_batch_log_scanner()
            scanner.subscribe_buckets(dict.fromkeys(range(6), fluss.EARLIEST_OFFSET))
            found = await scanner.to_arrow()
            assert sorted(found.column("id").to_pylist()) == list(range(3000))

    run(test)


def test_a_scan_waits_for_rows_that_are_written_later(either: ServerProcess) -> None:
    async def test() -> None:
        async with connected(either.address) as connection:
            path, table = await make_table(connection, SCHEMA)
            scanner = await table.new_scan().create_log_scanner()
            scanner.subscribe(0, fluss.EARLIEST_OFFSET)
            polling = asyncio.ensure_future(poll_rows(scanner, 5))
            await connection.get_admin().list_offsets(path, [0], OffsetSpec.latest())
            assert not polling.done()
            began = time.monotonic()
            await write(table, rows(0, 5))
            assert [record.row["id"] for record in await polling] == [0, 1, 2, 3, 4]
            assert time.monotonic() - began < 5

    run(test)


@pytest.mark.parametrize("columns", [["id"], ["score", "id"], ["name"], ["id", "name", "score"]])
def test_a_projection_gives_the_columns_in_the_order_asked_for(
    either: ServerProcess, columns: list[str]
) -> None:
    async def test() -> None:
        async with connected(either.address) as connection:
            _, table = await make_table(connection, SCHEMA)
            await write(table, rows(0, 300), rows(300, 300))
            scanner = await table.new_scan().project_by_name(columns).create_record_batch_log_scanner()
            scanner.subscribe(0, fluss.EARLIEST_OFFSET)
            found = await scanner.to_arrow()
            whole = pa.Table.from_batches([rows(0, 600)])
            assert found.combine_chunks().equals(whole.select(columns).combine_chunks())
            by_row = (
                await table.new_scan()
                .project([SCHEMA.names.index(name) for name in columns])
                .create_log_scanner()
            )
            by_row.subscribe(0, 599)
            record = (await poll_rows(by_row, 1))[-1]
            assert record.row == whole.select(columns).slice(599).to_pylist()[0]

    run(test)


def test_a_filter_skips_batches_that_cannot_match(either: ServerProcess) -> None:
    async def test() -> None:
        async with connected(either.address) as connection:
            _, table = await make_table(connection, SCHEMA, properties=STATISTICS)
            await write(table, rows(0, 5), rows(100, 5), rows(200, 5))
            cases = [
                (fluss.col("id") >= 200, [200, 201, 202, 203, 204]),
                (fluss.col("id") < 5, [0, 1, 2, 3, 4]),
                ((fluss.col("id") > 3) & (fluss.col("id") < 102), [0, 1, 2, 3, 4, 100, 101, 102, 103, 104]),
                (fluss.col("name").starts_with("name 020"), [200, 201, 202, 203, 204]),
                (fluss.col("id").is_in([101, 204]), [100, 101, 102, 103, 104, 200, 201, 202, 203, 204]),
                (fluss.col("score") == 50.5, [100, 101, 102, 103, 104]),
            ]
            for predicate, expected in cases:
                scanner = await table.new_scan().filter(predicate).create_log_scanner()
                scanner.subscribe(0, fluss.EARLIEST_OFFSET)
                records = await poll_rows(scanner, len(expected))
                assert [record.row["id"] for record in records] == expected, str(predicate)

    run(test)


def test_a_filter_that_matches_nothing_gives_nothing_and_follows_the_log(either: ServerProcess) -> None:
    async def test() -> None:
        async with connected(either.address) as connection:
            _, table = await make_table(connection, SCHEMA, properties=STATISTICS)
            await write(table, rows(0, 50))
            scanner = await table.new_scan().filter(fluss.col("id") > 1000).create_log_scanner()
            scanner.subscribe(0, fluss.EARLIEST_OFFSET)
            assert len(await scanner.poll(1500)) == 0
            await write(table, rows(2000, 5))
            records = await poll_rows(scanner, 5)
            assert [record.row["id"] for record in records] == [2000, 2001, 2002, 2003, 2004]
            assert records[0].offset == 50

    run(test)


def test_a_filter_looks_at_columns_that_are_not_projected(either: ServerProcess) -> None:
    async def test() -> None:
        async with connected(either.address) as connection:
            _, table = await make_table(connection, SCHEMA, properties=STATISTICS)
            await write(table, rows(0, 5), rows(100, 5))
            scan = table.new_scan().project_by_name(["name"]).filter(fluss.col("id") >= 100)
            scanner = await scan.create_log_scanner()
            scanner.subscribe(0, fluss.EARLIEST_OFFSET)
            records = await poll_rows(scanner, 5)
            assert [record.row for record in records] == [{"name": f"name {i:04}"} for i in range(100, 105)]

    run(test)


def test_without_statistics_a_filter_gives_everything(either: ServerProcess) -> None:
    async def test() -> None:
        async with connected(either.address) as connection:
            _, table = await make_table(connection, SCHEMA)
            await write(table, rows(0, 5), rows(100, 5))
            scanner = await table.new_scan().filter(fluss.col("id") >= 100).create_log_scanner()
            scanner.subscribe(0, fluss.EARLIEST_OFFSET)
            assert len(await poll_rows(scanner, 10)) == 10

    run(test)


@pytest.mark.parametrize("limit", [1, 7, 10, 15, 1000])
def test_a_limit_scan_gives_the_last_rows_of_a_bucket(either: ServerProcess, limit: int) -> None:
    async def test() -> None:
        async with connected(either.address) as connection:
            _, table = await make_table(connection, SCHEMA)
            await write(table, *(rows(i * 10, 10) for i in range(3)))
            bucket = fluss.TableBucket(table.get_table_info().table_id, 0)
            found = await table.new_scan().limit(limit).create_bucket_batch_scanner(bucket).to_arrow()
            assert found.column("id").to_pylist() == list(range(30))[-limit:]
            projected = table.new_scan().project_by_name(["name"]).limit(limit)
            names = await projected.create_bucket_batch_scanner(bucket).to_arrow()
            assert names.column_names == ["name"]
            assert names.num_rows == min(limit, 30)

    run(test)


def test_a_limit_scan_of_an_empty_bucket_gives_nothing(either: ServerProcess) -> None:
    async def test() -> None:
        async with connected(either.address) as connection:
            _, table = await make_table(connection, SCHEMA)
            bucket = fluss.TableBucket(table.get_table_info().table_id, 0)
            found = await table.new_scan().limit(5).create_bucket_batch_scanner(bucket).to_arrow()
            assert found.num_rows == 0

    run(test)


def test_offsets_are_listed_by_earliest_latest_and_time(either: ServerProcess) -> None:
    async def test() -> None:
        async with connected(either.address) as connection:
            admin = connection.get_admin()
            path, table = await make_table(connection, SCHEMA)
            assert await admin.list_offsets(path, [0], OffsetSpec.latest()) == {0: 0}
            await write(table, rows(0, 10))
            between_ms = next_millisecond()
            await write(table, rows(10, 10))
            assert await admin.list_offsets(path, [0], OffsetSpec.earliest()) == {0: 0}
            assert await admin.list_offsets(path, [0], OffsetSpec.latest()) == {0: 20}
            assert await admin.list_offsets(path, [0], OffsetSpec.timestamp(0)) == {0: 0}
            assert await admin.list_offsets(path, [0], OffsetSpec.timestamp(between_ms)) == {0: 10}
            now_ms = int(time.time() * 1000) + 1
            assert await admin.list_offsets(path, [0], OffsetSpec.timestamp(now_ms)) == {0: 20}
            with pytest.raises(fluss.FlussError) as refused:
                await admin.list_offsets(path, [0], OffsetSpec.timestamp(now_ms + 10**9))
            assert error_code(refused) == fluss.ErrorCode.INVALID_TIMESTAMP_EXCEPTION

    run(test)


def test_an_offset_that_does_not_exist_is_an_error(server: ServerProcess) -> None:
    async def test() -> None:
        async with connected(server.address) as connection:
            _, table = await make_table(connection, SCHEMA)
            await write(table, rows(0, 10))
            scanner = await table.new_scan().create_log_scanner()
            scanner.subscribe(0, 500)
            with pytest.raises(fluss.FlussError, match=r"500 is out of range.*0 to 10"):
                await poll_rows(scanner, 1)

    run(test)


def test_a_partitioned_table_keeps_its_partitions_apart(either: ServerProcess) -> None:
    schema = pa.schema([("id", pa.int32()), ("region", pa.string())])

    async def test() -> None:
        async with connected(either.address) as connection:
            admin = connection.get_admin()
            path, table = await make_table(connection, schema, partition_keys=["region"], bucket_count=2)
            for region in ("EU", "US"):
                await admin.create_partition(path, {"region": region})
            writer = table.new_append().create_writer()
            for i in range(100):
                writer.append({"id": i, "region": "EU" if i % 4 else "US"})
            await writer.flush()
            ids = {info.partition_name: info.partition_id for info in await admin.list_partition_infos(path)}
            counts = {
                name: sum(
                    (await admin.list_partition_offsets(path, name, [0, 1], OffsetSpec.latest())).values()
                )
                for name in ids
            }
            assert counts == {"EU": 75, "US": 25}
            scanner = await table.new_scan().create_record_batch_log_scanner()
            scanner.subscribe_partition_buckets(
                {(ids["US"], bucket): fluss.EARLIEST_OFFSET for bucket in (0, 1)}
            )
            found = await scanner.to_arrow()
            assert sorted(found.column("id").to_pylist()) == list(range(0, 100, 4))
            assert set(found.column("region").to_pylist()) == {"US"}

    run(test)


def test_a_dropped_partition_ends_its_scan_with_an_error(either: ServerProcess) -> None:
    schema = pa.schema([("id", pa.int32()), ("region", pa.string())])

    async def test() -> None:
        async with connected(either.address) as connection:
            admin = connection.get_admin()
            path, _ = await make_table(connection, schema, partition_keys=["region"])
            await admin.create_partition(path, {"region": "EU"})
            await admin.list_partition_offsets(path, "EU", [0], OffsetSpec.latest())
            await admin.drop_partition(path, {"region": "EU"})
            with pytest.raises(fluss.FlussError):
                await admin.list_partition_offsets(path, "EU", [0], OffsetSpec.latest())

    run(test)


ALL_TYPES = pa.schema(
    [
        ("b", pa.bool_()),
        ("i8", pa.int8()),
        ("i16", pa.int16()),
        ("i32", pa.int32()),
        ("i64", pa.int64()),
        ("f32", pa.float32()),
        ("f64", pa.float64()),
        ("text", pa.string()),
        ("bytes", pa.binary()),
        ("fixed", pa.binary(4)),
        ("decimal", pa.decimal128(20, 3)),
        ("day", pa.date32()),
        ("clock", pa.time32("ms")),
        ("moment", pa.timestamp("us")),
        ("instant", pa.timestamp("us", tz="UTC")),
        ("numbers", pa.list_(pa.int32())),
        ("pairs", pa.map_(pa.string(), pa.int64())),
        ("point", pa.struct([("x", pa.int32()), ("label", pa.string())])),
    ]
)
FULL_ROW = {
    "b": True,
    "i8": -8,
    "i16": -16,
    "i32": -32,
    "i64": -(2**62),
    "f32": 0.5,
    "f64": 2.25,
    "text": "größer",
    "bytes": b"\x00\xff",
    "fixed": b"abcd",
    "decimal": Decimal("-12345678901234567.123"),
    "day": date(2024, 2, 29),
    "clock": clock_time(23, 59, 59, 123000),
    "moment": datetime(2024, 2, 29, 1, 2, 3, 4),
    "instant": datetime(2024, 2, 29, 1, 2, 3, 4, tzinfo=UTC),
    "numbers": [1, None, 3],
    "pairs": [("a", 1), ("b", None)],
    "point": {"x": 1, "label": None},
}


def test_every_type_comes_back_as_it_was_written(either: ServerProcess) -> None:
    nothing = dict.fromkeys(FULL_ROW)

    async def test() -> None:
        async with connected(either.address) as connection:
            _, table = await make_table(connection, ALL_TYPES, properties=STATISTICS)
            writer = table.new_append().create_writer()
            writer.append({**FULL_ROW, "pairs": dict(FULL_ROW["pairs"])})  # type: ignore[call-overload]
            writer.append(nothing)
            await writer.flush()
            await write(table, pa.RecordBatch.from_pylist([FULL_ROW, nothing], schema=ALL_TYPES))
            scanner = await table.new_scan().create_log_scanner()
            scanner.subscribe(0, fluss.EARLIEST_OFFSET)
            found = [record.row for record in await poll_rows(scanner, 4)]
            assert found == [FULL_ROW, nothing, FULL_ROW, nothing]
            arrow = (
                await table.new_scan().project_by_name(["point", "numbers"]).create_record_batch_log_scanner()
            )
            arrow.subscribe(0, 2)
            table_found = await poll_table(arrow, 2)
            assert table_found.to_pylist()[-2:] == [
                {"point": FULL_ROW["point"], "numbers": FULL_ROW["numbers"]},
                {"point": None, "numbers": None},
            ]

    run(test)


def test_many_writers_and_readers_at_once_lose_nothing(either: ServerProcess) -> None:
    async def test() -> None:
        async with connected(either.address) as first, connected(either.address) as second:
            path, table = await make_table(first, SCHEMA, bucket_count=3)
            other = await second.get_table(path)
            scanner = await table.new_scan().create_log_scanner()
            scanner.subscribe_buckets(dict.fromkeys(range(3), fluss.EARLIEST_OFFSET))
            reading = asyncio.ensure_future(poll_rows(scanner, 2000))
            await asyncio.gather(
                *(
                    write(one, *(rows(start + i * 50, 50) for i in range(10)))
                    for one, start in ((table, 0), (other, 500))
                ),
                *(
                    write(one, *(rows(start + i * 50, 50) for i in range(10)))
                    for one, start in ((table, 1000), (other, 1500))
                ),
            )
            assert sorted(record.row["id"] for record in await reading) == list(range(2000))

    run(test)


def test_a_scanner_goes_on_behind_rows_that_were_given_up(server: ServerProcess) -> None:
    async def test() -> None:
        async with connected(server.address) as connection:
            path, table = await make_table(connection, SCHEMA)
            for start in (0, 10, 20):
                await write(table, rows(start, 10))
            with strom.connect(server.address) as database:
                database.table(path.table_name).mark_damaged(0, 10, 20)
            scanner = await table.new_scan().create_log_scanner()
            scanner.subscribe(0, fluss.EARLIEST_OFFSET)
            records = await poll_rows(scanner, 20)
            assert [record.offset for record in records] == [*range(10), *range(20, 30)]
            arrow = await table.new_scan().create_record_batch_log_scanner()
            arrow.subscribe(0, 12)
            assert (await arrow.to_arrow()).column("id").to_pylist() == list(range(20, 30))

    run(test)
