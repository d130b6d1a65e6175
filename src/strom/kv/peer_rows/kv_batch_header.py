"""The header of the peer's batch of puts and deletes (PutKv). Apart from ``kv_batch``: reading it needs no kernels.

0   4   length      bytes after this field
4   1   magic       0
5   4   crc         CRC-32C of everything from the schema id on
9   2   schema id
11  1   attributes
12  8   writer id
20  4   batch sequence
24  4   record count
28  …   records     each: i32 length after itself, varint key length, key, row to the end; no row is a delete
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from strom.errors import TornBatch
from strom.runtime.files import Bytes

LENGTH_OVERHEAD: Final = 4
CRC_FROM: Final = 9
MAGIC: Final = 0
_HEADER: Final = struct.Struct("<ibIhbqii")
HEADER_SIZE: Final = _HEADER.size


class KvBatchHeader(NamedTuple):
    """The fields, unchecked."""

    length: int
    magic: int
    crc: int
    schema_id: int
    attributes: int
    writer_id: int
    batch_sequence: int
    record_count: int


def read_kv_header(content: Bytes) -> KvBatchHeader:
    """The header of a batch; TornBatch when it is not all there."""
    if len(content) < HEADER_SIZE:
        raise TornBatch(
            f"{len(content)} bytes are fewer than the header of a batch of changes", found=len(content)
        )
    return KvBatchHeader._make(_HEADER.unpack_from(content))
