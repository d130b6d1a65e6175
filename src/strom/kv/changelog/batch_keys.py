"""The keys of one batch of changes, grouped, and what the store knows about each: one kernel call for any batch size.

The kernel gives up when two keys share a hash, or when a column of a base file has not been checked yet. Then the store
takes the slow path (``KeyStore.groups_of``), step by step.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from strom.kv.arrays import Int32s, Int64s
from strom.kv.gather.column_source import ColumnSource
from strom.kv.gather.directory import Directory
from strom.kv.gather.source_kernels import (
    COLUMNS,
    FIXED,
    FORMS,
    VAR,
    WIDTHS,
    is_held,
    is_unchecked,
    same_value,
)
from strom.kv.index.grouping import first_with_hash, sort_groups
from strom.kv.index.index import KeyIndex
from strom.kv.index.newest_kernels import load_all
from strom.kv.index.slot_kernels import find_first
from strom.kv.kernels.compile import (
    boolean,
    int32,
    int64,
    kernel,
    load_i32,
    prefetch,
    ro,
    rw,
    uint8,
    uint64,
)
from strom.kv.rows.row_places import Places, locate

NOT_SURE: Final = -1
"""Keys share a hash, or columns would have to be checked first."""

_AHEAD: Final = 12


class BatchKeys(NamedTuple):
    """What is known about the keys of a batch, and where their newest records lie."""

    order: Int64s
    starts: Int64s
    hashes: npt.NDArray[np.uint64]
    row_ids: Int64s
    versions: Int64s
    source: Int32s
    """Of each key's newest record, tombstones included; -1 without one. Not filled in unless ``placed``."""
    row: Int32s


def find_batch_keys(
    keys: ColumnSource,
    hashes: npt.NDArray[np.uint64],
    index: KeyIndex,
    stored: Directory,
    spec: Int64s,
    *,
    exact: bool,
    placed: bool,
) -> BatchKeys | None:
    """Group keys and find them; None when that takes the slow path. ``exact``: equal hashes are equal keys.

    ``spec``: position among the stored columns, form and width of each key column. ``placed``: fill in where records
    lie.
    """
    places = stored.places
    assert isinstance(places, Places)
    count = len(hashes)
    numbers = np.empty((4, count + 1), np.int64)
    where = np.empty((2, count), np.int32)
    found = np.empty(count, np.uint64)
    shift, shards_of, shards, newest, size, _ = index.view
    groups = _find(
        hashes, keys.addresses, spec, exact, placed or not exact, shift, shards_of, shards, size, newest,
        places.files, places.tail_start, places.tail_source, places.tail_block, places.positions.first,
        places.positions.addresses, stored.rows, stored.whole, stored.sound, stored.addresses, numbers, found, where,
    )  # fmt: skip
    if groups == NOT_SURE:
        return None
    return BatchKeys(
        numbers[0, :count],
        numbers[1, : groups + 1],
        found[:groups],
        numbers[2, :groups],
        numbers[3, :groups],
        where[0, :groups],
        where[1, :groups],
    )


@kernel()
def _all_same(keys: Any, spec: Any, first: Any) -> Any:
    """Whether rows with the same hash have the same key."""
    for row in range(len(first)):
        if first[row] == row:
            continue
        for j in range(spec.shape[1]):
            if not same_value(
                keys, j, 0, row, keys, j, 0, int64(first[row]), spec[FORMS, j], spec[WIDTHS, j]
            ):
                return False
    return True


@kernel()
def _ask_values(addresses: Any, spec: Any, source: Any, row: Any) -> None:
    """Prefetch the values, or the offsets, of a row's key columns."""
    if source >= 0:
        for j in range(spec.shape[1]):
            values = addresses[source, spec[COLUMNS, j], 1]
            if spec[FORMS, j] == FIXED:
                prefetch(values + row * spec[WIDTHS, j])
            else:
                prefetch(values + 4 * row)


@kernel()
def _ask_data(addresses: Any, spec: Any, source: Any, row: Any) -> None:
    """Prefetch the variable data of a row's key columns."""
    if source >= 0:
        for j in range(spec.shape[1]):
            if spec[FORMS, j] == VAR:
                column = spec[COLUMNS, j]
                prefetch(
                    addresses[source, column, 2] + int64(load_i32(addresses[source, column, 1] + 4 * row))
                )


@kernel()
def are_these(
    keys: Any, spec: Any, asked: Any, row_ids: Any, rows: Any, whole: Any, sound: Any, addresses: Any,
    source: Any, row: Any,
) -> Any:  # fmt: skip
    """Whether every row found has the requested key columns."""
    count = len(row_ids)
    for group in range(count):
        if row_ids[group] < 0:
            continue
        at = int64(source[group])
        if at < 0 or not is_held(rows, at, int64(row[group])) or is_unchecked(whole, sound, at, spec):
            return False
    for group in range(count + 2 * _AHEAD):
        if group < count and row_ids[group] >= 0:
            _ask_values(addresses, spec, int64(source[group]), int64(row[group]))
        near = group - _AHEAD
        if 0 <= near < count and row_ids[near] >= 0:
            _ask_data(addresses, spec, int64(source[near]), int64(row[near]))
        at = near - _AHEAD
        if at < 0 or row_ids[at] < 0:
            continue
        for j in range(spec.shape[1]):
            if not same_value(
                keys, j, 0, asked[at], addresses, spec[COLUMNS, j], int64(source[at]), int64(row[at]),
                spec[FORMS, j], spec[WIDTHS, j],
            ):  # fmt: skip
                return False
    return True


@kernel(
    int64(
        ro(uint64), ro(int64, 2), ro(int64, 2), boolean, boolean, int64, ro(int32), ro(int64, 2), int64, ro(int64),
        ro(int64, 2), int64, int64, int64, int64, ro(int64), ro(int64), ro(uint8), ro(uint8, 2), ro(int64, 3),
        rw(int64, 2), rw(uint64), rw(int32, 2),
    )
)  # fmt: skip
def _find(
    hashes: Any, key_addresses: Any, spec: Any, exact: bool, placed: bool, shift: int, shards_of: Any, shards: Any,
    size: int, newest: Any, files: Any, tail_start: int, tail_source: int, tail_block: int, first_chunk: int,
    chunks: Any, rows: Any, whole: Any, sound: Any, addresses: Any, numbers: Any, found: Any, where: Any,
) -> Any:  # fmt: skip
    """Fills ``numbers`` (order, starts, row ids, versions) and ``where`` (source, row). Number of keys, or NOT_SURE."""
    count = len(hashes)
    first = np.empty(count, np.int64)
    groups = first_with_hash(hashes, first)
    keys = key_addresses.reshape((1, key_addresses.shape[0], key_addresses.shape[1]))
    if not exact and groups < count and not _all_same(keys, spec, first):
        return NOT_SURE
    order, starts = numbers[0, :count], numbers[1, : groups + 1]
    sort_groups(first, order, starts)
    asked = np.empty(groups, np.int64)
    for group in range(groups):
        asked[group] = order[starts[group]]
        found[group] = hashes[asked[group]]
    row_ids, versions = numbers[2, :groups], numbers[3, :groups]
    find_first(found[:groups], shift, shards_of, shards, row_ids)
    load_all(row_ids, size, newest, versions)
    if not placed:
        return groups
    offsets = np.empty(groups, np.int64)
    for group in range(groups):
        offsets[group] = versions[group] >> 1
    source, row = where[0, :groups], where[1, :groups]
    locate(
        offsets, files, tail_start, tail_source, tail_block, first_chunk, chunks, source, row
    )  # -1 has no place
    if not exact and not are_these(keys, spec, asked, row_ids, rows, whole, sound, addresses, source, row):
        return NOT_SURE
    return groups
