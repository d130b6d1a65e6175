"""What somebody may do to a server who means harm: each attack as a loop of one connection, run by many.

Run as a program, at low priority: ``attacks.py NAME FACTS SECONDS CONNECTIONS``. It goes on for so long whatever the
server does to it, and connects again when it is dropped. All of it is bounded: in connections, in time, in bytes.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import struct
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from integration.wire import Wire, encoded
from strom.errors import StromError
from strom.model.filters.predicate import col
from strom.model.schema import Schema
from strom.protocol import api_keys as api
from strom.protocol.frame import encode_request
from strom.protocol.messages import connection, keys, lake, log, own, own_keys, stages
from strom.protocol.messages.predicate import CompoundPredicate, WirePredicate
from strom.protocol.predicate_wire import to_wire
from strom.record.encode import encode
from strom.rpc.sasl import plain_token
from waiting import pause

WIDE = pa.schema([("flag", pa.int64()), ("text", pa.string()), *((name, pa.int64()) for name in "abcd")])
"""Compresses well, and half of its rows pass a filter."""
PEOPLE = pa.schema([pa.field("id", pa.int64(), nullable=False), ("text", pa.string())])
HUGE = 100_000_000
MIB = 1024 * 1024


class Facts(NamedTuple):
    """What an attacker knows."""

    address: str
    sasl: str
    wide: int
    """A log table of well-compressed batches."""
    people: int
    """A primary-key table with large rows."""


def wide(flags: pa.Array, texts: pa.Array) -> pa.RecordBatch:
    zeros = pa.array(np.zeros(len(flags), np.int64))
    return pa.record_batch([flags, texts, *[zeros] * 4], schema=WIDE)


def well_compressed(rows: int) -> bytes:
    """A batch whose columns are hundreds of times larger than it is."""
    return encoded(wide(pa.array(np.arange(rows) % 2), pa.nulls(rows, pa.string())), compression="ZSTD")


@cache
def bomb(size: int) -> bytes:
    """A batch of one value that decompresses to ``size`` bytes."""
    return encoded(wide(pa.array([1]), pa.array(["\0" * size])), compression="ZSTD")


@cache
def row_bomb(size: int) -> bytes:
    """The same for the primary-key table: more than a row may have."""
    row = pa.record_batch([pa.array([1000]), pa.array(["\0" * size])], schema=PEOPLE)
    return encoded(row, compression="ZSTD", changes=bytes([3]))


def half(schema: Schema) -> WirePredicate:
    return to_wire((col("flag") == 0).check(schema), schema)


# --- connections that say what they like ---------------------------------------------------------------------


async def _opened(address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, _, port = address.rpartition(":")
    return await asyncio.open_connection(host, int(port))


async def _until_dropped(reader: asyncio.StreamReader) -> None:
    while await reader.read(65536):
        pass


def _head(length: int, key: int = 1014) -> bytes:
    return struct.pack(">ihhi", length, key, 0, 1)


async def announce(facts: Facts, number: int) -> None:
    """Announce a huge frame, and send nothing of it."""
    reader, writer = await _opened(facts.address)
    try:
        writer.write(_head(HUGE) + b"x")
        await _until_dropped(reader)
    finally:
        writer.close()


async def half_a_frame(facts: Facts, number: int) -> None:
    """Send most of a large frame, then fall silent."""
    reader, writer = await _opened(facts.address)
    try:
        writer.write(_head(64 * MIB))
        for _ in range(48):
            writer.write(bytes(MIB))
            await writer.drain()
        await _until_dropped(reader)
    finally:
        writer.transport.abort()


async def trickle(facts: Facts, number: int) -> None:
    """A frame byte by byte."""
    _, writer = await _opened(facts.address)
    try:
        writer.write(_head(10 * MIB))
        while True:
            writer.write(b"x")
            await writer.drain()
            await pause(0.1)
    finally:
        writer.transport.abort()


async def garbage(facts: Facts, number: int) -> None:
    """Bytes that make no sense, in every length."""
    chance = random.Random(number)
    for _ in range(20):
        reader, writer = await _opened(facts.address)
        try:
            body = chance.randbytes(chance.choice([3, 8, 40, 5000]))
            length = chance.choice([len(body), 2**31 - 1, -1, 0, 9])
            writer.write(struct.pack(">i", length) + body)
            with suppress(TimeoutError):
                async with asyncio.timeout(0.05):
                    await _until_dropped(reader)
        finally:
            writer.transport.abort()


async def half_open(facts: Facts, number: int) -> None:
    """Connections to where a login is asked for, which never log in; many are dropped at once, some stay."""
    open_now: list[asyncio.StreamWriter] = []
    try:
        for turn in range(100):
            _, writer = await _opened(facts.sasl)
            writer.write(b"\0\0")
            if turn % 4 == 0:
                open_now.append(writer)
            else:
                writer.transport.abort()
        await pause(0.2)
    finally:
        for writer in open_now:
            writer.transport.abort()


async def guess(facts: Facts, number: int) -> None:
    """Logins with wrong passwords, over and over."""
    reader, writer = await _opened(facts.sasl)
    try:
        for turn in range(3):
            token = plain_token("admin" if turn else f"user-{number}", str(random.random()))
            request = connection.AuthenticateRequest(protocol="PLAIN", token=token)
            writer.write(b"".join(encode_request(api.AUTHENTICATE.key, 0, turn, request)))
        with suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                await _until_dropped(reader)
    finally:
        writer.transport.abort()


# --- calls that ask for much ---------------------------------------------------------------------------------


async def filters(facts: Facts, number: int) -> None:
    """53 bytes that make the server decompress, filter and answer all it can."""
    async with Wire(facts.address) as wire:
        offset = 0
        while True:
            predicate = half(Schema.from_arrow(WIDE))
            found = await wire.fetch_rows(facts.wide, offset, predicate=predicate, max_bytes=2**31 - 1)
            offset = found.next_offset if found.next_offset < found.high_watermark else 0


async def unread_answers(facts: Facts, number: int) -> None:
    """The same, and nobody reads the answers."""
    _, writer = await _opened(facts.address)
    try:
        request = own.FetchRowsRequest(
            table_id=facts.wide,
            max_bytes=2**31 - 1,
            max_wait_ms=0,
            min_bytes=1,
            predicate=half(Schema.from_arrow(WIDE)),
            buckets_req=[own.FetchRowsBucketRequest(bucket_id=0, fetch_offset=0, max_bytes=2**31 - 1)],
        )
        for turn in range(64):
            writer.write(b"".join(encode_request(api.FETCH_ROWS.key, 0, turn, request)))
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        await pause(5.0)
    finally:
        writer.transport.abort()


async def waiting_fetches(facts: Facts, number: int) -> None:
    """Fetches that wait for more than there is, each with what there is."""
    async with Wire(facts.address) as wire:
        await wire.fetch(facts.wide, 0)  # connects
        waiting = [
            wire.fetch(facts.wide, 0, wait_ms=60_000, max_bytes=8 * MIB, min_bytes=16 * MIB)
            for _ in range(200)
        ]
        await asyncio.gather(*waiting, return_exceptions=True)


async def lookups(facts: Facts, number: int) -> None:
    """The same large rows a thousand times, in many buckets of one request."""
    batch = pa.record_batch(
        [pa.array([1 + n % 100 for n in range(1000)])], schema=pa.schema([PEOPLE.field(0)])
    )
    keys_wanted = bytes(encode(batch, schema_id=1))
    request = own_keys.LookupRowsRequest(
        table_id=facts.people,
        schema_id=1,
        buckets_req=[own_keys.LookupRowsBucketRequest(bucket_id=0, keys=keys_wanted) for _ in range(20)],
    )
    async with Wire(facts.address) as wire:
        while True:
            await wire.call(api.LOOKUP_ROWS, request)


async def peer_lookups(facts: Facts, number: int) -> None:
    """The peer's form of it, and waits for offsets that never come."""
    async with Wire(facts.address) as wire:
        key = struct.pack("<q", 1)
        asked = [keys.LookupBucketRequest(bucket_id=0, keys=[key] * 500) for _ in range(20)]
        while True:
            with suppress(StromError):
                await wire.call(api.LOOKUP, keys.LookupRequest(table_id=facts.people, buckets_req=asked))
            await wire.call(
                api.LIMIT_SCAN,
                log.LimitScanRequest(table_id=facts.people, bucket_id=0, limit=100_000),
            )


async def deep_predicates(facts: Facts, number: int) -> None:
    """Filters nested deeper, and wider, than any sane one."""
    leaf = half(Schema.from_arrow(WIDE))
    deep = leaf
    for _ in range(90):
        deep = WirePredicate(type=1, compound=CompoundPredicate(function=0, children=[deep]))
    wide = WirePredicate(type=1, compound=CompoundPredicate(function=1, children=[leaf] * 20_000))
    async with Wire(facts.address) as wire:
        while True:
            for predicate in (deep, wide):
                with suppress(StromError):
                    await wire.fetch_rows(facts.wide, 0, predicate=predicate)


async def many_columns(facts: Facts, number: int) -> None:
    """Projections of columns by the ten thousand."""
    async with Wire(facts.address) as wire:
        while True:
            with suppress(StromError):
                await wire.fetch_rows(facts.wide, 0, ids=range(90_000))
            table = log.FetchLogTableRequest(
                table_id=facts.wide,
                projection_pushdown_enabled=True,
                projected_fields=[0] * 90_000,
                buckets_req=[log.FetchLogBucketRequest(bucket_id=0, fetch_offset=0, max_fetch_bytes=100)],
            )
            await wire.call(
                api.FETCH_LOG, log.FetchLogRequest(follower_server_id=-1, max_bytes=1, tables_req=[table])
            )


async def bombs(facts: Facts, number: int) -> None:
    """Batches of some kilobytes that decompress to a quarter of a gigabyte."""
    async with Wire(facts.address) as wire:
        while True:
            for size in (90 * MIB, 250 * MIB):
                with suppress(StromError):
                    await wire.produce(facts.wide, bomb(size))
            request = own_keys.UpsertRowsRequest(
                acks=-1,
                table_id=facts.people,
                timeout_ms=10_000,
                buckets_req=[own_keys.UpsertRowsBucketRequest(bucket_id=0, records=row_bomb(250 * MIB))],
            )
            await wire.call(api.UPSERT_ROWS, request)


async def one_row_stages(facts: Facts, number: int) -> None:
    """Stages of one row each that nobody seals."""
    records = encoded(wide(pa.array([1]), pa.array(["x"])))
    async with Wire(facts.address) as wire:
        for _ in range(1000):
            request = stages.StageRowsRequest(
                table_id=facts.wide,
                bucket_id=0,
                stage_id=os.urandom(16),
                sink=f"attack-{number}",
                epoch=1,
                lease_ms=1000,
                sequence=0,
                seal=False,
                records=records,
            )
            with suppress(StromError):
                await wire.call(api.STAGE_ROWS, request)


async def forged_reports(facts: Facts, number: int) -> None:
    """Reports of rounds that nobody did."""
    report = json.dumps({"snapshot_id": 1, "buckets": [{"bucket": 0, "offset": 10**15}]}).encode()
    async with Wire(facts.address) as wire:
        for turn in range(1000):
            with suppress(StromError):
                await wire.call(
                    api.REPORT_LAKE,
                    lake.ReportLakeRequest(
                        table_id=facts.wide, service_id="mallory", round=turn % 3, report_json=report
                    ),
                )


ATTACKS: dict[str, Callable[[Facts, int], Awaitable[None]]] = {
    one.__name__: one
    for one in (
        announce,
        half_a_frame,
        trickle,
        garbage,
        half_open,
        guess,
        bombs,
        filters,
        unread_answers,
        waiting_fetches,
        lookups,
        peer_lookups,
        deep_predicates,
        many_columns,
        one_row_stages,
        forged_reports,
    )
}


async def attack(name: str, facts: Facts, *, seconds: float, connections: int) -> int:
    """Run an attack from many connections; returns how often one of them began anew."""
    begun = 0

    async def again_and_again(number: int) -> None:
        nonlocal begun
        while True:
            begun += 1
            with suppress(StromError, OSError, asyncio.IncompleteReadError):
                await ATTACKS[name](facts, number)
            await pause(0.01)

    tasks = [asyncio.ensure_future(again_and_again(number)) for number in range(connections)]
    _, running = await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
    for task in tasks:
        task.cancel()
    found = await asyncio.gather(*tasks, return_exceptions=True)
    for one in found:
        if isinstance(one, Exception):
            raise one
    assert running or connections == 0
    return begun


def main(arguments: list[Any]) -> None:
    os.nice(15)
    name, known, seconds, connections = arguments
    facts = Facts(*json.loads(known))
    print(asyncio.run(attack(name, facts, seconds=float(seconds), connections=int(connections))))


if __name__ == "__main__":
    main(sys.argv[1:])
