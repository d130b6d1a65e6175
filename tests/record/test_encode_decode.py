"""What is encoded is decoded, for every type, compression and path."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from record.batches import COMPRESSIONS, change_types, encoded, resealed, rows
from strategies import record_batches
from strom.errors import ChecksumMismatch, InvalidConfig, InvalidTable, MalformedBatch, TornBatch
from strom.record import layout as at
from strom.record.batch import check, read_header, stamp
from strom.record.columns import ColumnLayout, NodeKind
from strom.record.decode import changes, decode, offsets
from strom.record.encode import encode

WIDE = pa.record_batch(
    {
        "id": pa.array(np.arange(20_000)),
        "text": pa.array([f"row {i % 977}" if i % 5 else None for i in range(20_000)]),
        "flag": pa.array([i % 3 == 0 for i in range(20_000)]),
        "price": pa.array(np.arange(20_000) / 7),
    }
)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_decode_returns_what_encode_was_given(data: st.DataObject) -> None:
    batch = data.draw(record_batches(min_rows=1))
    kinds = data.draw(change_types(batch.num_rows))
    view = encoded(
        batch,
        small=data.draw(st.booleans()),
        compression=data.draw(st.sampled_from(COMPRESSIONS)),
        changes=kinds,
        statistics=data.draw(st.sampled_from([None, range(batch.num_columns)])),
    )
    header, _ = check(view, layout=ColumnLayout(batch.schema))
    found = decode(view, batch.schema, full_validation=True)
    assert found.schema == batch.schema
    assert rows(found) == rows(batch)
    assert header.record_count == batch.num_rows
    types = changes(view, header)
    assert (types is None) == (kinds is None)
    assert types is None or bytes(types) == kinds


@settings(max_examples=15, deadline=None)
@given(record_batches(min_rows=1), st.integers(0, 15))
def test_a_batch_that_lies_at_any_address_is_decoded(batch: pa.RecordBatch, shift: int) -> None:
    view = memoryview(b"\0" * shift + encoded(batch))[shift:]
    assert rows(decode(view, batch.schema, aligned=True, full_validation=True)) == rows(batch)
    assert rows(decode(view, batch.schema)) == rows(batch)


@pytest.mark.parametrize("shift", range(9))
def test_aligned_columns_start_at_multiples_of_eight(shift: int) -> None:
    view = memoryview(b"\0" * shift + encode(WIDE, schema_id=1))[shift:]
    found = decode(view, WIDE.schema, aligned=True)
    assert found.equals(WIDE)
    for column in found.columns:
        assert [buffer.address % 8 for buffer in column.buffers() if buffer is not None and buffer.size] == [
            0 for buffer in column.buffers() if buffer is not None and buffer.size
        ]


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("start", [0, 1, 8, 13])
def test_large_batches_and_slices_of_them_round_trip(compression: str, start: int) -> None:
    batch = WIDE.slice(start, 15_000)
    view = encode(batch, schema_id=1, compression=compression)
    check(view, layout=ColumnLayout.of(batch.schema))
    assert decode(view, batch.schema, full_validation=True).equals(batch)


def test_an_uncompressed_batch_is_decoded_without_a_copy() -> None:
    view = encode(WIDE, schema_id=1)
    found = decode(view, WIDE.schema)
    start = np.frombuffer(view, np.uint8).ctypes.data
    for column in found.columns:
        for buffer in column.buffers():
            assert buffer is None or start <= buffer.address < start + len(view)


def test_the_columns_keep_their_bytes_alive() -> None:
    found = decode(bytes(encode(WIDE, schema_id=1)), WIDE.schema)
    assert found.equals(WIDE)


@pytest.mark.parametrize("compression", ["LZ4_FRAME", "ZSTD"])
def test_a_compressed_batch_is_smaller(compression: str) -> None:
    assert len(encode(WIDE, schema_id=1, compression=compression)) < len(encode(WIDE, schema_id=1)) * 0.8


def test_tiny_batches_are_left_uncompressed() -> None:
    batch = WIDE.slice(0, 1)
    assert check(encode(batch, schema_id=1, compression="ZSTD"), layout=None)[1].codec == at.NOT_COMPRESSED


def test_an_incompressible_buffer_is_stored_as_it_was() -> None:
    noise = np.random.default_rng(5).bytes(200_000)
    batch = pa.record_batch({"noise": pa.array([noise])})
    view = encode(batch, schema_id=1, compression="LZ4_FRAME")
    assert noise in bytes(view)
    assert decode(view, batch.schema).equals(batch)


def test_a_buffer_that_hardly_shrinks_is_stored_as_it_was() -> None:
    measured = np.random.default_rng(5).random(20_000)
    smaller = len(pa.compress(measured.tobytes(), "zstd", asbytes=True))
    assert smaller < measured.nbytes  # a little
    batch = pa.record_batch({"measured": measured, "counted": np.arange(20_000) % 50})
    view = encode(batch, schema_id=1, compression="ZSTD")
    assert measured.tobytes() in bytes(view)
    assert len(view) < 1.1 * measured.nbytes  # the other column is compressed
    assert decode(view, batch.schema).equals(batch)


@pytest.mark.parametrize("small", [True, False])
def test_padding_is_zero(small: bool) -> None:
    batch = pa.record_batch({"a": pa.array([1, 2, 3], pa.int8()), "s": pa.array(["abc", "d", None])})
    view = encoded(batch, small=small)
    _, columns = check(view, layout=ColumnLayout(batch.schema))
    filled = [(position, position + length) for position, length in columns.buffers if length]
    starts = [start for start, _ in filled[1:]]
    gaps = [view[end:start] for (_, end), start in zip(filled, [*starts, len(view)], strict=True)]
    assert any(gaps)
    assert all(not any(gap) for gap in gaps)


@pytest.mark.parametrize("small", [True, False])
def test_text_that_belongs_to_no_row_is_left_out(small: bool) -> None:
    places = pa.py_buffer(np.array([6, 8, 10], np.int32))
    text = pa.Array.from_buffers(pa.string(), 2, [None, places, pa.py_buffer(b"secretaabb" + b"other" * 50)])
    batch = pa.record_batch({"s": text})
    view = encoded(batch, small=small)
    assert decode(view, batch.schema).to_pylist() == [{"s": "aa"}, {"s": "bb"}]
    assert b"secret" not in view
    assert view.count(b"other") < (13 if small else 1)  # pyarrow leaves up to 64 bytes of what follows


def test_the_message_of_a_batch_with_statistics_stays_aligned() -> None:
    for count in range(1, 5):
        header = read_header(encode(WIDE, schema_id=1, statistics=range(count)))
        assert header.statistics_size > 0
        assert header.message_position % 8 == 0


def test_a_batch_without_records_decodes_to_no_rows() -> None:
    assert decode(encode(WIDE.slice(0, 0), schema_id=1), WIDE.schema).equals(WIDE.slice(0, 0))


def test_offsets_of_a_stored_batch_are_dense() -> None:
    view = encode(WIDE.slice(0, 3), schema_id=1)
    stamp(view, base_offset=2**33, timestamp_ms=0)
    assert offsets(view, read_header(view)).tolist() == [2**33, 2**33 + 1, 2**33 + 2]


def test_decode_refuses_a_flipped_byte_unless_told_not_to_look() -> None:
    view = encode(WIDE, schema_id=1)
    view[-9] ^= 1
    with pytest.raises(ChecksumMismatch):
        decode(view, WIDE.schema)
    assert decode(view, WIDE.schema, check_crc=False).num_rows == WIDE.num_rows


def test_decode_refuses_a_torn_batch() -> None:
    view = encode(WIDE, schema_id=1)
    with pytest.raises(TornBatch):
        decode(view[:-1], WIDE.schema)


def test_decode_refuses_what_would_grow_too_large() -> None:
    batch = pa.record_batch({"zeros": pa.array(np.zeros(1_000_000))})
    view = encode(batch, schema_id=1, compression="ZSTD")
    assert len(view) < 10_000
    with pytest.raises(MalformedBatch, match="decompress"):
        decode(view, batch.schema, decompressed_bytes_max=7_999_999)
    assert decode(view, batch.schema, decompressed_bytes_max=8_000_000).equals(batch)


def test_a_size_that_lies_about_compressed_bytes_is_refused() -> None:
    batch = pa.record_batch({"zeros": pa.array(np.zeros(100_000))})
    view = encode(batch, schema_id=1, compression="ZSTD")
    _, columns = check(view, layout=ColumnLayout(batch.schema))
    position = columns.buffers[1][0]
    view[position : position + 8] = (900_000).to_bytes(8, "little")
    with pytest.raises(MalformedBatch):
        decode(resealed(view), batch.schema)


def test_full_validation_finds_text_that_is_no_text() -> None:
    batch = pa.record_batch({"s": pa.array(["abcdefgh" * 4])})
    view = encode(batch, schema_id=1)
    view[view.index(b"abcdefgh")] = 0xFF
    resealed(view)
    with pytest.raises(MalformedBatch):
        decode(view, batch.schema, full_validation=True)


def test_full_validation_finds_offsets_that_fall() -> None:
    batch = pa.record_batch({"s": pa.array(["aaaa", "bbbb", "cccc"])})
    view = encode(batch, schema_id=1)
    _, columns = check(view, layout=ColumnLayout(batch.schema))
    position = columns.buffers[1][0] + 4
    view[position : position + 4] = (11).to_bytes(4, "little")
    resealed(view)
    check(view, layout=ColumnLayout(batch.schema), content=False)
    with pytest.raises(MalformedBatch):
        decode(view, batch.schema, full_validation=True)


def test_an_unknown_compression_is_refused() -> None:
    with pytest.raises(InvalidConfig):
        encode(WIDE, schema_id=1, compression="SNAPPY")


@pytest.mark.parametrize(
    "kind",
    [
        pa.large_string(),
        pa.string_view(),
        pa.dictionary(pa.int8(), pa.string()),
        pa.large_list(pa.int8()),
        pa.list_(pa.int8(), 3),
        pa.uuid(),
        pa.month_day_nano_interval(),
        pa.run_end_encoded(pa.int32(), pa.int8()),
        pa.decimal256(40),
        pa.dense_union([pa.field("x", pa.int8())]),
    ],
    ids=str,
)
def test_types_that_no_table_has_are_refused(kind: pa.DataType) -> None:
    with pytest.raises(InvalidTable):
        ColumnLayout(pa.schema([("c", kind)]))


def test_types_nested_too_deep_are_refused() -> None:
    kind = pa.int8()
    for _ in range(64):
        kind = pa.list_(kind)
    with pytest.raises(InvalidTable, match="nested"):
        ColumnLayout(pa.schema([("c", kind)]))


def test_a_layout_is_remembered_as_long_as_its_schema_lives() -> None:
    schema = pa.schema([("a", pa.int8())])
    assert ColumnLayout.of(schema) is ColumnLayout.of(schema)


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["aaaa", "bbbb", "cccc"]),
        pa.array([b"aaaa", None, b"cccc"]),
        pa.array([[1, 2, 3, 4], [5], []], pa.list_(pa.int64())),
        pa.array([[["aaaa"]], [["bbbb"], ["c"]], []], pa.list_(pa.list_(pa.string()))),
        pa.array([{"x": "aaaa"}, {"x": "bbbb"}, {"x": "cccc"}]),
        pa.array([[("a", "x")], [("b", "y")], []], pa.map_(pa.string(), pa.string())),
    ],
    ids=lambda column: str(column.type),
)
def test_offsets_that_fall_are_refused_before_anyone_follows_them(column: pa.Array) -> None:
    """A writer can give any bytes a sound checksum; it must not make a reader read past a buffer."""
    batch = pa.record_batch({"c": column})
    view = encoded(batch)
    assert rows(decode(view, batch.schema)) == rows(batch)
    _, columns = check(view, layout=ColumnLayout(batch.schema))
    nodes = [
        node for node in ColumnLayout(batch.schema).nodes if node.kind in (NodeKind.VARIABLE, NodeKind.LIST)
    ]
    assert nodes
    for node in nodes:
        wrong = bytearray(view)
        np.frombuffer(wrong, "<i4", 2, columns.buffers[node.buffer + 1][0])[1] = 0x7000_0000
        with pytest.raises(MalformedBatch, match="column c"):
            check(resealed(wrong), layout=ColumnLayout(batch.schema))
        with pytest.raises(MalformedBatch, match="column c"):
            decode(wrong, batch.schema)


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_offsets_that_fall_are_refused_in_compressed_batches_too(compression: str) -> None:
    offsets = np.array([0, 0x7000_0000, 8, 12], "<i4")
    column = pa.Array.from_buffers(
        pa.string(), 3, [None, pa.py_buffer(offsets), pa.py_buffer(b"aaaabbbbcccc")]
    )
    view = encoded(pa.record_batch({"c": column}), compression=compression)
    with pytest.raises(MalformedBatch, match="column c"):
        decode(view, pa.schema([("c", pa.string())]))
