"""Decodes the rows in a lookup's answer.

Servers lay these batches out like all of ours: plain, complete, the Arrow message as ``MessageTemplate`` writes it. A
message that differs from the template only in its numbers needs no flatbuffers reader: one ``struct`` unpacks them all,
and they are checked against the schema as ``record.decode`` does. Anything else goes to ``decode``, which also reports
what is wrong with it.
"""

from __future__ import annotations

from operator import add, ge
from struct import Struct

import numpy as np
import pyarrow as pa

from strom.errors import MalformedBatch
from strom.record import layout as at
from strom.record.batch import BatchHeader, check_crc, read_header
from strom.record.columns import ColumnLayout, NodeKind
from strom.record.decode import decode
from strom.record.message import CODEC_NONE, message_template
from strom.runtime.files import Bytes

_COUNTS_KEPT = 16
"""Row counts for which the buffer sizes are cached."""
_OFFSET = np.dtype("<i4")
_VALUE_ALIGNMENT = 8


class AnsweredRows:
    """Reads batches of one schema and returns them as ``nullable``: the same schema, where a row may be missing."""

    def __init__(self, schema: pa.Schema, nullable: pa.Schema) -> None:
        self._schema = schema
        self._nullable = nullable
        layout = ColumnLayout.of(schema)
        self._flat = all(
            node.kind in (NodeKind.BITS, NodeKind.FIXED, NodeKind.VARIABLE) for node in layout.nodes
        )
        self._nodes = layout.nodes
        self._required = [node for node, _ in layout.required]
        self._offsets = [node.buffer + 1 for node in layout.nodes if node.kind == NodeKind.VARIABLE]
        self._sizes: dict[int, list[int]] = {}
        nodes, buffers = layout.node_count, layout.buffer_count
        template = message_template(nodes, buffers, CODEC_NONE)
        body, rows = template.body_size_position, template.record_count_position
        first, second = template.nodes_position, template.buffers_position
        between = second - first - 16 * nodes
        self._numbers = Struct(
            f"<{body}sq{rows - body - 8}sq{first - rows - 8}s{2 * nodes}q{between}s{2 * buffers}q"
        )
        self._known = self._numbers.unpack(template.content)
        self._node_count, self._buffer_count = nodes, buffers
        assert self._numbers.size == template.size

    def read(self, records: Bytes) -> pa.RecordBatch:
        """The rows. Raises MalformedBatch, TornBatch or ChecksumMismatch when they cannot be read."""
        view = memoryview(records)
        header = read_header(view)
        plain = header.magic == at.MAGIC_PLAIN and header.attributes == at.ATTRIBUTE_APPEND_ONLY
        if self._flat and plain and header.size == len(view) and header.record_count:
            check_crc(view, header)
            found = self._plain(view, header)
            if found is not None:
                return found
        rows = decode(view, self._schema, header=header, aligned=True)
        if self._nullable is self._schema:
            return rows
        return pa.RecordBatch.from_arrays(rows.columns, schema=self._nullable)

    def _plain(self, view: memoryview, header: BatchHeader) -> pa.RecordBatch | None:
        """The rows, if the message matches the template, is sound, and is aligned; else None."""
        start, rows = header.records_position, header.record_count
        body = start + self._numbers.size
        if body > len(view):
            return None
        numbers, known = self._numbers.unpack_from(view, start), self._known
        last = 5 + 2 * self._node_count
        if (
            numbers[0] != known[0]
            or numbers[2] != known[2]
            or numbers[4] != known[4]
            or numbers[last] != known[last]
            or numbers[1] != len(view) - body
            or numbers[3] != rows
        ):
            return None
        starts, lengths = numbers[last + 1 :: 2], numbers[last + 2 :: 2]
        if not self._sound(numbers[5:last:2], numbers[6:last:2], starts, lengths, rows, numbers[1]):
            return None
        for buffer in self._offsets:
            offsets = np.frombuffer(view, _OFFSET, rows + 1, body + starts[buffer])
            if offsets[0] < 0 or offsets[-1] > lengths[buffer + 1] or (offsets[1:] < offsets[:-1]).any():
                return None
        message = pa.py_buffer(view[start:])
        if (message.address + self._numbers.size) % _VALUE_ALIGNMENT:
            return None
        try:
            return pa.ipc.read_record_batch(message, self._nullable)
        except (pa.ArrowException, OSError, ValueError) as problem:
            raise MalformedBatch(f"the columns cannot be read: {problem}") from None

    def _sound(
        self,
        counts: tuple[int, ...],
        nulls: tuple[int, ...],
        starts: tuple[int, ...],
        lengths: tuple[int, ...],
        rows: int,
        size: int,
    ) -> bool:
        """Whether all columns have this many rows, and their buffers do not overlap and are large enough."""
        if counts.count(rows) != len(counts):
            return False
        needed = self._sizes.get(rows) or self._size_of(rows)
        if any(nulls):
            if min(nulls) < 0 or max(nulls) > rows or any(nulls[node] for node in self._required):
                return False
            needed = needed.copy()
            for node, missing in zip(self._nodes, nulls, strict=True):
                if missing:
                    needed[node.buffer] = (rows + 7) >> 3
        # Check each bound by itself, so that no sum can overflow past it.
        if min(starts) < 0 or max(starts) > size or min(lengths) < 0 or max(lengths) > size:
            return False
        ends = list(map(add, starts, lengths))
        return ends[-1] <= size and all(map(ge, starts[1:], ends)) and all(map(ge, lengths, needed))

    def _size_of(self, rows: int) -> list[int]:
        """The minimum size of every buffer for this many rows without NULLs."""
        sizes = [0] * self._buffer_count
        for kind, _, buffer, width, _, _ in self._nodes:
            if kind == NodeKind.FIXED:
                sizes[buffer + 1] = rows * width
            elif kind == NodeKind.BITS:
                sizes[buffer + 1] = (rows + 7) >> 3
            else:
                sizes[buffer + 1] = 4 * (rows + 1)
        if len(self._sizes) >= _COUNTS_KEPT:
            self._sizes.clear()
        self._sizes[rows] = sizes
        return sizes
