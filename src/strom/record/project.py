"""Some columns of a batch as a batch of their own, without decoding or decompressing any of them.

The wanted buffers are passed through as they are, compressed or not; only the header and the Arrow metadata are
written anew, from a template. So the cost is that of the bytes that leave (one checksum over them) plus a constant.

The result is a batch of magic 0: statistics are left behind, change types are kept, offsets and timestamp stay.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from operator import itemgetter
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa

from strom.errors import InvalidProjection, MalformedBatch, TornBatch
from strom.record import layout as at
from strom.record.batch import BatchHeader, read_columns, read_header
from strom.record.checksum import crc32c, crc32c_many
from strom.record.columns import BatchColumns, ColumnLayout
from strom.record.message import message_template
from strom.runtime.files import Bytes

_UNALIGNED = at.BUFFER_ALIGNMENT - 1
_PADDING_SIZES = range(at.BUFFER_ALIGNMENT)
_PADDING = tuple(b"\0" * n for n in range(at.BUFFER_ALIGNMENT))
_HEADER_SIZE = at.HEADER_SIZE[at.MAGIC_PLAIN]
_CRC_START = at.SCHEMA_ID_POSITION[at.MAGIC_PLAIN]
_CRC_FIELD = slice(at.CRC_POSITION[at.MAGIC_PLAIN], _CRC_START)

Buffer = TypeVar("Buffer")


class _Plan(NamedTuple):
    """How a body is cut down."""

    ranges: list[tuple[int, int]]
    places: list[int]
    """Position and length of each buffer in the new body, flat."""
    body_size: int


class Projection:
    """A choice of columns, prepared once and applied to many batches of one schema.

    None is a choice too: of a batch older than every wanted column only its rows are left, for the reader to fill.
    """

    def __init__(self, layout: ColumnLayout, columns: Sequence[int]) -> None:
        _check_columns(columns, len(layout.columns))
        self.layout = layout
        self.columns = tuple(columns)
        self.schema: pa.Schema = pa.schema([layout.schema.field(position) for position in columns])
        ranges = [layout.columns[position] for position in columns]
        nodes = [i for r in ranges for i in range(2 * r.node_start, 2 * r.node_end)]
        buffers = [i for r in ranges for i in range(r.buffer_start, r.buffer_end)]
        self._node_count = len(nodes) // 2
        self._buffer_count = len(buffers)
        self._pick_nodes = _picker(nodes)
        self._pick_buffers = _picker(buffers)

    def ranges(self, columns: BatchColumns) -> list[tuple[int, int]]:
        """(position, length) of what is wanted of the body, in order, from the start of the batch.

        Buffers that lie side by side come as one range, with the padding between them: columns that were written
        next to each other are read, summed up and sent as one piece.
        """
        if not columns.nodes and not columns.buffers:
            return []  # a batch without records has no message at all; `message` refuses everything else
        return self._plan(columns).ranges

    def pick_buffers(self, buffers: Sequence[Buffer]) -> tuple[Buffer, ...]:
        """Those of the wanted columns, of anything that a batch has one of per buffer."""
        return self._pick_buffers(buffers)

    def _plan(self, columns: BatchColumns) -> _Plan:
        """What to take, and where it will lie in the new body."""
        self._check_fits(columns)
        ranges: list[tuple[int, int]] = []
        places: list[int] = []
        start = end = shift = 0  # of the range that grows, and from its old place to its new one
        for position, length in self._pick_buffers(columns.buffers):
            if length and (not end or position - end not in _PADDING_SIZES or position + shift & _UNALIGNED):
                if end:
                    ranges.append((start, end - start))
                shift = _padded(end + shift) - position
                start = position
            if length:
                places += (position + shift, length)
                end = position + length
            else:
                places += (_padded(end + shift), 0)
        if end:
            ranges.append((start, end - start))
        return _Plan(ranges, places, _padded(end + shift))

    def assemble(self, head: Bytes, columns: BatchColumns, buffers: Sequence[Bytes]) -> list[Bytes]:
        """The projected batch in pieces: a new head, then the bytes of ``ranges`` with their padding.

        ``head`` is the batch up to its Arrow body, ``buffers`` are the bytes of ``ranges`` in the same order.
        """
        header = read_header(head)
        between = memoryview(head)[header.records_position : header.message_position]
        pieces = (
            [] if columns.head_size == header.message_position else self.message(header, columns, buffers)
        )
        metadata = pieces[0] if pieces else b""
        new_head = bytearray().join((bytes(_HEADER_SIZE), between, metadata))
        _write_header(new_head, header, len(new_head) + sum(map(len, pieces)) - len(metadata))
        crc = crc32c(memoryview(new_head)[_CRC_START:])
        body = pieces[1:]
        new_head[_CRC_FIELD] = crc32c_many(body, crc).to_bytes(at.CRC_LENGTH, "little")
        return [new_head, *body]

    def message(self, header: BatchHeader, columns: BatchColumns, buffers: Sequence[Bytes]) -> list[Bytes]:
        """The Arrow message of the wanted columns in pieces: metadata, then the ranges with their padding."""
        plan = self._plan(columns)
        pieces: list[Bytes] = [b""]
        for (_, length), taken in zip(plan.ranges, buffers, strict=True):
            if len(taken) != length:
                raise TornBatch(
                    f"a range of {length} bytes came as {len(taken)}", base_offset=header.base_offset
                )
            pieces.append(taken)
            if length & _UNALIGNED:
                pieces.append(_PADDING[-length & _UNALIGNED])
        template = message_template(self._node_count, self._buffer_count, columns.codec)
        metadata = bytearray(template.size)
        nodes = self._pick_nodes(columns.nodes)
        template.fill(
            metadata,
            0,
            record_count=header.record_count,
            nodes=nodes,
            buffers=plan.places,
            body_size=plan.body_size,
        )
        pieces[0] = metadata
        return pieces

    def _check_fits(self, columns: BatchColumns) -> None:
        layout = self.layout
        if len(columns.nodes) != 2 * layout.node_count or len(columns.buffers) != layout.buffer_count:
            raise MalformedBatch(
                f"the batch has {len(columns.nodes) // 2} nodes and {len(columns.buffers)} buffers, its schema "
                f"asks for {layout.node_count} and {layout.buffer_count}"
            )


def _padded(position: int) -> int:
    return (position + _UNALIGNED) & ~_UNALIGNED


def project_batch(view: Bytes, projection: Projection) -> list[Bytes]:
    """The wanted columns of a whole batch in memory."""
    view = memoryview(view)
    header = read_header(view)
    if header.size > len(view):
        raise TornBatch(f"a batch of {header.size} bytes has only {len(view)}", size=header.size)
    columns = read_columns(view, header)
    buffers = [view[position : position + length] for position, length in projection.ranges(columns)]
    return projection.assemble(view[: columns.head_size], columns, buffers)


def _write_header(head: bytearray, header: BatchHeader, size: int) -> None:
    at.HEADER[at.MAGIC_PLAIN].pack_into(
        head,
        0,
        header.base_offset,
        size - at.LENGTH_OVERHEAD,
        at.MAGIC_PLAIN,
        header.timestamp_ms,
        0,
        header.schema_id,
        header.attributes,
        header.last_offset_delta,
        header.writer_id,
        header.batch_sequence,
        header.record_count,
    )


def _check_columns(columns: Sequence[int], count: int) -> None:
    if any(not 0 <= position < count for position in columns):
        raise InvalidProjection(f"the schema has {count} columns", columns=list(columns))
    if any(later <= earlier for earlier, later in pairwise(columns)):
        raise InvalidProjection("projected columns are asked for in ascending order", columns=list(columns))


def _picker(indices: Sequence[int]) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    """A function that takes these positions out of a sequence, as a tuple even for one or none."""
    if not indices:
        return lambda _: ()
    if len(indices) == 1:
        index = indices[0]
        return lambda items: (items[index],)
    return itemgetter(*indices)
