"""Whoever flushes a writer hears how it went, and nobody waits for ever: not after an interrupt, not beside others."""

from __future__ import annotations

import asyncio
from typing import Any

import pyarrow as pa
import pytest

from client.play import Stay, play_out, playing
from strom.client.cluster.options import WriterOptions
from strom.client.write.append_writer import AppendWriter
from strom.client.write.encoding import Encoder
from strom.errors import (
    ConnectionClosed,
    MalformedBatch,
    RequestTimeout,
    StorageFull,
    StromError,
    UnknownWriter,
)
from strom.model.bucket import BucketId
from strom.record.batch import read_header
from strom.rpc.call import Call

SMALL = WriterOptions(batch_bytes_max=1024, memory_bytes_max=2048)


def ids(*numbers: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"id": pa.array(numbers, pa.int64())})


def refusing(after_s: float = 0.0) -> Any:
    async def fault(call: Call) -> Any:
        await asyncio.sleep(after_s)
        return MalformedBatch("no")

    return fault


class Interrupted:
    """An encoder that is interrupted the first times."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *problems: BaseException) -> None:
        self.problems = list(problems)
        encode = Encoder.encode

        def interrupted(encoder: Encoder, *arguments: Any, **named: Any) -> bytearray:
            if self.problems:
                raise self.problems.pop(0)
            return encode(encoder, *arguments, **named)

        monkeypatch.setattr(Encoder, "encode", interrupted)


def test_everyone_who_waits_for_a_flush_hears_of_the_failure() -> None:
    async def main() -> None:
        async with playing() as (play, cluster, table):
            writer = await AppendWriter(cluster, table).open()
            play.faults["ProduceLog"].append(refusing(after_s=1.0))
            await writer.append(ids(1))
            told = await asyncio.gather(writer.flush(), writer.flush(), return_exceptions=True)
            assert [type(one) for one in told] == [MalformedBatch, MalformedBatch]
            await writer.flush()
            await writer.append(ids(2))
            await writer.close()
            assert play.rows() == [2]

    play_out(main())


def writers_of(call: Call) -> int:
    """The writer id of the only batch of a request."""
    (bucket,) = call.request.buckets_req
    return read_header(bytes(bucket.records)).writer_id


def test_a_batch_that_was_sent_once_is_sent_again_under_a_new_writer_id() -> None:
    async def main() -> None:
        async with playing() as (play, cluster, table):
            writer = await AppendWriter(cluster, table).open()
            seen: list[int] = []

            def forgotten(call: Call) -> StromError | None:
                seen.append(writers_of(call))
                return UnknownWriter("who are you?") if len(seen) == 1 else None

            play.faults["ProduceLog"].append(Stay(forgotten))
            await writer.append(ids(1))
            await asyncio.wait_for(writer.flush(), 30)
            await writer.append(ids(2))
            await writer.close()
            assert play.rows() == [1, 2]
            first, second, third = seen
            assert first != second == third

    play_out(main())


def test_a_batch_that_may_be_there_is_not_sent_again_by_another_writer() -> None:
    async def main() -> None:
        async with playing() as (play, cluster, table):
            writer = await AppendWriter(cluster, table).open()
            seen: list[int] = []

            def lost(call: Call) -> StromError | None:
                seen.append(writers_of(call))
                answers = [RequestTimeout("no answer"), UnknownWriter("who are you?"), None]
                return answers[len(seen) - 1]

            play.faults["ProduceLog"].append(Stay(lost))
            await writer.append(ids(1))
            with pytest.raises(UnknownWriter):
                await asyncio.wait_for(writer.flush(), 30)
            await writer.append(ids(2))
            await writer.close()
            first, again, later = seen
            assert first == again != later, "rows after a failure come from another writer"
            assert play.rows() == [2]

    play_out(main())


@pytest.mark.parametrize("problem", [KeyboardInterrupt(), MemoryError()], ids=repr)
def test_an_interrupt_while_rows_are_encoded_does_not_hold_up_the_rest(
    problem: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with playing() as (play, cluster, table):
            writer = await AppendWriter(cluster, table).open()
            Interrupted(monkeypatch, problem)
            with pytest.raises(type(problem)):
                list(writer.append_steps(ids(1)))
            await writer.append(ids(2))
            await asyncio.wait_for(writer.flush(), 30)
            await writer.close()
            assert play.rows() == [1, 2]

    play_out(main())


def test_rows_that_cannot_be_encoded_fail_the_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with playing() as (play, cluster, table):
            writer = await AppendWriter(cluster, table).open()
            Interrupted(monkeypatch, MemoryError("first"), MemoryError("again"))
            with pytest.raises(MemoryError, match="first"):
                await writer.append(ids(1))
            with pytest.raises(StromError, match=r"again.*1 row "):
                await asyncio.wait_for(writer.flush(), 30)
            await writer.append(ids(2))
            await writer.close()
            assert play.rows() == [2]

    play_out(main())


def test_an_append_beside_the_flush_that_told_the_failure_says_so_too() -> None:
    async def main() -> None:
        async with playing() as (play, cluster, table):
            writer = await AppendWriter(cluster, table, SMALL).open()
            play.faults["ProduceLog"].append(refusing(after_s=1.0))
            appending = asyncio.create_task(writer.append(ids(*range(2000))))
            await asyncio.sleep(0.5)
            assert not appending.done(), "it waits for room"
            told = await asyncio.gather(writer.flush(), appending, return_exceptions=True)
            assert [type(one) for one in told] == [MalformedBatch, MalformedBatch]

    play_out(main())


def test_a_flush_beside_the_end_of_the_writer_does_not_wait_for_ever() -> None:
    async def main() -> None:
        async with playing() as (play, cluster, table):
            writer = await AppendWriter(cluster, table).open()
            play.faults["ProduceLog"].append(refusing(after_s=1000.0))
            await writer.append(ids(1))
            flushing = asyncio.create_task(writer.flush())
            await asyncio.sleep(0.1)
            await writer.abandon()
            with pytest.raises(ConnectionClosed):
                await asyncio.wait_for(flushing, 1)

    play_out(main())


def test_a_batch_that_is_numbered_anew_while_it_is_encoded_leaves_under_its_new_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The bytes were made with the number of before; with it the server would take the batch for another writer's."""

    async def main() -> None:
        async with playing() as (play, cluster, table):
            writer = await AppendWriter(cluster, table).open()
            await writer.append(ids(1))
            await writer.flush()
            bucket, encode = BucketId(table.table_id, None, 0), Encoder.encode

            def fenced_meanwhile(encoder: Encoder, *arguments: Any, **named: Any) -> bytearray:
                monkeypatch.setattr(Encoder, "encode", encode)
                found = encode(encoder, *arguments, **named)
                queue = writer._delivery._accumulator.bucket(bucket)
                queue.fenced = True
                writer._delivery._number_anew(queue, 999)
                return found

            monkeypatch.setattr(Encoder, "encode", fenced_meanwhile)
            await writer.append(ids(2))
            await writer.close()
            assert play.rows() == [1, 2]
            newest = read_header(play.logs[bucket].batches[-1])
            assert (newest.writer_id, newest.batch_sequence) == (999, 0)

    play_out(main())


def test_room_of_rows_that_failed_is_there_for_others() -> None:
    async def main() -> None:
        async with playing() as (play, cluster, table):
            writer = await AppendWriter(cluster, table, SMALL).open()
            for number in range(20):
                play.faults["ProduceLog"] = [refusing()]
                async with asyncio.timeout(60):
                    await writer.append(ids(number))
                with pytest.raises(MalformedBatch):
                    await writer.flush()
            await writer.append(ids(*range(200)))
            await writer.close()
            assert play.rows() == list(range(200))

    play_out(main())


def test_rows_that_the_server_refuses_for_now_are_told_of_while_they_wait(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        async with playing() as (play, cluster, table):
            full = asyncio.Event()

            async def fault(call: Call) -> Any:
                return None if full.is_set() else StorageFull("/data has 5 bytes left")

            play.faults["ProduceLog"] += [fault] * 1000
            writer = await AppendWriter(cluster, table).open()
            await writer.append(ids(1))
            flushing = asyncio.create_task(writer.flush())
            await asyncio.sleep(2)
            assert not caplog.records
            await asyncio.sleep(28)
            assert not flushing.done()
            told = [record.getMessage() for record in caplog.records]
            assert 2 <= len(told) <= 4
            assert all("/data has 5 bytes left" in line and "batches have waited" in line for line in told)
            full.set()
            await flushing
            assert "accepts rows again" in caplog.records[-1].getMessage()
            assert play.rows() == [1]
            await writer.close()

    play_out(main())
