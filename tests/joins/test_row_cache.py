"""Rows that a lookup join remembers: so many, for so long, and never longer."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from strom.api.matching import Matches
from strom.spark.joins.lookup.row_cache import CACHES_MAX, Cache, kept_cache


class Table:
    """Rows by key, and what was asked for."""

    def __init__(self, keys: list[bytes]) -> None:
        self.keys = keys
        self.asked: list[bytes] = []
        self.version = 0

    def ask(self, missing: pa.Int64Array) -> Matches:
        """Two rows for every key but those that begin with x."""
        wanted = [self.keys[at] for at in missing.to_pylist()]
        self.asked += wanted
        found = [(at, key) for at, key in enumerate(wanted) if not key.startswith(b"x") for _ in range(2)]
        rows = pa.RecordBatch.from_pydict(
            {"key": pa.array([key for _, key in found], pa.binary()), "version": [self.version] * len(found)},
            pa.schema([("key", pa.binary()), ("version", pa.int64())]),
        )
        return Matches(rows, np.array([at for at, _ in found], np.int64))


def find(
    cache: Cache, keys: list[bytes], *, version: int = 0
) -> tuple[list[tuple[int, bytes, int]], list[bytes]]:
    """What each key found, and what had to be asked for."""
    table = Table(keys)
    table.version = version
    found = cache.find(pa.array(keys, pa.binary()), table.ask)
    rows = found.rows.to_pylist()
    listed = [(at, row["key"], row["version"]) for at, row in zip(found.keys.tolist(), rows, strict=True)]
    return sorted(listed), table.asked


def test_a_key_is_asked_for_once_and_so_is_one_without_rows() -> None:
    cache = Cache(100, 1000, clock=lambda: 0.0)
    rows, asked = find(cache, [b"a", b"b", b"a", b"x"])
    assert asked == [b"a", b"b", b"x"]
    assert [at for at, _, _ in rows] == [0, 0, 1, 1, 2, 2]
    rows, asked = find(cache, [b"x", b"b", b"c"], version=1)
    assert asked == [b"c"]
    assert rows == [(1, b"b", 0), (1, b"b", 0), (2, b"c", 1), (2, b"c", 1)]


def test_no_keys_find_no_rows() -> None:
    cache = Cache(100, 1000, clock=lambda: 0.0)
    assert find(cache, []) == ([], [])
    find(cache, [b"a"])
    assert find(cache, []) == ([], [])


def test_what_is_too_old_is_asked_for_again() -> None:
    now = [0.0]
    cache = Cache(100, 1000, clock=lambda: now[0])
    find(cache, [b"a"])
    now[0] = 0.9
    assert find(cache, [b"a", b"b"], version=1)[1] == [b"b"]
    now[0] = 1.1
    rows, asked = find(cache, [b"a", b"b"], version=2)
    assert asked == [b"a", b"b"]
    assert {version for _, _, version in rows} == {2}


def test_it_holds_no_more_than_was_said() -> None:
    cache = Cache(20, 1000, clock=lambda: 0.0)
    for number in range(50):
        find(cache, [b"%d" % number])
        assert sum(page.size for page in cache._pages) <= 20
    assert find(cache, [b"49"])[1] == []
    assert find(cache, [b"0"])[1] == [b"0"]
    many = [b"m%d" % number for number in range(30)]
    assert len(find(cache, many)[0]) == 60
    assert find(cache, [b"49"])[1] == [], "one batch that is too large does not push everything out"


def test_a_process_keeps_the_caches_it_used_last() -> None:
    first = kept_cache("first", 10, 1000)
    for number in range(CACHES_MAX - 1):
        kept_cache(number, 10, 1000)
    assert kept_cache("first", 10, 1000) is first
    for number in range(CACHES_MAX):
        kept_cache(number, 10, 1000)
    assert kept_cache("first", 10, 1000) is not first
    assert kept_cache("first", 10, 2000) is not kept_cache("first", 10, 1000)
