"""The index against a plain dict: random histories, shared hashes, growth, snapshots of shards."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strom.errors import LimitExceeded, StoreCorrupt
from strom.kv.index import shards
from strom.kv.index.index import KeyIndex, ShardEntries
from strom.kv.versions import NONE, are_images, offsets_of, versions_of

KEYS = st.lists(st.integers(0, 40), min_size=1, max_size=30)
HASHERS: dict[str, Callable[[int], int]] = {
    "constant": lambda key: 7,
    "zero": lambda key: 0,
    "few": lambda key: key % 4 << 62,
    "own": lambda key: key * 0x9E3779B97F4A7C15 % 2**64,
    "ends of the table": lambda key: 1023 - key % 3,
}


def loaded_from(shards: list[ShardEntries]) -> KeyIndex:
    """The index of exported shards."""
    return KeyIndex.load([(one.prefix, one.depth, len(one.hashes)) for one in shards], shards)


class _Keyed:
    """An index of integers whose hashes may be anything, as a store uses it."""

    def __init__(self, hasher: Callable[[int], int]) -> None:
        self.hasher, self.index, self.keys = hasher, KeyIndex(), dict[int, int]()

    def hashes(self, keys: list[int]) -> np.ndarray:
        return np.array([self.hasher(key) for key in keys], np.uint64)

    def find(self, keys: list[int]) -> list[int]:
        def same(which: np.ndarray, row_ids: np.ndarray) -> np.ndarray:
            return np.array([self.keys[r] == keys[w] for w, r in zip(which, row_ids, strict=True)], bool)

        return self.index.find(self.hashes(keys), same).tolist()

    def upsert(self, keys: list[int], version: int) -> None:
        def same_within(left: np.ndarray, right: np.ndarray) -> np.ndarray:
            return np.array([keys[a] == keys[b] for a, b in zip(left, right, strict=True)], bool)

        order, starts = self.index.group(self.hashes(keys), same_within)
        distinct = [keys[i] for i in order[starts[:-1]]]
        assert distinct == list(dict.fromkeys(keys))
        rows = np.array(self.find(distinct))
        missing = np.flatnonzero(rows < 0)
        rows[missing] = self.index.insert(self.hashes([distinct[i] for i in missing]))
        assert (self.index.newest(rows[missing]) == NONE).all(), "a row id given again has no version yet"
        self.keys.update({int(row): key for row, key in zip(rows, distinct, strict=True)})
        self.index.set_newest(rows, np.full(len(rows), version), self.hashes(distinct))

    def forget(self, keys: list[int]) -> None:
        rows = self.find(keys)
        self.index.forget(np.array(rows), self.hashes(keys))
        for row in rows:
            del self.keys[row]


@pytest.mark.parametrize("hasher", HASHERS)
@settings(max_examples=40, deadline=None)
@given(steps=st.lists(st.tuples(st.booleans(), KEYS), max_size=12))
def test_an_index_knows_exactly_the_keys_it_was_given(
    hasher: str, steps: list[tuple[bool, list[int]]]
) -> None:
    kept, model = _Keyed(HASHERS[hasher]), dict[int, int]()
    most = 0
    for step, (upserting, keys) in enumerate(steps):
        if upserting:
            kept.upsert(keys, step)
            model.update(dict.fromkeys(keys, step))
        else:
            gone = [key for key in dict.fromkeys(keys) if key in model]
            kept.forget(gone)
            model = {key: version for key, version in model.items() if key not in gone}
        most = max(most, len(model))
        rows = kept.find(list(range(42)))
        assert {key for key, row in enumerate(rows) if row >= 0} == set(model)
        assert kept.index.newest(np.array(rows)).tolist() == [model.get(key, NONE) for key in range(42)]
        assert kept.index.keys == len(model)
        assert kept.index.tables.size == most, "row ids are given again before new ones are made"
    loaded = loaded_from([kept.index.export_shard(i) for i in range(kept.index.shards)])
    kept.index = loaded
    assert {key for key, row in enumerate(kept.find(list(range(42)))) if row >= 0} == set(model)


@settings(max_examples=100, deadline=None)
@given(
    hashes=st.lists(st.sampled_from([0, 1, 2**63, 2**64 - 1]) | st.integers(0, 2**64 - 1), max_size=60),
    different=st.integers(1, 4),
)
def test_groups_are_the_keys_in_order_of_arrival(hashes: list[int], different: int) -> None:
    keys = [(value, at % different) for at, value in enumerate(hashes)]

    def same_within(left: np.ndarray, right: np.ndarray) -> np.ndarray:
        return np.array([keys[a] == keys[b] for a, b in zip(left, right, strict=True)], bool)

    order, starts = KeyIndex().group(np.array(hashes, np.uint64), same_within)
    groups = [order[a:b].tolist() for a, b in pairwise(starts)]
    assert groups == [[i for i, k in enumerate(keys) if k == key] for key in dict.fromkeys(keys)]
    order, starts = KeyIndex().group(np.array(hashes, np.uint64), None)
    assert [order[a:b].tolist() for a, b in pairwise(starts)] == [
        [i for i, k in enumerate(hashes) if k == value] for value in dict.fromkeys(hashes)
    ]


def test_an_index_that_has_split_many_times_finds_every_key_and_no_other() -> None:
    random = np.random.default_rng(3)
    hashes = np.unique(random.integers(0, 2**64, 300_000, dtype=np.uint64))
    random.shuffle(hashes)
    index, worst = KeyIndex(), 0.0
    for low in range(0, len(hashes), 9_000):
        rows = index.insert(hashes[low : low + 9_000])
        index.set_newest(rows, rows * 2 + 1, hashes[low : low + 9_000])
        if index.keys > 20_000:
            worst = max(worst, index.memory_bytes / index.keys)
    assert index.shards > 4
    assert worst < 40, "bytes per key"
    assert np.array_equal(index.find(hashes, None), np.arange(len(hashes)))
    assert (index.find(hashes + np.uint64(1), None) == -1).all()
    gone = random.permutation(len(hashes))[: len(hashes) // 2]
    index.forget(gone, hashes[gone])
    expected = np.arange(len(hashes))
    expected[gone] = -1
    assert np.array_equal(index.find(hashes, None), expected)
    assert sorted(index.insert(hashes[gone])) == sorted(gone), "the same row ids again"


def test_exported_shards_make_the_same_index_and_only_changed_ones_are_dirty() -> None:
    hashes = np.random.default_rng(4).integers(0, 2**64, 200_000, dtype=np.uint64)
    index = KeyIndex()
    rows = index.insert(hashes)
    index.set_newest(rows, rows << 1)
    assert len(index.dirty_shards()) == index.shards
    exported = [index.export_shard(i) for i in range(index.shards)]
    assert len(index.dirty_shards()) == 0
    index.set_newest(rows[:1], np.array([99]), hashes[:1])
    (dirty,) = index.dirty_shards()
    prefix, depth = index.place_of(dirty)
    assert int(hashes[0]) >> 64 - depth == prefix
    loaded = loaded_from(exported)
    assert len(loaded.dirty_shards()) == 0
    assert loaded.keys == len(hashes)
    assert np.array_equal(loaded.newest(loaded.find(hashes, None)), rows << 1)
    for shard, entries in enumerate(exported):
        assert loaded.place_of(shard) == index.place_of(shard) == entries[:2]
    assert loaded.shards == index.shards == len(exported)
    loaded.mark_dirty(3)
    assert loaded.dirty_shards().tolist() == [3]


def _entries(
    prefix: int, depth: int, hashes: list[int], rows: list[int], versions: list[int]
) -> ShardEntries:
    return ShardEntries(
        prefix, depth, np.array(hashes, np.uint64), np.array(rows, np.int64), np.array(versions, np.int64)
    )


@pytest.mark.parametrize(
    "shards",
    [
        [],
        [_entries(0, 1, [], [], [])],
        [_entries(0, 1, [], [], []), _entries(0, 1, [], [], [])],
        [_entries(0, 1, [], [], []), _entries(2, 1, [], [], [])],
        [_entries(0, 0, [], [], []), _entries(1, 1, [], [], [])],
        [_entries(0, -1, [], [], [])],
        [_entries(0, 60, [], [], [])],
        [_entries(0, 0, [1], [0], [-1])],
        [_entries(0, 0, [1, 2], [0, 0], [1, 1])],
        [_entries(0, 0, [1], [-1], [1])],
        [_entries(0, 0, [1], [2**40], [1])],
        [_entries(0, 0, [1, 2], [0], [1])],
        [_entries(0, 1, [2**63], [0], [1]), _entries(1, 1, [], [], [])],
    ],
)
def test_shards_that_cannot_be_are_refused(shards: list[ShardEntries]) -> None:
    with pytest.raises(StoreCorrupt):
        loaded_from(shards)


def test_an_insert_that_cannot_be_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "MAX_DEPTH", 1)
    index, alike = KeyIndex(), np.arange(1 << 17, dtype=np.uint64)
    first = index.insert(alike[:100])
    with pytest.raises(LimitExceeded):
        index.insert(alike[100:])
    assert index.keys == 100
    assert (index.find(alike[100:], None) == -1).all()
    assert np.array_equal(index.find(alike[:100], None), first)


def test_what_is_not_there_cannot_be_changed() -> None:
    index = KeyIndex()
    index.insert(np.array([5], np.uint64))
    for rows in ([-1], [1], [2**40]):
        with pytest.raises(ValueError):
            index.set_newest(np.array(rows), np.array([1]))
        with pytest.raises(ValueError):
            index.forget(np.array(rows), np.array([5], np.uint64))
        assert index.newest(np.array(rows)).tolist() == [NONE]
    assert index.find(np.array([5], np.uint64), None).tolist() == [0]


def test_a_version_is_an_offset_and_whether_it_is_an_image() -> None:
    versions = versions_of(np.array([0, 5, 5]), np.array([True, False, True]))
    assert versions.tolist() == [1, 10, 11]
    assert offsets_of(np.array([*versions, NONE])).tolist() == [0, 5, 5, -1]
    assert are_images(np.array([*versions, NONE])).tolist() == [True, False, True, False]
