"""How fast does the engine take upserts, with few keys and many, after many updates of each?

Expected, against RocksDB reading and writing pre-encoded rows and nothing more: with the changelog's old and new rows
(FULL) at least 3 times in batches of 10 k rows, with new rows only (WAL, int64 key) at least 10 times, in batches of
100 at least once. RocksDB pays 3 µs for a get and 3 µs for a put, through its memtable and the interpreter; Strom
pays per batch: one hash, one probe and one copy of columns per row (0.2 µs; the old row is a copy more, out of the
cache), and about 0.3 ms of Python. (How speed changes with the number of keys: ``keys_growth.py``.) An int64 key
costs 12 bytes of slot at a load of at most 0.75, and 8 of version: well under 40. What ten updates per key leave on
disk is reported; merges keep at least half of the base files' rows alive. (RocksDB of ten million keys got one update
of each, as a hundred million take it half an hour: compacted, it holds nearly the same, rather less.) Every run takes
random keys of its own: of those of the run before, both would have the rows at hand, in a memtable and in the tail.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from benchmarks.harness import Answer, Bench, Samples, Target, ratio_of
from benchmarks.key_engine import Engine
from benchmarks.key_rows import INT_KEY, TEXT_KEY, Form, history
from benchmarks.rocks import Rocks
from benchmarks.rocks_loaded import loaded

BATCHES = {10_000: {"FULL": 3.0, "WAL": 10.0}, 100: {"FULL": 1.0, "WAL": 1.0}}
ROUNDS = {10_000: 12, 100: 200}
KINDS = ((INT_KEY, ("FULL", "WAL")), (TEXT_KEY, ("FULL",)))


def measure(bench: Bench) -> list[Answer]:
    sizes = bench.size(1_000_000, 20_000), bench.size(10_000_000, 100_000)
    updates = bench.size(10, 2)
    answers: list[Answer] = []
    for keys, of_rocks in zip(sizes, (updates, 1), strict=True):
        for form, images in KINDS:
            with loaded(bench, form, keys, of_rocks) as rocks:
                answers += _at(bench, form, images, keys, updates, rocks)
    return answers


def _at(
    bench: Bench, form: Form, images: Sequence[str], keys: int, updates: int, rocks: Rocks
) -> list[Answer]:
    name = f"{form.name.split()[0]}-{keys}"
    answers = []
    for image in images:
        with Engine(bench.folder / f"{name}-{image}", form, image) as engine:
            for numbers, version in history(keys, updates):
                engine.upsert(form.rows(numbers, version))
            engine.settle()
            answers += _facts(engine, rocks, image, keys, updates)
            for rows, targets in BATCHES.items():
                ours, theirs = _compare(bench, engine, rocks, keys, rows)
                answers.append(
                    Answer(
                        question=f"engine upserts, {form.name}, {image}, {rows}-row batches, {keys:,} keys",
                        figure=ours,
                        reference=theirs,
                        reference_name="rocksdict get + put",
                        ratio=ratio_of(ours, theirs),
                        target=Target(targets[image]),
                    )
                )
    return answers


def _compare(bench: Bench, engine: Engine, rocks: Rocks, keys: int, rows: int) -> tuple[Samples, Samples]:
    random, form = np.random.default_rng(5), engine.form
    count = bench.size(ROUNDS[rows], ROUNDS[rows] // 2)
    picked = [[random.integers(0, keys, rows) for _ in range(count)] for _ in range(bench.repeats + 1)]
    plain = [[form.rows(numbers, 99 + i) for i, numbers in enumerate(run)] for run in picked]
    encoded = [list(map(form.encoded, *run)) for run in zip(picked, plain, strict=True)]
    mine, theirs = iter(plain), iter(encoded)
    engine.settle()  # both begin at rest; what they do beside the writes from here on is counted
    rocks.settle()

    def ours() -> float:
        run = next(mine)
        began = time.perf_counter()
        for batch in run:
            engine.upsert(batch)
        return count * rows / (time.perf_counter() - began)

    def reference() -> float:
        run = next(theirs)
        began = time.perf_counter()
        for batch in run:
            rocks.get_put(batch)
        return count * rows / (time.perf_counter() - began)

    return bench.compare(ours, reference, "rows/s")


def _facts(engine: Engine, rocks: Rocks, image: str, keys: int, updates: int) -> list[Answer]:
    facts = engine.tablet.describe()
    what = f"{engine.form.name}, {image}, {keys:,} keys"
    index = int(facts["index_bytes"]) / keys  # type: ignore[call-overload]
    disk = _one(engine.disk_bytes() / keys, "bytes")
    reference = _one(rocks.disk_bytes() / keys, "bytes")
    return [
        Answer(
            f"index bytes a key, {what}", _one(index, "bytes"), None, "", index, Target(40, at_least=False)
        ),
        Answer(
            f"disk bytes a live row after {updates} updates per key, {what}",
            disk,
            reference,
            "rocksdict",
            ratio_of(disk, reference),
            notes={key: value for key, value in facts.items() if key != "indexes"},
        ),
    ]


def _one(value: float, unit: str) -> Samples:
    return Samples((value,), unit, 0.0, 0.0)
