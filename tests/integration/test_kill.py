"""kill -9 under load: no acknowledged row is lost or doubled, and offsets stay dense."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from pathlib import Path

import pyarrow as pa
import pytest

from integration.wire import Wire, encoded, until_it_works
from strom.errors import OutOfOrderSequence, UnknownWriter
from strom.record.decode import decode
from strom.testing.process import ServerProcess
from waiting import pause

SCHEMA = pa.schema([("writer", pa.int64()), ("number", pa.int64()), ("text", pa.string())])
NAME = "load"


Counts = list[tuple[int, int, int]]


class Writer:
    """An idempotent writer that sends every batch until it is acknowledged."""

    def __init__(self, address: str, table_id: int, bucket: int, writer_id: int) -> None:
        self.bucket = bucket
        self.writer_id = writer_id
        self.sent = 0
        self.acknowledged = 0
        self._bootstrap = Wire(address)
        self._leader = Wire(address)
        self._table_id = table_id
        self._sequence = 0

    async def run(self, stop: asyncio.Event, chance: random.Random) -> None:
        while not stop.is_set():
            count = chance.choice([1, 1, 3, 100, 2000])
            records = self._batch(count)
            self.sent += count
            await until_it_works(lambda records=records: self._send(records))  # type: ignore[misc]
            self.acknowledged += count
            self._sequence += 1
        self._bootstrap.close()
        self._leader.close()

    def _batch(self, count: int) -> bytes:
        numbers = range(self.sent, self.sent + count)
        batch = pa.record_batch(
            [[self.writer_id] * count, list(numbers), [f"row {number}" for number in numbers]], schema=SCHEMA
        )
        return encoded(batch, writer_id=self.writer_id, batch_sequence=self._sequence)

    async def _send(self, records: bytes) -> None:
        self._leader.address = (await self._bootstrap.leaders(NAME))[self.bucket]
        try:
            await self._leader.produce(self._table_id, records, bucket=self.bucket)
        except (OutOfOrderSequence, UnknownWriter) as error:
            raise AssertionError(f"writer {self.writer_id} lost its place") from error


async def campaign(server: ServerProcess, *, cycles: int, buckets: int, durability: str, seed: int) -> Counts:
    """Kill and start again while rows arrive.

    Returns how many rows of each writer were acknowledged, are there, and were sent.
    """
    chance = random.Random(seed)
    async with Wire(server.address) as wire:
        table_id = await wire.create(
            NAME, SCHEMA, buckets=buckets, properties={"table.durability": durability}
        )
        writers = [Writer(server.address, table_id, i % buckets, await wire.writer_id()) for i in range(4)]
    stop = asyncio.Event()
    running = [asyncio.ensure_future(one.run(stop, random.Random(chance.random()))) for one in writers]
    for _ in range(cycles):
        await pause(chance.uniform(0.02, 0.6))
        if server.tablets > 1 and chance.random() < 0.5:
            os.kill(chance.choice(server.pids[1:]), signal.SIGKILL)
            server.kill()
        else:
            server.kill()
        await asyncio.to_thread(server.start)
    await pause(0.2)
    stop.set()
    await asyncio.wait_for(asyncio.gather(*running), 120)
    return await counted(server, table_id, writers, buckets)


async def counted(server: ServerProcess, table_id: int, writers: list[Writer], buckets: int) -> Counts:
    """What is there: no row of a writer twice, missing or out of order, offsets dense."""
    numbers: dict[int, list[int]] = {writer.writer_id: [] for writer in writers}
    async with Wire(server.address) as wire:
        leaders = await until_it_works(lambda: wire.leaders(NAME))
    for bucket in range(buckets):
        async with Wire(leaders[bucket]) as wire:
            batches = await wire.read_all(table_id, bucket=bucket)
        offset = 0
        for header, view in batches:
            assert header.base_offset == offset
            offset = header.next_offset
            rows = decode(view, SCHEMA, header=header)
            numbers[rows.column("writer")[0].as_py()] += rows.column("number").to_pylist()
    for writer in writers:
        found = numbers[writer.writer_id]
        assert found == list(range(len(found))), "rows are doubled, missing or out of order"
    return [(writer.acknowledged, len(numbers[writer.writer_id]), writer.sent) for writer in writers]


@pytest.mark.slow
@pytest.mark.parametrize(("tablets", "durability"), [(1, "os"), (1, "group"), (3, "group")])
def test_no_acknowledged_row_is_lost_or_doubled(tmp_path: Path, tablets: int, durability: str) -> None:
    with ServerProcess(tmp_path / "data", tablets=tablets) as server:
        cycles = 2 if tablets == 1 else 1
        counts = asyncio.run(campaign(server, cycles=cycles, buckets=3, durability=durability, seed=tablets))
    assert all(0 < acknowledged <= found <= sent for acknowledged, found, sent in counts)


@pytest.mark.torture
@pytest.mark.timeout(7200)
@pytest.mark.parametrize(("tablets", "durability"), [(1, "os"), (1, "group"), (3, "os"), (3, "group")])
def test_no_acknowledged_row_is_lost_or_doubled_in_hundreds_of_kills(
    tmp_path: Path, tablets: int, durability: str
) -> None:
    # Small segments and checkpoints, so that kills meet rolls and checkpoints too.
    settings = {"log.segment.file-size": "256kb", "log.checkpoint.bytes": "64kb"}
    seed = int(os.environ.get("STROM_TEST_SEED", random.SystemRandom().randrange(1 << 30)))
    print(f"replay with STROM_TEST_SEED={seed}")
    with ServerProcess(tmp_path / "data", tablets=tablets, settings=settings) as server:
        counts = asyncio.run(campaign(server, cycles=100, buckets=3, durability=durability, seed=seed))
    assert all(0 < acknowledged <= found <= sent for acknowledged, found, sent in counts)
