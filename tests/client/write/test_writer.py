"""A writer delivers rows in order and once, whatever happens on the way."""

from __future__ import annotations

import asyncio
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from client.key_play import key_playing
from client.play import Play, Stay, description_of, play_out, playing
from strom.client.cluster.options import ClientOptions, WriterOptions
from strom.client.write.append_writer import AppendWriter
from strom.client.write.key_writer import KeyWriter
from strom.errors import (
    ConnectionClosed,
    Disconnected,
    NotLeader,
    OutOfOrderSequence,
    PartitionNotFound,
    RecordTooLarge,
    RequestTimeout,
    SchemaMismatch,
    StorageFull,
    TableNotFound,
    UnknownWriter,
)
from strom.model.bucket import BucketId
from strom.protocol.error_codes import code_of
from strom.protocol.messages import log
from strom.rpc.call import Call

SMALL = WriterOptions(batch_bytes_max=1024, memory_bytes_max=64 * 1024)


def ids(*numbers: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"id": pa.array(numbers, pa.int64())})


def bucket_error(error: Exception) -> Any:
    """A fault that answers every bucket of a produce with an error, and appends nothing."""

    def fault(call: Call) -> Any:
        return log.ProduceLogResponse(
            buckets_resp=[
                log.ProduceLogBucketResponse(
                    partition_id=one.partition_id,
                    bucket_id=one.bucket_id,
                    error_code=code_of(error),
                    error_message=str(error),
                )
                for one in call.request.buckets_req
            ]
        )

    return fault


def appended_but(play: Play, error: Exception) -> Any:
    """A fault that appends, and answers as if it had not: a lost acknowledgement."""

    def fault(call: Call) -> Any:
        play.answer_produce_log(call.request)
        return bucket_error(error)(call)

    return fault


def test_rows_arrive_in_order_over_many_batches() -> None:
    async def main() -> None:
        async with playing() as (play, cluster, table):
            writer = await AppendWriter(cluster, table, SMALL).open()
            for number in range(500):
                await writer.append(ids(number))
            await writer.append(pa.table({"id": list(range(500, 2000))}))
            await writer.close()
            assert play.rows() == list(range(2000))

    play_out(main())


def test_small_appends_share_batches_while_one_is_on_its_way() -> None:
    async def main() -> None:
        async with playing() as (play, cluster, table):
            writer = await AppendWriter(cluster, table).open()
            for number in range(100):
                await writer.append(ids(number))
            await writer.close()
            assert play.rows() == list(range(100))
            assert len(play.logs[BucketId(7, None, 0)].batches) == 2, "the first at once, the others together"

    play_out(main())


def test_big_input_is_cut_into_batches_of_the_size_that_was_said() -> None:
    async def main() -> None:
        async with playing() as (play, cluster, table):
            writer = await AppendWriter(cluster, table, SMALL).open()
            await writer.append(pa.table({"id": list(range(10_000))}))
            await writer.close()
            assert play.rows() == list(range(10_000))
            sizes = [len(batch) for batch in play.logs[BucketId(7, None, 0)].batches]
            assert max(sizes) < 1024 + 512, "values of at most 1 KB, and a head"

    play_out(main())


@pytest.mark.parametrize(
    "error",
    [NotLeader("x"), StorageFull("x"), RequestTimeout("x"), Disconnected("x")],
    ids=lambda e: type(e).__name__,
)
def test_an_error_that_passes_is_retried_in_order(error: Exception) -> None:
    async def main() -> None:
        async with playing() as (play, cluster, table):
            writer = await AppendWriter(cluster, table, SMALL).open()
            play.faults["ProduceLog"] = [bucket_error(error)] * 7
            await writer.append(pa.table({"id": list(range(3000))}))
            await writer.close()
            assert play.rows() == list(range(3000))

    play_out(main())


def test_a_lost_acknowledgement_does_not_double_rows() -> None:
    async def main() -> None:
        async with playing() as (play, cluster, table):
            writer = await AppendWriter(cluster, table, SMALL).open()
            play.faults["ProduceLog"] = [appended_but(play, RequestTimeout("lost"))] * 5
            await writer.append(pa.table({"id": list(range(3000))}))
            await writer.close()
            assert play.rows() == list(range(3000))

    play_out(main())


def test_a_server_that_does_not_answer_is_asked_again() -> None:
    async def main() -> None:
        options = ClientOptions(request_timeout_ms=1000)
        async with playing(options=options) as (play, cluster, table):
            writer = await AppendWriter(cluster, table, SMALL).open()
            play.faults["ProduceLog"] = [lambda call: asyncio.sleep(3600)] * 2
            await writer.append(ids(1, 2, 3))
            await writer.close()
            assert play.rows() == [1, 2, 3]

    play_out(main())


def test_a_broken_connection_is_made_again_and_nothing_is_lost() -> None:
    async def main() -> None:
        async with playing() as (play, cluster, table):
            writer = await AppendWriter(cluster, table, SMALL).open()

            async def cut(call: Call) -> Any:
                play.world.network.cut()  # type: ignore[attr-defined]

            play.faults["ProduceLog"] = [cut] * 4
            await writer.append(pa.table({"id": list(range(2000))}))
            await writer.close()
            assert play.rows() == list(range(2000))

    play_out(main())


def test_a_bucket_that_moved_is_found_at_its_new_server() -> None:
    async def main() -> None:
        async with playing(servers=2) as (play, cluster, table):
            writer = await AppendWriter(cluster, table, SMALL).open()
            await writer.append(ids(1))
            await writer.flush()
            bucket = BucketId(7, None, 0)
            play.leaders[bucket] = 1
            play.faults["ProduceLog"] = [bucket_error(NotLeader("moved"))]
            await writer.append(ids(2))
            await writer.flush()
            assert cluster.metadata.leader_id(bucket) == 1
            await writer.close()
            assert play.rows() == [1, 2]

    play_out(main())


def test_when_the_server_forgot_the_writer_it_goes_on_under_a_new_id() -> None:
    for error in (OutOfOrderSequence("?"), UnknownWriter("?")):

        async def main(error: Exception = error) -> None:
            async with playing() as (play, cluster, table):
                writer = await AppendWriter(cluster, table, SMALL).open()
                await writer.append(ids(1))
                await writer.flush()
                play.logs[BucketId(7, None, 0)].sequences.clear()
                play.faults["ProduceLog"] = [bucket_error(error)]
                await writer.append(pa.table({"id": list(range(2, 2000))}))
                await writer.close()
                assert play.rows() == list(range(1, 2000))
                sequences = play.logs[BucketId(7, None, 0)].sequences
                assert sequences[102] == list(range(len(sequences[102])))
                assert not sequences[101]

        play_out(main())


def test_what_fails_for_good_is_raised_by_flush_with_the_facts_and_then_the_writer_goes_on() -> None:
    async def main() -> None:
        async with playing() as (play, cluster, table):
            writer = await AppendWriter(cluster, table).open()
            play.faults["ProduceLog"] = [bucket_error(RecordTooLarge("too large"))]
            await writer.append(ids(1, 2, 3))
            with pytest.raises(RecordTooLarge, match=r"too large .*3 rows of table fluss\.t") as caught:
                await writer.flush()
            assert caught.value.facts["rows_not_acknowledged"] == 3
            assert caught.value.facts["bucket"] == BucketId(7, None, 0)
            await writer.append(ids(4))
            await writer.close()
            assert play.rows() == [4]

    play_out(main())


def test_after_a_failure_nothing_later_is_written_until_it_was_told() -> None:
    async def main() -> None:
        async with playing() as (play, cluster, table):
            writer = await AppendWriter(cluster, table, SMALL).open()
            play.faults["ProduceLog"] = [bucket_error(RecordTooLarge("no"))]
            await writer.append(pa.table({"id": list(range(1000))}))
            await asyncio.sleep(1)
            with pytest.raises(RecordTooLarge):
                await writer.append(ids(1))
            with pytest.raises(RecordTooLarge):
                await writer.close()
            assert play.rows() == []
            with pytest.raises(ConnectionClosed):
                await writer.append(ids(1))

    play_out(main())


def test_a_batch_that_cannot_be_delivered_in_time_fails_with_its_last_error() -> None:
    async def main() -> None:
        async with playing() as (play, cluster, table):
            options = WriterOptions(delivery_timeout_ms=5_000)
            writer = await AppendWriter(cluster, table, options).open()
            play.faults["ProduceLog"] = [Stay(bucket_error(StorageFull("disk full")))]
            await writer.append(ids(1))
            with pytest.raises(StorageFull, match="disk full"):
                await writer.flush()
            assert 5 < asyncio.get_running_loop().time() < 8

    play_out(main())


def test_a_dropped_table_ends_the_writer_with_a_clear_error() -> None:
    async def main() -> None:
        async with playing() as (play, cluster, table):
            writer = await AppendWriter(cluster, table).open()
            play.table_id = 8
            await writer.append(ids(1))
            with pytest.raises(TableNotFound, match="was dropped"):
                await writer.flush()

    play_out(main())


def test_append_waits_while_too_much_is_on_its_way() -> None:
    async def main() -> None:
        async with playing() as (play, cluster, table):
            options = WriterOptions(batch_bytes_max=1024, memory_bytes_max=8 * 1024)
            writer = await AppendWriter(cluster, table, options).open()
            gate = asyncio.Event()

            async def held(call: Call) -> None:
                await gate.wait()

            play.faults["ProduceLog"] = [Stay(held)]
            work = asyncio.create_task(writer.append(pa.table({"id": list(range(5000))})))
            await asyncio.sleep(5)
            assert not work.done()
            assert writer.outstanding_rows <= 1024
            gate.set()
            await work
            await writer.close()
            assert play.rows() == list(range(5000))

    play_out(main())


def test_partitions_are_created_when_their_first_row_comes() -> None:
    description = description_of(("id", pa.int64()), ("day", pa.string()), partition_keys=("day",))

    async def main() -> None:
        async with playing(description) as (play, cluster, table):
            writer = await AppendWriter(cluster, table).open()
            await writer.append({"id": [1, 2, 3], "day": ["a", "b", "a"]})
            await writer.append({"id": [4], "day": ["b"]})
            await writer.close()
            assert play.rows(partition="a") == [1, 3]
            assert play.rows(partition="b") == [2, 4]
            assert play.calls.count("CreatePartition") == 2

    play_out(main())


def test_a_partition_that_somebody_else_dropped_fails_once_and_is_then_made_again() -> None:
    description = description_of(("id", pa.int64()), ("day", pa.string()), partition_keys=("day",))

    async def main() -> None:
        async with playing(description) as (play, cluster, table):
            writer = await AppendWriter(cluster, table).open()
            await writer.append({"id": [1], "day": ["a"]})
            await writer.flush()
            play.partitions = {"b": 70}  # so that the next one has another id
            await writer.append({"id": [2], "day": ["a"]})
            with pytest.raises(PartitionNotFound, match="1 row of table"):
                await writer.flush()
            await writer.append({"id": [3], "day": ["a"]})
            await writer.close()
            assert play.rows(partition="a") == [3]

    play_out(main())


def test_a_writer_that_may_not_create_partitions_says_which_is_missing() -> None:
    description = description_of(("id", pa.int64()), ("day", pa.string()), partition_keys=("day",))

    async def main() -> None:
        async with playing(description) as (play, cluster, table):
            writer = await AppendWriter(cluster, table, WriterOptions(create_partitions=False)).open()
            with pytest.raises(PartitionNotFound):
                await writer.append({"id": [1], "day": ["a"]})
            await writer.close()
            assert play.partitions == {}

    play_out(main())


def test_rows_without_a_bucket_key_go_to_one_bucket_until_it_has_a_full_batch() -> None:
    async def main() -> None:
        async with playing(description_of(buckets=3)) as (play, cluster, table):
            writer = await AppendWriter(cluster, table, SMALL).open()
            for number in range(100):
                await writer.append(ids(number))
            await writer.flush()
            used = [number for number in range(3) if play.rows(number)]
            assert len(used) == 1, "800 bytes fit one batch"
            await writer.append(pa.table({"id": list(range(100, 3100))}))
            await writer.close()
            counts = [len(play.rows(number)) for number in range(3)]
            assert sum(counts) == 3100
            assert min(counts) > 800, "buckets fill evenly"

    play_out(main())


def test_a_column_added_by_somebody_else_is_learned_when_rows_have_it() -> None:
    async def main() -> None:
        async with playing() as (play, cluster, table):
            writer = await AppendWriter(cluster, table).open()
            await writer.append(ids(1))
            with pytest.raises(SchemaMismatch, match="'extra'"):
                await writer.append({"id": [2], "extra": [5]})
            wider = play.description.schema.add_column("extra", table.schema.columns[0].type)
            play.schemas[2] = wider
            play.description = type(play.description)(schema=wider, bucket_count=1)
            reader = pa.RecordBatchReader.from_batches(
                pa.schema([("id", pa.int64()), ("extra", pa.int64())]),
                [pa.RecordBatch.from_pydict({"id": [3], "extra": [6]})],
            )
            await writer.append(reader)
            await writer.append(ids(4))
            await writer.close()
            assert play.rows() == [1, 3, 4]

    play_out(main())


@settings(max_examples=25, deadline=None)
@given(st.lists(st.sampled_from(["ok", "not leader", "lost answer", "cut", "slow", "timeout"]), max_size=30))
def test_any_pattern_of_trouble_delivers_every_row_once_and_in_order(troubles: list[str]) -> None:
    async def main() -> None:
        options = ClientOptions(request_timeout_ms=500)
        async with playing(description_of(buckets=2), options=options) as (play, cluster, table):

            async def cut(call: Call) -> Any:
                play.world.network.cut()  # type: ignore[attr-defined]

            async def slow(call: Call) -> Any:
                await asyncio.sleep(0.2)

            faults = {
                "ok": lambda call: None,
                "not leader": bucket_error(NotLeader("?")),
                "lost answer": appended_but(play, RequestTimeout("?")),
                "cut": cut,
                "slow": slow,
                "timeout": lambda call: asyncio.sleep(3600),
            }
            play.faults["ProduceLog"] = [faults[trouble] for trouble in troubles]
            writer = await AppendWriter(cluster, table, SMALL).open()
            for start in range(0, 3000, 300):
                await writer.append(pa.table({"id": list(range(start, start + 300))}))
            await writer.close()
            for bucket in range(2):
                assert play.rows(bucket) == sorted(play.rows(bucket))
            assert sorted(play.rows(0) + play.rows(1)) == list(range(3000))

    play_out(main())


@pytest.mark.parametrize("acks", [0, 1, -1])
@pytest.mark.parametrize("kind", ["append", "upsert"])
def test_a_writer_asks_for_the_acknowledgement_that_was_chosen(kind: str, acks: int) -> None:
    async def main() -> None:
        keyed = kind == "upsert"
        async with key_playing() if keyed else playing() as (play, cluster, table):
            asked: list[tuple[int, int]] = []
            notes = Stay(lambda call: asked.append((call.request.acks, call.request.timeout_ms)))
            play.faults["UpsertRows" if keyed else "ProduceLog"].append(notes)
            options = WriterOptions(acks=acks)
            writer = await (KeyWriter if keyed else AppendWriter)(cluster, table, options).open()
            await (writer.upsert if isinstance(writer, KeyWriter) else writer.append)({"id": [1]})
            await writer.close()
            assert asked == [(acks, cluster.options.request_timeout_ms)]

    play_out(main())
