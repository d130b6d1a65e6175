"""Batch bytes to Arrow columns.

An uncompressed batch is decoded without a copy: the columns are views of the bytes given, and keep them alive.
Nothing reaches pyarrow before ``ColumnLayout.check`` has checked every buffer against its node.

What is trusted: with ``full_validation`` nothing; without it, only that text is UTF-8, which can make a wrong value but
never reads past a buffer. A server that touches clients' values (to filter) turns it on.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from strom.errors import MalformedBatch, TornBatch
from strom.record import batch as batches
from strom.record import layout as at
from strom.record.batch import DEFAULT_LIMITS, BatchHeader, read_columns, read_header
from strom.record.columns import ColumnLayout, buffer_sizes
from strom.runtime.files import Bytes

_VALUE_ALIGNMENT = 8
_OFFSET_MAX = (1 << 63) - 1
_OFFSET = np.dtype("<i4")
_ALONE = pa.ipc.IpcReadOptions(use_threads=False)


def decode(
    view: Bytes,
    schema: pa.Schema,
    *,
    header: BatchHeader | None = None,
    check_crc: bool = True,
    decompressed_bytes_max: int = DEFAULT_LIMITS.decompressed_bytes_max,
    full_validation: bool = False,
    aligned: bool = False,
) -> pa.RecordBatch:
    """The columns of one batch. ``schema`` is that of the batch's schema id (or of the projection of it).

    ``aligned`` copies the batch once when its columns would start at odd addresses: some engines warn of those, and
    some machines cannot read them.
    """
    view = memoryview(view)
    if header is None:
        header = read_header(view)
    if header.size > len(view):
        raise TornBatch(f"a batch of {header.size} bytes has only {len(view)}", size=header.size)
    if check_crc:
        batches.check_crc(view, header)
    columns = read_columns(view, header)
    if header.message_position == header.size:
        return pa.RecordBatch.from_pylist([], schema=schema)
    layout = ColumnLayout.of(schema)
    layout.check(
        view, columns, record_count=header.record_count, decompressed_bytes_max=decompressed_bytes_max
    )
    message = view[header.message_position : header.size]
    source = _aligned(message, columns.head_size - header.message_position) if aligned else message
    alone = layout if full_validation and columns.codec != at.NOT_COMPRESSED else None
    batch = read_message(source, schema, full_validation=full_validation, alone=alone)
    if not full_validation:
        clear = columns.codec == at.NOT_COMPRESSED
        for position, nested in layout.with_offsets:
            if clear and not nested:
                start = columns.buffers[layout.columns[position].buffer_start + 1][0]
                rise = header.record_count < 2 or _rise(view, start, header.record_count + 1)
            else:
                rise = _offsets_rise(batch.column(position), nested=nested)
            if not rise:
                name = schema.field(position).name
                raise MalformedBatch(f"column {name}: the offsets of its values fall", column=name)
    return batch


def weight(view: memoryview, header: BatchHeader, *, decompressed_bytes_max: int) -> int:
    """Rough upper bound of the memory that decoding a batch and encoding its rows again takes.

    The batch and a copy of it; what it decompresses to, and as much again for the result. Computed from sizes that the
    batch declares, before anything is decompressed.
    """
    if header.message_position == header.size:
        return 2 * header.size
    columns = read_columns(view, header)
    return 2 * header.size + 2 * sum(
        buffer_sizes(view, columns, decompressed_bytes_max=decompressed_bytes_max)
    )


def read_message(
    message: Bytes, schema: pa.Schema, *, full_validation: bool, alone: ColumnLayout | None = None
) -> pa.RecordBatch:
    """Let pyarrow read a message whose lengths were checked.

    ``alone``, the layout of the schema: decompress without other threads. On a server other work needs the cores, and
    pyarrow's threads would keep the memory they took.
    """
    try:
        if alone is None:
            batch = pa.ipc.read_record_batch(pa.py_buffer(message), schema)
        else:
            stream = pa.py_buffer(b"".join((alone.schema_message, message)))
            with pa.ipc.open_stream(stream, options=_ALONE) as reader:
                batch = reader.read_next_batch()
        batch.validate(full=full_validation)
    except (pa.ArrowException, OSError, ValueError) as problem:
        raise MalformedBatch(f"the columns cannot be read: {problem}") from None
    return batch


def _rise(source: Bytes, start: int, count: int) -> bool:
    """Whether no offset is smaller than the one before it."""
    found = np.frombuffer(source, _OFFSET, count, start)
    return not np.count_nonzero(found[1:] < found[:-1])


def _offsets_rise(array: pa.Array, *, nested: bool) -> bool:
    """Whether no offset points outside the values; pyarrow has checked the first and the last."""
    if nested and pa.types.is_struct(array.type):
        return all(_nested_offsets_rise(array.field(number)) for number in range(array.type.num_fields))
    if len(array) == 0 or (len(array) == 1 and not nested):
        return True
    if not _rise(array.buffers()[1], _OFFSET.itemsize * array.offset, len(array) + 1):
        return False
    return not nested or _nested_offsets_rise(array.values)


def _nested_offsets_rise(array: pa.Array) -> bool:
    kind = array.type
    nested = pa.types.is_nested(kind)
    if not nested and not pa.types.is_string(kind) and not pa.types.is_binary(kind):
        return True
    return _offsets_rise(array, nested=nested)


def _aligned(message: memoryview, body: int) -> Bytes:
    """The message, copied if its body does not start where 64-bit values may lie."""
    address = pa.py_buffer(message).address
    if (address + body) % _VALUE_ALIGNMENT == 0:
        return message
    # The allocator aligns the start; the shift puts the body, not the metadata, on the grid.
    shift = -body % _VALUE_ALIGNMENT
    return memoryview(b"".join((b"\0" * shift, message)))[shift:]


def changes(view: Bytes, header: BatchHeader) -> npt.NDArray[np.uint8] | None:
    """The change type of every record, or None when all of them are appends."""
    if header.append_only:
        return None
    start, end = header.changes_position, header.message_position
    if end > min(header.size, len(view)):
        raise MalformedBatch("the change types reach past the batch", size=header.size, end=end)
    return np.frombuffer(memoryview(view)[start:end], np.uint8)


def offsets(view: Bytes, header: BatchHeader) -> npt.NDArray[np.int64]:
    """The offset of every record: dense, unless the batch is sparse."""
    if header.next_offset > _OFFSET_MAX:
        raise MalformedBatch(f"no log has the offset {header.next_offset}", base_offset=header.base_offset)
    if not header.sparse:
        return np.arange(header.base_offset, header.base_offset + header.record_count, dtype=np.int64)
    start, end = header.records_position, header.changes_position
    if end > min(header.size, len(view)):
        raise MalformedBatch("the offset deltas reach past the batch", size=header.size, end=end)
    deltas = np.frombuffer(memoryview(view)[start:end], "<u4")
    if len(deltas) and (int(deltas[-1]) > header.last_offset_delta or (deltas[1:] <= deltas[:-1]).any()):
        raise MalformedBatch(
            "the offset deltas do not ascend within the batch", base_offset=header.base_offset
        )
    return header.base_offset + deltas.astype(np.int64)
