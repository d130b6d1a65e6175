"""Does the engine stay as fast when a bucket has ten times the keys?

Expected: at least half of the speed. At ten million keys the probe of the index and the old row are not in the
processor's cache any more; everything else costs the same. Both tables, after a random load and ten updates of each
key, take batches in turn, so that a noisy moment hits both. Every run takes random keys of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from benchmarks.harness import Answer, Bench, Target, ratio_of
from benchmarks.key_engine import Engine
from benchmarks.key_rows import INT_KEY, TEXT_KEY, Form, history

KINDS = ((INT_KEY, "FULL"), (INT_KEY, "WAL"), (TEXT_KEY, "FULL"))
ROUNDS = {10_000: 12, 100: 200}
"""Batches of a run, by their rows."""


def measure(bench: Bench) -> list[Answer]:
    answers = []
    for form, image in KINDS:
        answers += _growth(bench, form, image)
    return answers


def _growth(bench: Bench, form: Form, image: str) -> list[Answer]:
    few, many = bench.size(1_000_000, 20_000), bench.size(10_000_000, 100_000)
    name = f"{form.name.split()[0]}-{image}"
    with (
        Engine(bench.folder / f"{name}-{few}", form, image) as small,
        Engine(bench.folder / f"{name}-{many}", form, image) as large,
    ):
        for engine, keys in ((small, few), (large, many)):
            for numbers, version in history(keys, bench.size(10, 2)):
                engine.upsert(form.rows(numbers, version))
            engine.settle()
        return [_answer(bench, small, large, few, many, image, rows) for rows in ROUNDS]


def _answer(bench: Bench, small: Engine, large: Engine, few: int, many: int, image: str, rows: int) -> Answer:
    speed, before = bench.compare(
        _upserts(bench, large, many, rows), _upserts(bench, small, few, rows), "rows/s"
    )
    return Answer(
        f"engine upserts at {many:,} keys beside {few:,}: {large.form.name}, {image}, {rows}-row batches",
        speed,
        before,
        f"the same at {few:,} keys",
        ratio_of(speed, before),
        Target(0.5),
    )


def _upserts(bench: Bench, engine: Engine, keys: int, rows: int) -> Callable[[], float]:
    """A run of upserts of random keys, others each time."""
    random, form = np.random.default_rng(5), engine.form
    count = bench.size(ROUNDS[rows], ROUNDS[rows] // 2)

    def run() -> float:
        batches = [form.rows(random.integers(0, keys, rows), 99 + number) for number in range(count)]
        began = time.perf_counter()
        for batch in batches:
            engine.upsert(batch)
        return count * rows / (time.perf_counter() - began)

    return run
