"""Some columns of a batch as a batch of their own, never decompressed."""

from __future__ import annotations

import struct

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from record.batches import COMPRESSIONS, change_types, encoded, resealed, rows
from strategies import record_batches
from strom.errors import InvalidProjection, MalformedBatch
from strom.record.batch import check, read_columns, read_header, stamp
from strom.record.body import STEP_BYTES
from strom.record.checksum import crc32c_many
from strom.record.columns import ColumnLayout
from strom.record.decode import changes, decode
from strom.record.encode import encode
from strom.record.project import Projection, padding, project_batch

TEN = pa.record_batch({f"c{i}": pa.array(np.arange(3000) * i) for i in range(10)})


def ascending(count: int) -> st.SearchStrategy[list[int]]:
    return st.sets(st.integers(0, count - 1), min_size=1).map(sorted)


def projected(view: bytearray, projection: Projection) -> bytearray:
    return bytearray().join(project_batch(view, projection))


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_projected_batch_is_the_batch_decoded_selected_and_encoded(data: st.DataObject) -> None:
    batch = data.draw(record_batches(min_rows=1))
    kinds = data.draw(change_types(batch.num_rows))
    view = encoded(
        batch,
        small=data.draw(st.booleans()),
        compression=data.draw(st.sampled_from(COMPRESSIONS)),
        changes=kinds,
        statistics=data.draw(st.sampled_from([None, range(batch.num_columns)])),
        writer_id=5,
        batch_sequence=6,
    )
    stamp(view, base_offset=1000, timestamp_ms=2000)
    columns = data.draw(ascending(batch.num_columns))
    projection = Projection(ColumnLayout(batch.schema), columns)
    found = projected(view, projection)

    before, after = read_header(view), check(found, layout=ColumnLayout(projection.schema))[0]
    assert rows(decode(found, projection.schema, full_validation=True)) == rows(batch.select(columns))
    assert after.magic == 0
    assert after.statistics_size == 0
    kept = ("base_offset", "timestamp_ms", "schema_id", "attributes", "last_offset_delta", "writer_id")
    for field in (*kept, "batch_sequence", "record_count"):
        assert getattr(after, field) == getattr(before, field)
    types = changes(found, after)
    assert types is None if kinds is None else bytes(types) == kinds


@settings(max_examples=20, deadline=None)
@given(st.data())
def test_a_projection_of_a_projection_is_a_projection(data: st.DataObject) -> None:
    batch = data.draw(record_batches(min_rows=1))
    outer = Projection(ColumnLayout(batch.schema), data.draw(ascending(batch.num_columns)))
    inner = Projection(ColumnLayout(outer.schema), data.draw(ascending(len(outer.columns))))
    straight = Projection(ColumnLayout(batch.schema), [outer.columns[i] for i in inner.columns])
    view = encoded(batch, compression="ZSTD")
    assert projected(projected(view, outer), inner) == projected(view, straight)


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_the_bytes_of_wanted_columns_are_passed_through(compression: str) -> None:
    view = encode(TEN, schema_id=1, compression=compression)
    projection = Projection(ColumnLayout.of(TEN.schema), [2, 7])
    columns = read_columns(view, read_header(view))
    wanted = [
        bytes(view[p : p + n])
        for column in (2, 7)
        for p, n in columns.buffers[2 * column : 2 * column + 2]
        if n
    ]
    found = projected(view, projection)
    after = read_columns(found, read_header(found))
    assert [bytes(found[p : p + n]) for p, n in after.buffers if n] == wanted
    assert after.codec == columns.codec
    assert len(found) < len(view) / 4


@pytest.mark.parametrize("compression", ["LZ4_FRAME", "ZSTD"])
@pytest.mark.parametrize("broken", [3, 7])
def test_projection_never_decompresses(compression: str, broken: int) -> None:
    """Compressed bytes that no codec can read pass through, wanted (7) or not (3)."""
    view = encode(TEN, schema_id=1, compression=compression)
    layout = ColumnLayout.of(TEN.schema)
    columns = read_columns(view, read_header(view))
    position, length = columns.buffers[layout.columns[broken].buffer_start + 1]
    view[position + 8 : position + length] = b"\xaa" * (length - 8)
    resealed(view)
    check(view, layout=layout, content=False)
    with pytest.raises(MalformedBatch):
        decode(view, TEN.schema)

    projection = Projection(layout, [2, 7])
    found = projected(view, projection)
    check(found, layout=ColumnLayout(projection.schema), content=False)
    assert (b"\xaa" * (length - 8) in bytes(found)) == (broken == 7)
    if broken == 3:
        assert decode(found, projection.schema).equals(TEN.select([2, 7]))


def test_only_the_head_and_the_wanted_buffers_are_needed() -> None:
    view = bytes(encode(TEN, schema_id=1))
    projection = Projection(ColumnLayout.of(TEN.schema), [4])
    columns = read_columns(view, read_header(view))
    head = view[: columns.head_size]
    assert read_columns(head, read_header(head)) == columns
    cut = projection.cut(head, read_header(head))
    pieces = [one for p, n in cut.ranges for one in (view[p : p + n], padding(n))]
    cut.seal(crc32c_many(pieces, cut.crc))
    found = b"".join((cut.head, *pieces))
    assert len(found) == cut.size
    assert decode(found, projection.schema).equals(TEN.select([4]))


def test_large_columns_are_read_in_steps_that_fit_the_cache() -> None:
    batch = pa.record_batch({f"c{i}": np.arange(20_000) + i for i in range(10)})
    view = encode(batch, schema_id=1)
    projection = Projection(ColumnLayout.of(batch.schema), list(range(1, 9)))
    cut = projection.cut(view, read_header(view))
    assert [step.size for step in cut.body.steps] == [320_000] * 4
    assert STEP_BYTES <= 320_000
    assert decode(projected(view, projection), projection.schema).equals(batch.select(range(1, 9)))


def test_a_wanted_buffer_that_lies_outside_is_refused() -> None:
    view = encode(TEN, schema_id=1)
    columns = read_columns(view, read_header(view))
    position, length = columns.buffers[9]
    place = bytes(view).index(struct.pack("<qq", position - columns.head_size, length))
    for claimed in ((len(view) - columns.head_size, length), (0, length), (position, -8)):
        struct.pack_into("<qq", view, place, *claimed)
        with pytest.raises(MalformedBatch):
            Projection(ColumnLayout.of(TEN.schema), [1, 4]).cut(view, read_header(view))
        assert Projection(ColumnLayout.of(TEN.schema), [1, 2]).cut(view, read_header(view)).body.steps


def test_a_batch_without_records_is_projected_to_one_without() -> None:
    view = encode(TEN.slice(0, 0), schema_id=1)
    assert projected(view, Projection(ColumnLayout.of(TEN.schema), [1])) == view


def test_columns_without_buffers_are_projected() -> None:
    batch = pa.record_batch({"n": pa.nulls(5), "a": pa.array([1, 2, 3, 4, 5])})
    view = encode(batch, schema_id=1)
    projection = Projection(ColumnLayout(batch.schema), [0])
    assert decode(projected(view, projection), projection.schema).equals(batch.select([0]))


def test_of_no_column_only_the_rows_are_left() -> None:
    view = encode(TEN, schema_id=1)
    found = decode(projected(view, Projection(ColumnLayout.of(TEN.schema), [])), pa.schema([]))
    assert (found.num_rows, found.num_columns) == (TEN.num_rows, 0)


@pytest.mark.parametrize("columns", [[-1], [10], [3, 3], [4, 2]])
def test_a_projection_that_no_schema_has_is_refused(columns: list[int]) -> None:
    with pytest.raises(InvalidProjection):
        Projection(ColumnLayout.of(TEN.schema), columns)


def test_a_batch_of_another_schema_is_not_projected() -> None:
    view = encode(TEN.select([0, 1]), schema_id=1)
    with pytest.raises(MalformedBatch):
        project_batch(view, Projection(ColumnLayout.of(TEN.schema), [0]))
