"""Many keys at once: which of them have a row below an offset, and where it lies.

Two kernels. The first reads index and series, and is all that needs the lock. The second works on a directory taken
under the lock: it compares the keys, unless hashes are exact, and finds the rows' places. Both prefetch a few keys
ahead. They give up when two keys share a hash, or when a column of a base file has not been checked yet: then
``many_rows`` takes the slow path.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from strom.errors import StoreCorrupt
from strom.kv.arrays import Int32s, Int64s
from strom.kv.changelog.batch_keys import are_these
from strom.kv.gather.column_source import ColumnSource
from strom.kv.gather.directory import Directory
from strom.kv.index.newest_kernels import load_all
from strom.kv.index.series_kernels import FINE, step_back
from strom.kv.index.slot_kernels import find_first
from strom.kv.kernels.compile import boolean, int32, int64, kernel, ro, rw, uint8, uint64
from strom.kv.lookup.check_needed import CheckNeeded
from strom.kv.rows.row_places import Places, locate, lost_row
from strom.kv.store import FromRuns, KeyStore

_NOT_SURE: Final = -1
_NOWHERE: Final = -2


class LocatedKeys(NamedTuple):
    """The keys that have a row, and where their rows lie."""

    positions: Int64s
    """Which key each row has, ascending."""
    directory: Directory
    source: Int32s
    row: Int32s
    at: int
    """The instant."""


def locate_keys(
    store: KeyStore,
    keys: ColumnSource,
    hashes: npt.NDArray[np.uint64],
    high: Callable[[], int],
    *,
    quick: bool = False,
) -> LocatedKeys | None:
    """Look keys up at the high watermark; None when that takes the slow path.

    ``quick``: CheckNeeded where keys would have to be read from the disk.
    """
    count = len(hashes)
    numbers = np.empty((5, count), np.int64)
    where = np.empty((2, count), np.int32)
    store.index.uses += count
    read: list[FromRuns] = []
    while True:
        with store.lock:
            wanted = None if store.index.resident is None else store.wanted(hashes, read)
            if wanted is None:
                at = high()
                directory = store.rows.directory
                shift, shards_of, shards, newest, size, _ = store.index.view
                series = store.series
                _, bounds, cells = series.frame
                fault = _find(
                    hashes, shift, shards_of, shards, newest, size, at, series.start, series.end, bounds, cells, numbers
                )  # fmt: skip
                break
        if quick:
            raise CheckNeeded(partial(store.bring_in, wanted))
        read.append(store.read_runs(wanted))
    if fault != FINE:
        raise StoreCorrupt("the series of replaced versions leads out of its range")
    places = directory.places
    assert isinstance(places, Places)
    found = _place(
        keys.addresses, store.key_spec, store.hasher.bijective, places.files, places.tail_start, places.tail_source,
        places.tail_block, places.positions.first, places.positions.addresses, directory.rows, directory.whole,
        directory.sound, directory.addresses, numbers, where,
    )  # fmt: skip
    if found == _NOT_SURE:
        return None
    if found == _NOWHERE:
        raise lost_row(int(numbers[4, 0]))
    return LocatedKeys(numbers[3, :found], directory, where[0, :found], where[1, :found], at)


@kernel(
    int64(
        ro(uint64), int64, ro(int32), ro(int64, 2), ro(int64), int64, int64, int64, int64, ro(int64), ro(int64),
        rw(int64, 2),
    )
)  # fmt: skip
def _find(
    hashes: Any, shift: int, shards_of: Any, shards: Any, newest: Any, size: int, below: int, series_start: int,
    series_end: int, bounds: Any, cells: Any, numbers: Any,
) -> Any:  # fmt: skip
    """Fill in row ids, newest versions and visible versions: the first three of ``numbers``."""
    find_first(hashes, shift, shards_of, shards, numbers[0])
    load_all(numbers[0], size, newest, numbers[1])
    for i in range(len(hashes)):
        numbers[2, i] = numbers[1, i]
    return step_back(numbers[2], below, series_start, series_end, bounds, cells)


@kernel(
    int64(
        ro(int64, 2), ro(int64, 2), boolean, ro(int64, 2), int64, int64, int64, int64, ro(int64), ro(int64), ro(uint8),
        ro(uint8, 2), ro(int64, 3), rw(int64, 2), rw(int32, 2),
    )
)  # fmt: skip
def _place(
    key_addresses: Any, spec: Any, exact: bool, files: Any, tail_start: int, tail_source: int, tail_block: int,
    first_chunk: int, chunks: Any, rows: Any, whole: Any, sound: Any, addresses: Any, numbers: Any, where: Any,
) -> Any:  # fmt: skip
    """Fill in positions (the fourth of ``numbers``) and places of keys with a row. Returns their number, or a fault."""
    count = numbers.shape[1]
    row_ids, newest, visible, positions, offsets = numbers[0], numbers[1], numbers[2], numbers[3], numbers[4]
    if not exact:
        for i in range(count):
            offsets[i] = newest[i] >> 1
            positions[i] = i
        locate(offsets, files, tail_start, tail_source, tail_block, first_chunk, chunks, where[0], where[1])
        keys = key_addresses.reshape((1, key_addresses.shape[0], key_addresses.shape[1]))
        if not are_these(keys, spec, positions, row_ids, rows, whole, sound, addresses, where[0], where[1]):
            return _NOT_SURE
    found = 0
    moved = exact
    for i in range(count):
        version = visible[i]
        if version >= 0 and version & 1 == 1:
            moved |= version != newest[i]
            positions[found] = i
            offsets[found] = version >> 1
            where[0, found] = where[0, i]
            where[1, found] = where[1, i]
            found += 1
    source, row = where[0, :found], where[1, :found]
    if moved:
        locate(offsets[:found], files, tail_start, tail_source, tail_block, first_chunk, chunks, source, row)
    for i in range(found):
        if source[i] < 0:
            offsets[0] = offsets[i]
            return _NOWHERE
    return found
