"""Ways to a log: who stores it and by which client it is asked. Every way writes the same rows and reads them back.

A way appends to a fresh table each time and times only what the writer does, from the first batch to the last
acknowledgement; it scans a table that was filled before, into Arrow.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Sequence
from typing import Any, Protocol

import fluss
import pyarrow as pa

import strom
from benchmarks.workload import SMALL_SCHEMA

UNCOMPRESSED = {"table.log.arrow.compression.type": "NONE"}
POLL_MS = 1000
Batches = Sequence[pa.RecordBatch]


class Way(Protocol):
    """What the questions about logs ask of each."""

    def append(self, batches: Batches) -> float:
        """Seconds."""
        ...

    def fill(self, batches: Batches) -> None:
        """For the scans."""
        ...

    def scan(self, columns: Sequence[str] | None = None) -> float:
        """Seconds; the number of rows is checked."""
        ...


class ByStrom:
    """Strom's own client."""

    def __init__(self, db: strom.Database) -> None:
        self._db = db
        self._names = (f"own_{number}" for number in itertools.count())
        self._filled: strom.Table | None = None
        self._rows = 0

    def append(self, batches: Batches) -> float:
        table = self._table()
        seconds = self._write(table, batches)
        self._db.drop_table(table.name)
        return seconds

    def fill(self, batches: Batches) -> None:
        self._filled = self._table()
        self._rows = _rows(batches)
        self._write(self._filled, batches)

    def scan(self, columns: Sequence[str] | None = None) -> float:
        assert self._filled is not None
        began = time.perf_counter()
        found = self._filled.scan(columns=columns).to_arrow()
        seconds = time.perf_counter() - began
        _check(found, self._rows, columns)
        return seconds

    def _table(self) -> strom.Table:
        return self._db.create_table(next(self._names), SMALL_SCHEMA, properties=UNCOMPRESSED)

    def _write(self, table: strom.Table, batches: Batches) -> float:
        with table.writer() as writer:
            began = time.perf_counter()
            for batch in batches:
                writer.append(batch)
            writer.flush()
            return time.perf_counter() - began


DATABASE_LOOKS, DATABASE_POLL_S = 1500, 0.02


class ByPyfluss:
    """The unmodified client of Fluss: the same calls whoever answers, Fluss or Strom."""

    def __init__(self, address: str, runner: asyncio.Runner) -> None:
        self._runner = runner
        self._names = (f"peer_{number}" for number in itertools.count())
        config = fluss.Config({"bootstrap.servers": address})
        self.connection = runner.run(_connect(config))
        self._filled: fluss.FlussTable | None = None
        self._rows = 0

    def append(self, batches: Batches) -> float:
        return self._runner.run(self._append(batches))

    def fill(self, batches: Batches) -> None:
        self._rows = _rows(batches)
        self._runner.run(self._fill(batches))

    def scan(self, columns: Sequence[str] | None = None) -> float:
        return self._runner.run(self._scan(columns))

    def close(self) -> None:
        self._runner.run(_close(self.connection))

    async def table(
        self, schema: pa.Schema, keys: Sequence[str] | None = None, **more: Any
    ) -> fluss.FlussTable:
        """A fresh one of one bucket."""
        path = fluss.TablePath("fluss", next(self._names))
        made = fluss.Schema(schema, primary_keys=list(keys)) if keys else fluss.Schema(schema)
        descriptor = fluss.TableDescriptor(made, bucket_count=1, **more)
        admin = self.connection.get_admin()
        # Fluss answers before it has made its own database.
        for _ in range(DATABASE_LOOKS):
            if await admin.database_exists("fluss"):
                break
            await asyncio.sleep(DATABASE_POLL_S)
        await admin.create_table(path, descriptor)
        return await self.connection.get_table(path)

    async def _append(self, batches: Batches) -> float:
        table = await self.table(SMALL_SCHEMA, properties=UNCOMPRESSED)
        seconds = await _write(table, batches)
        await self.connection.get_admin().drop_table(table.get_table_path())
        return seconds

    async def _fill(self, batches: Batches) -> None:
        self._filled = await self.table(SMALL_SCHEMA, properties=UNCOMPRESSED)
        await _write(self._filled, batches)

    async def _scan(self, columns: Sequence[str] | None) -> float:
        assert self._filled is not None
        began = time.perf_counter()
        scan = self._filled.new_scan()
        if columns:
            scan = scan.project_by_name(list(columns))
        scanner = await scan.create_record_batch_log_scanner()
        scanner.subscribe(bucket_id=0, start_offset=fluss.EARLIEST_OFFSET)
        found = await scanner.to_arrow()
        seconds = time.perf_counter() - began
        _check(found, self._rows, columns)
        return seconds


async def _connect(config: fluss.Config) -> fluss.FlussConnection:
    return await fluss.FlussConnection.create(config)


async def _close(connection: fluss.FlussConnection) -> None:
    await connection.close()


async def _write(table: fluss.FlussTable, batches: Batches) -> float:
    writer = table.new_append().create_writer()
    began = time.perf_counter()
    for batch in batches:
        writer.write_arrow_batch(batch)
    await writer.flush()
    return time.perf_counter() - began


def _rows(batches: Batches) -> int:
    return sum(batch.num_rows for batch in batches)


def _check(found: pa.Table, rows: int, columns: Sequence[str] | None) -> None:
    """Nobody is quicker by bringing less."""
    assert found.num_rows == rows, (found.num_rows, rows)
    assert found.num_columns == len(columns or SMALL_SCHEMA), found.schema
