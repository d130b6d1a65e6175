"""Decodes fetched records into Arrow batches with the wanted columns.

A batch was written with one version of the table's schema; the reader may want another. Columns map by id, and columns
that did not exist yet are NULL. The mapping of each version is computed once.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from strom.errors import Corrupt, InvalidProjection
from strom.model.schema import Column, Schema
from strom.record import decode as decoding
from strom.record.batch import BatchHeader
from strom.record.decode_run import Encoded as Encoded
from strom.record.decode_run import decode_all


class Fetched(NamedTuple):
    """Rows of one batch."""

    data: pa.RecordBatch
    base_offset: int
    """Of the first row. Offsets are dense from here unless ``sparse`` is set."""
    timestamp_ms: int
    sparse: npt.NDArray[np.int64] | None
    """The offset of every row, when a filter removed some."""
    changes: npt.NDArray[np.uint8] | None
    """The change of every row (``record.layout.CHANGE_…``); None when all were appended."""

    @property
    def offsets(self) -> npt.NDArray[np.int64]:
        """The offset of every row."""
        if self.sparse is not None:
            return self.sparse
        return np.arange(self.base_offset, self.base_offset + self.data.num_rows, dtype=np.int64)


class _Shape(NamedTuple):
    """How batches of one schema version map to the wanted columns."""

    arrow: pa.Schema
    """The columns in the batch."""
    positions: tuple[int | None, ...] | None
    """For each wanted column its position in the batch, None for NULLs; None when no mapping is needed."""


class RowReader:
    """Reads batches as ``columns`` (all, when None) of ``schema``."""

    def __init__(self, schema: Schema, columns: Sequence[str] | None = None) -> None:
        self._wanted = _columns(schema, columns)
        self.arrow: pa.Schema = pa.schema([column.to_arrow() for column in self._wanted])
        self.projected_ids: tuple[int, ...] = ()
        """Column ids to request from the server; empty for all."""
        if columns is not None and {column.id for column in self._wanted} != {
            one.id for one in schema.columns
        }:
            self.projected_ids = tuple(sorted(column.id for column in self._wanted))
        self._shapes: dict[int, _Shape] = {}
        self.learn(schema)

    def knows(self, schema_id: int) -> bool:
        """Whether batches with this schema can be read."""
        return schema_id in self._shapes

    def learn(self, schema: Schema) -> None:
        """Learn one version of the table's schema."""
        have = schema.columns
        if self.projected_ids:
            have = tuple(column for column in have if column.id in self.projected_ids)
        arrow = pa.schema([column.to_arrow() for column in have])
        places = {column.id: position for position, column in enumerate(have)}
        positions = tuple(places.get(column.id) for column in self._wanted)
        same = positions == tuple(range(len(have))) and arrow.equals(self.arrow)
        self._shapes[schema.schema_id] = _Shape(arrow, None if same else positions)

    def read(self, encoded: Encoded, *, start: int, end: int | None) -> Fetched | None:
        """The rows of a batch with offsets in [start, end); None when there are none.

        The facts of an error hold the unreadable offsets: ``first_offset`` and ``end_offset``.
        """
        header, view = encoded
        sparse = decoding.offsets(view, header) if header.sparse else None
        low, high = _rows_between(header, sparse, start, end)
        if low >= high:
            return None
        shape = self._shapes[header.schema_id]
        try:
            changes = None if header.append_only else decoding.changes(view, header)
            data = decoding.decode(view, shape.arrow, header=header, aligned=True)
        except Corrupt as error:
            error.facts |= {"first_offset": header.base_offset, "end_offset": header.next_offset}
            raise
        if shape.positions is not None:
            data = self._reshaped(data, shape.positions)
        if high - low < header.record_count:
            data = data.slice(low, high - low)
            sparse = None if sparse is None else sparse[low:high]
            changes = None if changes is None else changes[low:high]
        first = header.base_offset + low if sparse is None else int(sparse[0])
        return Fetched(data, first, header.timestamp_ms, sparse, changes)

    def read_all(self, batches: Sequence[Encoded], *, start: int, end: int | None) -> list[pa.RecordBatch]:
        """The rows of consecutive batches with offsets in [start, end)."""
        found: list[pa.RecordBatch] = []
        for schema_id, group in groupby(batches, lambda one: _schema_if_whole(one[0], start, end)):
            if schema_id is None:
                parts = [self.read(one, start=start, end=end) for one in group]
                found += [one.data for one in parts if one is not None]
                continue
            shape = self._shapes[schema_id]
            alike = list(group)
            try:
                decoded = decode_all(alike, shape.arrow)
            except Corrupt:
                for one in alike:
                    self.read(one, start=start, end=end)  # raises for the damaged one
                raise
            if shape.positions is not None:
                decoded = [self._reshaped(data, shape.positions) for data in decoded]
            found += decoded
        return found

    def _reshaped(self, data: pa.RecordBatch, positions: Sequence[int | None]) -> pa.RecordBatch:
        arrays = []
        for field, position in zip(self.arrow, positions, strict=True):
            if position is None:
                arrays.append(pa.nulls(data.num_rows, field.type))
            else:
                found = data.column(position)
                arrays.append(found if found.type.equals(field.type) else found.cast(field.type))
        return pa.RecordBatch.from_arrays(arrays, schema=self.arrow)


def _schema_if_whole(header: BatchHeader, start: int, end: int | None) -> int | None:
    """The schema id of a batch that is wanted whole and has all its rows; None for any other."""
    first = header.base_offset
    if header.sparse or not header.record_count or first < start:
        return None
    return header.schema_id if end is None or first + header.record_count <= end else None


def count(encoded: Encoded, *, start: int, end: int | None) -> int:
    """The number of rows of a batch with offsets in [start, end), without decoding it."""
    header, view = encoded
    sparse = decoding.offsets(view, header) if header.sparse else None
    low, high = _rows_between(header, sparse, start, end)
    return max(high - low, 0)


def _rows_between(
    header: BatchHeader, sparse: npt.NDArray[np.int64] | None, start: int, end: int | None
) -> tuple[int, int]:
    if sparse is not None:
        low = int(np.searchsorted(sparse, start))
        return low, len(sparse) if end is None else int(np.searchsorted(sparse, end))
    low = max(start - header.base_offset, 0)
    high = header.record_count if end is None else min(end - header.base_offset, header.record_count)
    return low, high


def _columns(schema: Schema, names: Sequence[str] | None) -> tuple[Column, ...]:
    if names is None:
        return schema.columns
    if isinstance(names, str):  # would be read as a sequence of letters
        raise InvalidProjection(f"columns= is a list of names: columns=[{names!r}]", columns=names)
    return tuple(schema.columns[position] for position in schema.projected(names))
