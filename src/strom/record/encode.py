"""Arrow columns to batch bytes: one allocation, one copy of the columns, one checksum.

The columns' own buffers are joined behind a head that is packed by hand. Where that is not possible (nested types,
bitmaps that start within a byte) or not worth it (small batches), pyarrow writes the message and it is copied once
more. Either way a slice sends its own rows and not the batch around it, and padding is zero.

A caller that sends the batch before the columns can change needs no copy at all: ``gathered.py``.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from strom.errors import InvalidConfig
from strom.record import layout as at
from strom.record.batch import write_crc
from strom.record.checksum import crc32c_many
from strom.record.message import CODEC_LZ4_FRAME, CODEC_NONE, CODEC_ZSTD, message_template, read_metadata
from strom.record.statistics import compute
from strom.runtime.files import Bytes

CODECS = {"NONE": CODEC_NONE, "LZ4_FRAME": CODEC_LZ4_FRAME, "ZSTD": CODEC_ZSTD}
ZSTD_LEVEL = 3

#: Below this, pyarrow's own writer and a second copy cost less than a walk over the columns.
SMALL_BYTES = 64 * 1024
#: Below this, compression gains nothing.
_COMPRESSED_BYTES_MIN = 512
_COMPRESSED_BUFFER_BYTES_MIN = 64
#: A buffer that does not shrink to this share is left as it was: every reader would decompress it for nothing.
COMPRESSED_SHARE = 0.9

PADDING = tuple(b"\0" * n for n in range(at.BUFFER_ALIGNMENT))
_SIZE = struct.Struct("<q")
_OFFSET = struct.Struct("<i")
_BOOL = pa.bool_().id
VARIABLE_TYPES = frozenset({pa.string().id, pa.binary().id})


def encode(
    batch: pa.RecordBatch,
    *,
    schema_id: int,
    compression: str = "NONE",
    zstd_level: int = ZSTD_LEVEL,
    statistics: Sequence[int] | None = None,
    changes: bytes | None = None,
    writer_id: int = at.NO_WRITER_ID,
    batch_sequence: int = at.NO_BATCH_SEQUENCE,
    checksum: bool = True,
) -> bytearray:
    """The batch as bytes. Base offset and timestamp are 0: the log stamps them.

    ``statistics`` are the positions of the columns to keep minimum and maximum of; ``changes`` one change type per
    record, None for append-only. A writer that will ``seal`` the batch later saves a pass by ``checksum=False``.
    """
    assert changes is None or len(changes) == batch.num_rows
    codec = CODECS.get(compression)
    if codec is None:
        raise InvalidConfig(f"unknown compression {compression!r}", known=sorted(CODECS))
    block = _statistics_block(batch, statistics)
    message = message_pieces(batch, codec, zstd_level) if batch.num_rows else []
    head = head_of(
        batch.num_rows,
        block,
        changes,
        schema_id=schema_id,
        writer_id=writer_id,
        batch_sequence=batch_sequence,
    )
    encoded = bytearray().join((head, block, changes or b"", *message))
    struct.pack_into("<i", encoded, at.LENGTH_POSITION, len(encoded) - at.LENGTH_OVERHEAD)
    if checksum:
        write_crc(encoded, at.MAGIC_STATISTICS if block else at.MAGIC_PLAIN)
    return encoded


def encode_message(message: Bytes, record_count: int, *, schema_id: int) -> list[Bytes]:
    """An existing Arrow message as an append-only batch, in two pieces."""
    head = bytearray(
        head_of(
            record_count,
            b"",
            None,
            schema_id=schema_id,
            writer_id=at.NO_WRITER_ID,
            batch_sequence=at.NO_BATCH_SEQUENCE,
        )
    )
    struct.pack_into("<i", head, at.LENGTH_POSITION, len(head) + len(message) - at.LENGTH_OVERHEAD)
    covered = at.SCHEMA_ID_POSITION[at.MAGIC_PLAIN]
    crc = crc32c_many([memoryview(head)[covered:], message])
    head[at.CRC_POSITION[at.MAGIC_PLAIN] : covered] = crc.to_bytes(at.CRC_LENGTH, "little")
    return [head, message]


def _statistics_block(batch: pa.RecordBatch, columns: Sequence[int] | None) -> bytes:
    """The statistics, padded so that the message starts at a multiple of 8 and stays aligned in the batch."""
    if not columns or not batch.num_rows:
        return b""
    return filled_up(compute(batch, columns))


def filled_up(block: bytes) -> bytes:
    """Statistics padded to a multiple of 8."""
    if not block:
        return b""
    return block + PADDING[-(at.HEADER_SIZE[at.MAGIC_STATISTICS] + len(block)) % at.BUFFER_ALIGNMENT]


def head_of(
    record_count: int,
    statistics: bytes,
    changes: bytes | None,
    *,
    schema_id: int,
    writer_id: int,
    batch_sequence: int,
) -> bytes:
    """The header of a batch; its length and its checksum are still to be written."""
    attributes = at.ATTRIBUTE_APPEND_ONLY if changes is None else 0
    delta = max(record_count - 1, 0)
    common = (0, 0, schema_id, attributes, delta, writer_id, batch_sequence, record_count)
    if statistics:
        return at.HEADER[at.MAGIC_STATISTICS].pack(0, 0, at.MAGIC_STATISTICS, *common, len(statistics))
    return at.HEADER[at.MAGIC_PLAIN].pack(0, 0, at.MAGIC_PLAIN, *common)


def message_pieces(
    batch: pa.RecordBatch, codec: int = CODEC_NONE, zstd_level: int = ZSTD_LEVEL
) -> list[Bytes]:
    """The Arrow message in pieces."""
    # The total counts what lies around a slice too: a guess too high only costs a walk.
    found = columns_of(batch) if batch.get_total_buffer_size() >= SMALL_BYTES else None
    if found is None:
        written = batch.serialize()
        if codec == CODEC_NONE or written.size < _COMPRESSED_BYTES_MIN:
            return [memoryview(written)]
        found = _lift(memoryview(written), batch.num_rows)
    nodes, buffers = found
    if sum(map(len, buffers)) < _COMPRESSED_BYTES_MIN:
        codec = CODEC_NONE
    if codec != CODEC_NONE:
        compressor = _compressor(codec, zstd_level)
        buffers = [_compress(compressor, buffer) for buffer in buffers]
    return assemble_message(batch.num_rows, nodes, buffers, codec)


def assemble_message(
    record_count: int, nodes: Sequence[int], buffers: Sequence[Bytes], codec: int
) -> list[Bytes]:
    """Metadata, then the buffers, each padded to 8 bytes."""
    places: list[int] = []
    pieces: list[Bytes] = []
    end = 0
    for buffer in buffers:
        length = len(buffer)
        places += (end, length)
        if not length:
            continue
        pieces.append(buffer)
        end += length
        padding = -length % at.BUFFER_ALIGNMENT
        if padding:
            pieces.append(PADDING[padding])
            end += padding
    template = message_template(len(nodes) // 2, len(buffers), codec)
    metadata = bytearray(template.size)
    template.fill(metadata, 0, record_count=record_count, nodes=nodes, buffers=places, body_size=end)
    return [metadata, *pieces]


def columns_of(batch: pa.RecordBatch) -> tuple[list[int], list[Bytes]] | None:
    """Nodes and buffers straight from the columns; None when one is nested, or has bits that would have to move."""
    return buffers_of(batch.columns, batch.num_rows)


def buffers_of(columns: Sequence[pa.Array], rows: int) -> tuple[list[int], list[Bytes]] | None:
    """The same, of columns already taken out of their batch."""
    nodes: list[int] = []
    buffers: list[Bytes] = []
    for column in columns:
        parts = column.buffers()
        kind = column.type
        start = column.offset
        nulls = column.null_count
        if not 2 <= len(parts) <= 3 or kind.num_fields:
            return None
        if start & 7 and (nulls or kind.id == _BOOL):
            return None
        nodes += (rows, nulls)
        buffers.append(memoryview(parts[0])[start >> 3 : (start + rows + 7) >> 3] if nulls else b"")
        if kind.id in VARIABLE_TYPES:
            buffers += _text_buffers(parts[1], parts[2], start, rows)
        elif len(parts) == 2:
            width = kind.bit_width
            buffers.append(memoryview(parts[1])[start * width >> 3 : ((start + rows) * width + 7) >> 3])
        else:
            return None
    return nodes, buffers


def _text_buffers(offsets: pa.Buffer, data: pa.Buffer, start: int, rows: int) -> tuple[Bytes, Bytes]:
    """Offsets from zero, and the bytes they point to."""
    places: Bytes = memoryview(offsets)[4 * start : 4 * (start + rows + 1)]
    first, end = _OFFSET.unpack_from(places, 0)[0], _OFFSET.unpack_from(places, 4 * rows)[0]
    if first:
        places = (np.frombuffer(places, "<i4") - np.int32(first)).tobytes()
    return places, memoryview(data)[first:end] if end > first else b""


def _lift(message: memoryview, record_count: int) -> tuple[list[int], list[Bytes]]:
    """Nodes and buffers out of a message that pyarrow wrote."""
    found = read_metadata(message, position=0, batch_size=len(message), record_count=record_count)
    return list(found.nodes), [message[start : start + length] for start, length in found.buffers]


@lru_cache(maxsize=64)
def _compressor(codec: int, zstd_level: int) -> Any:
    return pa.Codec("lz4") if codec == CODEC_LZ4_FRAME else pa.Codec("zstd", compression_level=zstd_level)


def _compress(compressor: Any, buffer: Bytes) -> Bytes:
    """One buffer as Arrow stores it: its size, then its bytes compressed, or -1 and the bytes as they were."""
    size = len(buffer)
    if not size:
        return buffer
    if size < _COMPRESSED_BUFFER_BYTES_MIN:
        return _SIZE.pack(at.NOT_COMPRESSED) + buffer
    # As bytes: a memoryview of the buffer pyarrow returns reports the size before it was cut.
    compressed: bytes = compressor.compress(buffer, asbytes=True)
    if len(compressed) > COMPRESSED_SHARE * size:
        return _SIZE.pack(at.NOT_COMPRESSED) + buffer
    return b"".join((_SIZE.pack(size), compressed))
