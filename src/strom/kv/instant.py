"""The table at an instant B: which stored images were live then, and which died between two instants.

    live(B)     images below B that are live now, and images below B whose replacing record is at or above B
    dead(A, B)  images below A whose replacing record is in [A, B)

Neither depends on what is live *now*: both are pure functions of offsets as long as B ≥ R and A ≥ S. Live bits are
always read before the series, so that an image that dies in between is in both, never in neither.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from strom.kv.arrays import Bools, Int64s
from strom.kv.gather.column_source import source_of
from strom.kv.rows.row_places import lost_row
from strom.kv.rows.rows import Block
from strom.kv.store import KeyStore
from strom.kv.versions import offsets_of


class LiveBlock(NamedTuple):
    """Stored rows of one block and which of them are live at the instant."""

    block: Block
    live: Bools

    @property
    def offsets(self) -> Int64s:
        """The offset of each row."""
        return self.block.offsets

    @property
    def batch(self) -> pa.RecordBatch:
        """The requested columns."""
        return self.block.batch


def live_blocks(
    store: KeyStore,
    start: int,
    at: int,
    columns: Sequence[int] | None,
    *,
    high: int,
    rows_max: int,
    bytes_max: int,
) -> tuple[list[LiveBlock], int]:
    """Blocks of [start, at) until they hold ``rows_max`` rows, and where the next ones begin (``at``: no more).

    Together they have at most ``bytes_max`` bytes, dead rows included, but always at least one row.
    """
    while True:
        with store.lock:
            directory, cuts = store.rows.directory, store.cuts
        blocks, reached = _blocks(store.rows.blocks(start, at, columns, directory), at, rows_max, bytes_max)
        with store.lock:
            if store.cuts != cuts:
                continue  # a cut may have revived an image that was seen dead, and the series forgot its death
            view = store.series.snapshot()
            # Once the lock is free, records above the high watermark may be cut and replaced by others.
            above = store.series.snapshot().replaced(high, store.published, below=at)
        replaced = _distinct(
            [_within(view.replaced(at, high, below=at), start, reached), _within(above, start, reached)]
        )
        return [LiveBlock(b, _live(b, replaced)) for b in blocks], reached


def _blocks(found: Iterator[Block], at: int, rows_max: int, bytes_left: int) -> tuple[list[Block], int]:
    """Some blocks, and where the next ones begin. Called without the lock, which would make lookups wait."""
    blocks: list[Block] = []
    count = 0
    for block in found:
        size = block.size
        if size > bytes_left:
            fit = block.rows_within(bytes_left) or (0 if blocks else 1)
            if fit:
                blocks.append(block.head(fit))
            return blocks, blocks[-1].end
        blocks.append(block)
        count += block.rows
        bytes_left -= size
        if count >= rows_max:
            return blocks, block.end
    return blocks, at


def _within(rising: Int64s, start: int, end: int) -> Int64s:
    first, last = np.searchsorted(rising, (start, end))
    return rising[first:last]


def _distinct(parts: Sequence[Int64s]) -> Int64s:
    """All values, ascending, each once. Unlike NumPy's ``unique``, sorting releases the interpreter."""
    values = np.concatenate(parts)
    values.sort()
    first = np.ones(len(values), np.bool_)
    np.not_equal(values[1:], values[:-1], out=first[1:])
    return values[first]


def _live(block: Block, replaced: Int64s) -> Bools:
    live = block.live  # a tombstone never is
    if not len(replaced) or not block.rows:
        return live
    first, last = np.searchsorted(replaced, (block.offsets[0], block.offsets[-1] + 1))
    wanted = replaced[first:last]
    if len(wanted):
        at = np.searchsorted(block.offsets, wanted)
        if (block.offsets[at] != wanted).any():
            missing = int(wanted[np.argmax(block.offsets[at] != wanted)])
            raise lost_row(missing)
        live[at] = True
    return live


def count_live(store: KeyStore, at: int) -> int:
    """The number of rows at an instant. Looks only at what was written since. Under the lock."""
    published = store.published
    if at == published:
        return store.rows.live_count
    above = sum(int(block.live.sum()) for block in store.rows.blocks(at, published, store.definition.key))
    return store.rows.live_count - above + len(store.series.snapshot().replaced(at, published, below=at))


def dead_between(store: KeyStore, start: int, first: int, end: int) -> Int64s:
    """The offsets below ``start`` that died in [first, end), ascending. ``first`` is ``start`` or later."""
    if start <= 0 or end <= first:
        return np.zeros(0, np.int64)
    with store.lock:
        view = store.series.snapshot()
    return view.replaced(first, end, below=start)


class Tombstones(NamedTuple):
    """Tombstones below the horizon, with the keys they bury."""

    keys: pa.RecordBatch
    """The key columns."""
    versions: Int64s


def tombstones_below(store: KeyStore, start: int, end: int, horizon: int, *, at_most: int) -> Tombstones:
    """The tombstones in [start, end) that no instant from the horizon on needs. Any thread."""
    kept: list[pa.RecordBatch] = []
    versions: list[Int64s] = []
    count = 0
    for block in store.rows.blocks(start, min(end, horizon), store.definition.key):
        found = np.flatnonzero(block.tombstone)[: at_most - count]
        if len(found):
            kept.append(block.batch.take(pa.array(found)))
            versions.append(block.offsets[found] << 1)
            count += len(found)
        if count >= at_most:
            break
    schema = store.key_layout.schema
    keys = pa.Table.from_batches(kept, schema).combine_chunks().to_batches() if kept else []
    return Tombstones(
        keys[0] if keys else pa.RecordBatch.from_pylist([], schema=schema),
        np.concatenate(versions) if versions else np.zeros(0, np.int64),
    )


def needed_from(store: KeyStore, start: int, end: int, horizon: int) -> Callable[[Int64s], Bools]:
    """Which rows of [start, end) the index, or an instant from the horizon on, may still need. Any thread.

    An image is dropped only if it died before the horizon, a tombstone only if its key was forgotten.
    """
    kept = [np.zeros(0, np.int64)]
    blocks = store.rows.blocks(start, min(end, horizon), store.definition.key)
    while True:
        with store.lock:
            block = next(blocks, None)
        if block is None:
            break
        kept.append(block.offsets[block.live & ~block.tombstone])
        buried = np.flatnonzero(block.tombstone)
        if len(buried):
            keys = source_of(block.batch.take(pa.array(buried)), store.key_layout.kinds)
            hashes = store.hasher.hash(keys)
            newest = store.with_keys(
                hashes,
                lambda: store.index.newest(store.find_hashed(keys, hashes)),  # noqa: B023 (called at once)
            )
            kept.append(block.offsets[buried][offsets_of(newest) == block.offsets[buried]])
    with store.lock:
        view, published = store.series.snapshot(), store.published
    kept.append(view.replaced(horizon, published, below=horizon))
    offsets = _distinct(kept)

    def needed(asked: Int64s) -> Bools:
        at = np.searchsorted(offsets, asked)
        at[at == len(offsets)] = 0
        found = offsets[at] == asked if len(offsets) else np.zeros(len(asked), np.bool_)
        return found | (asked >= horizon)

    return needed
