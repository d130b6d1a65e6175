"""The changelog batch of some records, as the log holds it, built with a single copy.

Head, change types and Arrow message are one piece of memory. Publishing reads its columns from there (``rows``),
without decoding the batch. Nested columns take the slow path, through pyarrow.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np

from strom.errors import RecordTooLarge, StoreCorrupt
from strom.kv.arrays import Int32s, Octets
from strom.kv.changelog.changelog_kernels import write_batch
from strom.kv.gather.column_source import ColumnSource, source_of
from strom.kv.gather.copy_kernels import OUTSIDE, UNCHECKED
from strom.kv.gather.directory import Directory
from strom.kv.gather.gather import check_data, gather
from strom.kv.gather.message_kernels import DATA_SIZE, PLACE_FIELDS, measure
from strom.kv.kernels.reserved_memory import address_of
from strom.record import layout as at
from strom.record.batch import BatchHeader, read_columns, read_header
from strom.record.checksum import crc32c
from strom.record.columns import BatchColumns
from strom.record.encode import encode
from strom.record.message import CODEC_NONE

_HEADER = at.HEADER[at.MAGIC_PLAIN]
_HEADER_SIZE = at.HEADER_SIZE[at.MAGIC_PLAIN]
_CRC_AT, _COVERED = at.CRC_POSITION[at.MAGIC_PLAIN], at.SCHEMA_ID_POSITION[at.MAGIC_PLAIN]
_CRC = struct.Struct("<I")


class Stamp(NamedTuple):
    """The fields of a batch's head that do not follow from its records."""

    schema_id: int
    writer_id: int
    batch_sequence: int


class ChangelogBatch(NamedTuple):
    """One batch, ready to be appended."""

    content: memoryview
    header: BatchHeader
    columns: BatchColumns
    rows: ColumnSource
    """Its records."""


def compose(
    directory: Directory, source: Int32s, row: Int32s, kinds: Octets, stamp: Stamp, *, bytes_max: int
) -> ChangelogBatch:
    """The batch with row ``row[i]`` of source ``source[i]`` as record i, of kind ``kinds[i]``.

    RecordTooLarge when it would be larger than ``bytes_max``. ChecksumMismatch when a base file is damaged where the
    rows lie.
    """
    selection = directory.layout.everything
    if selection.nested or not len(source):
        return _by_pyarrow(directory, source, row, kinds, stamp, bytes_max)
    places = np.empty((len(selection.positions), PLACE_FIELDS), np.int64)
    for _ in range(2):
        body = measure(
            directory.rows, directory.whole, directory.sound, directory.addresses, selection.spec, source, row,
            False, at.BUFFER_ALIGNMENT, places,
        )  # fmt: skip
        if body != -UNCHECKED:
            break
        directory.check(source, selection)
    if body == -OUTSIDE:
        raise StoreCorrupt("a record that the index knows is neither in a base file nor in memory")
    count = len(source)
    head = _HEADER_SIZE + count + len(selection.template)
    size = head + body
    if size > bytes_max:
        check_data(places[:, DATA_SIZE].tolist(), selection)
        raise _too_large(size, bytes_max)
    memory = np.empty(size, np.uint8)
    written = np.empty((len(selection.positions), 3), np.int64)
    buffers = np.empty((2 * len(written) + len(selection.var), 2), np.int64)
    address = address_of(memory)
    write_batch(
        directory.addresses, selection.spec, source, row, kinds, places, address + _HEADER_SIZE, selection.template,
        selection.marks, body, head, written, buffers,
    )  # fmt: skip
    content: memoryview = memory.data
    fields = (stamp.schema_id, 0, count - 1, stamp.writer_id, stamp.batch_sequence, count)
    _HEADER.pack_into(content, 0, 0, size - at.LENGTH_OVERHEAD, at.MAGIC_PLAIN, 0, 0, *fields)
    crc = crc32c(content[_COVERED:])
    _CRC.pack_into(content, _CRC_AT, crc)
    header = BatchHeader(0, size, at.MAGIC_PLAIN, 0, at.NO_EPOCH, crc, *fields, 0, _HEADER_SIZE)
    # The log needs the buffers, not the nodes.
    columns = BatchColumns(
        head, size, (), [(start, length) for start, length in buffers.tolist()], CODEC_NONE
    )
    return ChangelogBatch(content, header, columns, ColumnSource(count, written, memory))


def _by_pyarrow(
    directory: Directory, source: Int32s, row: Int32s, kinds: Octets, stamp: Stamp, bytes_max: int
) -> ChangelogBatch:
    batch = gather(directory, source, row)
    encoded = encode(
        batch,
        schema_id=stamp.schema_id,
        changes=kinds.tobytes(),
        writer_id=stamp.writer_id,
        batch_sequence=stamp.batch_sequence,
    )
    if len(encoded) > bytes_max:
        raise _too_large(len(encoded), bytes_max)
    content = memoryview(encoded)
    header = read_header(content)
    return ChangelogBatch(
        content, header, read_columns(content, header), source_of(batch, directory.layout.kinds)
    )


def _too_large(size: int, limit: int) -> RecordTooLarge:
    return RecordTooLarge(
        f"these changes make a changelog batch of {size} bytes; send fewer rows at a time",
        size=size,
        limit=limit,
    )
