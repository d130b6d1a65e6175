"""How long does a lookup take that finds nothing in memory but the index?

Expected: longer than RocksDB's. A row of ten columns in columns is ten places of the file, RocksDB's is one block: on a
disk that answers in 100 µs this is what columns cost, and nothing but asking for fewer columns helps (reported too:
two of ten). The index itself is in memory; opening reads it. No target: reported because we lose here.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np

from benchmarks.harness import Answer, Bench, ratio_of
from benchmarks.key_engine import Engine
from benchmarks.key_rows import INT_KEY, history
from benchmarks.key_served import micros
from benchmarks.rocks import Rocks

ASKED = 300
COLUMNS = {"ten columns": None, "two columns": (2, 4)}


def measure(bench: Bench) -> list[Answer]:
    keys, form = bench.size(10_000_000, 1_000_000), INT_KEY
    answers = []
    picked = np.random.default_rng(9).integers(0, keys, ASKED)
    with Engine(bench.folder / "a", form, "WAL") as engine, Rocks(bench.folder / "rocks") as rocks:
        for numbers, version in history(keys, 1):
            rows = form.rows(numbers, version)
            engine.upsert(rows)
            rocks.put(form.encoded(numbers, rows))
        engine.settle()
        rocks.db.flush()
        theirs = micros(_rocks(rocks, form.key_bytes(picked)))
        for words, columns in COLUMNS.items():
            ours = micros(_ours(engine, picked, columns))
            answers.append(
                Answer(
                    question=f"cold lookup of one row, {words}, {keys:,} keys, median",
                    figure=ours,
                    reference=theirs,
                    reference_name="rocksdict get, cold",
                    ratio=ratio_of(ours, theirs),
                    notes={"cold": _how()},
                )
            )
    return answers


def _ours(engine: Engine, picked: np.ndarray, columns: tuple[int, ...] | None) -> list[float]:  # type: ignore[type-arg]
    keys = [engine.form.keys(picked[i : i + 1]) for i in range(len(picked))]
    engine.tablet.lookup(keys[0], columns=columns)  # warm code
    engine.tablet.close()
    engine.tablet = None  # type: ignore[assignment]  # its maps go, or their pages would stay
    forget(engine.folder)
    engine.open()
    forget(engine.folder)
    found = []
    for key in keys:
        began = time.perf_counter()
        assert engine.tablet.lookup(key, columns=columns).rows.num_rows == 1
        found.append(time.perf_counter() - began)
    return found


def _rocks(rocks: Rocks, keys: list[bytes]) -> list[float]:
    rocks.db.close()
    forget(rocks.folder)
    rocks.open()
    found = []
    for key in keys:
        began = time.perf_counter()
        assert rocks.db.get(key) is not None
        found.append(time.perf_counter() - began)
    return found


def forget(folder: Path) -> None:
    """Let the system forget what it has read of these files."""
    os.sync()
    try:
        Path("/proc/sys/vm/drop_caches").write_text("1")
        return
    except OSError:
        pass  # not root: file by file
    for where, _, names in os.walk(folder):
        for name in names:
            descriptor = os.open(os.path.join(where, name), os.O_RDONLY)
            try:
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)


def _how() -> str:
    return "drop_caches" if os.access("/proc/sys/vm/drop_caches", os.W_OK) else "posix_fadvise"
