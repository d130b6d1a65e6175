"""Reads the lake part of a plan through Arrow: live rows of its files, in the order of the plan.

Rows that died since the snapshot are known by offset before a file is read, and in Strom's files the offset gives the
row (``sidecar.py``). They are left out together with the rows that position deletes name, in one pass. In another
engine's file, the column ``__offset`` is read and every row is looked up.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from strom.errors import LakeCorrupt
from strom.lake.files.file_description import is_own
from strom.lake.files.file_reader import LakeFile, deleted_rows, read_file
from strom.lake.files.sidecar import SUFFIX, HeldOffsets, decode
from strom.lake.files.storage import Storage
from strom.lake.read.union_plan import LakeLimits, UnionPlan, bucket_of
from strom.model.filters.predicate import Predicate
from strom.model.lake.lake_types import OFFSET, TIMESTAMP
from strom.model.schema import Schema

Longs = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
_NONE = np.empty(0, np.int64)


def read_planned(
    storage: Storage,
    plan: UnionPlan,
    schema: Schema,
    columns: Sequence[str],
    where: Predicate | None,
) -> Iterator[pa.RecordBatch]:
    """All files of a plan, one after the other."""
    for file in plan.files:
        yield from read_one(storage, plan, file, schema, columns, where)


def read_one(
    storage: Storage,
    plan: UnionPlan,
    file: LakeFile,
    schema: Schema,
    columns: Sequence[str],
    where: Predicate | None,
) -> Iterator[pa.RecordBatch]:
    """The rows of one file that are live at the plan's instant and pass the filter."""
    dead = plan.dead_of(file)
    rows = rows_of(storage, file, dead)
    sieve = _Sieve(dead if rows is None else _NONE, plan, file)
    if sieve.empty:
        return
    if rows is not None and file.deletes:
        rows = np.union1d(rows, deleted_rows(storage, file))
    asked = [*columns, *(name for name in sieve.columns if name not in columns)]
    for batch in read_file(storage, file, schema, asked, where, rows):
        alive = sieve.alive(batch)
        if alive is not None:
            batch = batch.filter(pa.array(alive))
        if batch.num_rows:
            yield batch if len(asked) == len(columns) else batch.select(range(len(columns)))


def rows_of(storage: Storage, file: LakeFile, offsets: Longs) -> Longs | None:
    """The rows of a file with these offsets, sorted; None where only its column tells."""
    if not len(offsets):
        return _NONE
    if not is_own(file.path):
        return None
    held = HeldOffsets(file.first_offset, file.last_offset, file.rows)
    if file.last_offset - file.first_offset + 1 != file.rows:
        uri = file.path + SUFFIX
        try:
            held = decode(storage.read(uri), uri)
        except LakeCorrupt:  # the sidecar is missing or damaged; the column says the same
            return None
        if (held.first, held.last, held.rows) != (file.first_offset, file.last_offset, file.rows):
            raise LakeCorrupt(f"{uri} is not of its data file", uri=uri)
    rows = held.positions(offsets)
    return rows[rows >= 0]


class _Sieve:
    """Which rows of a file count: not dead, and within the limits of offsets and times."""

    def __init__(self, dead: Longs, plan: UnionPlan, file: LakeFile) -> None:
        limits = plan.limits or LakeLimits()
        bucket = bucket_of(plan.table_id, file)
        low, high = limits.low.get(bucket, 0), limits.high.get(bucket, file.last_offset + 1)
        self.empty = low > file.last_offset or high <= file.first_offset
        self._span = None if low <= file.first_offset and high > file.last_offset else (low, high)
        self._dead = dead
        self._limits = limits
        self.columns = [
            *([OFFSET] if len(dead) or self._span is not None else []),
            *([TIMESTAMP] if limits.timed else []),
        ]

    def alive(self, batch: pa.RecordBatch) -> Flags | None:
        """A flag for each row; None: all."""
        parts: list[Flags] = []
        if OFFSET in self.columns:
            offsets = batch.column(OFFSET).to_numpy()
            if len(self._dead):
                places = np.minimum(np.searchsorted(self._dead, offsets), len(self._dead) - 1)
                parts.append(self._dead[places] != offsets)
            if self._span is not None:
                parts.append((offsets >= self._span[0]) & (offsets < self._span[1]))
        if self._limits.timed:
            stamps = batch.column(TIMESTAMP).cast(pa.timestamp("us", "UTC")).view(pa.int64())
            micros = stamps.to_numpy(zero_copy_only=False)
            if self._limits.after_ms is not None:
                parts.append(micros >= self._limits.after_ms * 1000)
            if self._limits.before_ms is not None:
                parts.append(micros < self._limits.before_ms * 1000)
        return np.logical_and.reduce(parts) if parts else None
