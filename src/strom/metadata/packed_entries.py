"""Entries of one kind: an immutable mapping that packs many entries, and whose changed copies share the rest.

Entries whose keys differ in the last two characters only are in one shard, so that the buckets of a table lie side by
side. A shard has a packed block and, in a small dict, what changed since it was packed; when that has become half as
much as the block, both are packed anew. Few entries are not packed at all.

Iteration follows the shards, and it is the same in every process that made the same changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from zlib import crc32

from strom.metadata.packed_block import PackedBlock, StoredEntry
from strom.metadata.store import Entry

SHARD_ENTRIES = 64
"""Average entries per shard after spreading; the entries are spread again at four times as many."""

PACKED_FROM_SHARDS = 64
"""With fewer shards than this, nothing is packed: some thousand entries need no saving."""

FRESH_MIN = 16
"""Fewer changed entries than this are not worth packing."""

_NEAR = 2
"""Characters at the end of a key that its shard does not depend on."""

_NOTHING = PackedBlock({})
_Fresh = dict[str, StoredEntry | None]
"""What changed since a block was packed; None: the entry is gone."""


class PackedEntries(Mapping[str, Entry]):
    """See above; created by ``sized`` and ``changed``."""

    __slots__ = ("_blocks", "_count", "_fresh")

    def __init__(self, blocks: list[PackedBlock], fresh: list[_Fresh], count: int) -> None:
        """Use ``sized``."""
        self._blocks = blocks
        self._fresh = fresh
        self._count = count

    @classmethod
    def sized(cls, count: int = 0) -> PackedEntries:
        """Nothing yet, with room for so many entries."""
        shards = 1
        while shards * SHARD_ENTRIES < count:
            shards *= 2
        return cls([_NOTHING] * shards, [{}] * shards, 0)

    def shard_of(self, key: str) -> int:
        """The shard of a key. Entries that come shard by shard are packed once."""
        return crc32(key[:-_NEAR].encode()) & (len(self._fresh) - 1)

    # --- changing --------------------------------------------------------------------------------------------

    def changed(self, put: Mapping[str, StoredEntry], gone: Iterable[str] = ()) -> PackedEntries:
        """A copy with some entries added or replaced, and others removed; this one is unchanged."""
        touched: dict[int, _Fresh] = {}
        blocks, mask, count = self._blocks, len(self._fresh) - 1, self._count
        for key in gone:
            shard = crc32(key[:-_NEAR].encode()) & mask
            fresh = touched[shard] if shard in touched else self._own(shard, touched)
            if (fresh[key] is not None) if key in fresh else blocks[shard].find(key) >= 0:
                count -= 1
                fresh[key] = None
        for key, stored in put.items():
            shard = crc32(key[:-_NEAR].encode()) & mask
            fresh = touched[shard] if shard in touched else self._own(shard, touched)
            count += (fresh[key] is None) if key in fresh else blocks[shard].find(key) < 0
            fresh[key] = stored
        found = PackedEntries(blocks, list(self._fresh), count)
        found._settle(touched)
        return found if count <= 4 * SHARD_ENTRIES * len(found._fresh) else found._spread()

    def _own(self, shard: int, touched: dict[int, _Fresh]) -> _Fresh:
        touched[shard] = dict(self._fresh[shard])
        return touched[shard]

    def _settle(self, touched: Mapping[int, _Fresh]) -> None:
        """Take what changed in some shards, and pack those where it is worth it. Only while this is being made."""
        packed: dict[int, PackedBlock] = {}
        for shard, fresh in touched.items():
            block = self._blocks[shard]
            if len(self._fresh) < PACKED_FROM_SHARDS:
                self._fresh[shard] = {key: one for key, one in fresh.items() if one is not None}
            elif len(fresh) >= max(FRESH_MIN, len(block) // 2):
                packed[shard] = block.changed(fresh)
                self._fresh[shard] = {}
            else:
                self._fresh[shard] = fresh
        if packed:
            self._blocks = list(self._blocks)
            for shard, block in packed.items():
                self._blocks[shard] = block

    def _spread(self) -> PackedEntries:
        found = PackedEntries.sized(self._count)
        shards: dict[int, _Fresh] = {}
        for key, one in self._each_stored():
            shards.setdefault(found.shard_of(key), {})[key] = one
        found._settle(shards)
        found._count = self._count
        return found

    def _each_stored(self) -> Iterator[tuple[str, StoredEntry]]:
        for block, fresh in zip(self._blocks, self._fresh, strict=True):
            for key, stored in block.stored().items():
                if key not in fresh:
                    yield key, stored
            for key, one in fresh.items():
                if one is not None:
                    yield key, one

    # --- looking ---------------------------------------------------------------------------------------------

    def version_of(self, key: str) -> int | None:
        """The version of an entry, without unpacking it; None if there is none."""
        shard = self.shard_of(key)
        fresh = self._fresh[shard]
        if key in fresh:
            found = fresh[key]
            return None if found is None else found.version
        place = self._blocks[shard].find(key)
        return None if place < 0 else self._blocks[shard].version(place)

    def node_of(self, key: str) -> int | None:
        """The version of an entry's node, as it was put; None if there is no entry."""
        shard = self.shard_of(key)
        fresh = self._fresh[shard]
        if key in fresh:
            found = fresh[key]
            return None if found is None else found.node
        place = self._blocks[shard].find(key)
        return None if place < 0 else self._blocks[shard].node(place)

    def get(self, key: str, default: Entry | None = None) -> Entry | None:  # type: ignore[override]
        """As of a dict."""
        shard = self.shard_of(key)
        fresh = self._fresh[shard]
        if key in fresh:
            found = fresh[key]
            return default if found is None else found.entry
        place = self._blocks[shard].find(key)
        return default if place < 0 else self._blocks[shard].entry(place)

    def __getitem__(self, key: str) -> Entry:
        found = self.get(key)
        if found is None:
            raise KeyError(key)
        return found

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self.version_of(key) is not None

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[str]:
        for block, fresh in zip(self._blocks, self._fresh, strict=True):
            yield from (key for key in block if key not in fresh) if fresh else block
            yield from (key for key, one in fresh.items() if one is not None)

    def each(self, may_want: Callable[[bytes], bool] | None = None) -> Iterator[tuple[str, Entry]]:
        """Every key and entry; ``may_want`` leaves out what it says no to, blocks as a whole.

        It is asked about a value, or about many values one behind the other, and says no only if it wants none of them.
        """
        for block, fresh in zip(self._blocks, self._fresh, strict=True):
            if block and (may_want is None or may_want(block.content())):
                for key, entry in block.items():
                    if key not in fresh and (may_want is None or may_want(entry.value)):
                        yield key, entry
            for key, one in fresh.items():
                if one is not None and (may_want is None or may_want(one.value)):
                    yield key, one.entry

    def newer_than(self, older: PackedEntries) -> Iterator[str]:
        """The keys that are not in ``older`` at the same version; what both share is not looked at."""
        same_shards = len(older._fresh) == len(self._fresh)
        for shard, (block, fresh) in enumerate(zip(self._blocks, self._fresh, strict=True)):
            if same_shards and block is older._blocks[shard] and fresh is older._fresh[shard]:
                continue
            for place, key in enumerate(block):
                if key not in fresh and older.version_of(key) != block.version(place):
                    yield key
            for key, one in fresh.items():
                if one is not None and older.version_of(key) != one.version:
                    yield key

    def gone_since(self, older: PackedEntries) -> Iterator[str]:
        """The keys that ``older`` has and this has not."""
        same_shards = len(older._fresh) == len(self._fresh)
        for shard, (block, fresh) in enumerate(zip(older._blocks, older._fresh, strict=True)):
            if same_shards and block is self._blocks[shard] and fresh is self._fresh[shard]:
                continue
            yield from (key for key in block if key not in fresh and key not in self)
            yield from (key for key, one in fresh.items() if one is not None and key not in self)
