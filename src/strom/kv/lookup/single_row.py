"""The row of one key, for callers that ask for one at a time: without Arrow, and without an array per step.

``SingleRow`` is one choice of columns of one store; ``find`` answers as ``many_rows.lookup_keys`` would. The whole of
it happens under the lock, because it takes a microsecond or two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from strom.errors import LimitExceeded, MalformedBatch, StoreCorrupt
from strom.kv.gather.directory import Directory
from strom.kv.gather.row_layout import Selection
from strom.kv.kernels.reserved_memory import address_of
from strom.kv.lookup.check_needed import CheckNeeded
from strom.kv.lookup.single_row_kernels import (
    CORRUPT,
    MALFORMED,
    MISSING,
    NO_ROOM,
    NOT_HERE,
    NOWHERE,
    ROOM_MIN,
    UNCHECKED,
    find_row,
)
from strom.kv.rows.row_places import Places, lost_row
from strom.kv.store import KeyStore

ROOM_BYTES = 4096
"""Initial size of the buffer for a row; it grows with the rows."""
ROOM_KEPT_BYTES = 64 * 1024
"""A larger buffer is given back after use."""
KEY_BYTES = 256
"""Initial size of the buffer for a key."""
CHOICES_MAX = 64
"""Different choices of columns that are remembered."""


class SingleRow:
    """Looks up one key at a time, in any thread."""

    def __init__(self, store: KeyStore, columns: Sequence[int] | None) -> None:
        layout = store.rows.directory.layout
        self._store = store
        self._layout = layout
        self._key: Selection = layout.selection(store.definition.key)
        self._wanted: Selection = layout.selection(columns)
        assert not self._wanted.nested, "nested columns are gathered by pyarrow"
        self._bijective = int(store.hasher.bijective)
        self._plan = store.hasher.plan
        self._seed = store.hasher.seed
        self._have_room(ROOM_BYTES)
        self._have_asked(KEY_BYTES)

    def _have_asked(self, size: int) -> None:
        self._asked_memory = np.empty(size, np.uint8)
        self._asked = memoryview(self._asked_memory.data)
        self._asked_address = address_of(self._asked_memory)

    def _have_room(self, size: int) -> None:
        self._room = np.empty(max(size, ROOM_MIN), np.uint8)
        self._room_view = memoryview(self._room.data)
        self._room_address = address_of(self._room)

    @property
    def current(self) -> bool:
        """Whether the table's columns have not changed since this was made."""
        return self._store.rows.directory.layout is self._layout

    def find(self, key: bytes, *, high: Callable[[], int], bytes_max: int) -> bytes | None:
        """The row of a key (both as plain rows) below the high watermark; None when there is none.

        Raises CheckNeeded when bytes must be checked first, MalformedBatch when the key is not one of this table.
        """
        store = self._store
        store.index.uses += 1
        with store.lock:
            if len(key) > len(self._asked):
                self._have_asked(2 * len(key))
            elif len(self._asked) > ROOM_KEPT_BYTES >= len(key):
                self._have_asked(KEY_BYTES)
            self._asked[: len(key)] = key
            address = self._asked_address
            at = high()
            directory = store.rows.directory
            size = self._find(address, len(key), at, directory)
            if size <= NO_ROOM and NO_ROOM - size <= bytes_max:
                self._have_room(2 * (NO_ROOM - size))
                size = self._find(address, len(key), at, directory)
            if 0 < size <= bytes_max:
                found = bytes(self._room_view[:size])
                if len(self._room) > ROOM_KEPT_BYTES:
                    self._have_room(ROOM_BYTES)  # one large row must not hold its memory forever
                return found
            if size == MISSING:
                return None
            number = int(self._room[:8].view(np.int64)[0])
            if size == NOT_HERE:
                wanted = store.wanted(self._room[:8].view(np.uint64).copy(), ())
                if wanted is None:
                    return None
                raise CheckNeeded(lambda: store.bring_in(wanted))
        if size > 0 or size <= NO_ROOM:
            raise LimitExceeded(
                f"the row takes more than {bytes_max} bytes: ask for fewer columns", limit=bytes_max
            )
        raise self._refused(size, number, directory)

    def _find(self, address: int, length: int, at: int, directory: Directory) -> int:
        store = self._store
        places: Places = directory.places  # type: ignore[assignment]
        first_chunk, chunks, _ = places.positions
        series = store.series
        _, bounds, cells = series.frame
        return find_row(  # type: ignore[no-any-return]
            address, length, self._key.spec, self._plan, self._bijective, self._seed,
            *store.index.view,
            at, series.start, series.end, bounds, cells,
            places.files, places.tail_start, places.tail_source, places.tail_block, first_chunk, chunks,
            directory.rows, directory.whole, directory.sound, directory.addresses, self._wanted.spec,
            self._room_address, len(self._room),
        )  # fmt: skip

    def _refused(self, reason: int, number: int, directory: Directory) -> Exception:
        if reason == MALFORMED:
            return MalformedBatch("the key is not a plain row of the table's key columns without NULLs")
        if reason == UNCHECKED:
            source = np.array([number], np.int32)
            chosen = self._layout.selection((*self._wanted.positions, *self._key.positions))
            return CheckNeeded(lambda: directory.check(source, chosen))
        if reason == NOWHERE:
            return lost_row(number)
        assert reason == CORRUPT
        return StoreCorrupt("the index leads to an impossible record")


class SingleRows:
    """The choices of columns that were asked for lately."""

    def __init__(self, store: KeyStore) -> None:
        self._store = store
        self._known: dict[tuple[int, ...] | None, SingleRow] = {}

    def of(self, columns: tuple[int, ...] | None) -> SingleRow:
        """For these columns; None: all."""
        single = self._known.get(columns)
        if single is None or not single.current:
            if len(self._known) >= CHOICES_MAX:
                self._known.clear()
            single = self._known[columns] = SingleRow(self._store, columns)
        return single
