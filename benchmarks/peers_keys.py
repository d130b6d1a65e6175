"""How fast are upserts and lookups of Strom and of Fluss by the same client, and by ours?

Expected: upserts by pyfluss the same into both: the client turns one Python row after the other into bytes and takes
longer for it than either server needs (Strom decodes 5 M such rows a second, RocksDB in Fluss puts a few hundred
thousand, with the old row read before). By our own client, which sends columns, three times Fluss and more. One
lookup by pyfluss takes a tenth of a second with either server: it waits that long for more keys, no setting changes
it, and calls of one lookuper stand in line, so these rows are about clients and say nothing of RocksDB. Ours asks at
once. One bucket, changelog with old and new rows (`FULL`), nobody syncs; Kafka has neither upserts nor lookups.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from functools import partial
from itertools import cycle
from typing import Any

import fluss
import numpy as np
import pyarrow as pa

import strom
from benchmarks.harness import Answer, Bench, Samples
from benchmarks.key_rows import INT_KEY, Numbers
from benchmarks.key_served import micros
from benchmarks.peer_systems import FLUSS, OWN, PEER, answers, running, turns
from benchmarks.peer_ways import ByPyfluss

PAIRS = ((PEER, FLUSS), (OWN, FLUSS))
ROWS = 10_000
Rows = list[tuple[Any, ...]]


def measure(bench: Bench) -> list[Answer]:
    keys, changed = bench.size(200_000, 20_000), bench.size(100_000, 10_000)
    random = np.random.default_rng(5)
    with running(bench.folder) as systems, asyncio.Runner() as runner:
        ours = systems.db.create_table("own_keys", INT_KEY.schema, primary_key=list(INT_KEY.key), buckets=1)
        peers = {
            name: _Keyed(ByPyfluss(address, runner), runner)
            for name, address in ((PEER, systems.strom.address), (FLUSS, systems.fluss.address))
        }
        for start in range(0, keys, ROWS):
            rows = INT_KEY.rows(np.arange(start, min(start + ROWS, keys)))
            ours.upsert(rows)
            for peer in peers.values():
                peer.upsert(_tuples(rows))
        ours.flush()
        numbers = [random.integers(0, keys, ROWS) for _ in range(changed // ROWS)]
        versions = [[INT_KEY.rows(some, version) for some in numbers] for version in (7, 8)]
        tuples = [[row for batch in batches for row in _tuples(batch)] for batches in versions]

        def own(work: Iterator[list[pa.RecordBatch]]) -> float:
            began = time.perf_counter()
            for batch in next(work):
                ours.upsert(batch)
            ours.flush()
            return time.perf_counter() - began

        def by(peer: _Keyed, work: Iterator[Rows]) -> float:
            return peer.upsert(next(work))

        # Every call changes every row it writes: a row that stays as it is costs some servers less.
        ways = {OWN: partial(own, cycle(versions))}
        ways |= {name: partial(by, peer, cycle(tuples)) for name, peer in peers.items()}
        upserts = turns(bench, systems, ways, changed)
        asked = random.integers(0, keys, bench.size(full=5000, quick=500))
        single = _singles(ours, peers, asked, bench.size(full=50, quick=10))
        for peer in peers.values():
            peer.close()
    return [
        *answers("upserts of whole rows", upserts, PAIRS, keys=keys),
        *answers("lookup of one row, median (pyfluss waits 0.1 s for more)", single, PAIRS, keys=keys),
    ]


class _Keyed:
    """A primary-key table by pyfluss."""

    def __init__(self, way: ByPyfluss, runner: asyncio.Runner) -> None:
        self._way = way
        self._runner = runner
        self.table: fluss.FlussTable = runner.run(way.table(INT_KEY.schema, INT_KEY.key))

    def upsert(self, rows: Rows) -> float:
        """Seconds from the first row to the last acknowledgement."""
        return self._runner.run(self._upsert(rows))

    def lookups(self, numbers: Numbers) -> list[float]:
        """Seconds of each, one after the other."""
        return self._runner.run(self._lookups(numbers.tolist()))

    def close(self) -> None:
        self._way.close()

    async def _upsert(self, rows: Rows) -> float:
        writer = self.table.new_upsert().create_writer()
        began = time.perf_counter()
        for row in rows:
            writer.upsert(row)
        await writer.flush()
        return time.perf_counter() - began

    async def _lookups(self, numbers: list[int]) -> list[float]:
        lookuper = self.table.new_lookup().create_lookuper()
        seconds = []
        for number in numbers:
            began = time.perf_counter()
            found = await lookuper.lookup((number,))
            seconds.append(time.perf_counter() - began)
            assert found is not None
            assert found["id"] == number
        return seconds


def _singles(ours: strom.Table, peers: dict[str, _Keyed], numbers: Numbers, count: int) -> dict[str, Samples]:
    """Each call of every way; ours takes a thousandth of the time, so it is called more often."""
    found = {name: peer.lookups(numbers[:count]) for name, peer in peers.items()}
    seconds = []
    for number in numbers.tolist():
        began = time.perf_counter()
        row = ours.lookup(number)
        seconds.append(time.perf_counter() - began)
        assert row is not None
        assert row["id"] == number
    return {OWN: micros(seconds), **{name: micros(some) for name, some in found.items()}}


def _tuples(batch: Any) -> Rows:
    return list(zip(*(column.to_pylist() for column in batch.columns), strict=True))
