"""Adjacent batches with identical metadata, decoded together.

Batches of one writer often differ only in their values. When several follow each other in one answer, the metadata is
read and checked against the schema once; what depends on the values is checked in every batch: its checksum, and every
offset of its texts, lists and maps, for all batches of a run at once.

A run with anything wrong is decoded batch by batch, so that ``decode`` says what is wrong and in which batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter

import numpy as np
import pyarrow as pa

from strom.record import layout as at
from strom.record.batch import DEFAULT_LIMITS, BatchHeader, check_crc, read_columns
from strom.record.checksum import crc32c
from strom.record.columns import ColumnLayout
from strom.record.decode import decode, read_message

Encoded = tuple[BatchHeader, memoryview]
"""A batch as it came, its header read."""

_OFFSET = np.dtype("<i4")
_VALUE_ALIGNMENT = 8
_FEW = 3
"""Fewer batches are not worth the search for what they share."""
_shape_of = itemgetter(
    *(
        BatchHeader._fields.index(name)
        for name in ("size", "magic", "attributes", "record_count", "records_position")
    )
)


def decode_all(batches: Sequence[Encoded], schema: pa.Schema) -> list[pa.RecordBatch]:
    """The columns of each batch, checked as ``decode`` does, at aligned addresses."""
    found: list[pa.RecordBatch] = []
    while len(found) < len(batches):
        run = _run_from(batches, len(found))
        decoded = _decode_run(run, schema) if len(run) >= _FEW else None
        if decoded is None:
            decoded = [decode(view, schema, header=header, aligned=True) for header, view in run]
        found += decoded
    return found


def _run_from(batches: Sequence[Encoded], start: int) -> Sequence[Encoded]:
    """The batch at ``start``, and those after it whose headers describe the same content."""
    shape = _shape_of(batches[start][0])
    end = start + 1
    while end < len(batches) and _shape_of(batches[end][0]) == shape:
        end += 1
    return batches[start:end]


def _decode_run(run: Sequence[Encoded], schema: pa.Schema) -> list[pa.RecordBatch] | None:
    """The columns of the batches of a run; None when they are not alike."""
    header, view = run[0]
    start = header.message_position
    if start >= header.size:
        return None
    covered = at.SCHEMA_ID_POSITION[header.magic]
    for one, octets in run:
        if len(octets) != one.size:
            return None
        if crc32c(octets[covered:]) != one.crc:
            check_crc(octets, one)  # says which
    columns = read_columns(view, header)
    head = bytes(view[start : columns.head_size])
    if columns.codec != at.NOT_COMPRESSED or any(one[start : columns.head_size] != head for _, one in run):
        return None
    # The memory that all of them lie in, and where: offsets are checked across batches.
    memory = pa.py_buffer(view.obj)
    places = [pa.py_buffer(one).address - memory.address for _, one in run]
    if places != list(range(places[0], places[0] + len(run) * header.size, header.size)):
        return None
    if (memory.address + places[0] + columns.head_size) % _VALUE_ALIGNMENT or header.size % _VALUE_ALIGNMENT:
        return None
    layout = ColumnLayout.of(schema)
    offsets = layout.fitting(
        view,
        columns,
        record_count=header.record_count,
        decompressed_bytes_max=DEFAULT_LIMITS.decompressed_bytes_max,
    )
    for position, length, end, _ in offsets:
        shape = (len(run), length + 1)
        strides = (header.size, _OFFSET.itemsize)
        if not _fit(np.ndarray(shape, _OFFSET, memory, places[0] + position, strides), end):
            return None
    size = header.size - start
    return [
        read_message(memory.slice(place + start, size), schema, full_validation=False) for place in places
    ]


def _fit(offsets: np.ndarray[tuple[int, int], np.dtype[np.int32]], end: int) -> bool:
    """Whether no row of offsets begins before what it points to, ends after it, or falls."""
    if (offsets[:, 0] < 0).any() or (offsets[:, -1] > end).any():
        return False
    return not (offsets[:, 1:] < offsets[:, :-1]).any()
