"""Upserts, lookups and scans of a client whose cluster misbehaves: nothing is lost, duplicated or reordered."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from client.key_play import key_playing, keyed, lookups_of
from client.play import Stay, play_out
from strom.client.cluster.options import ClientOptions, WriterOptions
from strom.client.plan.key_plan import KeyScanPlan
from strom.client.plan.log_place import place_of
from strom.client.read.key_scan import KeyScan
from strom.client.write.key_writer import KeyWriter
from strom.errors import (
    DeletionDisabled,
    Disconnected,
    Expired,
    LeaderNotAvailable,
    NotLeader,
    NotPrimaryKeyTable,
    RequestTimeout,
)
from strom.model.bucket import BucketId
from strom.protocol.messages import cut as cuts
from strom.protocol.messages import own_keys as wire

QUICK = ClientOptions(retry_timeout_ms=2000)


def row(number: int, score: int = 0) -> dict[str, Any]:
    return {"id": number, "name": f"n{number}", "score": score}


def test_changes_of_a_key_keep_their_order_when_answers_are_lost() -> None:
    async def main() -> None:
        async with key_playing() as (play, cluster, table):
            lost = 0

            async def lose(call: Any) -> Any:
                nonlocal lost
                lost += 1
                if lost % 3 == 0:
                    await play._answer(call)  # done, and the client never learns of it
                return RequestTimeout("too slow") if lost % 2 else None

            play.faults["UpsertRows"].append(Stay(lose))
            writer = await KeyWriter(cluster, table, WriterOptions(linger_ms=0)).open()
            for number in range(30):
                await writer.upsert(row(number % 3, number))
                await writer.delete([number % 3 + 1])
            await writer.close()
            expected = [("+", n % 3) if what == "+" else ("-", n % 3 + 1) for n in range(30) for what in "+-"]
            assert [(what, key) for _, what, key in play.changes] == expected
            assert lost > 30

    play_out(main())


def test_rows_of_other_columns_travel_apart_and_in_order() -> None:
    async def main() -> None:
        async with key_playing() as (play, cluster, table):
            writer = await KeyWriter(cluster, table).open()
            await writer.upsert([row(1, 5), row(2, 5)])
            await writer.upsert({"id": [1, 3], "score": [6, 7]}, ["score", "id"])
            await writer.delete([2])
            await writer.upsert({"id": [1], "name": ["x"], "score": [9]}, ["id", "name"])
            await writer.flush()
            bucket = BucketId(table.table_id, None, 0)
            assert play.rows_by_key[bucket] == {
                1: {"id": 1, "name": "x", "score": 6},
                3: {"id": 3, "name": None, "score": 7},
            }
            assert writer.written[bucket] == (6, 7)
            await writer.close()

    play_out(main())


def test_what_was_written_last_is_of_the_latest_epoch_whatever_overtakes_it() -> None:
    async def main() -> None:
        async with key_playing() as (play, cluster, table):
            bucket = BucketId(table.table_id, None, 0)
            writer = await KeyWriter(cluster, table).open()
            told = [(10, 1), (4, 2), (12, 1), (3, 2), (5, 2)]
            known = [(10, 1), (4, 2), (4, 2), (4, 2), (5, 2)]
            for number, ((end, epoch), expected) in enumerate(zip(told, known, strict=True)):
                answer = wire.UpsertRowsBucketResponse(
                    bucket_id=0, base_offset=0, log_end_offset=end, epoch=epoch
                )
                response = wire.UpsertRowsResponse(buckets_resp=[answer])
                play.faults["UpsertRows"] = [lambda call, response=response: response]
                await writer.upsert(row(number))
                await writer.flush()
                assert writer.written[bucket] == expected
            await writer.close()

    play_out(main())


def test_changes_go_to_the_bucket_of_their_key() -> None:
    async def main() -> None:
        async with key_playing(keyed(buckets=4), servers=2) as (play, cluster, table):
            for bucket in range(4):
                play.leaders[BucketId(play.table_id, None, bucket)] = bucket % 2
            table = await cluster.table(table.path)
            writer = await KeyWriter(cluster, table).open()
            await writer.upsert([row(number) for number in range(200)])
            await writer.delete(list(range(100)))
            await writer.flush()
            homes: dict[int, set[int]] = {}
            for bucket, _, key in play.changes:
                homes.setdefault(key, set()).add(bucket)
            assert all(len(home) == 1 for home in homes.values()), "a key lives in one bucket"
            assert len({home for one in homes.values() for home in one}) == 4
            lookups = lookups_of(cluster, table)
            found = await lookups.many(list(range(199, -1, -1)), ["id"], None)
            assert found.column("id").to_pylist() == [*range(199, 99, -1), *[None] * 100]
            await writer.close()

    play_out(main())


def test_a_write_that_is_refused_is_told_at_the_flush_and_the_writer_goes_on() -> None:
    async def main() -> None:
        async with key_playing() as (play, cluster, table):
            writer = await KeyWriter(cluster, table).open()
            play.faults["UpsertRows"].append(lambda call: DeletionDisabled("this table deletes nothing"))
            await writer.delete([1])
            with pytest.raises(DeletionDisabled, match="1 row of table"):
                await writer.flush()
            await writer.upsert(row(1))
            await writer.flush()
            assert play.changes == [(0, "+", 1)]
            await writer.close()

    play_out(main())


def test_memory_stays_within_its_bound() -> None:
    async def main() -> None:
        async with key_playing() as (play, cluster, table):
            gate = asyncio.Event()

            async def wait(call: Any) -> None:
                await gate.wait()

            play.faults["UpsertRows"].append(Stay(wait))
            writer = await KeyWriter(
                cluster, table, WriterOptions(batch_bytes_max=1024, memory_bytes_max=8192)
            ).open()

            async def write() -> None:
                for number in range(100):
                    await writer.upsert([row(number)] * 5)

            task = asyncio.ensure_future(write())
            await asyncio.sleep(5)
            assert not task.done()
            assert writer.outstanding_rows < 100
            gate.set()
            await task
            await writer.close()
            assert len(play.changes) == 500

    play_out(main())


def test_a_lookup_follows_a_bucket_that_moved() -> None:
    async def main() -> None:
        async with key_playing(servers=2) as (play, cluster, table):
            writer = await KeyWriter(cluster, table).open()
            await writer.upsert(row(1))
            await writer.close()
            for error in (NotLeader, LeaderNotAvailable, Disconnected):
                play.faults["LookupRows"].append(lambda call, error=error: error("not here"))
            play.leaders[BucketId(play.table_id, None, 0)] = 1
            lookups = lookups_of(cluster, table)
            assert (await lookups.many([1, 2], None, None)).to_pylist() == [row(1), dict.fromkeys(row(1))]
            assert play.calls.count("LookupRows") == 4

    play_out(main())


def test_a_lookup_ends_with_the_error_that_does_not_pass() -> None:
    async def main() -> None:
        async with key_playing(options=QUICK) as (play, cluster, table):
            play.faults["LookupRows"].append(Stay(lambda call: LeaderNotAvailable("nobody")))
            with pytest.raises(LeaderNotAvailable):
                await lookups_of(cluster, table).many([1], None, None)

    play_out(main())


def scan_of(cluster: Any, table: Any, **options: Any) -> KeyScan:
    return KeyScan(cluster, table, lookups=lookups_of(cluster, table), **options)


@pytest.mark.parametrize("meanwhile", [0, 1])
def test_rows_are_counted_at_the_instant_of_the_plan_where_tables_have_transactions(meanwhile: int) -> None:
    """The facts say how many rows are live; the cut, taken after them, may lie further on."""

    async def main() -> None:
        async with key_playing() as (play, cluster, table):
            bucket = BucketId(table.table_id, None, 0)
            writer = await KeyWriter(cluster, table).open()
            await writer.upsert([row(number) for number in range(5)])
            await writer.close()
            late = [row(number) for number in range(5, 5 + meanwhile)]

            def cut(call: Any) -> Any:
                for one in late:
                    play.rows_by_key[bucket][one["id"]] = one
                    play.logs[bucket].end += 1
                late.clear()
                found = play.answer_cut_buckets(call.request)
                found.buckets_resp[0].grouped = True
                return found

            play.faults["CutBuckets"] = [Stay(cut)]
            play.faults["Snapshot"] = [Stay(lambda call: cuts.SnapshotResponse(number=1))]
            scan = scan_of(cluster, table)
            assert await scan.count() == 5 + meanwhile
            assert (await scan.plan()).rows == (None if meanwhile else 5), (
                "no row is read where facts will do"
            )
            assert (await scan.to_arrow()).num_rows == 5 + meanwhile

    play_out(main())


def test_an_instant_that_expires_before_the_first_row_is_planned_again() -> None:
    async def main() -> None:
        async with key_playing() as (play, cluster, table):
            writer = await KeyWriter(cluster, table).open()
            await writer.upsert([row(number) for number in range(5)])
            await writer.close()
            play.expired = 2
            scan = scan_of(cluster, table, columns=["id"])
            assert sorted((await scan.to_arrow()).column("id").to_pylist()) == list(range(5))
            assert play.calls.count("KeyFacts") == 3
            play.expired = 100
            with pytest.raises(Expired):
                await scan_of(cluster, table).to_arrow()

    play_out(main())


def test_an_instant_that_expires_after_the_first_row_is_an_error() -> None:
    async def main() -> None:
        async with key_playing() as (play, cluster, table):
            writer = await KeyWriter(cluster, table).open()
            await writer.upsert([row(number) for number in range(5)])
            await writer.close()
            stream = await scan_of(cluster, table).stream(ordered=True)
            assert await stream.next() is not None
            play.expired = 1
            with pytest.raises(Expired):
                await stream.next()
            await stream.close()

    play_out(main())


def test_a_plan_that_was_given_is_not_replaced_by_another() -> None:
    """Its other parts are read elsewhere: parts of two instants together would be a table that never existed."""

    async def main() -> None:
        async with key_playing() as (play, cluster, table):
            writer = await KeyWriter(cluster, table).open()
            await writer.upsert([row(1)])
            await writer.close()
            plan = await scan_of(cluster, table).plan()
            assert (await scan_of(cluster, table, plan=plan).to_arrow()).num_rows == 1
            play.expired = 1
            with pytest.raises(Expired):
                await scan_of(cluster, table, plan=plan).to_arrow()

    play_out(main())


def test_an_instant_that_was_asked_for_is_not_planned_again() -> None:
    async def main() -> None:
        async with key_playing() as (play, cluster, table):
            writer = await KeyWriter(cluster, table).open()
            await writer.upsert([row(1)])
            await writer.close()
            play.expired = 1
            with pytest.raises(Expired):
                await scan_of(
                    cluster, table, at=place_of(1, default=place_of("latest", default=None))
                ).to_arrow()  # type: ignore[arg-type]

    play_out(main())


def test_a_count_reads_no_row() -> None:
    async def main() -> None:
        async with key_playing(keyed(buckets=3)) as (play, cluster, table):
            writer = await KeyWriter(cluster, table).open()
            await writer.upsert([row(number) for number in range(50)])
            await writer.close()
            scan = scan_of(cluster, table)
            assert await scan.count() == 50
            assert "ScanRows" not in play.calls
            plan = await scan.plan()
            assert isinstance(plan, KeyScanPlan)
            assert plan.rows == 50
            assert repr(plan) == "KeyScanPlan(3 buckets, 50 rows before filters)"

    play_out(main())


def test_a_log_table_has_no_key_writer() -> None:
    async def main() -> None:
        from client.play import playing

        async with playing() as (_, cluster, table):
            with pytest.raises(NotPrimaryKeyTable, match="appended"):
                await KeyWriter(cluster, table).open()
            with pytest.raises(NotPrimaryKeyTable):
                lookups_of(cluster, table).by_key(None)

    play_out(main())
