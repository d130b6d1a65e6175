"""Rows that a worker has looked up and may reuse, bounded in number and age. Stored as whole columns.

There are two pages: recent lookups, and older ones. A full page becomes the older one and replaces it; an expired page
is dropped. That a key has no row is cached, too.

A worker process keeps the caches of its last few lookups (``kept_cache``) for all of its tasks, also those of a
stream's next batch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strom.api.matching import Matches
from strom.spark.joins.key_bytes import Positions
from strom.spark.joins.row_pairs import first_places, pairs

CACHES_MAX = 4
"""Caches per process."""


@dataclass(frozen=True)
class Page:
    """Unique keys and their rows; the group of a row is the position of its key."""

    keys: pa.BinaryArray
    found: Matches
    until: float

    @property
    def size(self) -> int:
        """Keys or rows, whichever is more."""
        return max(len(self.keys), int(self.found.rows.num_rows))


class Cache:
    """At most ``rows`` rows, each used for at most ``expiry_ms``."""

    def __init__(self, rows: int, expiry_ms: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._page_rows = max(rows // 2, 1)
        self._expiry_s = expiry_ms / 1000
        self._clock = clock
        self._pages: list[Page] = []
        """Newest first; two at most."""

    def find(self, keys: pa.BinaryArray, ask: Callable[[pa.Int64Array], Matches]) -> Matches:
        """The rows of these keys; ``ask`` looks up the ones at given positions."""
        if not len(keys):
            return ask(pa.array([], pa.int64()))  # only it knows the columns
        now = self._clock()
        self._pages = [page for page in self._pages if page.until > now]
        left = np.arange(len(keys))
        parts: list[Matches] = []
        for page in self._pages:
            place = pc.index_in(keys.take(pa.array(left)), value_set=page.keys)
            known = place.is_valid().to_numpy(zero_copy_only=False)
            if known.any():
                positions = place.drop_null().to_numpy().astype(np.int64)
                parts.append(_of(page, left[known], positions))
                left = left[~known]
        if len(left):
            parts.append(self._asked(keys, left, ask, now))
        if len(parts) == 1:
            return parts[0]
        rows = pa.concat_batches([one.rows for one in parts])
        return Matches(rows, np.concatenate([one.keys for one in parts]))

    def _asked(
        self, keys: pa.BinaryArray, left: Positions, ask: Callable[[pa.Int64Array], Matches], now: float
    ) -> Matches:
        """Look up each unknown key once, and cache it."""
        wanted = keys.take(pa.array(left)).dictionary_encode()
        codes = wanted.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        first = first_places(codes)
        found = ask(pa.array(left[first]))
        page = Page(wanted.dictionary, found, now + self._expiry_s)
        self._keep(page)
        return _of(page, left, codes)

    def _keep(self, page: Page) -> None:
        if page.size > self._page_rows:
            return  # caching it would evict everything else
        newest = self._pages[0] if self._pages else None
        if newest is None or newest.size + page.size > self._page_rows:
            self._pages = [page, *self._pages[:1]]
            return
        count = len(newest.keys)
        rows = pa.concat_batches([newest.found.rows, page.found.rows])
        groups = np.concatenate([newest.found.keys, page.found.keys + count])
        joined = pa.concat_arrays([newest.keys, page.keys])
        # The older half decides, so that no row is used for too long.
        self._pages[0] = Page(joined, Matches(rows, groups), min(newest.until, page.until))


_kept: dict[Hashable, Cache] = {}
"""The caches of this process, the most recently used one last. Spark's workers have one thread."""


def kept_cache(what: Hashable, rows: int, expiry_ms: int) -> Cache:
    """This process's cache for ``what``, created if needed; the least recently used one is dropped."""
    key = (what, rows, expiry_ms)
    found = _kept.pop(key, None) or Cache(rows, expiry_ms)
    _kept[key] = found
    while len(_kept) > CACHES_MAX:
        del _kept[next(iter(_kept))]
    return found


def _of(page: Page, asked: Positions, positions: Positions) -> Matches:
    """The rows of some keys of a page, by the positions that asked for them."""
    rows = pairs(positions, page.found.keys, len(page.keys), "inner")
    taken = page.found.rows.take(pa.array(rows.right))
    return Matches(taken, asked[rows.left])
