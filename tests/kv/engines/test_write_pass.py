"""The short ways of a write come to what the long ones come to."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kv.stored_rows import batches, joined, key_schemas
from strategies import same
from strom.errors import RecordTooLarge, StoreCorrupt
from strom.kv.changelog import changelog
from strom.kv.changelog.changelog_batch import Stamp, compose
from strom.kv.changelog.last_row_plan import plan_last_row
from strom.kv.changes import FROM_IMAGES, Changes
from strom.kv.engines.last_row import LastRow
from strom.kv.gather.column_source import kinds_of, source_of
from strom.kv.gather.directory import Directory
from strom.kv.index.grouping import group
from strom.kv.publication import KeyGroups, Records
from strom.kv.versions import are_images
from strom.record.batch import check
from strom.record.columns import BatchColumns, ColumnLayout
from strom.record.decode import decode

IMAGES = 7
STAMP = Stamp(3, 12, 5)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 6), min_size=1, max_size=30), st.data(), st.booleans())
def test_the_plan_of_last_rows_is_that_of_their_engine(
    keys: list[int], data: st.DataObject, full: bool
) -> None:
    order, starts = group(np.array(keys, np.uint64), None)
    count = len(starts) - 1
    versions = np.array(
        data.draw(st.lists(st.sampled_from([-1, 8, 9]), min_size=count, max_size=count)), np.int64
    )
    groups = KeyGroups(order, starts, np.zeros(count, np.uint64), np.arange(count), versions)
    places = np.arange(count, dtype=np.int32), np.arange(count, dtype=np.int32) + 100
    kinds, source, row, records = plan_last_row(groups, *places, IMAGES, full=full)

    rows = pa.record_batch({"k": keys})
    changes = Changes(rows, np.zeros(len(keys), np.bool_), order, starts, are_images(versions))
    plan = changelog.plan(changes, LastRow().fold(changes, None), "FULL" if full else "WAL")
    new = plan.from_ == FROM_IMAGES
    assert kinds.tolist() == plan.kinds.tolist()
    assert source.tolist() == np.where(new, IMAGES, places[0][plan.row % count]).tolist()
    assert row.tolist() == np.where(new, plan.row, places[1][plan.row % count]).tolist()
    for mine, other in zip(records, Records.of_plan(plan), strict=True):
        assert mine.tolist() == other.tolist()


def placed(columns: BatchColumns) -> list[tuple[int | None, int]]:
    """Where the buffers lie; an empty one lies nowhere."""
    return [(start if length else None, length) for start, length in columns.buffers]


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_a_composed_batch_is_one_that_a_server_would_accept(data: st.DataObject) -> None:
    schema = data.draw(key_schemas())
    arrow = schema.to_arrow()
    found = [b for b in data.draw(st.lists(batches(schema), min_size=1, max_size=4)) if b.num_rows]
    picks = (
        data.draw(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99)), max_size=30)) if found else []
    )
    places = [(one % len(found), two % found[one % len(found)].num_rows) for one, two in picks]
    in_a_run: bool = data.draw(st.booleans())
    if places and in_a_run:
        number = places[0][0]  # a run: rows that follow each other
        places = [(number, row) for row in range(found[number].num_rows)]
    kinds = np.arange(len(places), dtype=np.uint8) % 5
    directory = Directory(arrow, [source_of(batch, kinds_of(arrow)) for batch in found])
    source, row = (np.array([place[at] for place in places], np.int32) for at in range(2))
    made = compose(directory, source, row, kinds, STAMP, bytes_max=1 << 20)

    header, columns = check(made.content, layout=ColumnLayout(arrow))
    assert header == made.header
    assert (header.schema_id, header.writer_id, header.batch_sequence) == STAMP
    assert columns.head_size == made.columns.head_size
    assert placed(columns) == placed(made.columns)
    expected = joined([found[number].slice(row, 1) for number, row in places], arrow)
    if places:
        assert made.content[header.changes_position : header.message_position] == kinds.data
        assert same(decode(made.content, arrow, header=header, full_validation=True), expected)
    assert made.rows.rows == len(places)


def test_changes_that_make_too_large_a_batch_are_refused_before_anything_is_written() -> None:
    schema = pa.schema([("k", pa.int64()), ("v", pa.string())])
    batch = pa.record_batch([pa.array([1]), pa.array(["x" * 1000])], schema=schema)
    directory = Directory(schema, [source_of(batch, kinds_of(schema))])
    zeros, kinds = np.zeros(1, np.int32), np.ones(1, np.uint8)
    with pytest.raises(RecordTooLarge, match="fewer rows"):
        compose(directory, zeros, zeros, kinds, STAMP, bytes_max=1000)
    with pytest.raises(StoreCorrupt):
        compose(directory, zeros - 1, zeros, kinds, STAMP, bytes_max=1000)
