"""Sparse batches: rows with gaps between their offsets, as a server sends them and never stores them.

Such a batch has an offset delta per record (u32, after the header), so that every row keeps the offset it has in the
log. It has no place in a log and no Fluss client ever sees one (docs/formats/record_batch.md).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from strom.record import layout as at
from strom.record.checksum import crc32c_many
from strom.record.encode import message_pieces
from strom.runtime.files import Bytes

SPAN_MAX = 2**31 - 1
"""Offsets one batch can span: its last delta is a signed number of 32 bits."""


def sparse_batches(rows: pa.RecordBatch, offsets: npt.NDArray[np.int64], *, schema_id: int) -> list[Bytes]:
    """Rows with their offsets (rising) as sparse batches; several when they span more than one can."""
    pieces: list[Bytes] = []
    start = 0
    while start < len(offsets):
        base = int(offsets[start])
        stop = int(np.searchsorted(offsets, base + SPAN_MAX))
        deltas = (offsets[start:stop] - base).astype(np.uint32)
        message = message_pieces(rows.slice(start, stop - start))
        pieces += framed(
            [deltas.astype("<u4").tobytes(), *message],
            stop - start,
            base,
            int(deltas[-1]),
            schema_id=schema_id,
        )
        start = stop
    return pieces


def dense_batch(rows: pa.RecordBatch, *, schema_id: int) -> list[Bytes]:
    """Rows without their offsets, as a dense batch that begins at 0."""
    return framed(
        message_pieces(rows), rows.num_rows, 0, rows.num_rows - 1, schema_id=schema_id, sparse=False
    )


def framed(
    pieces: Sequence[Bytes],
    record_count: int,
    base_offset: int,
    last_offset_delta: int,
    *,
    schema_id: int,
    timestamp_ms: int = 0,
    attributes: int = at.ATTRIBUTE_APPEND_ONLY,
    writer_id: int = at.NO_WRITER_ID,
    batch_sequence: int = at.NO_BATCH_SEQUENCE,
    sparse: bool = True,
) -> list[Bytes]:
    """A header for what follows it: deltas if it is sparse, change types if any, the Arrow message."""
    head = bytearray(
        at.HEADER[at.MAGIC_PLAIN].pack(
            base_offset,
            at.HEADER_SIZE[at.MAGIC_PLAIN] + sum(map(len, pieces)) - at.LENGTH_OVERHEAD,
            at.MAGIC_PLAIN,
            timestamp_ms,
            0,
            schema_id,
            attributes | (at.ATTRIBUTE_SPARSE if sparse else 0),
            last_offset_delta,
            writer_id,
            batch_sequence,
            record_count,
        )
    )
    covered = at.SCHEMA_ID_POSITION[at.MAGIC_PLAIN]
    crc = crc32c_many([memoryview(head)[covered:], *pieces])
    head[at.CRC_POSITION[at.MAGIC_PLAIN] : covered] = crc.to_bytes(at.CRC_LENGTH, "little")
    return [head, *pieces]
