"""Live rows of blocks, put together: those that are marked, in their order, and nothing of the others."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kv.stored_rows import FOLDER, batches, bools, disk, joined, key_schemas
from strategies import same
from strom.kv.rows.block import Block
from strom.kv.rows.live_rows import gather_live
from strom.kv.rows.rows import Rows
from strom.model.schema import Schema

PLAIN = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("tiny", pa.int8()),
        ("short", pa.int16()),
        ("number", pa.int32()),
        ("real", pa.float64()),
        ("amount", pa.decimal128(30, 2)),
        ("code", pa.binary(3)),
        ("at", pa.timestamp("us")),
    ]
)


def plain(ids: range) -> pa.RecordBatch:
    """Columns of every fixed width, no NULL."""
    return pa.record_batch(
        [
            pa.array(ids, pa.int64()),
            pa.array([one % 100 for one in ids], pa.int8()),
            pa.array([one % 30_000 for one in ids], pa.int16()),
            pa.array([one * 7 for one in ids], pa.int32()),
            pa.array([one / 3 for one in ids], pa.float64()),
            pa.array([Decimal(one) * 10**20 for one in ids], pa.decimal128(30, 2)),
            pa.array([one.to_bytes(3, "big") for one in ids], pa.binary(3)),
            pa.array([one * 1000 for one in ids], pa.int64()).cast(pa.timestamp("us")),
        ],
        schema=PLAIN,
    )


def add(rows: Rows, batch: pa.RecordBatch) -> None:
    every = np.ones(batch.num_rows, np.bool_)
    rows.add(batch, base_offset=rows.end, stored=every, tombstone=~every)


def carry(rows: Rows, end: int) -> None:
    path = f"{FOLDER}/{end}-{len(rows.base_files)}.base"
    rows.adopt_carry(rows.write_carry(path, end, lambda offsets: np.ones(len(offsets), np.bool_)))


def gathered(blocks: list[Block], marks: list[np.ndarray]) -> pa.RecordBatch:
    found = gather_live(list(zip(blocks, marks, strict=True)))
    found.validate(full=True)
    return found


def taken(blocks: list[Block], marks: list[np.ndarray]) -> pa.RecordBatch:
    """The same by Arrow's own means."""
    parts = [one.batch.take(pa.array(np.flatnonzero(mark))) for one, mark in zip(blocks, marks, strict=True)]
    return joined(parts, blocks[0].batch.schema)


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_any_columns_of_files_and_of_the_tail_are_those_of_the_marked_rows(data: st.DataObject) -> None:
    schema = data.draw(key_schemas(max_columns=4))
    rows = Rows(disk(), schema)
    for batch in data.draw(st.lists(batches(schema), min_size=1, max_size=4)):
        add(rows, batch)
        if data.draw(st.booleans()) and rows.carried < rows.end:
            carry(rows, data.draw(st.integers(rows.carried + 1, rows.end)))
    flat = [at for at, field in enumerate(schema.to_arrow()) if not pa.types.is_nested(field.type)]
    assume(flat)
    columns = data.draw(st.permutations(flat).map(lambda some: some[: 1 + len(some) // 2]))
    start = data.draw(st.integers(0, rows.end))
    blocks = list(rows.blocks(start, rows.end, columns))
    assume(blocks)
    marks = [
        bools(data.draw(st.lists(st.booleans(), min_size=one.rows, max_size=one.rows))) for one in blocks
    ]
    assert same(gathered(blocks, marks), taken(blocks, marks))


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(1, 300), min_size=1, max_size=4),
    st.floats(0, 1),
    st.integers(0, 2**32 - 1),
    st.integers(0, 200),
)
def test_values_of_every_width_are_pushed_together(
    sizes: list[int], share: float, seed: int, start: int
) -> None:
    rows = Rows(disk(), Schema.from_arrow(PLAIN, primary_key=["id"]))
    for size in sizes:
        add(rows, plain(range(rows.end, rows.end + size)))
        carry(rows, rows.end)
    blocks = list(rows.blocks(start, rows.end))
    random = np.random.default_rng(seed)
    if blocks:
        marks = [random.random(one.rows) < share for one in blocks]
        assert same(gathered(blocks, marks), taken(blocks, marks))
    assert sum(one.rows for one in blocks) == max(rows.end - start, 0)


def test_nothing_of_a_dead_row_is_left_behind_the_others() -> None:
    rows = Rows(disk(), Schema.from_arrow(PLAIN, primary_key=["id"]))
    add(rows, plain(range(1_000_000, 1_000_100)))
    carry(rows, rows.end)
    (block,) = rows.blocks(0, rows.end)
    found = gather_live([(block, np.arange(100) < 50)])
    memory = np.frombuffer(found.column(0).buffers()[1].parent, np.uint8).copy()
    begin = found.column(0).buffers()[1].parent.address
    assert found.num_rows == 50
    for column in found.columns:
        values = column.buffers()[1]
        assert values.size == 50 * column.type.bit_width // 8
        memory[values.address - begin : values.address - begin + values.size] = 0
    assert not memory.any()
