"""Runs written to a folder, and what a dict says about the same entries."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from strom.kv.runs.merging import Entries
from strom.kv.runs.run import IndexRun, open_run
from strom.kv.runs.run_reads import RunReads
from strom.kv.runs.run_tiles import Place, RunTiles
from strom.kv.runs.run_writer import RunFileWriter
from strom.runtime.files import LocalFiles

Known = dict[int, list[int]]


def entries(known: Known) -> Entries:
    """The entries of a dict, rising by hash."""
    pairs = [(hash_, version) for hash_ in sorted(known) for version in known[hash_]]
    return np.array([h for h, _ in pairs], np.uint64), np.array([v for _, v in pairs], np.int64)


def written(folder: Path, name: str, *knowns: Known, places: list[Place] | None = None) -> list[IndexRun]:
    """One file with a run per dict, opened again."""
    files = LocalFiles()
    writer = RunFileWriter(files, str(folder), name)
    refs = [
        writer.write(*place, *entries(known)).ref
        for known, place in zip(knowns, places or [(0, 0)] * len(knowns), strict=True)
    ]
    writer.close()
    return [open_run(files, str(folder), ref) for ref in refs]


def tiles_of(*runs: IndexRun) -> RunTiles:
    """One tile with these runs, the oldest first."""
    return RunTiles([((0, 0), runs)], RunReads())


def answers(tiles: RunTiles, hashes: list[int]) -> Known:
    """What the tiles say about these hashes."""
    found = tiles.find(np.array(hashes, np.uint64))
    known: Known = {}
    for which, version in zip(found.which.tolist(), found.versions.tolist(), strict=True):
        known.setdefault(hashes[which], []).append(version)
    return {hash_: sorted(versions) for hash_, versions in known.items()}
