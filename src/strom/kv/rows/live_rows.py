"""The live rows of some blocks as one batch: every value is copied once, from its block to the buffer it is sent from.

A scan reads tens of thousands of rows at a time, some of them dead. Columns of fixed width without NULLs are compacted
value by value without a branch: a dead row's value is written too, and the next value overwrites it. For other columns
the live rows are listed first, and ``gather`` copies them. Neither holds the interpreter.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from strom.kv.arrays import Bools, Int64s
from strom.kv.gather.column_source import ABSENT, VALIDITY, VALUES
from strom.kv.gather.copy_kernels import ALIGNMENT, copy_octets
from strom.kv.gather.gather import gather
from strom.kv.gather.row_layout import Selection
from strom.kv.gather.source_kernels import FIXED
from strom.kv.kernels.compile import (
    boolean,
    int32,
    int64,
    kernel,
    load_u8,
    load_u16,
    load_u32,
    load_u64,
    ro,
    rw,
    store_u8,
    store_u16,
    store_u32,
    store_u64,
    uint8,
)
from strom.kv.rows.block import Block


def gather_live(blocks: Sequence[tuple[Block, Bools]]) -> pa.RecordBatch:
    """The requested columns of the marked rows, in order.

    The blocks (at least one) are of one directory, without nested columns.
    """
    selection = blocks[0][0].selection
    return _pushed_together(blocks, selection) if _is_plain(blocks, selection) else _listed(blocks, selection)


def _is_plain(blocks: Sequence[tuple[Block, Bools]], selection: Selection) -> bool:
    """Whether all columns are of fixed width, and have no NULLs in these blocks."""
    if not len(selection.forms) or (selection.forms != FIXED).any():
        return False
    for block, _ in blocks:
        found = block.directory.addresses[block.number, selection.columns]
        if found[:, VALIDITY].any() or (found[:, VALUES] == ABSENT).any():
            return False
    return True


def _pushed_together(blocks: Sequence[tuple[Block, Bools]], selection: Selection) -> pa.RecordBatch:
    count = sum([int(np.count_nonzero(marked)) for _, marked in blocks])
    widths = selection.widths.tolist()
    # Room for one more value: that of a dead row at the end is written too.
    rooms = [-(-(count + 1) * width // ALIGNMENT) * ALIGNMENT for width in widths]
    memory = pa.allocate_buffer(sum(rooms))
    starts = np.cumsum([0, *rooms[:-1]], dtype=np.int64)
    targets: Int64s = starts + memory.address
    for block, marked in blocks:
        lies = block.directory.addresses[block.number, selection.columns, VALUES]
        _push_together(lies + block.first * selection.widths, selection.widths, marked, targets)
    _fill_up(targets, starts + memory.address + np.array(rooms, np.int64))
    arrays = [
        pa.Array.from_buffers(kind, count, [None, memory.slice(start, count * width)], 0)
        for kind, start, width in zip(selection.types, starts.tolist(), widths, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=selection.schema)


def _listed(blocks: Sequence[tuple[Block, Bools]], selection: Selection) -> pa.RecordBatch:
    room = sum([block.rows for block, _ in blocks]) + 1
    source, row = np.empty(room, np.int32), np.empty(room, np.int32)
    count = 0
    for block, marked in blocks:
        count = _list_marked(marked, block.number, block.first, source, row, count)
    return gather(blocks[0][0].directory, source[:count], row[:count], selection.positions)


@kernel(int64(ro(boolean), int64, int64, rw(int32), rw(int32), int64))
def _list_marked(marked: Any, number: int, first: int, source: Any, row: Any, count: int) -> int:
    """List where the marked rows lie, after ``count`` others; returns the new count. Needs room for one more.

    Every row is written, and overwritten by the next if it is not marked: no branch to mispredict.
    """
    for i in range(len(marked)):
        source[count] = number
        row[count] = first + i
        count += 1 if marked[i] else 0
    return count


@kernel(int64(ro(int64), ro(int64), ro(boolean), rw(int64)))
def _push_together(values: Any, widths: Any, marked: Any, targets: Any) -> int:
    """Copy the marked values of each column to its target, which advances. One value past the end may be written."""
    for j in range(len(values)):
        at, width, to = values[j], widths[j], targets[j]
        if width == 8:
            for i in range(len(marked)):
                store_u64(to, load_u64(at + 8 * i))
                to += 8 if marked[i] else 0
        elif width == 4:
            for i in range(len(marked)):
                store_u32(to, load_u32(at + 4 * i))
                to += 4 if marked[i] else 0
        elif width == 2:
            for i in range(len(marked)):
                store_u16(to, load_u16(at + 2 * i))
                to += 2 if marked[i] else 0
        elif width == 1:
            for i in range(len(marked)):
                store_u8(to, load_u8(at + i))
                to += 1 if marked[i] else 0
        else:
            for i in range(len(marked)):
                if marked[i]:
                    copy_octets(at + i * width, to, width)
                    to += width
        targets[j] = to
    return 0


@kernel(int64(ro(int64), ro(int64)))
def _fill_up(starts: Any, ends: Any) -> int:
    """Fill with zeros: bytes after a column may leave the process with it."""
    for j in range(len(starts)):
        for at in range(starts[j], ends[j]):
            store_u8(at, uint8(0))
    return 0
