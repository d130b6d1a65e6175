"""How long does a lookup take that finds nothing in memory but the index?

Expected: the first lookups take far longer than RocksDB's, the later ones no longer. A row of ten columns is ten
places of the file, RocksDB's is one block; and what Strom reads of a column for the first time it checks against its
CRC as a whole block of 64 Ki rows. So the first row of a block pays for all the others (22 ms on a disk that reads
300 MB/s), and 1 M rows are warm after sixteen such lookups. The mean of the first lookups says what that costs, the
median what a lookup costs then. The index is in memory; opening reads it. No target: reported because we lose here.
"""

from __future__ import annotations

import os
import statistics
import time
from pathlib import Path

import numpy as np

from benchmarks.harness import Answer, Bench, Samples, ratio_of
from benchmarks.key_engine import Engine
from benchmarks.key_rows import INT_KEY, history
from benchmarks.key_served import micros, one
from benchmarks.rocks import Rocks
from benchmarks.rocks_loaded import loaded

ASKED = 300
COLUMNS = {"ten columns": None, "two columns": (2, 4)}


def measure(bench: Bench) -> list[Answer]:
    keys, form = bench.size(10_000_000, 100_000), INT_KEY
    answers = []
    picked = np.random.default_rng(9).integers(0, keys, ASKED)
    with Engine(bench.folder / "a", form, "WAL") as engine, loaded(bench, form, keys, 1) as rocks:
        for numbers, version in history(keys, 1):
            engine.upsert(form.rows(numbers, version))
        engine.settle()
        theirs = micros(_rocks(rocks, form.key_bytes(picked)))
        for words, columns in COLUMNS.items():
            ours = micros(_ours(engine, picked, columns))
            for how, figure, reference in (
                ("mean", _mean(ours), _mean(theirs)),
                ("median", ours, theirs),
            ):
                answers.append(
                    Answer(
                        question=f"the first {ASKED} lookups of one row, {words}, {keys:,} cold keys, {how}",
                        figure=figure,
                        reference=reference,
                        reference_name="rocksdict get, cold",
                        ratio=ratio_of(figure, reference),
                        notes={"cold": _how()},
                    )
                )
    return answers


def _mean(latencies: Samples) -> Samples:
    return one(statistics.mean(latencies.values), "µs")


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
