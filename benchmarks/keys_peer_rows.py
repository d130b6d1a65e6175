"""How fast do rows arrive that the peer's own client has encoded?

Expected: at least twice RocksDB putting the same bytes (keys and rows as the client wrote them) and nothing more.
RocksDB pays 3 µs a put; Strom checks the batch's CRC and every bound, decodes rows into columns (0.2 µs for ten
columns), and then does what an upsert of columns does, changelog with old rows included.
"""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fluss
import numpy as np

import strom
from benchmarks.harness import Answer, Bench, Target, ratio_of
from benchmarks.key_engine import Engine
from benchmarks.key_rows import INT_KEY, Encoded, history
from benchmarks.rocks_loaded import loaded
from strom.kv.peer_rows import kv_batch
from strom.record.checksum import crc32c
from strom.tablet.key_tablet import KeyTablet


def measure(bench: Bench) -> list[Answer]:
    keys, updates = bench.size(1_000_000, 50_000), bench.size(10, 1)
    count = bench.size(200_000, 20_000)
    form = INT_KEY
    batches = _captured(bench.folder / "peer", np.random.default_rng(5).integers(0, keys, count))
    encoded = [_entries(batch) for batch in batches]
    with Engine(bench.folder / "a", form, "FULL") as engine, loaded(bench, form, keys, updates) as rocks:
        for numbers, version in history(keys, updates):
            engine.upsert(form.rows(numbers, version))
        engine.settle()

        def ours() -> float:
            began = time.perf_counter()
            for batch in batches:
                engine.put_kv(batch)
            return count / (time.perf_counter() - began)

        def reference() -> float:
            began = time.perf_counter()
            for rows in encoded:
                rocks.put(rows)
            return count / (time.perf_counter() - began)

        figure, theirs = bench.compare(ours, reference, "rows/s")
    return [
        Answer(
            question=f"rows encoded by pyfluss, FULL, {keys:,} keys",
            figure=figure,
            reference=theirs,
            reference_name="rocksdict put of the same bytes",
            ratio=ratio_of(figure, theirs),
            target=Target(2),
            notes={"rows_per_batch": count / len(batches), "bytes_per_batch": len(batches[0])},
        )
    ]


def _captured(folder: Path, numbers: np.ndarray) -> list[bytes]:  # type: ignore[type-arg]
    """The batches that pyfluss sends for these rows: caught where they arrive."""
    rows = INT_KEY.rows(numbers, 7).to_pylist()
    with strom.open(str(folder), durability="os") as db, _catching() as caught:
        asyncio.run(_send(db.address, rows))
    assert sum(kv_batch.parse(memoryview(one)).count for one in caught) == len(rows)
    return [_by_nobody(one) for one in caught]


async def _send(address: str, rows: list[dict[str, Any]]) -> None:
    config = fluss.Config({"bootstrap.servers": address})
    async with await fluss.FlussConnection.create(config) as peer:
        path = fluss.TablePath("fluss", "t")
        schema = fluss.Schema(INT_KEY.schema, primary_keys=list(INT_KEY.key))
        await peer.get_admin().create_table(path, fluss.TableDescriptor(schema, bucket_count=1), True)
        writer = (await peer.get_table(path)).new_upsert().create_writer()
        for row in rows:
            writer.upsert(row)
        await writer.flush()


@contextmanager
def _catching() -> Iterator[list[bytes]]:
    caught: list[bytes] = []
    original = KeyTablet.put_kv

    def put_kv(self: KeyTablet, records: memoryview, **options: Any) -> Any:
        caught.append(bytes(records))
        return original(self, records, **options)

    KeyTablet.put_kv = put_kv  # type: ignore[method-assign]
    try:
        yield caught
    finally:
        KeyTablet.put_kv = original  # type: ignore[method-assign]


def _by_nobody(batch: bytes) -> bytes:
    """Without its writer, so that it may be sent again and again."""
    changed = bytearray(batch)
    struct.pack_into("<qi", changed, 12, -1, -1)
    struct.pack_into("<I", changed, 5, crc32c(memoryview(changed)[kv_batch.CRC_FROM :]))
    return bytes(changed)


def _entries(batch: bytes) -> Encoded:
    parsed = kv_batch.parse(memoryview(batch))
    starts, ends, stops = (one.tolist() for one in (parsed.key_starts, parsed.key_ends, parsed.value_ends))
    keys = [batch[a:b] for a, b in zip(starts, ends, strict=True)]
    return Encoded(keys, [batch[a:b] for a, b in zip(ends, stops, strict=True)])
