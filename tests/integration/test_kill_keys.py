"""kill -9 under upserts: what was acknowledged is found, and the changelog tells the same story."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from integration.key_wire import KeyTable
from integration.wire import Wire, until_it_works
from strom.errors import OutOfOrderSequence, UnknownWriter
from strom.record.encode import encode
from strom.record.layout import CHANGE_DELETE, CHANGE_UPDATE_AFTER
from strom.testing.process import ServerProcess
from waiting import pause

SCHEMA = pa.schema([("id", pa.int64()), ("value", pa.int64()), ("name", pa.string())])
NAME = "load"
KEYS = 500
INSERTED, BEFORE, AFTER, DELETED = 1, 2, 3, 4


Tables = list[tuple[dict[int, int], dict[int, int]]]


class Writer:
    """Changes keys of its own, one batch at a time, each sent until it is acknowledged.

    ``sure`` is what every key must be at least as new as; what is under way may be there or not.
    """

    def __init__(self, address: str, table: KeyTable, bucket: int, number: int, writer_id: int) -> None:
        self.bucket = bucket
        self.number = number
        self.sure: dict[int, int | None] = {}
        self.batches = 0
        self._table = table
        self._writer_id = writer_id
        self._bootstrap = Wire(address)
        self._leader = Wire(address)
        self._step = 0

    async def run(self, stop: asyncio.Event, chance: random.Random) -> None:
        while not stop.is_set():
            changes = self._changes(chance)
            records = self._encoded(changes)
            await until_it_works(lambda records=records: self._send(records))  # type: ignore[misc]
            self.sure.update(changes)
            self.batches += 1
            if chance.random() < 0.3:
                await self._look(chance.choice(list(self.sure)))
        self._bootstrap.close()
        self._leader.close()

    def _changes(self, chance: random.Random) -> dict[int, int | None]:
        """Key to its new value; None: deleted."""
        changes: dict[int, int | None] = {}
        for _ in range(chance.choice([1, 3, 50, 400])):
            self._step += 1
            key = self.number * KEYS + chance.randrange(KEYS)
            changes[key] = None if chance.random() < 0.2 else self._step
        return changes

    def _encoded(self, changes: dict[int, int | None]) -> bytes:
        batch = pa.record_batch(
            [list(changes), [value or 0 for value in changes.values()], [f"n{v}" for v in changes.values()]],
            schema=SCHEMA,
        )
        kinds = bytes(CHANGE_DELETE if value is None else CHANGE_UPDATE_AFTER for value in changes.values())
        return bytes(
            encode(batch, schema_id=1, changes=kinds, writer_id=self._writer_id, batch_sequence=self.batches)
        )

    async def _send(self, records: bytes) -> None:
        try:
            await (await self._at_leader()).send(records)
        except (OutOfOrderSequence, UnknownWriter) as error:
            raise AssertionError(f"writer {self.number} lost its place") from error

    async def _look(self, key: int) -> None:
        """A lookup after an acknowledgement sees it, also when the server was killed in between."""

        async def look() -> dict[str, Any] | None:
            return await (await self._at_leader()).get(id=key)

        found = await until_it_works(look)
        assert (None if found is None else found["value"]) == self.sure[key]

    async def _at_leader(self) -> KeyTable:
        self._leader.address = (await self._bootstrap.leaders(NAME))[self.bucket]
        return KeyTable(self._leader, self._table.table_id, self._table.schema, bucket=self.bucket)


async def campaign(server: ServerProcess, *, cycles: int, buckets: int, durability: str, seed: int) -> Tables:
    """Kill and start again while rows change. Returns every bucket's rows, as acknowledged and as they are there."""
    chance = random.Random(seed)
    async with Wire(server.address) as wire:
        table = await KeyTable.create(
            wire, NAME, SCHEMA, ["id"], buckets=buckets, properties={"table.durability": durability}
        )
        await until_it_works(lambda: _warm(server, table, buckets), deadline_s=150)
        writers = [
            Writer(server.address, table, number % buckets, number, await wire.writer_id())
            for number in range(4)
        ]
    stop = asyncio.Event()
    running = [asyncio.ensure_future(one.run(stop, random.Random(chance.random()))) for one in writers]
    for _ in range(cycles):
        await pause(chance.uniform(0.1, 1.5))
        if server.tablets > 1 and chance.random() < 0.5:
            os.kill(chance.choice(server.pids[1:]), signal.SIGKILL)
        server.kill()
        await asyncio.to_thread(server.start)
        await until_it_works(lambda: _warm(server, table, buckets), deadline_s=150)
    await pause(0.5)
    stop.set()
    await asyncio.wait_for(asyncio.gather(*running), 150)
    assert all(writer.batches > 1 for writer in writers), "nothing was written: the test tests nothing"
    return await compared(server, table, writers, buckets)


async def _warm(server: ServerProcess, table: KeyTable, buckets: int) -> None:
    """Every process has loaded its kernels, so that what follows is about writing."""
    async with Wire(server.address) as wire:
        leaders = await wire.leaders(NAME)
    for bucket in range(buckets):
        async with Wire(leaders[bucket]) as wire:
            await KeyTable(wire, table.table_id, table.schema, bucket=bucket).facts()


async def compared(server: ServerProcess, table: KeyTable, writers: list[Writer], buckets: int) -> Tables:
    """Scan, lookups and a replay of the changelog agree."""
    tables: Tables = []
    async with Wire(server.address) as wire:
        leaders = await until_it_works(lambda: wire.leaders(NAME))
    for bucket in range(buckets):
        expected = {
            key: value
            for writer in writers
            if writer.bucket == bucket
            for key, value in writer.sure.items()
            if value is not None
        }
        async with Wire(leaders[bucket]) as wire:
            one = KeyTable(wire, table.table_id, table.schema, bucket=bucket)
            scanned = {row["id"]: row["value"] for row in (await one.scan()).values()}
            assert (await one.facts()).live_rows == len(scanned)
            wanted = [{"id": key} for writer in writers if writer.bucket == bucket for key in writer.sure]
            found = await one.lookup(wanted)
            assert {row["id"]: row["value"] for _, row in found} == scanned
            assert replayed(await one.changelog()) == scanned
        tables.append((expected, scanned))
    return tables


def replayed(changelog: list[tuple[int, int, dict[str, Any]]]) -> dict[int, int]:
    """The table that a changelog tells of; every before-image has to be the row that was there."""
    now: dict[int, int] = {}
    for _, kind, row in changelog:
        if kind == INSERTED:
            assert row["id"] not in now
        elif kind in (BEFORE, DELETED):
            assert now.pop(row["id"]) == row["value"]
            continue
        assert kind in (INSERTED, AFTER)
        now[row["id"]] = row["value"]
    return now


SMALL = {"kv.segment.file-size": "64kb", "kv.snapshot.bytes": "64kb", "log.checkpoint.bytes": "64kb"}
"""So that kills meet rolls, carries, merges and snapshots too."""


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("tablets", "durability"), [(1, "os"), (1, "group"), (3, "group")])
def test_no_acknowledged_change_is_lost(tmp_path: Path, tablets: int, durability: str) -> None:
    with ServerProcess(tmp_path / "data", tablets=tablets, settings=SMALL) as server:
        cycles = 2 if tablets == 1 else 1
        tables = asyncio.run(campaign(server, cycles=cycles, buckets=3, durability=durability, seed=tablets))
    assert len(tables) == 3
    assert all(found == acknowledged for acknowledged, found in tables)


@pytest.mark.torture
@pytest.mark.timeout(7200)
@pytest.mark.parametrize(("tablets", "durability"), [(1, "os"), (1, "group"), (3, "os"), (3, "group")])
def test_no_acknowledged_change_is_lost_in_many_kills(tmp_path: Path, tablets: int, durability: str) -> None:
    seed = int(os.environ.get("STROM_TEST_SEED", random.SystemRandom().randrange(1 << 30)))
    print(f"replay with STROM_TEST_SEED={seed}")
    with ServerProcess(tmp_path / "data", tablets=tablets, settings=SMALL) as server:
        tables = asyncio.run(campaign(server, cycles=40, buckets=3, durability=durability, seed=seed))
    assert len(tables) == 3
    assert all(found == acknowledged for acknowledged, found in tables)
