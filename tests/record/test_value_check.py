"""What was accepted can be read: batches with a right checksum and wrong contents, by kinds of wrong.

Each kind takes good batches (in the clear, LZ4 and ZSTD) and breaks one thing a writer may get wrong, then makes
length and checksum right again. A batch that ``check`` lets through must be readable by us, by pyarrow with its full
validation, and alone in every column. A failure names kind and seed.
"""

from __future__ import annotations

import datetime
import random
import struct
from collections.abc import Callable
from decimal import Decimal

import pyarrow as pa
import pytest

from record.batches import COMPRESSIONS, encoded, resealed
from strom.errors import MalformedBatch
from strom.record import layout as at
from strom.record import value_check
from strom.record.batch import (
    BatchLimits,
    check,
    check_and_sum,
    read_columns,
    read_header,
    strike_statistics,
)
from strom.record.columns import ColumnLayout, NodeKind
from strom.record.decode import decode
from strom.record.project import Projection, project_batch
from strom.record.statistics import read as read_statistics

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("name", pa.string()),
        pa.field("word", pa.string(), nullable=False),
        pa.field("octets", pa.binary()),
        pa.field("mark", pa.binary(3)),
        pa.field("flag", pa.bool_()),
        pa.field("price", pa.decimal128(9, 2)),
        pa.field("total", pa.decimal128(30, 4)),
        pa.field("clock", pa.time32("ms")),
        pa.field("fine", pa.time64("us")),
        pa.field("day", pa.date32()),
        pa.field("at", pa.timestamp("us")),
        pa.field("tags", pa.list_(pa.string())),
        pa.field("counts", pa.map_(pa.string(), pa.int32())),
        pa.field("point", pa.struct([("x", pa.float64()), ("note", pa.string())])),
    ]
)
LAYOUT = ColumnLayout(SCHEMA)
LIMITS = BatchLimits(batch_bytes_max=1 << 20, decompressed_bytes_max=1 << 20, records_max=1 << 16)
ORDERED = [
    position for position, field in enumerate(SCHEMA) if not pa.types.is_nested(field.type) and position != 9
]
ROWS = pa.RecordBatch.from_pylist(
    [
        {
            "id": i,
            "name": None if i % 5 == 0 else f"näme {i}",
            "word": f"word number {i}",
            "octets": None if i % 7 == 0 else bytes([i, 255, i]),
            "mark": bytes([i, i, i]),
            "flag": None if i % 4 == 0 else i % 3 == 0,
            "price": Decimal(i) / 4 if i % 3 else None,
            "total": Decimal(i) * 1000,
            "clock": datetime.time(i % 24, 1),
            "fine": datetime.time(i % 24, 2),
            "day": datetime.date(2024, 1, 1 + i % 28),
            "at": datetime.datetime(2024, 1, 1, i % 24),
            "tags": None if i == 2 else [f"tag {i}", None, "ünd"],
            "counts": [(f"key {i}", i)],
            "point": None if i == 5 else {"x": i / 2, "note": f"nöte {i}"},
        }
        for i in range(40)
    ],
    schema=SCHEMA,
)
GOOD = [
    bytes(encoded(ROWS, statistics=ORDERED, compression=compression, small=False))
    for compression in COMPRESSIONS
]
PER_KIND = 150

Mutation = Callable[[random.Random, bytearray], None]


def _buffers(batch: bytearray, kinds: tuple[NodeKind, ...], number: int) -> list[tuple[int, int]]:
    """(position, length) of the ``number``-th buffer of every node of these kinds, those that hold anything."""
    found = read_columns(batch, read_header(batch)).buffers
    places = [found[node.buffer + number] for node in LAYOUT.nodes if node.kind in kinds]
    return [(position, length) for position, length in places if length]


def _vector(batch: bytearray, which: str) -> int:
    """Where the first node, or the first buffer, of the metadata lies."""
    header = read_header(batch)
    columns = read_columns(batch, header)
    head = bytes(batch[: columns.head_size])
    if which == "nodes":
        return head.index(struct.pack(f"<{len(columns.nodes)}q", *columns.nodes), header.message_position)
    filled = [(p - columns.head_size, n) for p, n in columns.buffers if n][:3]
    first = head.index(struct.pack("<2q", *filled[0]), header.message_position)
    before = next(i for i, (_, n) in enumerate(columns.buffers) if n)
    return first - 16 * before


def falling_offsets(chance: random.Random, batch: bytearray) -> None:
    """One offset of a text, a list or a map is another number."""
    position, length = chance.choice(_buffers(batch, (NodeKind.VARIABLE, NodeKind.LIST), 1))
    count = length // 4
    index = chance.randrange(1, max(count - 1, 2))
    value = chance.choice([0, -1, 1 << 30, chance.randrange(400), chance.randrange(40)])
    struct.pack_into("<i", batch, position + 4 * index, value)


def buffer_lengths(chance: random.Random, batch: bytearray) -> None:
    """A buffer is shorter or longer than its values."""
    count = LAYOUT.buffer_count
    place = _vector(batch, "buffers") + 16 * chance.randrange(count)
    start, length = struct.unpack_from("<2q", batch, place)
    change = chance.choice([-8, -4, -1, 1, 4, 8, -length, length])
    struct.pack_into("<2q", batch, place, start, length + change)


def buffer_starts(chance: random.Random, batch: bytearray) -> None:
    """A buffer begins a little later, on what is not its own."""
    place = _vector(batch, "buffers") + 16 * chance.randrange(LAYOUT.buffer_count)
    start, length = struct.unpack_from("<2q", batch, place)
    step = chance.choice([1, 2, 4, 8])
    struct.pack_into("<2q", batch, place, start + step, max(length - step, 0))


def broken_text(chance: random.Random, batch: bytearray) -> None:
    """Bytes that are no UTF-8 among the values."""
    position, length = chance.choice(_buffers(batch, (NodeKind.VARIABLE,), 2))
    batch[position + chance.randrange(length)] = chance.choice([0xFF, 0xC0, 0x80, 0xED, 0xF5])


def broken_body(chance: random.Random, batch: bytearray) -> None:
    """Any byte of the body, often several."""
    start = read_columns(batch, read_header(batch)).head_size
    for _ in range(chance.choice([1, 1, 4, 30])):
        batch[chance.randrange(start, len(batch))] = chance.randrange(256)


def sizes_before_compression(chance: random.Random, batch: bytearray) -> None:
    """The size that a compressed buffer says it has (in the clear: its first values)."""
    columns = read_columns(batch, read_header(batch))
    position, _ = chance.choice([place for place in columns.buffers if place[1] >= 8])
    size = struct.unpack_from("<q", batch, position)[0]
    wrong = chance.choice([size - 1, size + 1, size + 8, size // 2, size * 2, 0, -1])
    struct.pack_into("<q", batch, position, max(min(wrong, 2**63 - 1), -(2**63)))


def null_counts(chance: random.Random, batch: bytearray) -> None:
    """Another number of NULLs, or another length, than the column has."""
    place = _vector(batch, "nodes") + 8 * chance.randrange(2 * LAYOUT.node_count)
    value = struct.unpack_from("<q", batch, place)[0]
    struct.pack_into("<q", batch, place, max(value + chance.choice([-3, -1, 1, 2, 40]), 0))


def bitmaps(chance: random.Random, batch: bytearray) -> None:
    """A bit of a validity bitmap."""
    kinds = (NodeKind.BITS, NodeKind.FIXED, NodeKind.VARIABLE, NodeKind.LIST, NodeKind.STRUCT)
    position, length = chance.choice(_buffers(batch, kinds, 0))
    batch[position + chance.randrange(length)] ^= 1 << chance.randrange(8)


def large_values(chance: random.Random, batch: bytearray) -> None:
    """A value that its type does not have: decimals with more digits, times behind midnight."""
    position, length = chance.choice(_buffers(batch, (NodeKind.FIXED,), 1))
    batch[position + chance.randrange(length)] = chance.choice([0x7F, 0xFF, 0x80])


def metadata(chance: random.Random, batch: bytearray) -> None:
    """Any byte of the Arrow metadata."""
    header = read_header(batch)
    end = read_columns(batch, header).head_size
    for _ in range(chance.choice([1, 2])):
        batch[chance.randrange(header.message_position, end)] = chance.choice([0, 1, 4, 8, 255])


MUTATIONS: list[Mutation] = [
    falling_offsets,
    buffer_lengths,
    buffer_starts,
    broken_text,
    broken_body,
    sizes_before_compression,
    null_counts,
    bitmaps,
    large_values,
    metadata,
]


def mutated(mutation: Mutation, seed: int) -> bytes:
    """A good batch with one thing wrong."""
    chance = random.Random(f"{mutation.__name__} {seed}")
    batch = bytearray(GOOD[seed % len(GOOD)])
    mutation(chance, batch)
    return bytes(resealed(batch))


def accepted(view: bytes) -> bool:
    try:
        check(view, layout=LAYOUT, limits=LIMITS)
    except MalformedBatch:
        return False
    return True


def read_every_way(view: bytes) -> None:
    """As all kinds of readers do."""
    header = read_header(view)
    rows = decode(view, SCHEMA)
    decode(view, SCHEMA, full_validation=True)
    found = pa.ipc.read_record_batch(pa.py_buffer(view[header.message_position :]), SCHEMA)
    found.validate(full=True)
    assert found.equals(rows) or any("nan" in repr(column) for column in rows)
    for position in range(len(SCHEMA)):
        projection = Projection(LAYOUT, [position])
        piece = b"".join(project_batch(view, projection))
        assert decode(piece, projection.schema, full_validation=True).num_rows == ROWS.num_rows
    rows.serialize()


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.__name__)
def test_what_is_accepted_can_be_read(mutation: Mutation) -> None:
    refused = 0
    for seed in range(PER_KIND):
        view = mutated(mutation, seed)
        if not accepted(view):
            refused += 1
            continue
        try:
            read_every_way(view)
        except Exception as problem:
            raise AssertionError(f"{mutation.__name__}, seed {seed}: accepted and unreadable") from problem
    assert refused > PER_KIND // 10, "the changes are too kind to test anything"


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("held", [0, value_check.HELD_BYTES_MAX], ids=["by-column", "at-once"])
def test_large_batches_are_looked_at_as_small_ones(
    compression: str, held: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same kinds of wrong where the passes over large batches find them."""
    monkeypatch.setattr(value_check, "SMALL_BYTES_MAX", 0)
    monkeypatch.setattr(value_check, "HELD_BYTES_MAX", held)
    good = GOOD[COMPRESSIONS.index(compression)]
    check(good, layout=LAYOUT, limits=LIMITS)
    refused = 0
    for mutation in MUTATIONS:
        for seed in range(COMPRESSIONS.index(compression), 60, len(GOOD)):
            view = mutated(mutation, seed)
            if accepted(view):
                read_every_way(view)
            else:
                refused += 1
    assert refused > 5 * len(MUTATIONS)


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_the_error_names_the_column(compression: str) -> None:
    batch = encoded(ROWS.select(["id", "name"]), compression=compression)
    layout = ColumnLayout(pa.schema([SCHEMA.field("id"), SCHEMA.field("name")]))
    position, length = read_columns(batch, read_header(batch)).buffers[4]
    batch[position + length - 2] = 0xFF
    batch[position + 12] ^= 0xFF
    with pytest.raises(MalformedBatch, match="column name"):
        check(bytes(resealed(batch)), layout=layout, limits=LIMITS)


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("held", [0, value_check.HELD_BYTES_MAX], ids=["by-column", "at-once"])
@pytest.mark.parametrize("position", ORDERED, ids=lambda position: SCHEMA.field(position).name)
def test_statistics_that_lie_are_found_in_every_column(
    compression: str, held: int, position: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows of one batch under the statistics of its last one alone: the others are outside."""
    monkeypatch.setattr(value_check, "HELD_BYTES_MAX", held)
    for told, true in ((ROWS, True), (ROWS.slice(39), False)):
        batch = _with_statistics_of(told, position, compression)
        assert _hold(batch) is true


def _with_statistics_of(told: pa.RecordBatch, position: int, compression: str) -> bytearray:
    """ROWS, with what is true of one column of other rows."""
    whole = encoded(ROWS, compression=compression)
    other = encoded(told, statistics=[position])
    start = read_header(other).records_position
    batch = bytearray(other[:start]) + whole[read_header(whole).records_position :]
    for name, value in (("LAST_OFFSET_DELTA", ROWS.num_rows - 1), ("RECORD_COUNT", ROWS.num_rows)):
        struct.pack_into("<i", batch, getattr(at, f"{name}_POSITION")[at.MAGIC_STATISTICS], value)
    return resealed(batch)


def _hold(batch: bytearray) -> bool:
    return check_and_sum(batch, layout=LAYOUT, limits=LIMITS, sum_from=None).statistics_hold


def test_statistics_that_were_struck_out_are_not_gone_by() -> None:
    batch = _with_statistics_of(ROWS.slice(20), 0, "NONE")
    header = read_header(batch)
    assert read_statistics(batch, SCHEMA, [0])[0].minimum == 20
    struck = strike_statistics(memoryview(batch), header)
    assert read_statistics(batch, SCHEMA, [0], header=struck) == {}
    check(batch, layout=LAYOUT, limits=LIMITS)
    assert decode(batch, SCHEMA).equals(ROWS)
