"""The peer's batch of puts and deletes (PutKv), taken apart but not decoded.

Format: ``kv_batch_header``.

Promise: for any bytes, :func:`parse` gives positions that lie within them, or raises. Nothing is allocated before the
record count is known to fit the bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from strom.errors import ChecksumMismatch, MalformedBatch
from strom.kv.arrays import Bools, Int64s, Octets
from strom.kv.kernels.compile import int64, kernel, ro, rw, uint8
from strom.kv.peer_rows.kv_batch_header import CRC_FROM, HEADER_SIZE, LENGTH_OVERHEAD, MAGIC, read_kv_header
from strom.record.checksum import crc32c
from strom.runtime.files import Bytes as Raw

RECORD_SIZE_MIN: Final = 5
"""The smallest record: a length and a key length."""


@dataclass(frozen=True)
class KvBatch:
    """Record ``i``: its key is ``data[key_starts[i]:key_ends[i]]``, its row ``data[key_ends[i]:value_ends[i]]``."""

    schema_id: int
    writer_id: int
    batch_sequence: int
    count: int
    data: Octets
    key_starts: Int64s
    key_ends: Int64s
    value_ends: Int64s
    deletes: Bools
    """Records without a row."""


def parse(view: Raw) -> KvBatch:
    """The one batch that ``view`` holds."""
    data = np.frombuffer(view, np.uint8)
    length, magic, crc, schema_id, _, writer_id, sequence, count = read_kv_header(view)
    if magic != MAGIC:
        raise MalformedBatch(f"no batch of changes has magic {magic}", magic=magic)
    if length + LENGTH_OVERHEAD != len(data):
        raise MalformedBatch(
            f"a batch of {length + LENGTH_OVERHEAD} bytes came in {len(data)}", length=length, found=len(data)
        )
    if crc32c(memoryview(view)[CRC_FROM:]) != crc:
        raise ChecksumMismatch("the checksum of a batch of changes does not fit its bytes", crc=crc)
    if not 0 <= count <= (len(data) - HEADER_SIZE) // RECORD_SIZE_MIN:
        raise MalformedBatch(f"a batch of {len(data)} bytes cannot hold {count} records", count=count)
    bounds = np.empty((3, count), np.int64)
    key_starts, key_ends, value_ends = bounds
    wrong = _walk(data, HEADER_SIZE, key_starts, key_ends, value_ends)
    if wrong >= 0:
        raise MalformedBatch(f"record {wrong} of a batch of changes reaches past its end", record=wrong)
    return KvBatch(
        schema_id, writer_id, sequence, count, data, key_starts, key_ends, value_ends, key_ends == value_ends
    )


@kernel(int64(ro(uint8), int64, rw(int64), rw(int64), rw(int64)))
def _walk(data: Octets, position: Any, key_starts: Int64s, key_ends: Int64s, value_ends: Int64s) -> Any:
    """Find every record; returns the number of the first bad one (the count if bytes are left over), or -1."""
    end = len(data)
    for i in range(len(key_starts)):
        if end - position < RECORD_SIZE_MIN:
            return i
        size = (
            np.int64(data[position]) | np.int64(data[position + 1]) << 8 | np.int64(data[position + 2]) << 16
        )
        size |= np.int64(data[position + 3]) << 24
        position += 4
        if size < 1 or size > end - position:  # a negative length has bit 31 set, so it is too large as well
            return i
        stop = position + size
        key = np.int64(0)
        shift = np.int64(0)
        while True:
            if position >= stop or shift > 28:
                return i
            byte = np.int64(data[position])
            position += 1
            key |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        if key > stop - position:
            return i
        key_starts[i] = position
        key_ends[i] = position + key
        value_ends[i] = stop
        position = stop
    return -1 if position == end else len(key_starts)
