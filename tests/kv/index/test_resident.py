"""Which keys of an index on disk are in memory, and which may not leave it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from kv.runs.run_world import Known, tiles_of, written
from strom.kv.index.index import KeyIndex
from strom.kv.runs.run_tiles import RunTiles

OFFSET = 1_000


def lying_in(folder: Path, known: Known, keys_max: int = 0) -> tuple[KeyIndex, RunTiles]:
    """An index on disk with these hashes and versions, nothing of it in memory."""
    tiles = tiles_of(*written(folder, "a", known))
    index = KeyIndex()
    index.lie_in(tiles, OFFSET)
    assert index.resident is not None
    index.resident.keys_max = keys_max
    return index, tiles


def asked(index: KeyIndex, tiles: RunTiles, *hashes: int) -> list[int]:
    """Look hashes up, as a store does; their newest versions."""
    wanted = index.wanted(np.array(hashes, np.uint64))
    if wanted is not None:
        index.admit(tiles, wanted, tiles.find(wanted))
    assert index.wanted(np.array(hashes, np.uint64)) is None, "once is enough"
    row_ids = index.find(np.array(hashes, np.uint64), None)
    return index.newest(row_ids).tolist()


def swept(index: KeyIndex) -> int:
    """Let everything go that may; what stays."""
    assert index.resident is not None
    index.resident.keys_max = 0
    index.make_room()
    return index.here


def test_a_key_that_lost_its_namesake_stays_until_the_runs_know(tmp_path: Path) -> None:
    """Memory says about such a hash that it knows all keys: then it has to."""
    index, tiles = lying_in(tmp_path, {5: [10, 12], 6: [14]}, keys_max=10)
    asked(index, tiles, 5, 6)
    first = index.find(np.array([5], np.uint64), None)
    gone = int(index.newest(first)[0])
    index.forget(first, np.array([5], np.uint64))
    assert swept(index) == 1, "6 left"
    assert asked(index, tiles, 5) == [22 - gone]


def test_a_forgotten_key_is_not_read_back(tmp_path: Path) -> None:
    index, tiles = lying_in(tmp_path, {5: [10]}, keys_max=10)
    assert asked(index, tiles, 5) == [10]
    index.forget(index.find(np.array([5], np.uint64), None), np.array([5], np.uint64))
    assert asked(index, tiles, 5) == [-1]


def test_namesakes_leave_together_or_stay(tmp_path: Path) -> None:
    index, tiles = lying_in(tmp_path, {5: [10, 12], 6: [14, 16]}, keys_max=10)
    asked(index, tiles, 5, 6)
    row_id = index.find(np.array([5], np.uint64), None)
    index.set_newest(row_id, np.array([2 * OFFSET + 1]), np.array([5], np.uint64))
    assert swept(index) == 2, "both of 6 left, and none of 5"


def test_what_other_runs_said_is_not_taken_in(tmp_path: Path) -> None:
    """A snapshot was finished between the reading and the taking in: the key may have another version there."""
    index, tiles = lying_in(tmp_path, {5: [10]})
    hashes = np.array([5], np.uint64)
    read = tiles.find(hashes)
    newer = tiles_of(*written(tmp_path, "b", {5: [2 * OFFSET + 1]}))
    assert index.resident is not None
    index.resident.on_disk(newer, OFFSET + 10, np.empty(0, np.uint64), 0)
    index.admit(tiles, hashes, read)
    assert index.here == 0
    assert asked(index, newer, 5) == [2 * OFFSET + 1]


def test_a_filter_that_was_wrong_is_asked_once(tmp_path: Path) -> None:
    known = {number << 40: [number] for number in range(5_000)}
    index, tiles = lying_in(tmp_path, known)
    others = np.arange(1, 20_000, dtype=np.uint64) << np.uint64(20)
    others = others[~np.isin(others, np.array(list(known), np.uint64))]
    wrong = index.wanted(others)
    assert wrong is not None
    index.admit(tiles, wrong, tiles.find(wrong))
    assert index.here == 0
    assert index.wanted(others) is None


def test_namesakes_stay_together_when_the_index_moves_out(tmp_path: Path) -> None:
    index = KeyIndex()
    hashes = np.array([4, 5, 5], np.uint64)
    row_ids = index.insert(hashes)
    index.set_newest(row_ids, np.array([8, 10, 2 * OFFSET + 1]), hashes)
    tiles = tiles_of(*written(tmp_path, "a", {4: [8], 5: [10]}))
    old, new = index.move_out(tiles, OFFSET)
    assert old.tolist() == row_ids[1:].tolist()
    assert sorted(index.newest(new).tolist()) == [10, 2 * OFFSET + 1]
    assert (index.here, index.keys) == (2, 3)
    assert asked(index, tiles, 4) == [8]
