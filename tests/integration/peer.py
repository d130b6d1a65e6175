"""A few words to say pyfluss tests with: connect, make a table, write, read until enough."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import fluss
import pyarrow as pa

DATABASE = "fluss"
DEADLINE_S = 30.0
_numbers = itertools.count()


def run(test: Callable[[], Awaitable[None]]) -> None:
    """Run an async test with a deadline."""

    async def main() -> None:
        await asyncio.wait_for(test(), 60)

    asyncio.run(main())


def config(address: str, **more: str) -> fluss.Config:
    return fluss.Config({"bootstrap.servers": address, **more})


@asynccontextmanager
async def connected(address: str, **more: str) -> AsyncIterator[fluss.FlussConnection]:
    connection = await fluss.FlussConnection.create(config(address, **more))
    try:
        yield connection
    finally:
        await connection.close()


def fresh_path(word: str) -> fluss.TablePath:
    """A table name nobody else uses."""
    return fluss.TablePath(DATABASE, f"{word}_{os.getpid()}_{next(_numbers)}")


async def make_table(
    connection: fluss.FlussConnection, schema: pa.Schema, word: str = "t", **more: Any
) -> tuple[fluss.TablePath, fluss.FlussTable]:
    path = fresh_path(word)
    await connection.get_admin().create_table(path, fluss.TableDescriptor(fluss.Schema(schema), **more))
    return path, await connection.get_table(path)


async def write(table: fluss.FlussTable, *batches: pa.RecordBatch) -> None:
    writer = table.new_append().create_writer()
    for batch in batches:
        writer.write_arrow_batch(batch)
    await writer.flush()


async def poll_rows(scanner: fluss.LogScanner, count: int) -> list[Any]:
    """Records until there are ``count`` of them, or the deadline is over."""
    records: list[Any] = []
    deadline = asyncio.get_running_loop().time() + DEADLINE_S
    while len(records) < count and asyncio.get_running_loop().time() < deadline:
        records.extend(await scanner.poll(1000))
    return records


async def poll_table(scanner: fluss.LogScanner, count: int) -> pa.Table:
    """Arrow rows until there are ``count`` of them, or the deadline is over."""
    found = await scanner.poll_arrow(1000)
    deadline = asyncio.get_running_loop().time() + DEADLINE_S
    while found.num_rows < count and asyncio.get_running_loop().time() < deadline:
        found = pa.concat_tables([found, await scanner.poll_arrow(1000)])
    return found


def error_code(caught: Any) -> int:
    return int(caught.value.error_code)
