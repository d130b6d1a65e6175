"""An immutable mapping whose changed copies share everything that did not change.

The cost of a copy follows the change, not the size: entries are in many small dicts, and a change replaces only the
dicts it touches. So a catalog of 20,000 tables can be an immutable value and still be rebuilt for every commit.

Keys are texts or numbers. Iteration follows the shards, not the order of insertion, but it is the same in every
process: the shard of a text does not depend on Python's seed, so that a simulation repeats itself.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterable, Iterator, Mapping
from typing import Generic, TypeVar
from zlib import crc32

SHARD_ENTRIES = 64
"""Average entries per shard after spreading; the map is spread again at four times as many."""

K = TypeVar("K", bound=str | int)
V = TypeVar("V")


class SharingMap(Mapping[K, V], Generic[K, V]):
    """See above; created by ``of`` and ``changed``."""

    __slots__ = ("_count", "_shards")

    def __init__(self, shards: list[dict[K, V]] | None = None, count: int = 0) -> None:
        """Use ``of``."""
        self._shards: list[dict[K, V]] = shards or [{}]
        self._count = count

    @classmethod
    def of(cls, entries: Mapping[K, V]) -> SharingMap[K, V]:
        """A map of these entries; takes time proportional to their number."""
        shard_count = 1
        while shard_count * SHARD_ENTRIES < len(entries):
            shard_count *= 2
        shards: list[dict[K, V]] = [{} for _ in range(shard_count)]
        for key, value in entries.items():
            shards[_place(key) & (shard_count - 1)][key] = value
        return cls(shards, len(entries))

    def changed(self, put: Mapping[K, V], gone: Iterable[K] = ()) -> SharingMap[K, V]:
        """A copy with some entries added or replaced, and others removed; this one is unchanged."""
        if not self._count:
            return SharingMap.of(put)
        shards, mask = list(self._shards), len(self._shards) - 1
        own: set[int] = set()
        count = self._count

        def shard_of(key: K) -> dict[K, V]:
            place = _place(key) & mask
            if place not in own:
                own.add(place)
                shards[place] = dict(shards[place])
            return shards[place]

        for key in gone:
            count -= shard_of(key).pop(key, None) is not None
        for key, value in put.items():
            shard = shard_of(key)
            count += key not in shard
            shard[key] = value
        changed = SharingMap(shards, count)
        return changed if count <= 4 * SHARD_ENTRIES * len(shards) else SharingMap.of(changed)

    def __getitem__(self, key: K) -> V:
        return self._shards[_place(key) & (len(self._shards) - 1)][key]

    def get(self, key: K, default: V | None = None) -> V | None:  # type: ignore[override]
        """As of a dict."""
        return self._shards[_place(key) & (len(self._shards) - 1)].get(key, default)

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str | int) and key in self._shards[_place(key) & (len(self._shards) - 1)]

    def __iter__(self) -> Iterator[K]:
        for shard in self._shards:
            yield from shard

    def items(self) -> ItemsView[K, V]:
        """As of a dict; without finding each key again."""
        return _Items(self)

    def __len__(self) -> int:
        return self._count

    def __repr__(self) -> str:
        return f"SharingMap({dict(self)!r})"


class _Items(ItemsView[K, V]):
    def __init__(self, entries: SharingMap[K, V]) -> None:
        super().__init__(entries)
        self._shards = entries._shards

    def __iter__(self) -> Iterator[tuple[K, V]]:
        for shard in self._shards:
            yield from shard.items()


def _place(key: str | int) -> int:
    return key if isinstance(key, int) else crc32(key.encode())
