"""Which nodes and buffers of an Arrow message belong to which column, and whether they can be what they claim.

An Arrow record batch is a list of nodes (length, null count) and a list of buffers, both in the order of a walk
through the schema. :class:`ColumnLayout` is that walk done once per schema; :class:`BatchColumns` is what one batch
says. ``ColumnLayout.check`` compares the two, so that pyarrow never sees a buffer too short for its node: it would read
past its end.
"""

from __future__ import annotations

import struct
import weakref
from enum import IntEnum
from typing import Any, NamedTuple

import pyarrow as pa

from strom.errors import InvalidTable, MalformedBatch
from strom.record import layout as at

#: A schema deeper than this is refused before recursion becomes a danger.
NESTING_MAX = 64

_OFFSET = struct.Struct("<i")
_SIZE = struct.Struct("<q")


class BatchColumns(NamedTuple):
    """What one batch's Arrow metadata says. Positions count from the start of the batch."""

    head_size: int
    """Bytes before the Arrow body: header, statistics, change types, Arrow metadata."""
    body_end: int
    nodes: tuple[int, ...]
    """length, null count, length, null count, …"""
    buffers: list[tuple[int, int]]
    """(position, length) of each buffer, padding not counted."""
    codec: int
    """-1 none, 0 LZ4 frame, 1 ZSTD."""


class NodeKind(IntEnum):
    """What buffers a node has."""

    NULL = 0  # none at all
    BITS = 1  # validity, one bit per value
    FIXED = 2  # validity, width bytes per value
    VARIABLE = 3  # validity, offsets, data
    LIST = 4  # validity, offsets; one child (a map is a list of entries)
    STRUCT = 5  # validity; children as long as the parent


#: A top-level column: as long as the batch.
TOP = -1
#: The values of a list: of any length; the list's offsets say which are used.
LIST_CHILD = -2

# Plain integers: the check below runs for every node of every batch.
_NULL, _BITS, _FIXED, _VARIABLE, _LIST, _STRUCT = (
    int(kind)
    for kind in (
        NodeKind.NULL,
        NodeKind.BITS,
        NodeKind.FIXED,
        NodeKind.VARIABLE,
        NodeKind.LIST,
        NodeKind.STRUCT,
    )
)

BUFFERS_OF_KIND = {
    NodeKind.NULL: 0,
    NodeKind.BITS: 2,
    NodeKind.FIXED: 2,
    NodeKind.VARIABLE: 3,
    NodeKind.LIST: 2,
    NodeKind.STRUCT: 1,
}


class NodeLayout(NamedTuple):
    """One node of the walk."""

    kind: int
    node: int
    buffer: int
    width: int
    parent: int
    """The row node this one must be as long as, or TOP, or LIST_CHILD."""
    name: str


class _Sound(NamedTuple):
    """The metadata that last fit the schema, except for the offsets: those differ from batch to batch."""

    columns: BatchColumns
    record_count: int
    offsets: list[tuple[int, int, int, str]]
    """Position, length, end of what they point to, and column of every uncompressed vector of offsets."""


class ColumnRange(NamedTuple):
    """The nodes and buffers of one top-level column: [start, end) of each."""

    node_start: int
    node_end: int
    buffer_start: int
    buffer_end: int


class ColumnLayout:
    """The walk through a schema, done once."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        #: The schema as the first message of an Arrow stream.
        self.schema_message = bytes(schema.serialize())
        self.nodes: list[NodeLayout] = []
        self.columns: list[ColumnRange] = []
        #: (node, name) of every top-level column that must not hold nulls
        self.required: list[tuple[int, str]] = []
        #: Top-level columns that hold offsets, and whether there may be others inside.
        self.with_offsets: list[tuple[int, bool]] = []
        self._buffer_count = 0
        self._sound: _Sound | None = None
        for position, field in enumerate(schema):
            start = (len(self.nodes), self._buffer_count)
            if not field.nullable:
                self.required.append((start[0], field.name))
            self._walk(field.type, field.name, parent=TOP, depth=1)
            self.columns.append(ColumnRange(start[0], len(self.nodes), start[1], self._buffer_count))
            if any(node.kind in (_VARIABLE, _LIST) for node in self.nodes[start[0] :]):
                self.with_offsets.append((position, pa.types.is_nested(field.type)))

    @property
    def node_count(self) -> int:
        """Nodes of a batch with this schema."""
        return len(self.nodes)

    @property
    def buffer_count(self) -> int:
        """Buffers of a batch with this schema."""
        return self._buffer_count

    @staticmethod
    def of(schema: pa.Schema) -> ColumnLayout:
        """The layout of ``schema``, remembered as long as that very object lives."""
        key = id(schema)
        known = _known.get(key)
        if known is not None and known[0]() is schema:
            return known[1]
        # The layout must not keep the schema alive: the schema's end removes the layout from this cache.
        layout = ColumnLayout(pa.schema(list(schema)))
        _known[key] = (weakref.ref(schema, lambda _: _known.pop(key, None)), layout)
        return layout

    def _walk(self, kind_of: pa.DataType, name: str, *, parent: int, depth: int) -> None:
        if depth > NESTING_MAX:
            raise InvalidTable(f"column {name}: types are nested deeper than {NESTING_MAX}", column=name)
        kind, width, children = _shape(kind_of, name)
        node = len(self.nodes)
        self.nodes.append(NodeLayout(int(kind), node, self._buffer_count, width, parent, name))
        self._buffer_count += BUFFERS_OF_KIND[kind]
        for child in children:
            above = node if kind is NodeKind.STRUCT else LIST_CHILD
            self._walk(child.type, f"{name}.{child.name}", parent=above, depth=depth + 1)

    def check(
        self, view: memoryview, columns: BatchColumns, *, record_count: int, decompressed_bytes_max: int
    ) -> None:
        """Raise MalformedBatch unless the batch's nodes and buffers are those of this schema, and large enough."""
        offsets = self.fitting(
            view, columns, record_count=record_count, decompressed_bytes_max=decompressed_bytes_max
        )
        for position, length, end, name in offsets:
            first = _OFFSET.unpack_from(view, position)[0]
            last = _OFFSET.unpack_from(view, position + 4 * length)[0]
            if not 0 <= first <= last <= end:
                raise MalformedBatch(f"column {name}: the offsets point outside", column=name)

    def fitting(
        self, view: memoryview, columns: BatchColumns, *, record_count: int, decompressed_bytes_max: int
    ) -> list[tuple[int, int, int, str]]:
        """As ``check``, but leaves uncompressed offsets to the caller.

        Returns position, length, end of what they point to, and column of each vector of offsets.
        """
        sound = self._sound
        if sound is not None and sound.columns is columns and sound.record_count == record_count:
            return sound.offsets
        offsets = self._check_columns(view, columns, record_count, decompressed_bytes_max)
        if columns.codec == at.NOT_COMPRESSED:  # else the sizes are in the body, and differ next time
            self._sound = _Sound(columns, record_count, offsets)
        return offsets

    def _check_columns(
        self, view: memoryview, columns: BatchColumns, record_count: int, decompressed_bytes_max: int
    ) -> list[tuple[int, int, int, str]]:
        """Check nodes and buffers against the schema; returns the offsets that are still to be checked."""
        offsets: list[tuple[int, int, int, str]] = []
        nodes = columns.nodes
        if len(nodes) != 2 * len(self.nodes) or len(columns.buffers) != self._buffer_count:
            raise MalformedBatch(
                f"the batch has {len(nodes) // 2} nodes and {len(columns.buffers)} buffers, its schema asks for "
                f"{len(self.nodes)} and {self._buffer_count}",
                nodes=len(nodes) // 2,
                buffers=len(columns.buffers),
            )
        for node, name in self.required:
            if nodes[2 * node + 1]:
                raise MalformedBatch(f"column {name} is NOT NULL but holds nulls", column=name)
        sizes = buffer_sizes(view, columns, decompressed_bytes_max=decompressed_bytes_max)
        for kind, node, buffer, width, parent, name in self.nodes:
            length = nodes[2 * node]
            problem = None
            if parent != LIST_CHILD and length != (record_count if parent == TOP else nodes[2 * parent]):
                problem = "the column is not as long as its row or batch"
            elif kind == _NULL:
                continue
            elif nodes[2 * node + 1] and sizes[buffer] < (length + 7) >> 3:
                problem = "the validity bitmap is too short"
            elif kind == _FIXED:
                if sizes[buffer + 1] < length * width:
                    problem = "the values are too short"
            elif kind == _BITS:
                if sizes[buffer + 1] < (length + 7) >> 3:
                    problem = "the values are too short"
            elif kind != _STRUCT and length:
                end = sizes[buffer + 2] if kind == _VARIABLE else nodes[2 * node + 2]
                if sizes[buffer + 1] < (length + 1) * 4:
                    problem = "the offsets are too short"
                elif (position := _offsets_position(view, columns, buffer + 1)) is not None:
                    offsets.append((position, length, end, name))
            if problem is not None:
                raise MalformedBatch(f"column {name}: {problem}", column=name)
        return offsets


def _offsets_position(view: memoryview, columns: BatchColumns, buffer: int) -> int | None:
    """Where uncompressed offsets lie: they must end within what they point to. None for compressed ones.

    That each is at least the one before is not checked here, where a batch is only stored: that would be work per
    row. ``decode`` does it.
    """
    position = columns.buffers[buffer][0]
    if columns.codec != at.NOT_COMPRESSED:
        if _SIZE.unpack_from(view, position)[0] != at.NOT_COMPRESSED:
            return None
        position += at.UNCOMPRESSED_SIZE_LENGTH
    return position


def buffer_sizes(view: memoryview, columns: BatchColumns, *, decompressed_bytes_max: int) -> list[int]:
    """The size of every buffer once decompressed, as declared. Bounded in sum, before anything is allocated."""
    if columns.codec == at.NOT_COMPRESSED:
        return [length for _, length in columns.buffers]
    sizes = []
    total = 0
    for position, length in columns.buffers:
        if length == 0:
            sizes.append(0)
            continue
        if length < at.UNCOMPRESSED_SIZE_LENGTH:
            raise MalformedBatch("a compressed buffer is shorter than its size field", length=length)
        size = _SIZE.unpack_from(view, position)[0]
        if size == at.NOT_COMPRESSED:
            size = length - at.UNCOMPRESSED_SIZE_LENGTH
        elif size < 0:
            raise MalformedBatch(f"a buffer of {size} bytes", size=size)
        total += size
        sizes.append(size)
    if total > decompressed_bytes_max:
        raise MalformedBatch(
            f"the batch would decompress to {total} bytes, more than the limit of {decompressed_bytes_max}",
            size=total,
            limit=decompressed_bytes_max,
        )
    return sizes


_FIXED_KINDS = (
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_date,
    pa.types.is_time,
    pa.types.is_timestamp,
    pa.types.is_decimal128,
)

_known: dict[int, tuple[weakref.ref[Any], ColumnLayout]] = {}


def _shape(kind_of: pa.DataType, name: str) -> tuple[NodeKind, int, list[pa.Field]]:
    """Kind, width in bytes and children of a type. Dictionaries, views, unions and extensions are refused."""
    types = pa.types
    if isinstance(kind_of, pa.BaseExtensionType):
        raise InvalidTable(f"column {name}: no batch holds the type {kind_of}", column=name)
    if types.is_null(kind_of):
        return NodeKind.NULL, 0, []
    if types.is_boolean(kind_of):
        return NodeKind.BITS, 0, []
    if types.is_string(kind_of) or types.is_binary(kind_of):
        return NodeKind.VARIABLE, 0, []
    if types.is_list(kind_of):
        return NodeKind.LIST, 0, [kind_of.value_field]
    if types.is_map(kind_of):
        return NodeKind.LIST, 0, [pa.field("entries", pa.struct([kind_of.key_field, kind_of.item_field]))]
    if types.is_struct(kind_of):
        return NodeKind.STRUCT, 0, list(kind_of)
    if types.is_fixed_size_binary(kind_of):
        return NodeKind.FIXED, kind_of.byte_width, []
    if any(is_kind(kind_of) for is_kind in _FIXED_KINDS):
        return NodeKind.FIXED, kind_of.bit_width // 8, []
    raise InvalidTable(f"column {name}: no batch holds the type {kind_of}", column=name)
