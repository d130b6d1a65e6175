"""How fast are lookups and upserts of a table whose index is four times what memory may hold of it?

Expected, beside RocksDB in the process with a block cache and filters of the same size: at least twice its lookups when
a few keys are asked for most of the time (Zipf, exponent 0.99), over the wire, because memory keeps single keys and not
pages of them; at least as many when all keys are asked for alike, where both read a page for most of them, and as many
upserts. Keys that are not there are answered by filters on both sides, and there the wire is what counts. Keys that
were asked for before: at least half of what a server does that has all of the index in memory.

RocksDB is given its cache by column_families: without that it opens an existing database with 8 MB, and says nothing.
The system keeps the files of both in its page cache, so reading a page costs a copy and no disk where they fit.
"""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt
from rocksdict import BlockBasedOptions, Cache, Options, Rdict

from benchmarks.harness import Answer, Bench, Target, ratio_of
from benchmarks.key_rows import INT_KEY, history
from benchmarks.key_served import load, properties, served, settle
from benchmarks.rocks import Rocks
from strom.api import Table
from strom.testing.process import ServerProcess

KEY_BYTES = 30
"""Of an index in memory, on average."""
BEYOND = 4
ASKED = 1_000
"""Keys a call."""
FILTER_BITS = 10
ON_DISK_TIMEOUT_S = 120.0
EXPONENT = 0.99

SEED = 7
"""Both sides are asked for the same keys, each time for others."""

Numbers = npt.NDArray[np.int64]
Draw = Callable[[np.random.Generator], Numbers]
"""The keys of some calls."""


class CachedRocks(Rocks):
    """RocksDB with filters and a block cache of a given size, which holds them too."""

    def __init__(self, folder: Path, memory: int) -> None:
        self._memory = memory
        super().__init__(folder)

    def open(self) -> None:
        """Open it, with these options also when it is there already."""
        blocks = BlockBasedOptions()
        blocks.set_block_cache(Cache(self._memory))
        blocks.set_bloom_filter(FILTER_BITS, False)
        blocks.set_cache_index_and_filter_blocks(True)
        options = Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_block_based_table_factory(blocks)
        known = self.folder.exists()
        self.db = Rdict(str(self.folder), options, column_families={"default": options} if known else None)


def measure(bench: Bench) -> list[Answer]:
    keys, calls = bench.size(1_000_000, 200_000), bench.size(100, 20)
    memory = keys * KEY_BYTES // BEYOND
    random = np.random.default_rng(11)
    scattered, shares = random.permutation(keys), np.cumsum(1 / np.arange(1, keys + 1) ** EXPONENT)

    def zipf(random: np.random.Generator) -> Numbers:
        ranks = np.searchsorted(shares, random.random((calls, ASKED)) * shares[-1])
        return scattered[ranks]  # type: ignore[no-any-return]

    def uniform(random: np.random.Generator) -> Numbers:
        return random.integers(0, keys, (calls, ASKED))

    few = uniform(random)[: calls // 10]
    with ExitStack() as open_:
        server, table = open_.enter_context(_strom(bench.folder / "limited", keys, memory))
        _wait_for(server)
        _, whole = open_.enter_context(_strom(bench.folder / "whole", keys, 0))
        for draw in (
            zipf,
            uniform,
        ):  # the other server has answered as many questions when the two are compared
            _asking(whole, draw)()
        rocks = open_.enter_context(_rocks(bench.folder / "rocks", keys, memory))
        bench.pids = server.pids

        def beside_rocks(words: str, draw: Draw, target: Target | None) -> Answer:
            ours, theirs = _asking(table, draw), _getting(rocks, draw)
            return _answer(bench, keys, words, ours, theirs, "rocksdict get", target)

        def again(_: np.random.Generator) -> Numbers:
            return np.tile(few, (10, 1))

        answers = [
            beside_rocks("lookups, Zipf", zipf, Target(2)),
            beside_rocks("lookups, uniform", uniform, Target(1)),
            beside_rocks("lookups of absent keys", lambda random: uniform(random) + keys, None),
            _answer(
                bench,
                keys,
                "lookups of keys asked for before",
                _asking(table, again),
                _asking(whole, again),
                "the same with all of the index in memory",
                Target(0.5),
            ),
            _answer(
                bench,
                keys,
                "upserts, uniform",
                _upserting(table, uniform),
                _putting(rocks, uniform),
                "rocksdict get + put",
                Target(1),
            ),
        ]
        bench.pids = []
    return answers


@contextmanager
def _strom(folder: Path, keys: int, memory: int) -> Iterator[tuple[ServerProcess, Table]]:
    with served(folder, {"kv.index.memory": memory}) as (server, db):
        table = db.create_table(
            "t", INT_KEY.schema, primary_key=list(INT_KEY.key), buckets=1, properties=properties("WAL")
        )
        load(table, INT_KEY, keys, 0)
        settle(server)
        yield server, table


@contextmanager
def _rocks(folder: Path, keys: int, memory: int) -> Iterator[Rocks]:
    with CachedRocks(folder, memory) as loading:
        for numbers, version in history(keys, 0):
            loading.put(INT_KEY.encoded(numbers, INT_KEY.rows(numbers, version)))
        loading.settle()
    with CachedRocks(folder, memory) as rocks:
        yield rocks


def _wait_for(server: ServerProcess) -> None:
    """Wait until most of the index is on disk only."""
    end = time.monotonic() + ON_DISK_TIMEOUT_S
    while time.monotonic() < end:
        with urllib.request.urlopen(f"http://{server.http_address}/metrics", timeout=10) as page:
            text = page.read().decode()
        held = [line for line in text.splitlines() if line.startswith("strom_key_index_disk_keys")]
        if sum(float(line.rpartition(" ")[2]) for line in held) > 0:
            return
        time.sleep(0.5)
    raise TimeoutError("the index did not move to disk")


def _asking(table: Table, draw: Draw) -> Callable[[], float]:
    random = np.random.default_rng(SEED)

    def ask() -> float:
        batches = [INT_KEY.keys(some) for some in draw(random)]
        began = time.perf_counter()
        for batch in batches:
            table.lookup_many(batch)
        return ASKED * len(batches) / (time.perf_counter() - began)

    return ask


def _getting(rocks: Rocks, draw: Draw) -> Callable[[], float]:
    random = np.random.default_rng(SEED)

    def get() -> float:
        batches = [INT_KEY.key_bytes(some) for some in draw(random)]
        began = time.perf_counter()
        for batch in batches:
            rocks.get(batch)
        return ASKED * len(batches) / (time.perf_counter() - began)

    return get


def _upserting(table: Table, draw: Draw) -> Callable[[], float]:
    random = np.random.default_rng(SEED)

    def upsert() -> float:
        batches = [INT_KEY.rows(some, 1) for some in draw(random)]
        began = time.perf_counter()
        for batch in batches:
            table.upsert(batch)
        table.flush()
        return ASKED * len(batches) / (time.perf_counter() - began)

    return upsert


def _putting(rocks: Rocks, draw: Draw) -> Callable[[], float]:
    random = np.random.default_rng(SEED)

    def put() -> float:
        batches = [INT_KEY.encoded(some, INT_KEY.rows(some, 1)) for some in draw(random)]
        began = time.perf_counter()
        for batch in batches:
            rocks.get_put(batch)
        return ASKED * len(batches) / (time.perf_counter() - began)

    return put


def _answer(
    bench: Bench,
    keys: int,
    words: str,
    ours: Callable[[], float],
    theirs: Callable[[], float],
    reference_name: str,
    target: Target | None,
) -> Answer:
    figure, reference = bench.compare(ours, theirs, "keys/s", repeats=1 if bench.quick else 3)
    return Answer(
        question=f"{words}, {keys:,} keys, an index of {BEYOND} times its memory",
        figure=figure,
        reference=reference,
        reference_name=reference_name,
        ratio=ratio_of(figure, reference),
        target=target,
    )
