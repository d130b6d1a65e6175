"""Filling a secondary index from the stored rows, while writers go on.

The builder walks the stored rows once, block by block. Under the lock it links the rows that are live *at that
moment*. Rows that writers change meanwhile are linked by publishing, which knows the index from the start. So when the
walk is done, every key's newest image is linked. Undo above the high watermark may not know what a row was linked to
before, so the index serves lookups only once the high watermark has reached the end of the walk.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from strom.kv.gather.column_source import source_of
from strom.kv.index.secondary_index import SecondaryIndex
from strom.kv.store import KeyStore


def build_list(store: KeyStore, index: SecondaryIndex) -> None:
    """Link every stored row. Any thread, or the lane."""
    for _ in build_steps(store, index):
        pass


def build_steps(store: KeyStore, index: SecondaryIndex) -> Iterator[int]:
    """Like ``build_list``, with a pause after every block; yields the number of rows visited."""
    key = store.definition.key
    columns = (*key, *(column for column in index.columns if column not in key))
    tuple_at = [columns.index(column) for column in index.columns]
    blocks = store.rows.blocks(0, store.published, columns)
    while True:
        with store.lock:
            block = next(blocks, None)
        if block is None:
            return
        live = np.flatnonzero(block.live & ~block.tombstone)
        if len(live):
            rows = block.batch.take(pa.array(live))
            keys = source_of(rows.select(list(range(len(key)))), store.key_layout.kinds)
            hashes, tuples = store.hasher.hash(keys), index.hash_tuples(rows.select(tuple_at))
            with store.lock:
                row_ids = store.find_hashed(keys, hashes)
                # Rows that changed since the block was taken were linked by their writers.
                still = (row_ids >= 0) & (store.index.newest(row_ids) == (block.offsets[live] << 1 | 1))
                index.add(row_ids[still], tuples[still])
        yield len(block.offsets)
