"""Some columns of a batch as a batch of their own, without decoding or decompressing any of them.

The wanted buffers are passed through as they are, compressed or not; only the header and the Arrow metadata are
rewritten, from a template. So the cost is that of the bytes sent plus a constant; ``body.py`` describes how they are
read from a file.

The result is a batch of magic 0: statistics are left behind, change types are kept, offsets and timestamp stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import pyarrow as pa

from strom.errors import InvalidProjection, MalformedBatch, TornBatch
from strom.record import layout as at
from strom.record.alike_batches import CRC_AT, CRC_FROM, PLAIN_HEADER_SIZE, Alike, write_plain_header
from strom.record.batch import BatchHeader, read_header
from strom.record.body import Body, picker
from strom.record.checksum import crc32c, crc32c_many
from strom.record.columns import BatchColumns, ColumnLayout
from strom.record.message import message_template, read_vectors, split_message
from strom.runtime.files import Bytes

_UNALIGNED = at.BUFFER_ALIGNMENT - 1
_PADDING = tuple(b"\0" * n for n in range(at.BUFFER_ALIGNMENT))
_CRC_FIELD = slice(CRC_AT, CRC_FROM)


class _Plan(NamedTuple):
    """How a body is cut down."""

    ranges: list[tuple[int, int]]
    """(position, length) in the old body."""
    places: list[int]
    """Position and length of each buffer in the new body, flat."""
    body_size: int


class _Shape(NamedTuple):
    """How batches with identical metadata are cut."""

    outline: tuple[bytes, int, int, int]
    """The old metadata, where the body starts, the size of the batch, its rows: everything else follows from these."""
    metadata: bytearray
    ranges: list[tuple[int, int]]
    body: Body


class ProjectedBatch(NamedTuple):
    """A projected batch in the making: its head lacks only the checksum, its body is still to be read."""

    head: bytearray
    ranges: list[tuple[int, int]]
    """(position, length) of what is wanted of the old batch, in order."""
    body: Body
    """The same, for reading it from a file."""
    size: int
    """Bytes of the new batch."""

    @property
    def crc(self) -> int:
        """The checksum so far: that of the head. Goes on over each range and its padding."""
        return crc32c(memoryview(self.head)[CRC_FROM:])

    def seal(self, crc: int) -> None:
        """Write the checksum of the whole batch into the head."""
        self.head[_CRC_FIELD] = crc.to_bytes(at.CRC_LENGTH, "little")


_NO_HEADER = bytes(PLAIN_HEADER_SIZE)
_NO_BODY = _Shape((b"", 0, 0, 0), bytearray(), [], Body((), 0))


class Projection:
    """A choice of columns, prepared once and applied to many batches of one schema.

    The choice may be empty: a batch older than every wanted column keeps only its row count, for the reader to fill.
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
        self._buffers = buffers
        self._pick_nodes = picker(nodes)
        self._pick_buffers = picker(buffers)
        self._pick_positions = picker([2 * i for i in buffers])
        self._pick_lengths = picker([2 * i + 1 for i in buffers])
        self._latest: _Shape | None = None
        self._alike: Alike | None = None

    def alike(self, head_size: int, batch_size: int) -> Alike | None:
        """How to cut a batch of these sizes if it is like the one before it; None if it cannot be."""
        known = self._alike
        if known is None or known.old_size != batch_size or known.head_size != head_size:
            return None
        return known

    def cut(self, head: Bytes, header: BatchHeader) -> ProjectedBatch:
        """What to read of a batch, and what to put before it. ``head`` is the batch up to its Arrow body.

        The head was checked before it was stored; only the wanted buffers are looked at.
        """
        view = memoryview(head)
        start = header.message_position
        between = view[header.records_position : start]
        if header.record_count == 0 and start == header.size:
            return self._framed(header, between, _NO_BODY)
        metadata, body = split_message(view, start, header.size)
        outline = (metadata, body, header.size, header.record_count)
        shape = self._latest
        if shape is None or shape.outline != outline:
            # Batches of one writer follow each other and are often cut alike. Threads may race: any will do.
            shape = self._latest = self._shape(outline)
            self._alike = Alike(outline, bytes(shape.metadata), shape.body) if header.append_only else None
        return self._framed(header, between, shape)

    def _shape(self, outline: tuple[bytes, int, int, int]) -> _Shape:
        metadata, body, size, count = outline
        vectors = read_vectors(metadata, body=body, batch_size=size, record_count=count)
        self._check_counts(len(vectors.nodes) // 2, len(vectors.buffers) // 2)
        buffers = list(
            zip(self._pick_positions(vectors.buffers), self._pick_lengths(vectors.buffers), strict=True)
        )
        plan = _plan(buffers, size - body)
        filled = [
            (number, body + position, place, length)
            for number, (position, length), place in zip(
                self._buffers, buffers, plan.places[0::2], strict=True
            )
            if length
        ]
        return _Shape(
            outline,
            self._metadata(count, vectors.nodes, vectors.codec, plan),
            [(body + position, length) for position, length in plan.ranges],
            Body(filled, plan.body_size),
        )

    def _framed(self, header: BatchHeader, between: Bytes, shape: _Shape) -> ProjectedBatch:
        head = bytearray().join((_NO_HEADER, between, shape.metadata))
        size = len(head) + shape.body.size
        write_plain_header(head, header, size)
        return ProjectedBatch(head, shape.ranges, shape.body, size)

    def message(self, view: Bytes, header: BatchHeader, columns: BatchColumns) -> list[Bytes]:
        """The Arrow message of the wanted columns of a batch in memory, in pieces."""
        self._check_counts(len(columns.nodes) // 2, len(columns.buffers))
        body = columns.head_size
        buffers = [(position - body, length) for position, length in self._pick_buffers(columns.buffers)]
        plan = _plan(buffers, columns.body_end - body)
        pieces: list[Bytes] = [self._metadata(header.record_count, columns.nodes, columns.codec, plan)]
        for position, length in plan.ranges:
            pieces.append(memoryview(view)[body + position : body + position + length])
            if length & _UNALIGNED:
                pieces.append(padding(length))
        return pieces

    def _metadata(self, record_count: int, nodes: Sequence[int], codec: int, plan: _Plan) -> bytearray:
        template = message_template(self._node_count, self._buffer_count, codec)
        metadata = bytearray(template.size)
        template.fill(
            metadata,
            0,
            record_count=record_count,
            nodes=self._pick_nodes(nodes),
            buffers=plan.places,
            body_size=plan.body_size,
        )
        return metadata

    def _check_counts(self, nodes: int, buffers: int) -> None:
        layout = self.layout
        if nodes != layout.node_count or buffers != layout.buffer_count:
            raise MalformedBatch(
                f"the batch has {nodes} nodes and {buffers} buffers, its schema "
                f"asks for {layout.node_count} and {layout.buffer_count}"
            )


def _plan(buffers: Sequence[tuple[int, int]], body_size: int) -> _Plan:
    """What to take from a body, and where each buffer will lie in the new one.

    Adjacent buffers form one range, with the padding between them: columns that were written next to each other are
    checksummed and sent as one piece.
    """
    ranges: list[tuple[int, int]] = []
    places: list[int] = []
    start = end = shift = 0  # of the range that grows, and from its old place to its new one
    begun = False
    for position, length in buffers:
        if not length:
            places += (_padded(end + shift), 0)
            continue
        if position < end or length < 0:
            raise MalformedBatch("a buffer lies on another one, or before the body")
        if not begun or position - end >= at.BUFFER_ALIGNMENT or position + shift & _UNALIGNED:
            if begun:
                ranges.append((start, end - start))
            shift = _padded(end + shift) - position
            start = position
            begun = True
        places += (position + shift, length)
        end = position + length
    if begun:
        ranges.append((start, end - start))
    if end > body_size:
        raise MalformedBatch("a buffer reaches past the body")
    return _Plan(ranges, places, _padded(end + shift))


def padding(length: int) -> bytes:
    """What follows a range of this length, so that the next one starts where it should."""
    return _PADDING[-length & _UNALIGNED]


def _padded(position: int) -> int:
    return (position + _UNALIGNED) & ~_UNALIGNED


def project_batch(view: Bytes, projection: Projection) -> list[Bytes]:
    """The wanted columns of a whole batch in memory."""
    view = memoryview(view)
    header = read_header(view)
    if header.size > len(view):
        raise TornBatch(f"a batch of {header.size} bytes has only {len(view)}", size=header.size)
    cut = projection.cut(view, header)
    pieces: list[Bytes] = [cut.head]
    for position, length in cut.ranges:
        pieces.append(view[position : position + length])
        if length & _UNALIGNED:
            pieces.append(padding(length))
    cut.seal(crc32c_many(pieces[1:], cut.crc))
    return pieces


def _check_columns(columns: Sequence[int], count: int) -> None:
    if any(not 0 <= position < count for position in columns):
        raise InvalidProjection(f"the schema has {count} columns", columns=list(columns))
    if any(later <= earlier for earlier, later in pairwise(columns)):
        raise InvalidProjection("projected columns must be in ascending order", columns=list(columns))
