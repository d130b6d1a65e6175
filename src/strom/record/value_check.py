"""Whether the values of a batch can be read: the last check before a batch is stored.

Lengths were checked before (columns.py). What is left lies in the body, where a writer may have got anything wrong and
the checksum still fits: offsets that fall, text that is not UTF-8, a count of NULLs that is not the bitmap's, decimals
with too many digits, bytes that do not decompress. A reader that met one of these later could not read past it.

pyarrow's own full validation decides. It checks texts value by value, which is slow for a large batch; there the
offsets of a text column are compared as one vector and its bytes are checked as one run: if all of them are ASCII,
every text is sound wherever it is cut. Only other texts are checked one by one.

A compressed body is decompressed once, without other threads; a large one column by column, so that no more than one
column is in memory. Its total size is bounded before (``BatchLimits.decompressed_bytes_max``).

While the values are at hand they can be checked against the batch's statistics: a writer may get those wrong too, and
filters rely on them. Finding the bounds of every column costs several times as much as all the rest, so a server does
not do it every time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from strom.errors import MalformedBatch
from strom.record import layout as at
from strom.record.columns import BatchColumns, ColumnLayout, buffer_sizes
from strom.record.header import BatchHeader
from strom.record.statistics import ColumnStatistics, holds
from strom.record.statistics import read as read_statistics

#: Up to this size pyarrow's pass over the whole batch costs less than ours over its columns.
SMALL_BYTES_MAX = 64 * 1024
#: A body that decompresses to more is checked column by column.
HELD_BYTES_MAX = 16 * 1024 * 1024

_PROBLEMS = (pa.ArrowException, OSError, ValueError)
_OFFSET = np.dtype("<i4")
_TEXT = pa.string().id
_TEXTS = frozenset({_TEXT, pa.binary().id})
_ALONE = pa.ipc.IpcReadOptions(use_threads=False)


def check_content(
    view: memoryview,
    header: BatchHeader,
    columns: BatchColumns,
    layout: ColumnLayout,
    *,
    decompressed_bytes_max: int,
    statistics: bool = True,
) -> bool:
    """Raise MalformedBatch, which names the column, unless every value of a batch that fits ``layout`` can be read.

    Returns whether the batch's statistics hold, if they are to be checked.
    """
    message = view[header.message_position :]
    claims: Mapping[int, ColumnStatistics] = {}
    if statistics and header.statistics_size:
        claims = read_statistics(view, layout.schema, range(len(layout.schema)), header=header)
    if columns.codec == at.NOT_COMPRESSED:
        batch = _read(message, layout)
        if len(view) <= SMALL_BYTES_MAX:
            _check_at_once(batch)
        else:
            _check_columns(batch)
        return _hold(claims, batch)
    sizes = buffer_sizes(view, columns, decompressed_bytes_max=decompressed_bytes_max)
    at_once = sum(sizes) <= HELD_BYTES_MAX
    true = True
    for number, batch in enumerate(_decompressed(message, layout, at_once=at_once)):
        _check_columns(batch)
        said = claims if at_once else {0: claims[number]} if number in claims else {}
        true = true and _hold(said, batch)
    return true


def _hold(claims: Mapping[int, ColumnStatistics], batch: pa.RecordBatch) -> bool:
    return all(holds(claim, batch.column(position)) for position, claim in claims.items())


# --- reading ------------------------------------------------------------------------------------------------------


def _read(message: memoryview, layout: ColumnLayout) -> pa.RecordBatch:
    """The columns where they lie."""
    try:
        return pa.ipc.read_record_batch(pa.py_buffer(message), layout.schema)
    except _PROBLEMS as problem:
        raise MalformedBatch(f"the columns cannot be read: {problem}") from None


def _decompressed(message: memoryview, layout: ColumnLayout, *, at_once: bool) -> Iterator[pa.RecordBatch]:
    """All columns, or one after the other."""
    stream = pa.py_buffer(b"".join((layout.schema_message, message)))
    if at_once:
        try:
            yield _read_stream(stream, _ALONE)
            return
        except _PROBLEMS as problem:
            reason = problem  # one by one, to say which
    for position, field in enumerate(layout.schema):
        only = pa.ipc.IpcReadOptions(use_threads=False, included_fields=[position])
        try:
            batch = _read_stream(stream, only)
        except _PROBLEMS as problem:
            raise _malformed(field.name, f"its values cannot be decompressed: {problem}") from None
        if not at_once:
            yield batch
    if at_once:
        raise MalformedBatch(f"the columns cannot be read: {reason}")


def _read_stream(stream: pa.Buffer, options: pa.ipc.IpcReadOptions) -> pa.RecordBatch:
    return pa.ipc.open_stream(stream, options=options).read_next_batch()


# --- looking ------------------------------------------------------------------------------------------------------


def _check_at_once(batch: pa.RecordBatch) -> None:
    try:
        batch.validate(full=True)
    except _PROBLEMS:
        for field, column in zip(batch.schema, batch.columns, strict=True):
            _validate(field.name, column)
        raise MalformedBatch("the columns do not make a batch") from None


def _check_columns(batch: pa.RecordBatch) -> None:
    names = batch.schema.names
    for name, column in zip(names, batch.columns, strict=True):
        if column.type.id in _TEXTS:
            _check_texts(column, name)
        else:
            _validate(name, column)


def _validate(name: str, column: pa.Array) -> None:
    try:
        column.validate(full=True)
    except _PROBLEMS as problem:
        raise _malformed(name, str(problem)) from None


def _check_texts(column: pa.Array, name: str) -> None:
    """As ``_validate``, by vectors."""
    count, nulls = len(column), column.null_count
    if not count:
        return
    validity, offsets, data = column.buffers()
    if nulls and count - _set_bits(validity, count) != nulls:
        raise _malformed(name, f"it says {nulls} NULLs, which is not what its bitmap says")
    found = np.frombuffer(offsets, _OFFSET, count + 1)
    first, last = int(found[0]), int(found[-1])
    if not 0 <= first <= last <= (0 if data is None else data.size):
        raise _malformed(name, "the offsets point outside")
    if np.count_nonzero(found[1:] < found[:-1]):
        raise _malformed(name, "the offsets of its values fall")
    if column.type.id == _TEXT and last > first and not _is_ascii(data, first, last):
        _validate(name, column)


def _set_bits(bitmap: pa.Buffer, count: int) -> int:
    return int(pa.Array.from_buffers(pa.bool_(), count, [None, bitmap]).true_count)


def _is_ascii(data: Any, first: int, last: int) -> bool:
    # As signed numbers: those beyond ASCII are below zero.
    return bool(np.frombuffer(data, np.int8, last - first, first).min() >= 0)


def _malformed(name: str, problem: str) -> MalformedBatch:
    return MalformedBatch(f"column {name}: {problem}", column=name)
