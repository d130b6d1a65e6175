"""How long does a bucket with many keys take to open?

Expected: from its snapshot at most a fifth of the replay of its whole log. The snapshot is read as it lies (20 bytes a
key, into the shards' slots, in one pass), base files are mapped and not read; of the log only what is above the
snapshot, and the rows that no base file holds yet. A replay decodes, hashes, probes and copies every row.
"""

from __future__ import annotations

import shutil
import time

import numpy as np

from benchmarks.harness import Answer, Bench, Target, ratio_of
from benchmarks.key_engine import SETTINGS, Engine
from benchmarks.key_rows import INT_KEY, TEXT_KEY, Form
from strom.tablet.key_tablet import KV_FOLDER

ROWS = 10_000


def measure(bench: Bench) -> list[Answer]:
    keys = bench.size(10_000_000, 300_000)
    return [_opening(bench, form, keys) for form in (INT_KEY, TEXT_KEY)]


def _opening(bench: Bench, form: Form, keys: int) -> Answer:
    folder = bench.folder / form.name.split()[0]
    order = np.random.default_rng(1).permutation(keys)
    with Engine(folder / "a", form, "WAL", SETTINGS, keeps_log=True) as engine:
        for start in range(0, keys, ROWS):
            engine.upsert(form.rows(order[start : start + ROWS]))
        engine.settle()
    shutil.copytree(folder / "a", folder / "b", ignore=shutil.ignore_patterns(KV_FOLDER))
    with (
        Engine(folder / "a", form, "WAL", SETTINGS, keeps_log=True) as stored,
        Engine(folder / "b", form, "WAL", SETTINGS, keeps_log=True) as bare,
    ):
        ours, reference = bench.compare(
            lambda: _open(stored, keys), lambda: _open(bare, keys), "s", repeats=bench.size(3, 1)
        )
    shutil.rmtree(folder)
    return Answer(
        question=f"opening a bucket of {keys:,} keys from its snapshot, {form.name}",
        figure=ours,
        reference=reference,
        reference_name="replay of the whole log",
        ratio=ratio_of(ours, reference),
        target=Target(0.2, at_least=False),
    )


def _open(engine: Engine, keys: int) -> float:
    engine.leave()
    began = time.perf_counter()
    tablet = engine.open()
    seconds = time.perf_counter() - began
    assert tablet.live_rows() == keys
    return seconds
