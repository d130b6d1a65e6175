"""How long a tail waits: ``idle`` begins anew with every batch, ``timeout`` never does."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from client.play import play_out, playing
from strom.aio.tail import Tail
from strom.client.plan.log_place import LATEST
from strom.client.read.row_reader import RowReader
from strom.client.read.source import Source
from strom.client.write.append_writer import AppendWriter

PAUSE_S = 0.75


async def batches_of(table: Any, cluster: Any, rows: int, **patience: float) -> tuple[int, float]:
    """How many batches a tail gives while ``rows`` come one by one, and after how many seconds it ends."""
    loop = asyncio.get_running_loop()
    tail = Tail(Source(cluster, table, RowReader(table.schema)), start=LATEST, **patience)
    await tail.ready()
    began = loop.time()

    async def write() -> None:
        writer = await AppendWriter(cluster, table).open()
        for number in range(rows):
            await asyncio.sleep(PAUSE_S)
            await writer.append({"id": [number]})
            await writer.flush()
        await writer.close()

    writing = asyncio.create_task(write())
    seen = 0
    async for batch in tail:
        seen += batch.num_rows
    lasted = loop.time() - began
    await writing
    return seen, lasted


@pytest.mark.parametrize(
    ("patience", "rows", "ends_s"),
    [
        ({"idle": 1.0}, 6, 6 * PAUSE_S + 1.0),
        ({"idle": 0.5}, 0, 0.5),
        ({"timeout": 3.5}, 4, 3.5),
        ({"timeout": 3.5, "idle": 1.0}, 4, 3.5),
        ({"timeout": 9.0, "idle": 1.0}, 6, 6 * PAUSE_S + 1.0),
        ({"timeout": 0.5}, 0, 0.5),
    ],
)
def test_a_tail_ends_when_its_patience_does(patience: dict[str, float], rows: int, ends_s: float) -> None:
    async def main() -> None:
        async with playing() as (_, cluster, table):
            seen, lasted = await batches_of(table, cluster, 6 if rows else 0, **patience)
            assert seen == rows
            assert lasted == pytest.approx(ends_s, abs=0.1)

    play_out(main())


def test_a_tail_that_is_over_stays_over() -> None:
    async def main() -> None:
        async with playing() as (_, cluster, table):
            tail = Tail(Source(cluster, table, RowReader(table.schema)), start=LATEST, timeout=1.0)
            await tail.ready()
            await asyncio.sleep(2.0)
            assert [batch async for batch in tail] == []
            assert [batch async for batch in tail] == []

    play_out(main())
