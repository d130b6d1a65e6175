"""Batches with a right checksum that nobody could read: refused at every door, and nothing of them is stored."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pyarrow as pa
import pytest

from integration.wire import Wire
from record.batches import encoded, resealed
from strom.errors import MalformedBatch
from strom.model.filters.predicate import col
from strom.model.schema import Schema
from strom.protocol import api_keys as api
from strom.protocol.error_codes import error_of
from strom.protocol.message import whole
from strom.protocol.messages.stages import StageRowsRequest
from strom.protocol.predicate_wire import to_wire
from strom.record import layout as at
from strom.record.batch import read_columns, read_header, work_size
from strom.record.decode import decode
from strom.server.calls.writes import INLINE_BYTES_MAX
from strom.server.process.local import LocalServer

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("tags", pa.list_(pa.string()))])
ROWS = pa.record_batch(
    [list(range(50)), [f"name {i}" for i in range(50)], [[f"t{i}"] * (i % 3) for i in range(50)]],
    schema=SCHEMA,
)
NAME_OFFSETS, NAME_DATA, TAG_OFFSETS = 3, 4, 6


def serve(folder: Path, test: Callable[[Wire], Awaitable[None]]) -> None:
    async def main(address: str) -> None:
        async with Wire(address) as wire:
            await asyncio.wait_for(test(wire), 60)

    with LocalServer(folder) as server:
        asyncio.run(main(server.address))


def broken(buffer: int, value: bytes, compression: str, *, at_byte: int = 8) -> bytes:
    """ROWS with a few bytes of one buffer changed, and a right checksum."""
    batch = encoded(ROWS, compression=compression)
    position, _ = read_columns(batch, read_header(batch)).buffers[buffer]
    batch[position + at_byte : position + at_byte + len(value)] = value
    return bytes(resealed(batch))


WRONG = {
    "falling offsets": (broken(NAME_OFFSETS, b"\xff\x01\0\0", "NONE"), "column name"),
    "falling offsets within a list": (broken(TAG_OFFSETS, b"\xff\x01\0\0", "NONE"), "column tags"),
    "no text": (broken(NAME_DATA, b"\xff", "NONE"), "column name"),
    "no LZ4": (broken(NAME_DATA, b"\x11\x11\x11\x11", "LZ4_FRAME"), "column name"),
    "no ZSTD": (broken(NAME_OFFSETS, b"\x11\x11\x11\x11", "ZSTD"), "column name"),
}


def test_no_door_of_a_log_table_takes_what_cannot_be_read(tmp_path: Path) -> None:
    async def test(wire: Wire) -> None:
        table = await wire.create("t", SCHEMA)
        for number, (name, (batch, words)) in enumerate(WRONG.items()):
            with pytest.raises(MalformedBatch, match=words):
                await wire.produce(table, batch)
            staged = await wire.call(
                api.STAGE_ROWS,
                StageRowsRequest(
                    table_id=table,
                    bucket_id=0,
                    stage_id=bytes([number]) * 16,
                    sink="s",
                    epoch=1,
                    lease_ms=60_000,
                    sequence=0,
                    records=batch,
                    seal=True,
                ),
            )
            assert isinstance(error_of(staged.error_code, staged.error_message), MalformedBatch), name
        assert await wire.produce(table, bytes(encoded(ROWS))) == 0
        ((header, view),) = await wire.read_all(table)
        assert decode(view, SCHEMA, header=header, full_validation=True).equals(ROWS)

    serve(tmp_path, test)


def test_statistics_that_lie_hide_no_row_from_a_filter(tmp_path: Path) -> None:
    """A batch with the ids 0 to 49 whose statistics say that they begin at 40."""
    honest = encoded(ROWS)
    lie = encoded(ROWS.slice(40), statistics=[0])
    header = read_header(lie)
    batch = bytearray(lie[: header.records_position]) + honest[read_header(honest).records_position :]
    for field in ("LAST_OFFSET_DELTA", "RECORD_COUNT"):
        place = getattr(at, f"{field}_POSITION")[header.magic]
        value = ROWS.num_rows - (field == "LAST_OFFSET_DELTA")
        batch[place : place + 4] = value.to_bytes(4, "little")
    resealed(batch)

    async def test(wire: Wire) -> None:
        table = await wire.create("t", SCHEMA)
        await wire.produce(table, bytes(batch))
        model = Schema.from_arrow(SCHEMA)
        predicate = to_wire((col("id") < 3).check(model), model)
        found = await wire.fetch_rows(table, 0, predicate=predicate)
        assert decode(whole(found.records), SCHEMA).column("id").to_pylist() == [0, 1, 2]

    serve(tmp_path, test)


def test_a_small_batch_that_decompresses_to_much_is_not_looked_at_on_the_loop() -> None:
    zeros = pa.record_batch({"a": pa.array([bytes(8_000_000)])})
    batch = encoded(zeros, compression="ZSTD")
    assert len(batch) < 10_000 < INLINE_BYTES_MAX < 8_000_000 < work_size(memoryview(batch), INLINE_BYTES_MAX)
    plain = encoded(ROWS)
    assert work_size(memoryview(plain), INLINE_BYTES_MAX) == len(plain)
