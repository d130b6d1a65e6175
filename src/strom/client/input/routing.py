"""Splits rows by partition and bucket. Pure: the same rows always go the same way, except that rows without a bucket
key start in a random bucket.

With a bucket key, Fluss's hash chooses the bucket. Without one, rows go to one bucket until it got about a full batch,
then to the next: batches stay large and buckets fill evenly.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from strom.model.bucketing import bucket_of
from strom.model.partitions import split_by_partition
from strom.model.table import TableDescription
from strom.runtime.random import Randomness

SMALL_BYTES = 4096
ARROW_PADDING_BYTES = 64
"""How much longer a buffer may be than its values."""


class BucketRows(NamedTuple):
    """Rows for one bucket of one partition."""

    partition: str | None
    values: tuple[str, ...]
    """The partition's values, in key order."""
    bucket: int
    batch: pa.RecordBatch
    size_bytes: int


class Router:
    """Splits batches of one table."""

    def __init__(
        self, description: TableDescription, randomness: Randomness, *, batch_bytes_max: int
    ) -> None:
        assert description.bucket_count is not None
        self._partition_keys = description.partition_keys
        self._bucket_key = description.bucket_key
        self._buckets = description.bucket_count
        self._randomness = randomness
        self._batch_bytes_max = batch_bytes_max
        self._sticky: dict[str | None, tuple[int, int]] = {}
        """By partition: the current bucket, and the bytes it got so far."""

    def parts(self, batch: pa.RecordBatch) -> Iterator[BucketRows]:
        """Split a batch by partition and bucket; rows keep their order within each."""
        if not self._partition_keys:
            yield from self._by_bucket(None, (), batch)
            return
        for name, values, rows in split_by_partition(batch, self._partition_keys):
            yield from self._by_bucket(name, tuple(values), rows)

    def _by_bucket(
        self, partition: str | None, values: tuple[str, ...], batch: pa.RecordBatch
    ) -> Iterator[BucketRows]:
        if self._buckets == 1:
            yield BucketRows(partition, values, 0, batch, size_of(batch))
        elif self._bucket_key:
            ids = bucket_of(batch, self._bucket_key, self._buckets)
            for bucket, rows in split_by_number(batch, ids, self._buckets):
                yield BucketRows(partition, values, bucket, rows, rows.nbytes)
        else:
            for piece, size in cut(batch, batch.nbytes, bytes_max=self._batch_bytes_max):
                yield BucketRows(partition, values, self._stick(partition, size), piece, size)

    def _stick(self, partition: str | None, size: int) -> int:
        bucket, got = self._sticky.get(partition) or (self._randomness.below(self._buckets), 0)
        if got > 0 and got + size > self._batch_bytes_max:
            bucket, got = (bucket + 1) % self._buckets, 0
        self._sticky[partition] = (bucket, got + size)
        return bucket


def split_by_number(
    batch: pa.RecordBatch, ids: np.ndarray, count: int
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The rows of each number in [0, count), in their order; numbers without rows are skipped."""
    order = np.argsort(ids, kind="stable")
    ends = np.cumsum(np.bincount(ids, minlength=count))
    start = 0
    for number, end in enumerate(ends.tolist()):
        if end - start == batch.num_rows:
            yield number, batch
        elif end > start:
            yield number, batch.take(pa.array(order[start:end]))
        start = end


def size_of(batch: pa.RecordBatch) -> int:
    """The bytes of a batch. If its buffers hold little else, padding counts too: that is much cheaper."""
    whole: int = batch.get_total_buffer_size()
    return whole if whole <= SMALL_BYTES or _fills_its_buffers(batch) else batch.nbytes


def _fills_its_buffers(batch: pa.RecordBatch) -> bool:
    """Whether this is not a slice of a larger batch, judged by its first column. A wrong guess is only a wrong size."""
    first = batch.column(0)
    values = first.buffers()[1] if first.type.num_buffers > 1 else None
    if values is None or first.offset:
        return False
    try:
        needed = (batch.num_rows * first.type.bit_width + 7) // 8
    except ValueError:  # offsets, of 32 bits each
        needed = (batch.num_rows + 1) * 4
    return bool(values.size <= needed + ARROW_PADDING_BYTES)


def cut(batch: pa.RecordBatch, size: int, *, bytes_max: int) -> Iterator[tuple[pa.RecordBatch, int]]:
    """The batch, which has ``size`` bytes, in slices of at most ``bytes_max``, each with its size.

    A single row that is larger goes alone.
    """
    if size <= bytes_max or batch.num_rows <= 1:
        yield batch, size
        return
    rows = max(1, batch.num_rows * bytes_max // size)
    for start in range(0, batch.num_rows, rows):
        piece = batch.slice(start, rows)
        # Rows differ in size: a slice of the longer ones may still be too large.
        yield from cut(piece, piece.nbytes, bytes_max=bytes_max)
