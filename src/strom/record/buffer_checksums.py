"""One pass over a batch for two kinds of checksums: that of all its bytes, and one per buffer.

A log keeps a checksum of every buffer of a large batch, and must check the batch as a whole first. The bytes are read
once, buffer by buffer; the checksum of the whole is joined from theirs (joined_checksum.py), which costs a microsecond
each. What lies between the buffers (padding, or anything else) counts only for the whole.
"""

from __future__ import annotations

import pyarrow as pa

from strom.record.checksum import LARGE_BYTES, crc32c, extend_in
from strom.record.columns import BatchColumns
from strom.record.joined_checksum import shifted_often


def sum_up(view: memoryview, columns: BatchColumns, *, start: int) -> tuple[int, list[int]]:
    """The checksum of the batch ``view`` from ``start`` on, and that of each buffer; 0 is that of an empty one.

    ``columns`` are the batch's own, as ``read_columns`` placed them: in order, apart, and within the batch.
    """
    memory = pa.py_buffer(view)
    assert start <= columns.head_size <= columns.body_end == memory.size
    extend, address, size = extend_in(memory), memory.address, memory.size
    whole = extend(0, address + start, columns.head_size - start)
    end = columns.head_size
    found: list[int] = []
    for position, length in columns.buffers:
        if not length:
            found.append(0)
            continue
        if not end <= position <= size - length:
            raise ValueError(
                f"{length} bytes at {position} lie outside a batch of {size}, or on another buffer"
            )
        if position > end:
            whole = extend(whole, address + end, position - end)
        # A long one releases the interpreter lock meanwhile.
        crc = (
            extend(0, address + position, length)
            if length < LARGE_BYTES
            else crc32c(view[position : position + length])
        )
        whole = shifted_often(whole, length) ^ crc
        found.append(crc)
        end = position + length
    if end < size:
        whole = extend(whole, address + end, size - end)
    return whole, found
