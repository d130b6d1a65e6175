"""LookupRow on a real server: at once or later, it answers what LookupRows answers, and refuses what is no question."""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given, settings

from integration.key_wire import KeyTable
from integration.wire import Wire
from kv.plain_rows import plain
from strom.errors import (
    AuthenticationFailed,
    InvalidProjection,
    InvalidRequest,
    LimitExceeded,
    MalformedBatch,
    NotPrimaryKeyTable,
    RequestTimeout,
    StaleEpoch,
    StromError,
    UnknownBucket,
)
from strom.protocol import api_keys as api
from strom.protocol.codec import encode
from strom.protocol.error_codes import CODES, error_of
from strom.protocol.frame import encode_request, request_head
from strom.protocol.message import whole
from strom.protocol.messages import keys, own, own_keys, tables
from strom.protocol.messages.connection import AuthenticateRequest
from strom.record.encode import encode as encode_batch
from strom.rpc.sasl import plain_token
from strom.server.calls.keys import lookup_row
from strom.server.calls.keys.lookup_row import LookupRowCalls
from strom.server.process.local import LocalServer

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("name", pa.string(), nullable=False),
        ("score", pa.float64()),
        ("note", pa.string()),
        ("flag", pa.bool_()),
    ]
)
LOGIN = {"security.protocol.map": "CLIENT:sasl", "security.sasl.plain.credentials": "ann=secret"}


def serve(
    folder: Path, test: Callable[[Wire], Awaitable[None]], settings: dict[str, object] | None = None
) -> None:
    async def main(address: str) -> None:
        async with Wire(address) as wire:
            await asyncio.wait_for(test(wire), 120)

    with LocalServer(folder, settings) as server:
        asyncio.run(main(server.address))


async def made(wire: Wire) -> KeyTable:
    return await KeyTable.create(wire, "t", SCHEMA, ["id", "name"])


def row(number: int, **more: Any) -> dict[str, Any]:
    return {"id": number, "name": f"n{number}", "score": None, "note": None, "flag": None} | more


def question(table: KeyTable, **more: Any) -> bytes:
    asked = {"table_id": table.table_id, "schema_id": 1, "bucket_id": 0, "timeout_ms": 5_000} | more
    return b"".join(encode(own_keys.LookupRowQuestion(**asked)))


async def ask(table: KeyTable, key: bytes | dict[str, Any], **more: Any) -> bytes | None:
    at_least = more.pop("at_least", (None, None))
    keys = pa.schema([table.arrow.field(name) for name in table.schema.primary_key])
    request = own_keys.LookupRowRequest(
        question=more.pop("question", None) or question(table, **more),
        key=key if isinstance(key, bytes) else plain(keys, key),
        at_least_offset=at_least[0],
        at_least_epoch=at_least[1],
    )
    answer = await table.wire.call(api.LOOKUP_ROW, request)
    if answer.error_code:
        raise error_of(answer.error_code, answer.error_message)
    return None if answer.row is None else bytes(whole(answer.row))


def test_a_row_is_found_alone_as_it_is_found_among_others(tmp_path: Path) -> None:
    async def test(wire: Wire) -> None:
        table = await made(wire)
        rows = [row(n, score=n / 2, note=None if n % 3 else "x" * n, flag=n % 2 == 0) for n in range(200)]
        await table.upsert(rows)
        await table.upsert([row(7, note="newest")], deletes=[row(8)])
        for number in range(205):
            found = await ask(table, row(number))
            among = await table.lookup([{"id": number, "name": f"n{number}"}])
            assert found == (plain(table.arrow, among[0][1]) if among else None)
        some = pa.schema([SCHEMA.field("note"), SCHEMA.field("id")])
        assert await ask(table, row(7), columns=(3, 0)) == plain(some, row(7, note="newest"))
        assert await ask(table, row(8)) is None

    serve(tmp_path, test)


@pytest.mark.parametrize("durability", ["os", "group"])
def test_an_acknowledged_row_is_found_by_whoever_asks_next(tmp_path: Path, durability: str) -> None:
    async def test(wire: Wire) -> None:
        table = await KeyTable.create(
            wire, "t", SCHEMA, ["id", "name"], properties={"table.durability": durability}
        )
        for number in range(200):
            written = await table.upsert([row(1, score=float(number)), row(number + 2)])
            assert await ask(table, row(1)) == plain(table.arrow, row(1, score=float(number)))
            token = (written.log_end_offset, written.epoch)
            assert await ask(table, row(number + 2), at_least=token) == plain(table.arrow, row(number + 2))

    serve(tmp_path, test)


def test_a_lookup_waits_for_the_offset_it_names(tmp_path: Path) -> None:
    async def test(wire: Wire) -> None:
        table = await made(wire)
        first = await table.upsert([row(1)])
        waiting = asyncio.ensure_future(ask(table, row(2), at_least=(first.log_end_offset + 1, first.epoch)))
        while (await table.facts()).high_watermark < 1:
            pass
        assert not waiting.done()
        await table.upsert([row(2)])
        assert await waiting == plain(table.arrow, row(2))
        with pytest.raises(RequestTimeout):
            await ask(table, row(1), at_least=(99, first.epoch), timeout_ms=1)
        with pytest.raises(StaleEpoch):
            await ask(table, row(1), at_least=(1, first.epoch + 1))
        with pytest.raises(InvalidRequest, match="at_least_epoch"):
            await ask(table, row(1), at_least=(1, None))

    serve(tmp_path, test)


def test_a_bucket_that_was_closed_is_opened_for_the_answer(tmp_path: Path) -> None:
    async def write(wire: Wire) -> None:
        table = await made(wire)
        known.append(table)
        await table.upsert([row(n) for n in range(100)])

    async def read(wire: Wire) -> None:
        table = known[0]
        table.wire = wire
        assert [await ask(table, row(n)) for n in (5, 100)] == [plain(table.arrow, row(5)), None]

    known: list[KeyTable] = []
    serve(tmp_path, write)
    serve(tmp_path, read)
    assert known


def test_columns_that_came_later_are_null(tmp_path: Path) -> None:
    async def test(wire: Wire) -> None:
        table = await made(wire)
        await table.upsert([row(1, note="a")])
        assert await ask(table, row(1)) == plain(table.arrow, row(1, note="a"))
        more = json.dumps({"add_columns": [{"name": "more", "data_type": {"type": "INTEGER"}}]}).encode()
        path = tables.WireTablePath(database_name="fluss", table_name="t")
        await wire.call(api.ALTER_TABLE, own.AlterTableRequest(table_path=path, changes_json=more))
        wider = pa.schema([*table.arrow, pa.field("more", pa.int32())])
        assert await ask(table, row(1), schema_id=2) == plain(wider, row(1, note="a"))
        assert await ask(table, row(1)) == plain(table.arrow, row(1, note="a"))

    serve(tmp_path, test)


def test_what_cannot_be_answered_is_refused_with_the_reason(tmp_path: Path) -> None:
    async def refused(table: KeyTable, reason: type[StromError], *words: Any, **more: Any) -> None:
        for _ in range(2):  # the second time the question is known
            with pytest.raises(reason):
                await ask(table, *words, **more)

    async def test(wire: Wire) -> None:
        table = await made(wire)
        log = await wire.create("log", pa.schema([("id", pa.int64())]))
        nested = pa.schema([pa.field("id", pa.int64(), nullable=False), ("list", pa.list_(pa.int32()))])
        lists = await KeyTable.create(wire, "lists", nested, ["id"])
        await table.upsert([row(1)])
        await refused(table, UnknownBucket, row(1), bucket_id=9)
        await refused(table, UnknownBucket, row(1), table_id=999)
        await refused(table, NotPrimaryKeyTable, row(1), table_id=log)
        await refused(table, InvalidProjection, row(1), columns=(5,))
        await refused(table, InvalidProjection, row(1), columns=(0, 0))
        await refused(table, MalformedBatch, b"")
        await refused(table, MalformedBatch, plain(SCHEMA, row(1)))
        await refused(table, InvalidRequest, row(1), question=b"\xff\xff")
        with pytest.raises(InvalidProjection, match="nested"):
            await ask(lists, plain(pa.schema([nested.field(0)]), {"id": 1}))
        assert await ask(lists, plain(pa.schema([nested.field(0)]), {"id": 1}), columns=(0,)) is None
        assert await ask(table, row(1)) == plain(table.arrow, row(1))

    serve(tmp_path, test)


def test_a_row_that_is_larger_than_an_answer_may_be_is_refused(tmp_path: Path) -> None:
    known: list[KeyTable] = []

    async def first(wire: Wire) -> None:
        table = await made(wire)
        known.append(table)
        await table.upsert([row(1, note="x" * 900_000)])
        assert len(await ask(table, row(1)) or b"") > 900_000

    async def second(wire: Wire) -> None:
        known[0].wire = wire
        with pytest.raises(LimitExceeded, match="fewer columns"):
            await ask(known[0], row(1))
        assert await ask(known[0], row(1), columns=(0,)) is not None

    serve(tmp_path, first)
    serve(tmp_path, second, {"server.request.max-bytes": "500kb"})
    assert known


async def _exchange(address: str, frames: list[bytes]) -> list[bytes]:
    """The answers to bare frames, in the order of their coming."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    for frame in frames:
        writer.write(frame)
    answers = []
    for _ in frames:
        (size,) = struct.unpack(">i", await asyncio.wait_for(reader.readexactly(4), 20))
        answers.append(await reader.readexactly(size))
    writer.close()
    await writer.wait_closed()
    return answers


@pytest.fixture(scope="module")
def known_table(tmp_path_factory: pytest.TempPathFactory) -> Any:
    async def fill(address: str) -> KeyTable:
        async with Wire(address) as wire:
            table = await made(wire)
            await table.upsert([row(1)])
            assert await ask(table, row(1)) is not None
            return table

    with LocalServer(tmp_path_factory.mktemp("server")) as server:
        yield server.address, asyncio.run(fill(server.address))


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_frames_that_are_almost_a_question_are_answered_and_harm_nobody(
    known_table: tuple[str, KeyTable], data: st.DataObject
) -> None:
    address, table = known_table
    keys = pa.schema([table.arrow.field(name) for name in ("id", "name")])
    asked = question(table)
    request = own_keys.LookupRowRequest(question=asked, key=plain(keys, row(1)))
    good = b"".join(encode(request))
    torn = bytearray(good)
    for _ in range(data.draw(st.integers(0, 3))):
        torn[data.draw(st.integers(0, len(torn) - 1))] = data.draw(st.integers(0, 255))
    body = bytes(torn[: data.draw(st.integers(0, len(torn)))])
    frames = [request_head(20008, 0, number, len(one)) + one for number, one in enumerate((body, good))]
    answers = {
        struct.unpack_from(">i", answer, 1)[0]: answer for answer in asyncio.run(_exchange(address, frames))
    }
    assert set(answers) == {0, 1}
    assert answers[1].endswith(plain(table.arrow, row(1)))


def test_nobody_is_answered_before_the_login(tmp_path: Path) -> None:
    """Not even what others asked a moment ago, and what is answered without making a message of it."""
    token = AuthenticateRequest(protocol="PLAIN", token=plain_token("ann", "secret"))
    login = b"".join(encode_request(api.AUTHENTICATE.key, 0, 0, token))

    async def made_by_ann(address: str) -> list[bytes]:
        async with Wire(address, user="ann", password="secret") as wire:
            table = await made(wire)
            await table.upsert([row(1)])
            return _lookups(table)

    with LocalServer(tmp_path, LOGIN) as server:
        frames = asyncio.run(made_by_ann(server.address))
        hers = asyncio.run(_exchange(server.address, [login, *frames, *frames]))
        strangers = asyncio.run(_exchange(server.address, frames))
    assert {answer[0] for answer in hers} == {0}
    assert sum(b"n1" in answer for answer in hers) == 4, "both of our own calls found the row, twice"
    assert [answer[0] for answer in strangers] == [1] * len(frames)
    assert {answer[6] for answer in strangers} == {CODES[AuthenticationFailed]}


def _lookups(table: KeyTable) -> list[bytes]:
    """One frame of each call that looks up a row, in version 0."""
    names = pa.schema([table.arrow.field(name) for name in ("id", "name")])
    batch = pa.RecordBatch.from_pylist([{"id": 1, "name": "n1"}], names)
    many = own_keys.LookupRowsBucketRequest(bucket_id=0, keys=bytes(encode_batch(batch, schema_id=1)))
    key = plain(names, row(1))
    requests = {
        api.LOOKUP_ROW: own_keys.LookupRowRequest(question=question(table), key=key),
        api.LOOKUP_ROWS: own_keys.LookupRowsRequest(
            table_id=table.table_id, schema_id=1, buckets_req=[many], timeout_ms=5_000
        ),
        api.LOOKUP: keys.LookupRequest(
            table_id=table.table_id, buckets_req=[keys.LookupBucketRequest(bucket_id=0, keys=[key])]
        ),
        api.PREFIX_LOOKUP: keys.PrefixLookupRequest(
            table_id=table.table_id, buckets_req=[keys.PrefixLookupBucketRequest(bucket_id=0, keys=[key])]
        ),
    }
    return [
        b"".join(encode_request(one.key, 0, number, request))
        for number, (one, request) in enumerate(requests.items(), 1)
    ]


def test_questions_are_remembered_up_to_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks another question each time is answered, and costs no memory that stays."""
    monkeypatch.setattr(lookup_row, "QUESTIONS_MAX", 4)
    known: list[int] = []
    original = LookupRowCalls._question

    def asked(self: LookupRowCalls, content: bytes) -> Any:
        found = original(self, content)
        known.append(len(self._known))
        return found

    monkeypatch.setattr(LookupRowCalls, "_question", asked)

    async def test(wire: Wire) -> None:
        table = await made(wire)
        await table.upsert([row(1)])
        for timeout_ms in range(1_000, 1_012):
            for _ in range(2):
                assert await ask(table, row(1), timeout_ms=timeout_ms) == plain(table.arrow, row(1))

    serve(tmp_path, test)
    assert set(known) == {1, 2, 3, 4}
    assert known.count(1) > 2, "they are learned anew where there are too many"
