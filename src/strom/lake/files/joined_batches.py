"""Batches of a useful size: small ones are joined, very large ones are cut."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

ROWS_TOGETHER = 8192
"""Smaller batches are joined; for larger ones the cost of a batch vanishes beside that of its rows."""
ROWS_AT_ONCE = 8 * ROWS_TOGETHER
"""Larger batches are cut: for a million rows, as in a row group of the lake, Spark's JVM takes fresh memory."""


def joined(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in the same order, in batches of a useful size."""
    held: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        large = batch.num_rows >= ROWS_TOGETHER
        if held and (large or rows + batch.num_rows > 2 * ROWS_TOGETHER):
            yield _one(held)  # before the large one: changes of a key stay in their order
            held, rows = [], 0
        if large:
            yield from (batch.slice(first, ROWS_AT_ONCE) for first in range(0, batch.num_rows, ROWS_AT_ONCE))
            continue
        held.append(batch)
        rows += batch.num_rows
        if rows >= ROWS_TOGETHER:
            yield _one(held)
            held, rows = [], 0
    if held:
        yield _one(held)


def _one(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
