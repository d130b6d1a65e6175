"""The rows that pass, with their own offsets."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from record.batches import COMPRESSIONS, change_types, encoded, resealed, rows
from strategies import predicates, record_batches
from strom.errors import ChecksumMismatch, MalformedBatch, StromError, TornBatch
from strom.model.filters.predicate import Predicate, col
from strom.model.schema import Schema
from strom.record.batch import check, check_crc, read_header, split, stamp
from strom.record.columns import ColumnLayout
from strom.record.decode import changes, decode, offsets
from strom.record.filter import RowFilter
from strom.record.project import Projection, project_batch

BATCH = pa.record_batch(
    {"n": pa.array(np.arange(1000)), "s": [f"text {i % 7}" for i in range(1000)], "x": pa.array([0.5] * 1000)}
)
SCHEMA = Schema.from_arrow(BATCH.schema)


def filtered(view: bytearray, predicate: Predicate, columns: list[int] | None = None) -> bytes | None:
    found = RowFilter(predicate.check(SCHEMA), BATCH.schema, columns).apply(view)
    return None if found is None else b"".join(found)


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_filtering_bytes_is_filtering_rows(data: st.DataObject) -> None:
    batch = data.draw(record_batches(min_rows=1))
    schema = Schema.from_arrow(batch.schema)
    try:
        predicate = data.draw(predicates(schema)).check(schema)
    except StromError:
        assume(False)
    wanted = data.draw(
        st.one_of(st.none(), st.sets(st.integers(0, batch.num_columns - 1), min_size=1).map(sorted))
    )
    kinds = data.draw(change_types(batch.num_rows))
    view = encoded(batch, compression=data.draw(st.sampled_from(COMPRESSIONS)), changes=kinds)
    stamp(view, base_offset=500, timestamp_ms=7)

    mask = predicate.mask(batch).to_pylist()
    found = RowFilter(predicate, batch.schema, wanted).apply(view)
    if not any(mask):
        assert found is None
        return
    assert found is not None
    answer = b"".join(found)
    header = read_header(answer)
    check_crc(answer, header)
    columns = list(range(batch.num_columns)) if wanted is None else wanted
    seen = decode(answer, pa.schema([batch.schema.field(i) for i in columns]), full_validation=True)
    indices = [i for i, passed in enumerate(mask) if passed]
    assert rows(seen) == rows(batch.select(columns).take(pa.array(indices)))
    assert offsets(answer, header).tolist() == [500 + i for i in indices]
    assert header.next_offset == 500 + batch.num_rows
    assert header.timestamp_ms == 7
    assert header.sparse == (not all(mask))
    types = changes(answer, header)
    assert types is None if kinds is None else bytes(types) == bytes(told(kinds, mask)[i] for i in indices)


def told(kinds: bytes, mask: list[bool]) -> list[int]:
    """A row that begins to pass by an update is an insert, one that ceases to is a delete."""
    found = list(kinds)
    for i in range(len(kinds) - 1):
        if (kinds[i], kinds[i + 1]) == (2, 3) and mask[i] != mask[i + 1]:
            found[i + 1 if mask[i + 1] else i] = 1 if mask[i + 1] else 4
    return found


def test_an_update_of_which_one_half_passes_is_an_insert_or_a_delete() -> None:
    batch = BATCH.slice(0, 7)
    view = encoded(batch, changes=bytes([1, 2, 3, 2, 3, 2, 3]))
    answer = filtered(view, col("n").is_in([0, 2, 3, 5, 6]))
    assert answer is not None
    found = changes(answer, read_header(answer))
    assert found is not None
    assert found.tolist() == [1, 1, 4, 2, 3]


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_some_rows_become_a_sparse_batch(compression: str) -> None:
    view = encoded(BATCH, compression=compression)
    answer = filtered(view, (col("n") >= 990) & (col("s") == "text 1"), [0, 2])
    assert answer is not None
    header = read_header(answer)
    assert (header.sparse, header.record_count, header.next_offset) == (True, 1, 1000)
    assert offsets(answer, header).tolist() == [995]
    schema = pa.schema([BATCH.schema.field(0), BATCH.schema.field(2)])
    assert decode(answer, schema).to_pylist() == [{"n": 995, "x": 0.5}]


def test_all_rows_are_the_bytes_as_they_were() -> None:
    view = encoded(BATCH, statistics=[0])
    assert filtered(view, col("n") >= 0) == bytes(view)
    projection = Projection(ColumnLayout(BATCH.schema), [1])
    assert filtered(view, col("n") >= 0, [1]) == b"".join(project_batch(view, projection))


def test_no_rows_are_no_batch() -> None:
    assert filtered(encoded(BATCH), col("n") < 0) is None
    assert filtered(encoded(BATCH.slice(0, 0)), col("n") >= 0) is None


def test_a_filtered_batch_can_be_filtered_and_projected_again() -> None:
    once = filtered(encoded(BATCH), col("n") >= 500)
    assert once is not None
    twice = filtered(bytearray(once), col("n") < 503)
    assert twice is not None
    assert offsets(twice, read_header(twice)).tolist() == [500, 501, 502]
    projection = Projection(ColumnLayout(BATCH.schema), [0])
    narrow = b"".join(project_batch(twice, projection))
    assert offsets(narrow, read_header(narrow)).tolist() == [500, 501, 502]
    assert decode(narrow, projection.schema).column(0).to_pylist() == [500, 501, 502]


def test_a_row_keeps_its_change_type() -> None:
    view = encoded(BATCH, changes=bytes(i % 5 for i in range(1000)))
    answer = filtered(view, col("n").is_in([2, 3, 9, 996]))
    assert answer is not None
    found = changes(answer, read_header(answer))
    assert found is not None
    assert found.tolist() == [2, 3, 4, 1]


def test_sparse_batches_travel_one_after_the_other() -> None:
    one = filtered(encoded(BATCH), col("n") == 3)
    assert one is not None
    assert [header.record_count for header, _ in split(one + one)] == [1, 1]


def test_a_sparse_batch_is_never_stored() -> None:
    answer = filtered(encoded(BATCH), col("n") == 3)
    assert answer is not None
    with pytest.raises(MalformedBatch, match="attributes"):
        check(answer, layout=ColumnLayout(BATCH.schema))


def test_only_needed_columns_are_decoded() -> None:
    """An unwanted column holds compressed bytes that no codec can read."""
    view = encoded(BATCH, compression="ZSTD")
    layout = ColumnLayout(BATCH.schema)
    _, columns = check(view, layout=layout)
    position, length = columns.buffers[layout.columns[2].buffer_start + 1]
    view[position + 8 : position + length] = b"\xaa" * (length - 8)
    resealed(view)
    answer = filtered(view, col("n") == 3, [1])
    assert answer is not None
    assert decode(answer, pa.schema([BATCH.schema.field(1)])).to_pylist() == [{"s": "text 3"}]
    with pytest.raises(MalformedBatch):
        filtered(view, col("x") == 0.5)


def test_a_column_younger_than_the_batch_is_null() -> None:
    now = Schema.from_arrow(
        pa.schema([*BATCH.schema, pa.field("later", pa.int64()), pa.field("note", pa.string())])
    )
    view = encoded(BATCH)
    for predicate, expected in (
        (col("later") == 1, 0),
        (col("later").is_null() & (col("n") < 4), 4),
        ((col("later") > 1) | (col("n") < 3), 3),
        (~col("later").is_in([1]), 0),
        (col("note").starts_with("a"), 0),
        (~col("note").starts_with("a") | (col("n") == 1), 1),
        (col("note").is_null() & col("later").is_null(), 1000),
    ):
        found = RowFilter(predicate.check(now), BATCH.schema).apply(view)
        assert (0 if found is None else read_header(b"".join(found)).record_count) == expected


def test_values_of_a_stranger_are_validated_before_they_are_touched() -> None:
    view = encoded(BATCH)
    position = view.index(b"text 0text 1")
    view[position] = 0xFF
    with pytest.raises(MalformedBatch):
        filtered(resealed(view), col("s") == "text 1")


def test_a_damaged_or_torn_batch_is_not_filtered() -> None:
    view = encoded(BATCH)
    with pytest.raises(TornBatch):
        filtered(view[:-1], col("n") == 1)
    view[-1] ^= 1
    with pytest.raises(ChecksumMismatch):
        filtered(view, col("n") == 1)


def test_a_filtered_read_stays_within_its_memory() -> None:
    zeros = pa.record_batch({"n": pa.array(np.zeros(100_000, np.int64))})
    checked = (col("n") == 1).check(Schema.from_arrow(zeros.schema))
    view = encoded(zeros, compression="ZSTD")
    assert RowFilter(checked, zeros.schema).apply(view) is None
    with pytest.raises(MalformedBatch, match="decompress"):
        RowFilter(checked, zeros.schema, decompressed_bytes_max=799_999).apply(view)


@pytest.mark.parametrize("deltas", [[5, 5], [6, 5], [0, 1000]])
def test_offset_deltas_that_do_not_ascend_are_refused(deltas: list[int]) -> None:
    answer = bytearray(filtered(encoded(BATCH), col("n") < 2) or b"")
    header = read_header(answer)
    start = header.records_position
    answer[start : start + 8] = np.array(deltas, "<u4").tobytes()
    with pytest.raises(MalformedBatch):
        offsets(answer, header)
