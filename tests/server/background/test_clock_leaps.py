"""A clock that leaps a year ahead expires nothing, on a running server and over a restart."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from integration.wire import Wire, encoded
from strom.cli.main import app
from strom.model.schema import Schema
from strom.model.table import TableDescription
from strom.protocol import api_keys as api
from strom.protocol.messages import partitions, tables
from strom.runtime.clock import SystemClock, Uptime
from strom.runtime.world import World
from strom.server.process.local import LocalServer
from waiting import LOOK_AGAIN_S, pause, until

SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.string())])
ROWS = pa.record_batch([list(range(100)), ["20240101"] * 100], schema=SCHEMA)
LEAP_MS = 400 * 24 * 3600 * 1000
SETTINGS: dict[str, object] = {
    "log.segment.file-size": "8kb",
    "log.retention.check-interval": "100 ms",
    "auto-partition.check.interval": "100 ms",
}


class LeapingClock(SystemClock):
    """The machine's clock, which somebody sets."""

    ahead_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms


async def a_round_of_retention(wire: Wire, name: str) -> None:
    """Make a table that may keep little, and wait until a round has looked at it."""
    table = await wire.create(name, SCHEMA, properties={"table.log.retention-bytes": "1kb"})
    for _ in range(20):
        await wire.produce(table, encoded(ROWS))
    await until_it_starts_later(wire, table)


async def start_of(wire: Wire, table: int) -> int:
    return int((await wire.fetch(table, -2)).log_start_offset)


async def until_it_starts_later(wire: Wire, table: int) -> None:
    async def later() -> bool:
        return await start_of(wire, table) > 0

    await until(later, 30)


def test_rows_stay_when_the_clock_leaps(tmp_path: Path) -> None:
    clock = LeapingClock()
    table = 0

    async def leap(address: str) -> None:
        nonlocal table
        async with Wire(address) as wire:
            table = await wire.create("t", SCHEMA, properties={"table.log.ttl": "1 h"})
            for _ in range(20):
                await wire.produce(table, encoded(ROWS))
            await a_round_of_retention(wire, "before")
            clock.ahead_ms = LEAP_MS
            await a_round_of_retention(wire, "after")
            assert await start_of(wire, table) == 0
            stamped = await wire.read_all(table)
            await wire.produce(table, encoded(ROWS))
            last = (await wire.read_all(table))[-1][0]
            assert last.timestamp_ms < stamped[-1][0].timestamp_ms + 3600_000, "no stamp of next year"

    async def again(address: str) -> None:
        async with Wire(address) as wire:
            await a_round_of_retention(wire, "restarted")
            assert await start_of(wire, table) == 0

    async def set_right(address: str) -> None:
        async with Wire(address) as wire:
            await wire.produce(table, encoded(ROWS))
            await a_round_of_retention(wire, "right")
            assert await start_of(wire, table) == 0

    def serve(test) -> None:  # type: ignore[no-untyped-def]
        world = replace(World.system(), clock=clock)
        with LocalServer(tmp_path, SETTINGS, world=world) as server:
            asyncio.run(test(server.address))

    serve(leap)
    serve(again)
    clock.ahead_ms = 0
    serve(set_right)


def test_rows_go_once_the_clock_was_steady_for_as_long_as_was_said(tmp_path: Path) -> None:
    clock = LeapingClock()

    async def test(address: str) -> None:
        async with Wire(address) as wire:
            table = await wire.create("t", SCHEMA, properties={"table.log.ttl": "1 h"})
            for _ in range(20):
                await wire.produce(table, encoded(ROWS))
            clock.ahead_ms = LEAP_MS
            await until_it_starts_later(wire, table)
            assert await start_of(wire, table) > 0

    world = replace(World.system(), clock=clock)
    with LocalServer(tmp_path, {**SETTINGS, "clock.trust-after": "1 s"}, world=world) as server:
        asyncio.run(test(server.address))


def test_partitions_stay_when_the_clock_leaps(tmp_path: Path) -> None:
    clock = LeapingClock()

    async def test(address: str) -> None:
        async with Wire(address) as wire:
            path = tables.WireTablePath(database_name="fluss", table_name="t")
            described = TableDescription(
                Schema.from_arrow(SCHEMA),
                partition_keys=("day",),
                properties={
                    "table.auto-partition.enabled": "true",
                    "table.auto-partition.time-unit": "DAY",
                    "table.auto-partition.num-precreate": "2",
                    "table.auto-partition.num-retention": "2",
                },
            )
            request = tables.CreateTableRequest(
                table_path=path, table_json=described.to_json_bytes(), ignore_if_exists=False
            )
            await wire.call(api.CREATE_TABLE, request)
            first = await listed(wire, path, 2)
            clock.ahead_ms = LEAP_MS
            found = await listed(wire, path, 4)  # those of next year are made: so it was looked at
            assert first <= found

    async def listed(wire: Wire, path: tables.WireTablePath, count: int) -> set[int]:
        deadline = time.monotonic() + 30
        listing = partitions.ListPartitionInfosRequest(table_path=path)
        while True:
            found = (await wire.call(api.LIST_PARTITION_INFOS, listing)).partitions_info
            if len(found) >= count:
                return {one.partition_id for one in found}
            assert time.monotonic() < deadline, f"{len(found)} partitions"
            await pause(LOOK_AGAIN_S)

    world = replace(World.system(), clock=clock)
    with LocalServer(tmp_path, SETTINGS, world=world) as server:
        asyncio.run(test(server.address))


def test_the_doctor_tells_of_a_leap(tmp_path: Path) -> None:
    clock = LeapingClock()
    world = replace(World.system(), clock=clock)
    with LocalServer(tmp_path, SETTINGS, world=world) as server:
        clock.ahead_ms = LEAP_MS
        found = CliRunner().invoke(app, ["--server", server.address, "doctor"])
    assert "400.0 days ahead" in found.output
    assert found.exit_code == 1


def world_of(clock: LeapingClock) -> World:
    return replace(World.system(), clock=clock)


class RestedClock(LeapingClock):
    """One of a machine that is started again."""

    boots = 0

    def uptime(self) -> Uptime:
        return Uptime(f"boot-{self.boots}", super().uptime().ms)

    def boot(self, days: float) -> None:
        self.boots += 1
        self.ahead_ms += int(days * 24 * 3600 * 1000)


@pytest.mark.parametrize(("days", "stays", "said"), [(3, False, 0), (400, True, 1)])
def test_a_weekend_is_a_stop_and_a_year_is_a_clock_that_is_wrong(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, days: int, stays: bool, said: int
) -> None:
    clock = RestedClock()
    table = 0

    async def fill(address: str) -> None:
        nonlocal table
        async with Wire(address) as wire:
            table = await wire.create("t", SCHEMA, properties={"table.log.ttl": "1 h"})
            for _ in range(20):
                await wire.produce(table, encoded(ROWS))

    async def look(address: str) -> None:
        async with Wire(address) as wire:
            await a_round_of_retention(wire, "after")
            if not stays:
                await until_it_starts_later(wire, table)
            assert (await start_of(wire, table) == 0) == stays

    with LocalServer(tmp_path, SETTINGS, world=world_of(clock)) as server:
        asyncio.run(fill(server.address))
    clock.boot(days)
    with caplog.at_level(logging.INFO), LocalServer(tmp_path, SETTINGS, world=world_of(clock)) as server:
        asyncio.run(look(server.address))
    told = [one for one in caplog.records if "the clock" in one.getMessage()]
    assert [one.levelname for one in told] == ["WARNING"] * said


def test_what_a_writer_sends_again_after_a_leap_is_not_stored_twice(tmp_path: Path) -> None:
    clock = LeapingClock()
    batch = encoded(ROWS, writer_id=7, batch_sequence=0)
    table = 0

    async def first(address: str) -> None:
        nonlocal table
        async with Wire(address) as wire:
            table = await wire.create("t", SCHEMA)
            await wire.produce(table, batch)

    async def again(address: str) -> None:
        async with Wire(address) as wire:
            await wire.produce(table, batch)
            assert (await wire.fetch(table, -2)).high_watermark == ROWS.num_rows

    with LocalServer(tmp_path, SETTINGS, world=world_of(clock)) as server:
        asyncio.run(first(server.address))
    clock.ahead_ms = LEAP_MS
    with LocalServer(tmp_path, SETTINGS, world=world_of(clock)) as server:
        asyncio.run(again(server.address))
