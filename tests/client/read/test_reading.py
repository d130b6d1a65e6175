"""Scans and tails against a scripted cluster: retries, moved leaders, new partitions, order."""

from __future__ import annotations

import asyncio
from typing import Any

import pyarrow as pa
import pytest

from client.play import Play, Stay, description_of, play_out, playing
from strom.client.cluster.cluster import Cluster
from strom.client.cluster.metadata import TableInfo
from strom.client.cluster.options import ClientOptions, ReadOptions, WriterOptions
from strom.client.plan.log_place import EARLIEST, LATEST, place_of
from strom.client.plan.offsets import Offsets
from strom.client.read.log_scan import LogScan
from strom.client.read.row_reader import RowReader
from strom.client.read.source import Source
from strom.client.read.tail import LogTail
from strom.client.write.append_writer import AppendWriter
from strom.errors import (
    Busy,
    Corrupt,
    Disconnected,
    LeaderNotAvailable,
    NotLeader,
    StorageOffline,
    TableNotFound,
    UnknownBucket,
)
from strom.model.bucket import BucketId
from strom.rpc.call import Call


async def fill(cluster: Cluster, table: TableInfo, count: int, start: int = 0) -> None:
    writer = await AppendWriter(cluster, table).open()
    for number in range(start, start + count, 10):
        rows = range(number, number + 10)
        await writer.append(
            {"id": list(rows)} | ({"day": [f"d{i % 3}" for i in rows]} if table.partitioned else {})
        )
        await writer.flush()
    await writer.close()


def tail_of(cluster: Cluster, table: TableInfo, **options: Any) -> LogTail:
    source = Source(
        cluster, table, RowReader(table.schema), options=ReadOptions(**{"discovery_ms": 1000} | options)
    )
    return LogTail(source, start=EARLIEST)


async def seen(tail: LogTail, timeout_s: float = 2.0) -> list[int]:
    found: list[int] = []
    while (batch := await tail.next(timeout_s)) is not None:
        found += batch.data.column("id").to_pylist()
    return found


def test_a_scan_reads_buckets_in_order_however_they_arrive() -> None:
    async def main() -> None:
        async with playing(description_of(buckets=5), servers=2) as (play, cluster, table):
            for number in range(5):
                play.leaders[BucketId(7, None, number)] = number % 2
            await cluster.table(table.path)
            await fill(cluster, table, 1000)

            async def slow(call: Call) -> None:
                if call.request.buckets_req[0].bucket_id == 0:
                    await asyncio.sleep(1)

            play.faults["FetchRows"] = [slow] * 3
            options = ReadOptions(fetch_bytes_max=1000)
            scan = LogScan(cluster, table, options=options)
            batches = [batch async for batch in scan.to_batches()]
            expected = [one for number in range(5) for one in play.rows(number)]
            assert pa.Table.from_batches(batches).column("id").to_pylist() == expected
            assert (await scan.to_arrow()).column("id").to_pylist() == expected
            assert await scan.count() == 1000

    play_out(main())


def test_a_scan_outlives_errors_that_pass() -> None:
    async def main() -> None:
        async with playing(servers=2) as (play, cluster, table):
            await fill(cluster, table, 100)

            async def cut(call: Call) -> None:
                play.world.network.cut()  # type: ignore[attr-defined]

            def moved(call: Call) -> Exception:
                play.leaders[BucketId(7, None, 0)] = 1
                return NotLeader("moved")

            play.faults["FetchRows"] = [
                lambda call: Busy("later"),
                cut,
                moved,
                lambda call: Disconnected("x"),
            ]
            play.faults["ListOffsets"] = [lambda call: NotLeader("x"), cut]
            found = await LogScan(cluster, table, options=ReadOptions(fetch_bytes_max=500)).to_arrow()
            assert found.column("id").to_pylist() == list(range(100))

    play_out(main())


def test_buckets_that_moved_apart_while_their_offsets_were_asked_are_asked_of_both_servers() -> None:
    async def main() -> None:
        async with playing(description_of(buckets=4), servers=2) as (play, cluster, table):
            await fill(cluster, table, 1000)
            buckets = [(BucketId(7, None, number), None) for number in range(4)]

            def moved(call: Call) -> Exception:
                for number in (1, 3):
                    play.leaders[BucketId(7, None, number)] = 1
                return NotLeader("moved")

            play.faults["ListOffsets"] = [moved, moved]
            starts, ends = await Offsets(cluster, table).ends(buckets)
            assert starts == {bucket: 0 for bucket, _ in buckets}
            assert ends == {bucket: play.logs[bucket].end for bucket, _ in buckets}

    play_out(main())


def test_a_scan_gives_up_after_the_time_for_retries_with_the_last_error() -> None:
    async def main() -> None:
        options = ClientOptions(retry_timeout_ms=3_000)
        async with playing(options=options) as (play, cluster, table):
            await fill(cluster, table, 10)
            play.faults["FetchRows"] = [lambda call: StorageOffline("broken disk")] * 1000
            with pytest.raises(StorageOffline, match="broken disk") as caught:
                await LogScan(cluster, table).to_arrow()
            assert caught.value.facts["attempts"] > 3

    play_out(main())


def test_a_bucket_that_ends_before_the_plan_did_is_an_error_not_a_short_result() -> None:
    async def main() -> None:
        options = ClientOptions(retry_timeout_ms=3_000)
        async with playing(options=options) as (play, cluster, table):
            await fill(cluster, table, 20)
            scan = LogScan(cluster, table)
            await scan.plan()
            del play.logs[BucketId(7, None, 0)].batches[-1]
            with pytest.raises(LeaderNotAvailable, match="up to offset 20"):
                await scan.to_arrow()

    play_out(main())


def test_a_damaged_row_is_told_with_its_bucket_and_what_to_do() -> None:
    async def main() -> None:
        async with playing(description_of(buckets=3)) as (play, cluster, table):
            await fill(cluster, table, 100)
            bucket = max(play.logs, key=lambda one: play.logs[one].end)
            play.logs[bucket].batches[-1][-1] ^= 1
            with pytest.raises(Corrupt, match=f"bucket {bucket.bucket}") as told:
                await LogScan(cluster, table).to_arrow()
            facts = told.value.facts
            assert (facts["table"], facts["bucket"]) == ("fluss.t", bucket.bucket)
            assert facts["end_offset"] == play.logs[bucket].end

    play_out(main())


def test_a_tail_gives_every_row_once_through_moves_and_cuts() -> None:
    async def main() -> None:
        async with playing(description_of(buckets=3), servers=2) as (play, cluster, table):
            tail = tail_of(cluster, table)
            await tail.open()
            for round_number in range(10):
                await fill(cluster, table, 30, start=30 * round_number)
                for number in range(3):
                    play.leaders[BucketId(7, None, number)] = (round_number + number) % 2
                play.faults["FetchRows"] = [lambda call: NotLeader("moved")]
                play.world.network.cut()  # type: ignore[attr-defined]
            assert sorted(await seen(tail)) == list(range(300))
            await tail.close()

    play_out(main())


def test_a_tail_asks_where_a_bucket_went_when_its_server_says_it_moved() -> None:
    async def main() -> None:
        async with playing(servers=2) as (play, cluster, table):
            bucket = BucketId(7, None, 0)
            tail = tail_of(cluster, table)
            await tail.open()
            for leader in (1, 0):
                play.leaders[bucket] = leader
                await cluster.refresh(table, [bucket])
                play.calls.clear()
                play.faults["FetchRows"] = [
                    Stay(lambda call: None if "GetMetadata" in play.calls else NotLeader("moved"))
                ]
                await fill(cluster, table, 10)
                found = 0
                while found < 10:
                    batch = await tail.next(60)
                    assert batch is not None, "it asks the server of before for ever"
                    found += batch.num_rows
            await tail.close()

    play_out(main())


def test_a_tail_finds_new_partitions_and_leaves_dropped_ones() -> None:
    description = description_of(("id", pa.int64()), ("day", pa.string()), partition_keys=("day",))

    async def main() -> None:
        async with playing(description) as (play, cluster, table):
            tail = tail_of(cluster, table)
            await tail.open()
            assert tail.positions == {}
            await fill(cluster, table, 30)
            assert sorted(await seen(tail)) == list(range(30))
            assert tail.positions == {("d0", 0): 10, ("d1", 0): 10, ("d2", 0): 10}
            del play.partitions["d1"]
            play.faults["FetchRows"] = [lambda call: NotLeader("dropped")]
            assert await seen(tail) == []
            assert tail.positions == {("d0", 0): 10, ("d2", 0): 10}
            await tail.close()

    play_out(main())


def test_a_tail_of_one_partition_waits_for_nothing_once_that_is_dropped() -> None:
    description = description_of(("id", pa.int64()), ("day", pa.string()), partition_keys=("day",))

    async def main() -> None:
        async with playing(description) as (play, cluster, table):
            await fill(cluster, table, 30)
            source = Source(cluster, table, RowReader(table.schema), options=ReadOptions(discovery_ms=1000))
            tail = LogTail(source, start=EARLIEST, partitions="d1")
            assert len(await seen(tail)) == 10
            del play.partitions["d1"]
            assert await seen(tail) == []
            assert tail.positions == {}
            play.partitions["d1"] = 60
            cluster.metadata.forget_partition(table.table_id, "d1")  # it is another client that writes
            await fill(cluster, table, 30, start=30)
            assert len(await seen(tail)) == 10, "one that is made again is followed from its beginning"
            await tail.close()

    play_out(main())


def test_a_partition_that_comes_and_goes_does_not_end_a_tail() -> None:
    description = description_of(("id", pa.int64()), ("day", pa.string()), partition_keys=("day",))

    async def main() -> None:
        async with playing(description) as (play, cluster, table):
            await fill(cluster, table, 30)
            tail = tail_of(cluster, table)
            assert len(await seen(tail)) == 30

            def gone(call: Call) -> UnknownBucket:
                del play.partitions["short"]
                return UnknownBucket("dropped a moment ago")

            play.partitions |= {"short": 70, "long": 71}
            play.faults["ListOffsets"] = [
                lambda call: gone(call) if call.request.partition_id == 70 else None
            ] * 2
            assert await seen(tail) == []
            assert "short" not in play.partitions
            writer = await AppendWriter(cluster, table).open()
            await writer.append({"id": [100], "day": ["long"]})
            await writer.close()
            assert await seen(tail) == [100]
            await tail.close()

    play_out(main())


def test_no_bucket_is_always_the_last_that_a_tail_asks_for() -> None:
    async def main() -> None:
        async with playing(description_of(buckets=3)) as (play, cluster, table):
            tail = tail_of(cluster, table)
            await tail.open()
            last: set[int] = set()

            def noted(call: Call) -> None:
                last.add(call.request.buckets_req[-1].bucket_id)

            play.faults["FetchRows"] = [noted] * 20
            await fill(cluster, table, 100)
            assert sorted(await seen(tail)) == list(range(100))
            assert last == {0, 1, 2}, "an answer has a bound, and whoever is last in it may get nothing"
            await tail.close()

    play_out(main())


def test_a_tail_goes_on_looking_for_partitions_after_an_answer_was_lost() -> None:
    description = description_of(("id", pa.int64()), ("day", pa.string()), partition_keys=("day",))

    async def main() -> None:
        async with playing(description, options=ClientOptions(retry_timeout_ms=500)) as (
            play,
            cluster,
            table,
        ):
            tail = tail_of(cluster, table)
            await tail.open()
            play.faults["ListPartitionInfos"] = [lambda call: Busy("later")] * 20
            await asyncio.sleep(10)
            del play.faults["ListPartitionInfos"][:]
            await fill(cluster, table, 30)
            assert sorted(await seen(tail, 5.0)) == list(range(30))
            await tail.close()

    play_out(main())


def test_a_tail_of_a_dropped_table_ends_with_the_error() -> None:
    async def main() -> None:
        async with playing() as (play, cluster, table):
            await fill(cluster, table, 10)
            tail = tail_of(cluster, table)
            assert (await tail.next()) is not None
            play.table_id = 8
            play.faults["FetchRows"] = [lambda call: NotLeader("?")]
            with pytest.raises(TableNotFound, match="was dropped"):
                await tail.next()

    play_out(main())


def test_a_slow_reader_holds_the_tail_back() -> None:
    async def main() -> None:
        async with playing() as (play, cluster, table):
            await fill(cluster, table, 2000)
            tail = tail_of(cluster, table, fetch_bytes_max=2000, buffered_bytes_max=5000)
            await tail.open()
            await asyncio.sleep(10)
            assert play.calls.count("FetchRows") < 10
            assert await seen(tail) == list(range(2000))
            await tail.close()

    play_out(main())


def test_a_tail_that_begins_amid_a_batch_gives_the_rows_from_there_on() -> None:
    async def main() -> None:
        async with playing() as (_, cluster, table):
            await fill(cluster, table, 10)
            source = Source(cluster, table, RowReader(table.schema))
            tail = LogTail(source, start=place_of(7, default=EARLIEST))
            assert await seen(tail) == [7, 8, 9]
            assert tail.positions == {(None, 0): 10}
            await tail.close()

    play_out(main())


def test_a_closed_tail_ends() -> None:
    async def main() -> None:
        async with playing() as (_, cluster, table):
            tail = tail_of(cluster, table)
            waiting = asyncio.create_task(tail.next())
            await asyncio.sleep(1)
            await tail.close()
            assert await waiting is None
            assert await tail.next() is None

    play_out(main())


def test_a_bucket_without_a_word_on_where_to_begin_is_read_from_its_beginning() -> None:
    async def main() -> None:
        async with playing(description_of(buckets=2)) as (play, cluster, table):
            await fill(cluster, table, 100)
            writer = await AppendWriter(cluster, table, WriterOptions(batch_bytes_max=1024)).open()
            await writer.append({"id": list(range(100, 1000))})
            await writer.close()
            assert play.rows(0)
            assert play.rows(1)
            expected = [*play.rows(0)[5:], *play.rows(1)]
            start = place_of({0: 5}, default=EARLIEST)
            found = await LogScan(cluster, table, start=start).to_arrow()
            assert found.column("id").to_pylist() == expected
            tail = LogTail(Source(cluster, table, RowReader(table.schema)), start=start)
            assert sorted(await seen(tail)) == sorted(expected)
            await tail.close()

    play_out(main())


def test_a_tail_from_now_sees_what_comes_after_it_was_opened() -> None:
    async def main() -> None:
        async with playing() as (_, cluster, table):
            await fill(cluster, table, 20)
            tail = LogTail(Source(cluster, table, RowReader(table.schema)), start=LATEST)
            await tail.open()
            await fill(cluster, table, 10, start=20)
            assert await seen(tail) == list(range(20, 30))
            again = LogTail(
                Source(cluster, table, RowReader(table.schema)),
                start=place_of(tail.positions, default=LATEST),
            )
            await fill(cluster, table, 10, start=30)
            assert await seen(again) == list(range(30, 40))
            await tail.close()
            await again.close()

    play_out(main())


def test_the_schema_of_a_batch_is_asked_for_once() -> None:
    async def main() -> None:
        async with playing() as (play, cluster, table):
            await fill(cluster, table, 10)
            wider = play.description.schema.add_column("extra", table.schema.columns[0].type)
            play.schemas[2] = wider
            play.description = type(play.description)(schema=wider, bucket_count=1)
            newer = await cluster.table(table.path)
            writer = await AppendWriter(cluster, newer).open()
            await writer.append({"id": [100], "extra": [5]})
            await writer.close()
            cluster.metadata.schemas.clear()
            found = await LogScan(cluster, newer).to_arrow()
            assert found.column("extra").to_pylist() == [None] * 10 + [5]
            await LogScan(cluster, newer).to_arrow()
            assert play.calls.count("GetTableSchema") == 1
            assert isinstance(play, Play)

    play_out(main())
