"""How much memory the indexes of all buckets of a server may take together, and which of them lie on disk for it.

While all fit, nothing happens. Above it, indexes leave memory, those first that are asked least for their size. What is
left then is shared among those on disk by how often they are asked. An index comes back when its bucket is opened and
all indexes would take less than half.

Safe in any thread. Loads no kernels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from strom.kv.runs.run_reads import RunReads
from strom.runtime.locks import new_lock

if TYPE_CHECKING:
    from strom.kv.index.index import KeyIndex

KEY_BYTES: Final = 40
"""Memory of a key, at most: 12 bytes a slot, 8 of its version, its mark."""
KEYS_MIN: Final = 4096
"""An index on disk may have this many keys in memory, however small its share."""
WORTH_BYTES: Final = 1 << 20
"""Smaller indexes stay in memory."""


class _Share:
    """What is known about an index."""

    def __init__(self) -> None:
        self.bytes = 0
        self.uses_seen = 0
        self.rate = 0.0


class IndexBudget:
    """The memory for indexes."""

    def __init__(
        self,
        bytes_max: int,
        reads: RunReads | None = None,
        *,
        keys_min: int = KEYS_MIN,
        worth_bytes: int = WORTH_BYTES,
    ) -> None:
        self.bytes_max = bytes_max
        self.reads = reads or RunReads()
        self._keys_min = keys_min
        self._worth_bytes = worth_bytes
        self._shares: WeakKeyDictionary[KeyIndex, _Share] = WeakKeyDictionary()
        self._lock = new_lock()

    def attend(self, index: KeyIndex, *, movable: bool) -> None:
        """Look at an index again: mark it as leaving, or say how many keys it may have in memory. In its lane.

        ``movable``: whether it may lie on disk.
        """
        with self._lock:
            share = self._shares.setdefault(index, _Share())
            share.bytes = index.memory_bytes
            share.rate = (share.rate + index.uses - share.uses_seen) / 2
            share.uses_seen = index.uses
            total = sum(one.bytes for one in self._shares.values())
            if index.resident is None:
                index.leaving = movable and self._is_first_to_leave(index, share, total)
            else:
                index.resident.keys_max = self._keys_max(index, share)

    def takes_back(self, entries: int) -> bool:
        """Whether an index of this many entries may be in memory when its bucket is opened."""
        with self._lock:
            total = sum(one.bytes for one in self._shares.values())
            return 2 * (total + entries * KEY_BYTES) <= self.bytes_max

    def _is_first_to_leave(self, index: KeyIndex, share: _Share, total: int) -> bool:
        """Whether memory runs over, and would even without all that are asked less for their size."""
        if share.bytes < self._worth_bytes:
            return False
        less = [
            one.bytes
            for other, one in self._shares.items()
            if other is not index
            and other.resident is None
            and one.bytes >= self._worth_bytes
            and one.rate * share.bytes < share.rate * one.bytes
        ]
        return total - sum(less) > self.bytes_max

    def _keys_max(self, index: KeyIndex, share: _Share) -> int:
        resident = index.resident
        assert resident is not None
        fixed = sum(
            one.bytes if other.resident is None else other.resident.tiles.memory_bytes
            for other, one in self._shares.items()
        )
        rates = sum(one.rate + 1 for other, one in self._shares.items() if other.resident is not None)
        left = max(0, self.bytes_max - fixed) * (share.rate + 1) / rates
        return max(self._keys_min, int(left) // KEY_BYTES)
