"""Lookups: the rows of keys, and of tuples of other columns, at the high watermark.

Readers work at an instant H while writers work on the newest state. A version found at or above H is stepped back
through the series, past tombstones too. A secondary lookup takes the rows of the newest lists *and* those that left
them above H (the undo), steps each back, and then compares the columns: lists know hashes, not values.

The lock is held only while reading the index. Rows are gathered afterwards, through a directory that keeps them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from strom.errors import IndexBuilding, IndexNotFound
from strom.kv.arrays import Hashes, Int32s, Int64s
from strom.kv.gather.column_source import ColumnSource, source_of
from strom.kv.gather.directory import Directory
from strom.kv.gather.gather import gather, gather_message, rows_equal
from strom.kv.gather.memory_needed import MemoryNeeded
from strom.kv.index.secondary_index import SecondaryIndex
from strom.kv.lookup.located_keys import locate_keys
from strom.kv.rows.row_places import lost_row
from strom.kv.store import KeyStore
from strom.kv.versions import are_images, offsets_of

High = Callable[[], int]

SLICE_ROWS = 2048
"""Rows of one tuple gathered between two checks of their size."""


class FoundRows(NamedTuple):
    """Rows, the request each answers, and the instant."""

    positions: Int64s
    rows: pa.RecordBatch
    high_watermark: int
    more_after: int | None = None
    """The offset of the page's last row, unless the page is the last."""


class FoundMessage(NamedTuple):
    """Like ``FoundRows``, with the rows as one Arrow message."""

    positions: Int64s
    message: pa.Buffer
    high_watermark: int


def lookup_keys(
    store: KeyStore,
    keys: pa.RecordBatch,
    *,
    high: High,
    columns: Sequence[int] | None,
    bytes_max: int | None = None,
) -> FoundRows:
    """The rows of these keys; ``keys`` has the key columns in order. ``MemoryNeeded`` beyond ``bytes_max``."""
    found, directory, places, at = _locate(store, keys, high)
    return FoundRows(found, gather(directory, *places, columns, bytes_max=bytes_max), at)


def lookup_message(
    store: KeyStore,
    keys: pa.RecordBatch | ColumnSource,
    *,
    high: High,
    columns: Sequence[int] | None,
    bytes_max: int | None = None,
    quick: bool = False,
) -> FoundMessage:
    """Like ``lookup_keys``, ready to be sent. Not for nested columns. ``quick``: rather CheckNeeded than disk reads."""
    found, directory, places, at = _locate(store, keys, high, quick=quick)
    return FoundMessage(found, gather_message(directory, *places, columns, bytes_max=bytes_max), at)


def _locate(
    store: KeyStore, keys: pa.RecordBatch | ColumnSource, high: High, *, quick: bool = False
) -> tuple[Int64s, Directory, tuple[Int32s, Int32s], int]:
    """Which keys have a row, where these rows lie, and the instant."""
    source = keys if isinstance(keys, ColumnSource) else source_of(keys, store.key_layout.kinds)
    hashes = store.hasher.hash(source)
    located = locate_keys(store, source, hashes, high, quick=quick)
    if located is not None:
        return located.positions, located.directory, (located.source, located.row), located.at

    def look() -> tuple[int, Directory, Int64s]:
        at = high()
        row_ids = store.find_hashed(source, hashes)
        return at, store.rows.directory, store.series.snapshot().step_back(store.index.newest(row_ids), at)

    at, directory, versions = store.with_keys(hashes, look)
    found = np.flatnonzero(are_images(versions))
    return found, directory, _places(store, versions[found], directory), at


def lookup_tuples(
    store: KeyStore,
    name: str,
    tuples: pa.RecordBatch,
    *,
    high: High,
    columns: Sequence[int] | None,
    bytes_max: int | None,
) -> FoundRows:
    """The rows whose columns equal each tuple, tuple by tuple, older rows first.

    ``MemoryNeeded`` when they take more than ``bytes_max``.
    """
    which, source, row, _, directory, at = _matching(store, name, tuples, high)
    return FoundRows(which, _gather_bounded(directory, source, row, columns, bytes_max), at)


def _matching(
    store: KeyStore, name: str, tuples: pa.RecordBatch, high: High, after: int = -1
) -> tuple[Int64s, Int32s, Int32s, Int64s, Directory, int]:
    """For every row that equals a tuple: which tuple, its place, its offset. Then the directory and the instant."""
    index = store.lists.get(name)
    if index is None:
        raise IndexNotFound(f"the table has no index {name!r}", index=name, known=sorted(store.lists))
    hashes = index.hash_tuples(tuples)
    with store.lock:
        at = high()
        if not index.is_ready(at):
            raise IndexBuilding(f"index {name!r} is still being built", index=name)
        directory = store.rows.directory
        which, row_ids = _candidates(store, index, hashes)
        versions = store.series.snapshot().step_back(store.index.newest(row_ids), at)
    pairs = np.unique(np.stack([which, versions], axis=1)[are_images(versions)], axis=0)
    if after >= 0:
        pairs = pairs[offsets_of(pairs[:, 1]) > after]
    which, versions = pairs[:, 0], pairs[:, 1].copy()
    source, row = _places(store, versions, directory)
    asked = Directory(pa.schema([store.definition.arrow.field(p) for p in index.columns]),
                      (source_of(tuples, index.kinds),))  # fmt: skip
    same = rows_equal(
        asked, np.zeros(len(which), np.int32), which.astype(np.int32), directory, source, row,
        tuple(range(len(index.columns))), index.columns,
    )  # fmt: skip
    kept = np.flatnonzero(same)
    return which[kept], source[kept], row[kept], offsets_of(versions[kept]), directory, at


def lookup_page(
    store: KeyStore,
    name: str,
    tuples: pa.RecordBatch,
    after: int,
    *,
    high: High,
    columns: Sequence[int] | None,
    bytes_max: int,
) -> FoundRows:
    """Rows of one tuple written after an offset, oldest first, as many as an answer holds.

    A row that changes between two pages comes again, with a later offset; any other row is in exactly one page.
    """
    which, source, row, offsets, directory, at = _matching(store, name, tuples, high, after)
    parts: list[pa.RecordBatch] = []
    start, size, count = 0, 0, SLICE_ROWS
    while start < len(which):
        end = start + count
        left = None if count == 1 and not parts else bytes_max - size  # one row at least, however large
        try:
            part = gather(directory, source[start:end], row[start:end], columns, bytes_max=left)
        except MemoryNeeded as larger:
            if count == 1:
                break
            count = max(min(count, len(which) - start) * (bytes_max - size) // (2 * larger.size), 1)
            continue
        parts.append(part)
        start += part.num_rows
        size += part.nbytes
        if size >= bytes_max:
            break
    rows = pa.concat_batches(parts) if parts else gather(directory, source, row, columns)
    count = rows.num_rows
    return FoundRows(which[:count], rows, at, int(offsets[count - 1]) if count < len(which) else None)


def _gather_bounded(
    directory: Directory, source: Int32s, row: Int32s, columns: Sequence[int] | None, bytes_max: int | None
) -> pa.RecordBatch:
    """Gather slice by slice: one tuple may have more rows than fit into memory, which must show early."""
    if bytes_max is None or len(source) <= SLICE_ROWS:
        return gather(directory, source, row, columns, bytes_max=bytes_max)
    parts: list[pa.RecordBatch] = []
    size = 0
    for start in range(0, len(source), SLICE_ROWS):
        end = start + SLICE_ROWS
        try:
            part = gather(directory, source[start:end], row[start:end], columns, bytes_max=bytes_max - size)
        except MemoryNeeded as larger:
            raise MemoryNeeded(
                max(size + larger.size, 2 * bytes_max)
            ) from None  # the size of the rest is unknown
        parts.append(part)
        size += part.nbytes
        if size > bytes_max:
            raise MemoryNeeded(2 * size)
    return pa.concat_batches(parts)


def _candidates(store: KeyStore, index: SecondaryIndex, hashes: Hashes) -> tuple[Int64s, Int64s]:
    """(tuple, row id) of every row that is in a list now, or left it above the high watermark."""
    which, row_ids = index.links.rows_many(hashes)
    found = [(which, row_ids)]
    order = np.argsort(hashes, kind="stable")
    ordered = hashes[order]
    for done in store.undo:
        left = done.lists.get(index.name)
        if left is None:
            continue
        first = np.searchsorted(ordered, left.hashes, "left")
        count = np.searchsorted(ordered, left.hashes, "right") - first
        count[~left.linked] = 0
        if count.any():
            spread = np.repeat(first - np.cumsum(count) + count, count) + np.arange(count.sum())
            found.append((order[spread], np.repeat(done.row_ids, count)))
    return np.concatenate([one[0] for one in found]), np.concatenate([one[1] for one in found])


def _places(store: KeyStore, versions: Int64s, directory: Directory) -> tuple[Int32s, Int32s]:
    source, row = store.rows.locate(offsets_of(versions), directory)
    if len(source) and source.min() < 0:
        raise lost_row(int(offsets_of(versions)[np.argmin(source)]))
    return source, row
