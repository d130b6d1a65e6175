"""What the simulation found, told as stories: each was a bug once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pyarrow as pa
import pytest

from strom.aio import Writer
from strom.aio.table import Table
from strom.client.cluster.options import ClientOptions
from strom.errors import StorageOffline, StromError
from strom.testing import loop as virtual
from strom.testing.cluster import Alarm, SimulatedCluster
from strom.testing.random import SeededRandomness

QUICK = ClientOptions(
    connect_timeout_ms=500, request_timeout_ms=1_000, retry_timeout_ms=3_000, backoff_ms_max=100
)
ROWS = {"id": list(range(20))}
SCHEMA = pa.schema([("id", pa.int64())])


class Nobody:
    """Does not care what the disk gets."""

    def appended(self, path: str, position: int, content: bytes) -> None: ...

    def truncated(self, path: str, size: int) -> None: ...

    def replaced(self, path: str, content: bytes) -> None: ...

    def removed(self, path: str) -> None: ...


Story = Callable[[SimulatedCluster, Table], Awaitable[None]]


def tell(story: Story, *, seed: int = 1, **settings: str) -> None:
    """Run a story with a server, a table and a client; whatever the server complains of fails it."""
    complaints: list[str] = []

    async def main() -> None:
        with Alarm(asyncio.get_running_loop(), complaints.append):
            cluster = SimulatedCluster(
                SeededRandomness(seed),
                Nobody(),
                settings={
                    name.replace("_", ".").replace("..", "-"): value for name, value in settings.items()
                },
            )
            assert await cluster.start()
            client = cluster.client("client")
            await client.spawn(_meet(cluster, client, story), "story")
            await cluster.close()

    virtual.run(main())
    assert complaints == []


def _meet(cluster: SimulatedCluster, client: Any, story: Story) -> Coroutine[Any, Any, None]:
    async def meet() -> None:
        database = await cluster.connect(client, QUICK)
        table = await database.create_table("t", SCHEMA, properties={"table.durability": "group"})
        await story(cluster, table)

    return meet()


async def append(table: Table, rows: Any = ROWS, *, patience_ms: int = 2_000) -> None:
    """Rows that are acknowledged when this returns."""
    async with table.writer(delivery_timeout_ms=patience_ms) as writer:
        await writer.append(rows)


async def append_many(writer: Writer, times: int) -> None:
    """Many small batches, one after the other."""
    for _ in range(times):
        await writer.append(ROWS)
        await asyncio.sleep(0.002)
    await writer.flush()


async def count(table: Table) -> int:
    return (await table.scan().to_arrow()).num_rows


# --- a disk that fails to sync -----------------------------------------------------------------------------------


def test_a_checkpoint_does_not_take_the_next_syncs_yes_for_the_truth() -> None:
    """Group commit's sync failed; a checkpoint of the bucket synced the same file again and vouched for it."""

    async def story(cluster: SimulatedCluster, table: Table) -> None:
        writer = table.writer(linger_ms=1, delivery_timeout_ms=1_000)
        cluster.disk.fail_next_sync()
        with pytest.raises(StromError):
            await append_many(writer, 30)
        await writer.abandon()
        cluster.kill(power_loss=True)
        assert await cluster.start()
        assert await count(table) == 0, "rows whose sync failed were believed"
        await append(table)
        assert await count(table) == 20

    for seed in range(5):
        tell(story, seed=seed, log_checkpoint_bytes="1kb")


def test_a_bucket_whose_disk_failed_stays_offline_however_long_nobody_asks() -> None:
    """It was closed for being idle and opened again: what the system's cache still showed was believed."""

    async def story(cluster: SimulatedCluster, table: Table) -> None:
        await append(table)
        cluster.disk.fail_next_sync()
        with pytest.raises(StorageOffline):
            await append(table)
        await asyncio.sleep(3600)
        with pytest.raises(StorageOffline):
            await append(table)
        cluster.kill(power_loss=True)
        assert await cluster.start()
        await append(table)
        assert await count(table) == 40

    tell(story, log_retention_check__interval="1 d")


def test_a_bucket_whose_disk_failed_when_a_segment_was_sealed_stays_offline_too() -> None:
    """Only the log knew that it was offline, not its tablet: it was closed for being idle."""

    async def story(cluster: SimulatedCluster, table: Table) -> None:
        await append(table, {"id": [7919**number % (1 << 60) for number in range(300)]})
        cluster.disk.fail_next_sync()
        with pytest.raises(StorageOffline, match="failed to roll"):
            await append(table)
        await asyncio.sleep(3600)
        with pytest.raises(StorageOffline):
            await append(table)

    tell(story, log_retention_check__interval="1 d", log_segment_file__size="1kb")


def test_a_bucket_that_could_not_be_made_durable_when_it_was_opened_stays_offline() -> None:
    """Opening was tried again after a pause, and the next sync said yes."""

    async def story(cluster: SimulatedCluster, table: Table) -> None:
        await append(table)
        cluster.kill()
        assert await cluster.start()
        cluster.disk.fail_next_sync(2)  # the server's own record of the time, and the bucket
        await asyncio.sleep(10)
        with pytest.raises(StorageOffline):
            await append(table)
        cluster.kill(power_loss=True)
        assert await cluster.start()
        await append(table)
        assert await count(table) == 40

    tell(story)


# --- stopping ----------------------------------------------------------------------------------------------------


def test_a_stop_beside_a_checkpoint_is_a_clean_stop() -> None:
    async def story(cluster: SimulatedCluster, table: Table) -> None:
        writer = table.writer(linger_ms=1)
        await append_many(writer, 20)
        assert await cluster.stop(), "a log could not be closed"
        assert await cluster.start()
        assert await count(table) == 400

    for seed in range(10):
        tell(story, seed=seed, log_checkpoint_bytes="1kb")


# --- clients -----------------------------------------------------------------------------------------------------


def test_a_writer_meets_a_server_that_is_down_without_noise() -> None:
    """Every attempt to connect was logged as a crashed task."""

    async def story(cluster: SimulatedCluster, table: Table) -> None:
        writer = table.writer()
        await writer.append(ROWS)
        await writer.flush()
        cluster.kill()
        await writer.append(ROWS)
        await asyncio.sleep(1)
        assert await cluster.start()
        await writer.close()
        assert await count(table) == 40

    tell(story)


def test_a_client_of_a_simulation_has_the_options_it_was_given() -> None:
    async def story(_: SimulatedCluster, table: Table) -> None:
        assert table.session.cluster.options == QUICK

    tell(story)
