"""All entries of a store, by kind: an immutable mapping whose changed copies share everything that did not change.

The kind of a key is its first part, so a reader of one kind does not pass by the others. Whoever keeps the entries of
a store keeps this object: a million of them are in memory once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import ItemsView, Iterable, Iterator, Mapping

from strom.metadata.packed_block import StoredEntry
from strom.metadata.packed_entries import PackedEntries
from strom.metadata.store import Entry

_NONE = PackedEntries.sized()


def kind_of(key: str) -> str:
    """The first part of a key, with its slash; of a key that has only one part, nothing."""
    return key[: key.find("/") + 1]


class EntryMap(Mapping[str, Entry]):
    """See above; created by ``of``, ``sized`` and ``changed``."""

    __slots__ = ("_kinds",)

    def __init__(self, kinds: Mapping[str, PackedEntries] | None = None) -> None:
        """Nothing yet, or what was made before."""
        self._kinds: Mapping[str, PackedEntries] = kinds or {}

    @classmethod
    def of(cls, entries: Mapping[str, Entry]) -> EntryMap:
        """A map of these entries; the same object if it is one already."""
        return entries if isinstance(entries, EntryMap) else cls.sized(entries).changed(entries)

    @classmethod
    def sized(cls, keys: Iterable[str]) -> EntryMap:
        """Nothing yet, with room for these keys."""
        return cls({kind: PackedEntries.sized(count) for kind, count in Counter(map(kind_of, keys)).items()})

    def changed(self, put: Mapping[str, Entry], gone: Iterable[str] = ()) -> EntryMap:
        """A copy with some entries added or replaced, and others removed; this one is unchanged."""
        return self.stored({key: StoredEntry(*entry) for key, entry in put.items()}, gone)

    def stored(self, put: Mapping[str, StoredEntry], gone: Iterable[str] = ()) -> EntryMap:
        """As ``changed``, with the versions of the nodes."""
        puts: dict[str, dict[str, StoredEntry]] = {}
        for key, one in put.items():
            puts.setdefault(key[: key.find("/") + 1], {})[key] = one
        removed: dict[str, list[str]] = {}
        for key in gone:
            removed.setdefault(kind_of(key), []).append(key)
        kinds = dict(self._kinds)
        for kind in {**puts, **removed}:
            kinds[kind] = kinds.get(kind, _NONE).changed(puts.get(kind, {}), removed.get(kind, ()))
        return EntryMap(kinds)

    def kinds(self) -> Mapping[str, PackedEntries]:
        """The entries of every kind."""
        return self._kinds

    def of_kind(self, kind: str) -> PackedEntries:
        """The entries of one kind."""
        return self._kinds.get(kind, _NONE)

    def below(self, prefix: str) -> Mapping[str, Entry]:
        """The entries whose keys start with a prefix."""
        if not prefix:
            return self
        kind = kind_of(prefix)
        some = [self.of_kind(kind)] if kind else self._kinds.values()
        return {key: entry for one in some for key, entry in one.each() if key.startswith(prefix)}

    def version_of(self, key: str) -> int | None:
        """The version of an entry, without reading its value; None if there is none."""
        return self.of_kind(kind_of(key)).version_of(key)

    def node_of(self, key: str) -> int | None:
        """The version of an entry's node; None if there is no entry."""
        return self.of_kind(kind_of(key)).node_of(key)

    def in_order(self, keys: Iterable[str]) -> list[str]:
        """The keys in the order in which their entries are packed once if they are put some at a time."""
        found: dict[str, list[str]] = {}
        for key in keys:
            found.setdefault(key[: key.find("/") + 1], []).append(key)
        return [key for kind, some in found.items() for key in sorted(some, key=self.of_kind(kind).shard_of)]

    def newer_than(self, older: EntryMap) -> dict[str, Entry]:
        """The entries that are not in ``older`` at the same version."""
        return {
            key: here[key]
            for kind, here in self._kinds.items()
            if here is not (there := older.of_kind(kind))
            for key in here.newer_than(there)
        }

    def gone_since(self, older: EntryMap) -> list[str]:
        """The keys that ``older`` has and this has not."""
        return [
            key
            for kind, there in older.kinds().items()
            if there is not (here := self.of_kind(kind))
            for key in here.gone_since(there)
        ]

    def get(self, key: str, default: Entry | None = None) -> Entry | None:  # type: ignore[override]
        """As of a dict."""
        return self.of_kind(kind_of(key)).get(key, default)

    def __getitem__(self, key: str) -> Entry:
        return self.of_kind(kind_of(key))[key]

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self.version_of(key) is not None

    def __len__(self) -> int:
        return sum(map(len, self._kinds.values()))

    def __iter__(self) -> Iterator[str]:
        for one in self._kinds.values():
            yield from one

    def items(self) -> ItemsView[str, Entry]:
        """As of a dict; without finding each key again."""
        return _Items(self)


class _Items(ItemsView[str, Entry]):
    def __init__(self, entries: EntryMap) -> None:
        super().__init__(entries)
        self._kinds = entries.kinds()

    def __iter__(self) -> Iterator[tuple[str, Entry]]:
        for one in self._kinds.values():
            yield from one.each()
