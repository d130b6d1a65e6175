"""RocksDB as it is after the same random load and updates that Strom got: loaded once a run, a copy for each question.

To load it takes most of the time of all questions about keys, and several of them ask about the same rows.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from benchmarks.harness import Bench
from benchmarks.key_rows import Form, history
from benchmarks.rocks import Rocks


def loaded(bench: Bench, form: Form, keys: int, updates: int) -> Rocks:
    """A database of its own with these keys, each updated so often on average, flushed and compacted."""
    name = f"rocks-{form.name.split()[0]}-{keys}-{updates}"
    kept = (bench.common or bench.folder / "common") / name
    if not kept.exists():
        making = kept.with_suffix(".making")
        _load(making, form, keys, updates)
        making.rename(kept)
    folder = bench.folder / name
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(kept, folder)
    return Rocks(folder)


def _load(folder: Path, form: Form, keys: int, updates: int) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with Rocks(folder) as rocks:
        for numbers, version in history(keys, updates):
            rocks.put(form.encoded(numbers, form.rows(numbers, version)))
        rocks.settle()
