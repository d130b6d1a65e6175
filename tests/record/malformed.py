"""Batches that contradict themselves, each made from a good one by one change, with the error each must give.

The metadata is changed at known places: the batch is encoded on the path that uses our own template, whose shape
``MessageTemplate`` documents.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

import pyarrow as pa

from record.batches import encoded, resealed
from strom.errors import ChecksumMismatch, MalformedBatch, RecordTooLarge, StromError, TornBatch
from strom.record import layout as at
from strom.record.batch import BatchLimits, read_columns, read_header
from strom.record.columns import ColumnLayout
from strom.record.project import Projection

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("name", pa.string()),
        pa.field("flag", pa.bool_()),
        pa.field("tags", pa.list_(pa.string())),
        pa.field("counts", pa.map_(pa.string(), pa.int32())),
        pa.field("point", pa.struct([("x", pa.float64()), ("y", pa.float64())])),
    ]
)
LAYOUT = ColumnLayout(SCHEMA)
LIMITS = BatchLimits(batch_bytes_max=1 << 20, decompressed_bytes_max=1 << 20, records_max=1 << 16)
ROWS = pa.RecordBatch.from_pylist(
    [
        {
            "id": i,
            "name": None if i % 4 == 0 else f"name {i}",
            "flag": i % 3 == 0,
            "tags": None if i == 2 else [f"t{i}", None],
            "counts": [(f"k{i}", i)],
            "point": None if i == 5 else {"x": i / 2, "y": -i / 2},
        }
        for i in range(24)
    ],
    schema=SCHEMA,
)

# nodes and buffers of SCHEMA, by name: (node, first buffer)
ID, NAME, FLAG, TAGS, TAG, COUNTS = (0, 0), (1, 2), (2, 5), (3, 7), (4, 9), (5, 12)
ENTRIES, KEY, VALUE, POINT, X = (6, 14), (7, 15), (8, 18), (9, 20), (10, 21)

Change = Callable[[bytearray], None]


def good(**options: object) -> bytearray:
    """A batch in which everything is right, its metadata written by our template."""
    batch = encoded(ROWS, schema_id=1, statistics=[0, 1, 2], **options)
    header = read_header(batch)
    columns = read_columns(batch, header)
    everything = Projection(LAYOUT, range(len(SCHEMA)))
    message = everything.message(batch, header, columns)
    return resealed(bytearray().join((batch[: header.message_position], *message)))


class Metadata:
    """The places of the metadata in a batch that our template wrote."""

    def __init__(self, batch: bytearray) -> None:
        self.batch = batch
        header = read_header(batch)
        self.message = header.message_position
        self.start = self.message + at.MESSAGE_PREFIX_SIZE
        compressed = read_columns(batch, header).codec != at.NOT_COMPRESSED
        self.nodes = self.start + (104 if compressed else 88)
        self.buffers = self.nodes + 16 * LAYOUT.node_count + 8

    def put(self, code: str, position: int, *values: int) -> None:
        struct.pack_into("<" + code, self.batch, position, *values)


def header_field(name: str, code: str, value: int) -> Change:
    def change(batch: bytearray) -> None:
        magic = batch[at.MAGIC_POSITION]
        position = getattr(at, f"{name}_POSITION")
        struct.pack_into("<" + code, batch, position if isinstance(position, int) else position[magic], value)

    return change


def metadata_field(code: str, position: int, *values: int) -> Change:
    """``position`` counts from the start of the flatbuffer."""
    return lambda batch: Metadata(batch).put(code, Metadata(batch).start + position, *values)


def prefix_field(code: str, position: int, value: int) -> Change:
    return lambda batch: Metadata(batch).put(code, Metadata(batch).message + position, value)


def node(place: tuple[int, int], *, length: int | None = None, nulls: int | None = None) -> Change:
    def change(batch: bytearray) -> None:
        metadata = Metadata(batch)
        position = metadata.nodes + 16 * place[0]
        if length is not None:
            metadata.put("q", position, length)
        if nulls is not None:
            metadata.put("q", position + 8, nulls)

    return change


def buffer(
    place: tuple[int, int], index: int, *, offset: int | None = None, length: int | None = None
) -> Change:
    def change(batch: bytearray) -> None:
        metadata = Metadata(batch)
        position = metadata.buffers + 16 * (place[1] + index)
        if offset is not None:
            metadata.put("q", position, offset)
        if length is not None:
            metadata.put("q", position + 8, length)

    return change


def body(place: tuple[int, int], index: int, code: str, position: int, value: int) -> Change:
    """Change bytes of a buffer."""

    def change(batch: bytearray) -> None:
        start = read_columns(batch, read_header(batch)).buffers[place[1] + index][0]
        struct.pack_into("<" + code, batch, start + position, value)

    return change


def cut(size: int) -> Change:
    def change(batch: bytearray) -> None:
        del batch[-size:]

    return change


def both(*changes: Change) -> Change:
    def change(batch: bytearray) -> None:
        for one in changes:
            one(batch)

    return change


def insert_change_types(value: int) -> Change:
    def change(batch: bytearray) -> None:
        header = read_header(batch)
        batch[at.ATTRIBUTES_POSITION[header.magic]] = 0
        batch[header.records_position : header.records_position] = bytes([value]) * header.record_count

    return change


def misalign(batch: bytearray) -> None:
    """Move the whole flatbuffer by four bytes: readable by hand, refused by every Arrow library."""
    metadata = Metadata(batch)
    size = int.from_bytes(batch[metadata.message + 4 : metadata.start], "little")
    metadata.put("i", metadata.message + 4, size + 8)
    content = bytes(batch[metadata.start + 4 : metadata.start + size])
    moved = (20).to_bytes(4, "little") + bytes(4) + content + bytes(4)
    batch[metadata.start : metadata.start + size] = moved


PLAIN: dict[str, tuple[type[StromError], Change]] = {
    # header
    "magic-unknown": (MalformedBatch, header_field("MAGIC", "b", 9)),
    "records-fewer": (MalformedBatch, header_field("RECORD_COUNT", "i", 23)),
    "records-negative": (MalformedBatch, header_field("RECORD_COUNT", "i", -1)),
    "records-none": (MalformedBatch, header_field("RECORD_COUNT", "i", 0)),
    "records-too-many": (
        MalformedBatch,
        both(
            header_field("RECORD_COUNT", "i", 1 << 30), header_field("LAST_OFFSET_DELTA", "i", (1 << 30) - 1)
        ),
    ),
    "offset-delta-larger": (MalformedBatch, header_field("LAST_OFFSET_DELTA", "i", 24)),
    "offset-delta-negative": (MalformedBatch, header_field("LAST_OFFSET_DELTA", "i", -1)),
    "attributes-unknown": (MalformedBatch, header_field("ATTRIBUTES", "B", 0x81)),
    "attributes-sparse": (MalformedBatch, header_field("ATTRIBUTES", "B", 3)),
    "change-types-missing": (MalformedBatch, header_field("ATTRIBUTES", "B", 0)),
    "change-type-unknown": (MalformedBatch, insert_change_types(5)),
    "statistics-longer": (MalformedBatch, header_field("STATISTICS_LENGTH", "i", 1 << 20)),
    "statistics-shorter": (MalformedBatch, header_field("STATISTICS_LENGTH", "i", 4)),
    # message
    "no-continuation": (MalformedBatch, prefix_field("I", 0, 0)),
    "metadata-size-zero": (MalformedBatch, prefix_field("i", 4, 0)),
    "metadata-size-negative": (MalformedBatch, prefix_field("i", 4, -8)),
    "metadata-size-huge": (MalformedBatch, prefix_field("i", 4, 2**31 - 1)),
    "root-outside": (MalformedBatch, metadata_field("I", 0, 0xFFFFFFF0)),
    "vtable-before": (MalformedBatch, metadata_field("i", 16, 2**31 - 1)),
    "vtable-behind": (MalformedBatch, metadata_field("i", 16, -(2**31))),
    "vtable-huge": (MalformedBatch, metadata_field("H", 4, 0xFFFE)),
    "vtable-odd": (MalformedBatch, metadata_field("H", 4, 11)),
    "field-outside-table": (MalformedBatch, metadata_field("H", 14, 400)),
    "version-old": (MalformedBatch, metadata_field("h", 32, 1)),
    "type-schema": (MalformedBatch, metadata_field("B", 34, 1)),
    "type-dictionary": (MalformedBatch, metadata_field("B", 34, 2)),
    "type-none": (MalformedBatch, metadata_field("B", 34, 0)),
    "header-outside": (MalformedBatch, metadata_field("I", 20, 0x7FFFFFFF)),
    "body-shorter": (MalformedBatch, metadata_field("q", 24, 8)),
    "body-negative": (MalformedBatch, metadata_field("q", 24, -1)),
    "body-huge": (MalformedBatch, metadata_field("q", 24, 2**62)),
    "rows-differ": (MalformedBatch, metadata_field("q", 64, 25)),
    "nodes-vector-huge": (MalformedBatch, metadata_field("I", 84, 0xFFFFFFFF)),
    "nodes-vector-outside": (MalformedBatch, metadata_field("I", 60, 0x7FFFFFFF)),
    "nodes-fewer": (MalformedBatch, metadata_field("I", 84, 3)),
    "buffers-vector-outside": (MalformedBatch, metadata_field("I", 72, 0xFFFFFFF0)),
    "metadata-misaligned": (MalformedBatch, misalign),
    # nodes
    "node-negative": (MalformedBatch, node(ID, length=-1)),
    "nulls-negative": (MalformedBatch, node(NAME, nulls=-1)),
    "nulls-more-than-values": (MalformedBatch, node(NAME, nulls=25)),
    "column-longer": (MalformedBatch, node(FLAG, length=25)),
    "column-shorter": (MalformedBatch, node(ID, length=23)),
    "column-huge": (MalformedBatch, node(FLAG, length=2**62)),
    "field-shorter-than-row": (MalformedBatch, node(X, length=23)),
    "not-null-holds-nulls": (MalformedBatch, node(ID, nulls=1)),
    "values-of-list-fewer": (MalformedBatch, node(TAG, length=4)),
    "entries-of-map-fewer": (MalformedBatch, both(*(node(p, length=4) for p in (ENTRIES, KEY, VALUE)))),
    # buffers
    "buffer-before": (MalformedBatch, buffer(NAME, 1, offset=-64)),
    "buffer-behind": (MalformedBatch, buffer(X, 1, offset=1 << 40)),
    "buffer-far": (MalformedBatch, buffer(X, 1, offset=2**63 - 8)),
    "buffer-longer": (MalformedBatch, buffer(X, 1, length=1 << 40)),
    "buffer-negative": (MalformedBatch, buffer(NAME, 2, length=-1)),
    "buffers-overlap": (MalformedBatch, buffer(NAME, 1, offset=0)),
    "validity-missing": (MalformedBatch, buffer(NAME, 0, length=0)),
    "validity-short": (MalformedBatch, buffer(NAME, 0, length=2)),
    "values-missing": (MalformedBatch, buffer(ID, 1, length=0)),
    "values-short": (MalformedBatch, buffer(ID, 1, length=8 * 24 - 1)),
    "bits-short": (MalformedBatch, buffer(FLAG, 1, length=2)),
    "offsets-short": (MalformedBatch, buffer(NAME, 1, length=4 * 24)),
    "offsets-missing": (MalformedBatch, buffer(NAME, 1, length=0)),
    "data-short": (MalformedBatch, buffer(NAME, 2, length=3)),
    "offset-first-negative": (MalformedBatch, body(NAME, 1, "i", 0, -5)),
    "offset-last-outside": (MalformedBatch, body(NAME, 1, "i", 4 * 24, 1 << 30)),
    "offset-last-before-first": (MalformedBatch, both(body(NAME, 1, "i", 0, 9), body(NAME, 1, "i", 96, 8))),
    "list-offset-outside": (MalformedBatch, body(TAGS, 1, "i", 4 * 24, 1 << 20)),
    "list-offset-negative": (MalformedBatch, body(TAGS, 1, "i", 4 * 24, -1)),
}

#: Those that are refused whatever the schema is.
STRUCTURAL = [
    name
    for name in PLAIN
    if name.startswith(
        ("buffer-", "buffers-", "node-", "nodes-vector", "nulls-", "metadata-", "vtable-", "body-", "type-")
    )
]

COMPRESSED: dict[str, tuple[type[StromError], Change]] = {
    "codec-unknown": (MalformedBatch, metadata_field("B", 92, 7)),
    "method-unknown": (MalformedBatch, metadata_field("B", 93, 1)),
    "size-negative": (MalformedBatch, body(ID, 1, "q", 0, -2)),
    "size-huge": (MalformedBatch, body(ID, 1, "q", 0, 2**62)),
    "size-over-the-limit": (MalformedBatch, body(NAME, 2, "q", 0, 1 << 21)),
    "sizes-cancel": (
        MalformedBatch,
        both(body(NAME, 2, "q", 0, -(1 << 40)), body(TAG, 2, "q", 0, 1 << 40)),
    ),
    "size-too-small": (MalformedBatch, body(ID, 1, "q", 0, 8)),
    "size-field-cut": (MalformedBatch, buffer(ID, 1, length=7)),
    "compression-outside": (MalformedBatch, metadata_field("I", 76, 0x7FFFFFFF)),
}

UNSEALED: dict[str, tuple[type[StromError], Change]] = {
    "last-byte-missing": (TornBatch, cut(1)),
    "only-header": (TornBatch, lambda batch: batch.__delitem__(slice(60, None))),
    "half-header": (TornBatch, lambda batch: batch.__delitem__(slice(20, None))),
    "nothing": (TornBatch, bytearray.clear),
    "byte-flipped": (ChecksumMismatch, lambda batch: batch.__setitem__(-3, batch[-3] ^ 4)),
    "crc-wrong": (ChecksumMismatch, header_field("CRC", "I", 0xDEADBEEF)),
    "bytes-behind": (MalformedBatch, lambda batch: batch.extend(b"\0" * 8)),
    "length-negative": (MalformedBatch, header_field("LENGTH", "i", -1)),
    "length-small": (MalformedBatch, header_field("LENGTH", "i", 20)),
    "length-over-the-limit": (RecordTooLarge, header_field("LENGTH", "i", 2**31 - 1)),
}


def malformed() -> dict[str, tuple[type[StromError], bytes]]:
    """Every one of them, by name."""
    made = {}
    for name, (error, change) in PLAIN.items():
        batch = good()
        change(batch)
        resealable = name != "magic-unknown" and not name.startswith(
            ("statistics-longer", "records-negative")
        )
        made[name] = (error, bytes(_reseal(batch) if resealable else batch))
    for compression in ("LZ4_FRAME", "ZSTD"):
        for name, (error, change) in COMPRESSED.items():
            batch = good(compression=compression)
            change(batch)
            made[f"{compression.lower()}-{name}"] = (error, bytes(_reseal(batch)))
    for name, (error, change) in UNSEALED.items():
        batch = good()
        change(batch)
        made[name] = (error, bytes(batch))
    return made


def _reseal(batch: bytearray) -> bytearray:
    try:
        return resealed(batch)
    except MalformedBatch:
        return batch  # the header itself is what is wrong
