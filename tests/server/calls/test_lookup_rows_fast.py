"""The short way of LookupRows answers what the ordinary one answers, and leaves to it whatever is not usual."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import permutations
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given, settings

from integration.key_wire import KeyTable
from integration.wire import Wire
from strom.errors import StromError
from strom.protocol import api_keys as api
from strom.protocol.connection import SMALL_BYTES_MAX
from strom.protocol.error_codes import error_of
from strom.protocol.frame import REQUEST_HEAD, encode_response
from strom.protocol.message import whole
from strom.protocol.messages import own_keys
from strom.record.encode import encode as encode_batch
from strom.server.calls.keys import lookup_rows_fast
from strom.server.calls.keys.bucket_lookup import INLINE_KEYS_MOST
from strom.server.calls.keys.lookup_rows_fast import LookupRowsFast
from strom.server.process.local import LocalServer

NUMBERS = pa.schema(
    [pa.field("id", pa.int64(), nullable=False), ("name", pa.string()), ("score", pa.float64())]
)
TEXTS = pa.schema(
    [
        pa.field("tenant", pa.string(), nullable=False),
        pa.field("number", pa.int32(), nullable=False),
        ("flag", pa.bool_()),
    ]
)


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the frames that were answered the short way."""
    sizes: list[int] = []
    original = LookupRowsFast._answer

    def answer(self: LookupRowsFast, *arguments: Any) -> Any:
        found = original(self, *arguments)
        if found is not None:
            sizes.append(sum(map(len, found)))
        return found

    monkeypatch.setattr(LookupRowsFast, "_answer", answer)
    return sizes


def serve(folder: Path, test: Callable[[Wire], Awaitable[None]]) -> None:
    async def main(address: str) -> None:
        async with Wire(address) as wire:
            await asyncio.wait_for(test(wire), 120)

    with LocalServer(folder) as server:
        asyncio.run(main(server.address))


def request_of(table: KeyTable, keys: pa.RecordBatch, **more: Any) -> own_keys.LookupRowsRequest:
    at_least = more.pop("at_least", (None, None))
    bucket = own_keys.LookupRowsBucketRequest(
        bucket_id=more.pop("bucket", 0),
        keys=bytes(encode_batch(keys, schema_id=1)),
        at_least_offset=at_least[0],
        at_least_epoch=at_least[1],
    )
    asked = {"table_id": table.table_id, "schema_id": 1, "timeout_ms": 5_000, "buckets_req": [bucket]}
    return own_keys.LookupRowsRequest(**(asked | more))


async def ask(table: KeyTable, keys: pa.RecordBatch, **more: Any) -> own_keys.LookupRowsBucketResponse:
    answer = await table.wire.call(api.LOOKUP_ROWS, request_of(table, keys, **more))
    [one] = answer.buckets_resp
    if one.error_code:
        raise error_of(one.error_code, one.error_message)
    return one


def told(answer: own_keys.LookupRowsBucketResponse) -> tuple[Any, ...]:
    return (
        answer.partition_id,
        answer.bucket_id,
        bytes(whole(answer.records or b"")),
        bytes(whole(answer.positions or b"")),
        answer.high_watermark,
        answer.epoch,
    )


def test_both_ways_give_the_same_bytes(tmp_path: Path, short: list[int]) -> None:
    async def test(wire: Wire) -> None:
        table = await KeyTable.create(wire, "t", NUMBERS, ["id"])
        rows = [{"id": n, "name": None if n % 3 else "x" * n, "score": n / 2} for n in range(300)]
        written = await table.upsert(rows)
        token = (written.log_end_offset, written.epoch)
        for numbers in ([5], [299, 0, 7, 7], [1000], [-1, 4, 1000], list(range(300)), []):
            keys = pa.record_batch({"id": pa.array(numbers, pa.int64())})
            for columns in ((), (1,), (2, 0)):
                before = len(short)
                for _ in range(3):
                    quick = told(await ask(table, keys, columns=columns))
                    assert quick == told(await ask(table, keys, columns=columns, at_least=token))
                assert len(short) == before + 3 * (len(numbers) > 0 or before > 0)

    serve(tmp_path, test)


def test_keys_of_text_go_the_short_way_too(tmp_path: Path, short: list[int]) -> None:
    async def test(wire: Wire) -> None:
        table = await KeyTable.create(wire, "t", TEXTS, ["tenant", "number"])
        rows = [{"tenant": f"t{n % 7}", "number": n, "flag": n % 2 == 0} for n in range(100)]
        written = await table.upsert(rows)
        keys = pa.RecordBatch.from_pylist(
            [{"tenant": f"t{n % 7}", "number": n} for n in range(0, 120, 3)],
            pa.schema([TEXTS.field("tenant"), TEXTS.field("number")]),
        )
        quick = await ask(table, keys)
        assert len(short) == 1
        token = (written.log_end_offset, written.epoch)
        assert told(quick) == told(await ask(table, keys, at_least=token))
        assert len(bytes(whole(quick.positions or b""))) == 4 * 34

    serve(tmp_path, test)


def test_keys_that_arrive_as_a_large_frame_go_the_short_way_too(tmp_path: Path, short: list[int]) -> None:
    async def test(wire: Wire) -> None:
        table = await KeyTable.create(wire, "t", TEXTS, ["tenant", "number"])
        names = [f"a tenant with a long name, {n:04d}" for n in range(1000)]
        written = await table.upsert([{"tenant": name, "number": 1, "flag": True} for name in names])
        keys = pa.RecordBatch.from_pylist(
            [{"tenant": name, "number": 1} for name in names],
            pa.schema([TEXTS.field("tenant"), TEXTS.field("number")]),
        )
        assert keys.nbytes > SMALL_BYTES_MAX
        await ask(table, keys)  # may be the one that opens the bucket
        before = len(short)
        for _ in range(3):
            quick = await ask(table, keys)
        assert len(short) == before + 3
        token = (written.log_end_offset, written.epoch)
        assert told(quick) == told(await ask(table, keys, at_least=token))

    serve(tmp_path, test)


def test_what_is_not_usual_is_left_to_the_ordinary_way(tmp_path: Path, short: list[int]) -> None:
    async def test(wire: Wire) -> None:
        table = await KeyTable.create(wire, "t", NUMBERS, ["id"])
        await table.upsert([{"id": n, "name": "n", "score": None} for n in range(10)])
        few = pa.record_batch({"id": pa.array([1], pa.int64())})
        many = pa.record_batch({"id": pa.array(range(INLINE_KEYS_MOST + 1), pa.int64())})
        assert len(bytes(whole((await ask(table, many)).positions or b""))) == 40
        for keys, more in (
            (few, {"bucket": 3}),
            (few, {"table_id": 10_000}),
            (few, {"schema_id": 9}),
            (few, {"columns": (7,)}),
            (few, {"index": "by_name"}),
            (pa.record_batch({"id": pa.array([1], pa.int32())}), {}),
        ):
            with pytest.raises(StromError):
                await ask(table, keys, **more)
        assert short == []

    serve(tmp_path, test)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=40))
def test_bytes_that_are_no_request_are_left_alone(content: bytes) -> None:
    frame = bytes(REQUEST_HEAD.size) + content
    try:
        found = lookup_rows_fast._read(frame)
    except IndexError:
        return
    assert found is None or found.question in content


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**31 - 1), st.binary(max_size=30), st.binary(max_size=300), st.integers(0, 2**40))
def test_the_frame_made_by_hand_is_the_encoded_one(
    bucket: int, head: bytes, records: bytes, high: int
) -> None:
    answer = own_keys.LookupRowsBucketResponse(
        bucket_id=bucket, records=[head, records], positions=b"1234", high_watermark=high, epoch=-1
    )
    expected = b"".join(encode_response(7, own_keys.LookupRowsResponse(buckets_resp=[answer])))
    framed = lookup_rows_fast._framed(7, bucket, b"1234", high, -1, [head, records])
    assert b"".join(framed) == expected


def test_questions_are_remembered_up_to_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks another question each time is answered, and costs no memory that stays."""
    monkeypatch.setattr(lookup_rows_fast, "QUESTIONS_MAX", 4)
    known: list[int] = []
    original = LookupRowsFast._learn

    def learn(self: LookupRowsFast, content: bytes) -> Any:
        learned = original(self, content)
        known.append(len(self._known))
        return learned

    monkeypatch.setattr(LookupRowsFast, "_learn", learn)

    async def test(wire: Wire) -> None:
        table = await KeyTable.create(wire, "t", NUMBERS, ["id"])
        written = await table.upsert([{"id": 1, "name": "x", "score": 1.0}])
        token = (written.log_end_offset, written.epoch)
        keys = pa.record_batch({"id": pa.array([1], pa.int64())})
        for columns in [*permutations(range(3), 3), *permutations(range(3), 2)]:
            want = told(await ask(table, keys, columns=columns, at_least=token))
            for _ in range(2):
                assert told(await ask(table, keys, columns=columns)) == want

    serve(tmp_path, test)
    assert known[:6] == [1, 2, 3, 4, 1, 2]
    assert max(known) == 4
    assert len(known) == 12, "a question is learned once while it is known"
