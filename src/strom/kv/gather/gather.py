"""Rows from many places into one batch, and rows compared where they lie.

``gather`` copies each value once. One kernel measures, a second writes an Arrow message, which pyarrow opens in place:
a few microseconds per call, and hardly anything per column or source. With a nested column among them, the columns
become arrays one by one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from strom.errors import RecordTooLarge
from strom.kv.arrays import Bools, Int32s, Int64s
from strom.kv.gather.column_source import NestedColumn
from strom.kv.gather.copy_kernels import (
    ALIGNMENT,
    OUTSIDE,
    UNCHECKED,
    compare_columns,
    copy_columns,
    copy_data,
    prepare,
)
from strom.kv.gather.directory import Directory
from strom.kv.gather.memory_needed import MemoryNeeded
from strom.kv.gather.message_kernels import DATA_SIZE, PLACE_FIELDS, measure, write
from strom.kv.gather.row_layout import Selection

__all__ = ["Directory", "gather", "gather_message", "rows_equal"]

DATA_BYTES_MAX = 2**31 - 1
"""Arrow's offsets have four bytes."""


def gather(
    directory: Directory,
    source: Int32s,
    row: Int32s,
    columns: Sequence[int] | None = None,
    *,
    bytes_max: int | None = None,
) -> pa.RecordBatch:
    """Row ``row[i]`` of source ``source[i]``, in this order; source -1 is a row of NULLs.

    ``MemoryNeeded`` when they take more than ``bytes_max``: raised before copying (with nested columns, during it).
    RecordTooLarge when one column would need more than 2 GiB. ChecksumMismatch when a base file is damaged where these
    rows lie.
    """
    selection = directory.layout.selection(columns)
    if selection.nested or not selection.positions:
        return _gather_arrays(directory, source, row, selection, bytes_max)
    return pa.ipc.read_record_batch(_message(directory, source, row, selection, bytes_max), selection.schema)


def gather_message(
    directory: Directory,
    source: Int32s,
    row: Int32s,
    columns: Sequence[int] | None = None,
    *,
    bytes_max: int | None = None,
) -> pa.Buffer:
    """Like ``gather``, as an uncompressed Arrow message. Not for nested columns."""
    selection = directory.layout.selection(columns)
    assert not selection.nested, "nested columns are gathered by pyarrow"
    return _message(directory, source, row, selection, bytes_max)


def _message(
    directory: Directory, source: Int32s, row: Int32s, selection: Selection, bytes_max: int | None
) -> pa.Buffer:
    assert len(source) == len(row)
    places = np.empty((len(selection.positions), PLACE_FIELDS), np.int64)
    for _ in range(2):
        size = measure(
            directory.rows,
            directory.whole,
            directory.sound,
            directory.addresses,
            selection.spec,
            source,
            row,
            True,
            ALIGNMENT,
            places,
        )
        if size != -UNCHECKED:
            break
        directory.check(source, selection)
    if size == -OUTSIDE:
        raise _outside()
    if bytes_max is not None and size > bytes_max:
        raise MemoryNeeded(size)
    if size > DATA_BYTES_MAX and selection.var:
        check_data(places[:, DATA_SIZE].tolist(), selection)
    head = len(selection.template)
    gap = -head % 64  # so that the body is aligned
    memory = pa.allocate_buffer(gap + head + size)
    write(
        directory.addresses,
        selection.spec,
        source,
        row,
        places,
        memory.address + gap,
        selection.template,
        selection.marks,
        size,
    )
    return memory.slice(gap) if gap else memory


def _outside() -> IndexError:
    return IndexError("a row is not in its source, or a source is not in the directory")


def check_data(sizes: Sequence[int], selection: Selection) -> None:
    for at in selection.var:
        if sizes[at] > DATA_BYTES_MAX:
            name = selection.schema.names[at]
            raise RecordTooLarge(
                f"the rows hold {sizes[at]} bytes in column {name!r}: more than one batch can hold",
                column=name,
                size=sizes[at],
            )


def _gather_arrays(
    directory: Directory, source: Int32s, row: Int32s, selection: Selection, bytes_max: int | None
) -> pa.RecordBatch:
    size, to = _prepared(directory, source, row, selection)
    if bytes_max is not None and size > bytes_max:
        raise MemoryNeeded(size)
    count = len(source)
    memory = pa.allocate_buffer(size)
    counts = np.zeros((len(to), 2), np.int64)
    args = (directory.addresses, selection.columns, selection.forms)
    copy_columns(*args, selection.widths, source, row, to, memory.address, 0, counts)
    nulls_and_ends = counts.tolist()
    starts, data_size = _data_places(nulls_and_ends, selection)
    size += data_size
    if bytes_max is not None and size > bytes_max:
        raise MemoryNeeded(size)
    data = pa.allocate_buffer(data_size)
    if data_size:
        copy_data(*args, source, row, to, memory.address, 0, np.array(starts, np.int64), data.address)
    arrays = []
    bitmap = (count + 7) >> 3
    for at, (kind, (nulls, end), place) in enumerate(
        zip(selection.kinds, nulls_and_ends, to.tolist(), strict=True)
    ):
        form, width, type_ = kind
        if form == "nested":
            arrays.append(_gather_nested(directory, source, row, selection.positions[at]))
            size += arrays[-1].nbytes
            if bytes_max is not None and size > bytes_max:
                raise MemoryNeeded(2 * size)  # the size of the rest is unknown
            continue
        validity = memory.slice(place[0], bitmap) if nulls else None
        if form == "fixed":
            buffers = [validity, memory.slice(place[1], count * width)]
        elif form == "bits":
            buffers = [validity, memory.slice(place[1], bitmap)]
        else:
            buffers = [validity, memory.slice(place[1], 4 * (count + 1)), data.slice(starts[at], end)]
        arrays.append(pa.Array.from_buffers(type_, count, buffers, nulls))
    if not arrays:
        return pa.RecordBatch.from_struct_array(pa.array([{}] * count, pa.struct([])))
    return pa.RecordBatch.from_arrays(arrays, schema=selection.schema)


def _prepared(directory: Directory, source: Int32s, row: Int32s, selection: Selection) -> tuple[int, Int64s]:
    """The size of a buffer for these rows, without variable data, and where the columns lie in it."""
    assert len(source) == len(row)
    to = np.zeros((len(selection.forms), 2), np.int64)
    size = np.zeros(1, np.int64)
    for _ in range(2):
        answer = prepare(
            directory.rows,
            directory.whole,
            directory.sound,
            source,
            row,
            selection.columns,
            selection.forms,
            selection.widths,
            to,
            size,
        )
        if answer != UNCHECKED:
            break
        directory.check(source, selection)
    if answer == OUTSIDE:
        raise _outside()
    return int(size[0]), to


def _data_places(nulls_and_ends: list[list[int]], selection: Selection) -> tuple[list[int], int]:
    """Where each column's variable data starts in one buffer, and its size."""
    check_data([end for _, end in nulls_and_ends], selection)
    starts, size = [0] * len(nulls_and_ends), 0
    for at in selection.var:
        end = nulls_and_ends[at][1]
        starts[at] = size
        size += (end + 63) & ~63
    return starts, size


def _gather_nested(directory: Directory, source: Int32s, row: Int32s, column: int) -> pa.Array:
    """A nested column, through pyarrow: a take from each piece involved, then one that restores the order."""
    type_ = directory.kinds[column].type
    found: list[pa.Array] = []
    place = np.full(len(source), -1, np.int64)
    taken = 0
    for at in np.unique(source).tolist():
        nested = directory.sources[at].nested.get(column) if at >= 0 else None
        if nested is None:
            continue  # a row of NULLs, or written before the column existed
        wanted = np.flatnonzero(source == at)
        for which, array in _take_pieces(nested, row[wanted]):
            place[wanted[which]] = np.arange(taken, taken + len(which))
            taken += len(which)
            found.append(array)
    if not found:
        return pa.nulls(len(source), type_)
    return pa.concat_arrays(found).take(pa.array(place, mask=place < 0))


def _take_pieces(nested: NestedColumn, rows: Int32s) -> list[tuple[Int64s, pa.Array]]:
    pieces = nested.pieces()
    if len(pieces) == 1:
        return [(np.arange(len(rows)), pieces[0][1].take(pa.array(rows)))]
    starts = np.array([start for start, _ in pieces], np.int64)
    of = np.searchsorted(starts, rows, side="right") - 1
    taken = []
    for at in np.unique(of).tolist():
        which = np.flatnonzero(of == at)
        taken.append((which, pieces[at][1].take(pa.array(rows[which] - starts[at]))))
    return taken


def rows_equal(
    left: Directory,
    left_source: Int32s,
    left_row: Int32s,
    right: Directory,
    right_source: Int32s,
    right_row: Int32s,
    left_columns: Sequence[int],
    right_columns: Sequence[int],
) -> Bools:
    """Whether each pair of rows is equal in these columns, bit by bit; NULL equals NULL.

    The columns must be of the same types. A nested value that holds NaN equals no other.
    """
    here, there = left.layout.selection(left_columns), right.layout.selection(right_columns)
    assert here.types == there.types, "columns of different types are compared"
    assert len(left_source) == len(right_source)
    _prepared(left, left_source, left_row, here)
    _prepared(right, right_source, right_row, there)
    same = np.ones(len(left_source), np.uint8)
    compare_columns(
        left.addresses,
        here.columns,
        left_source,
        left_row,
        right.addresses,
        there.columns,
        right_source,
        right_row,
        here.forms,
        here.widths,
        same,
    )
    for at in here.nested:
        mine = _gather_nested(left, left_source, left_row, here.positions[at])
        theirs = _gather_nested(right, right_source, right_row, there.positions[at])
        for i in np.flatnonzero(same).tolist():
            same[i] = mine[i : i + 1].equals(theirs[i : i + 1])
    return same.view(np.bool_)
