"""One pass over a batch for two kinds of checksums: that of all its bytes, and one per buffer.

A log keeps a checksum of every buffer of a large batch, and has to check the batch as a whole before. The bytes are
looked at once, buffer by buffer; the checksum of the whole is joined from theirs (joined_checksum.py), which costs a
microsecond each. What lies between the buffers (padding, anybody's bytes) belongs to the whole alone.
"""

from __future__ import annotations

import pyarrow as pa

from strom.record.checksum import crc32c_within
from strom.record.columns import BatchColumns
from strom.record.joined_checksum import shifted_often
from strom.runtime.files import Bytes


def sum_up(view: Bytes, columns: BatchColumns, *, start: int) -> tuple[int, list[int]]:
    """The checksum of the batch ``view`` from ``start`` on, and that of each buffer; 0 is that of an empty one.

    ``columns`` are the batch's own, as ``read_columns`` placed them: in order, apart, and within the batch.
    """
    memory = pa.py_buffer(view)
    assert start <= columns.head_size <= columns.body_end == memory.size
    whole = crc32c_within(memory, start, columns.head_size - start)
    end = columns.head_size
    found: list[int] = []
    for position, length in columns.buffers:
        if not length:
            found.append(0)
            continue
        if position > end:
            whole = crc32c_within(memory, end, position - end, whole)
        crc = crc32c_within(memory, position, length)
        whole = shifted_often(whole, length) ^ crc
        found.append(crc)
        end = position + length
    if end < columns.body_end:
        whole = crc32c_within(memory, end, columns.body_end - end, whole)
    return whole, found
