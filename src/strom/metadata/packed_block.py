"""Some entries in little memory: their keys side by side, numbers in columns, values compressed together.

A block never changes. Whether it has a key, and at which version, costs a microsecond and unpacks nothing; a value
costs unpacking the block, so those unpacked last are kept.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

import pyarrow as pa

from strom.metadata.store import Entry

APART = b"//"
"""Between two keys: no key has an empty part, begins with a slash or ends with one."""

UNPACKED_KEPT = 64
"""Blocks whose values are kept unpacked: who asks for a table's buckets finds them side by side."""

_CODEC = pa.Codec("zstd", compression_level=1)


class StoredEntry(NamedTuple):
    """An entry, and the version of its node where the store has nodes."""

    value: bytes
    version: int
    node: int = 0

    @property
    def entry(self) -> Entry:
        """What everybody knows of it."""
        return Entry(self.value, self.version)


class PackedBlock:
    """See above."""

    __slots__ = ("_ends", "_keys", "_nodes", "_size", "_values", "_versions")

    def __init__(self, stored: Mapping[str, StoredEntry]) -> None:
        """A block of these entries."""
        self._keys = APART + b"".join(key.encode() + APART for key in stored)
        self._versions = array("q", [one.version for one in stored.values()])
        self._nodes = array("q", [one.node for one in stored.values()])
        self._ends = array("q", accumulate(len(one.value) for one in stored.values()))
        content = b"".join(one.value for one in stored.values())
        self._size = len(content)
        self._values: bytes = _CODEC.compress(content, asbytes=True)

    def __len__(self) -> int:
        return len(self._versions)

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys[len(APART) : -len(APART)].decode().split("//") if self._versions else ())

    def find(self, key: str) -> int:
        """The place of a key; -1 if it is not here."""
        at = self._keys.find(APART + key.encode() + APART)
        return at if at < 0 else self._keys.count(APART, 0, at)

    def version(self, place: int) -> int:
        """The version of the entry at a place."""
        return self._versions[place]

    def node(self, place: int) -> int:
        """The version of its node."""
        return self._nodes[place]

    def entry(self, place: int) -> Entry:
        """The entry at a place."""
        begin = self._ends[place - 1] if place else 0
        return Entry(_unpacked(self)[begin : self._ends[place]], self._versions[place])

    def stored(self) -> dict[str, StoredEntry]:
        """Everything in it."""
        return dict(zip(self, map(StoredEntry, self._each_value(), self._versions, self._nodes), strict=True))

    def changed(self, fresh: Mapping[str, StoredEntry | None]) -> PackedBlock:
        """A block with these entries, too; None: without it."""
        stored: dict[str, StoredEntry | None] = {**self.stored(), **fresh}
        return PackedBlock({key: one for key, one in stored.items() if one is not None})

    def items(self) -> Iterator[tuple[str, Entry]]:
        """Every key and entry."""
        return zip(self, map(Entry, self._each_value(), self._versions), strict=True)

    def content(self) -> bytes:
        """All values, one behind the other."""
        found: bytes = _CODEC.decompress(self._values, self._size, asbytes=True)
        return found

    def _each_value(self) -> Iterator[bytes]:
        content, begin = self.content(), 0
        for end in self._ends:
            yield content[begin:end]
            begin = end


@lru_cache(maxsize=UNPACKED_KEPT)
def _unpacked(block: PackedBlock) -> bytes:
    return block.content()
