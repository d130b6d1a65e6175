"""Stored rows survive everything that moves them: growth, carries, merges, truncation, new columns."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from kv.stored_rows import FOLDER, Expected, batches, bools, check, disk, ints, key_schemas
from strategies import same, scalar_types
from strom.kv.arrays import Bools, Int64s
from strom.kv.gather.gather import gather
from strom.kv.rows.base_file import BaseFile
from strom.kv.rows.rows import Rows
from strom.model.schema import Schema


class Pair:
    """The store and the lists, changed together."""

    def __init__(self, schema: Schema) -> None:
        self.files = disk()
        self.rows = Rows(self.files, schema)
        self.expected = Expected()
        self.written = 0

    def path(self) -> str:
        self.written += 1
        return f"{FOLDER}/{self.written}.base"

    def add(self, batch: pa.RecordBatch, stored: list[bool], tombstone: list[bool], gap: int = 0) -> None:
        start, rows = self.expected.end, batch.num_rows
        self.expected.end = start + rows + gap
        self.rows.add(
            batch,
            base_offset=start,
            stored=bools(stored),
            tombstone=bools(tombstone),
            next_offset=self.expected.end,
        )
        for at in range(rows):
            if stored[at]:
                self.expected.rows[start + at] = (batch.slice(at, 1), tombstone[at])

    def mark(self, offsets: list[int], alive: bool) -> None:
        (self.rows.set_live if alive else self.rows.set_dead)(ints(offsets))
        held = set(offsets) & set(self.expected.rows)
        self.expected.live = self.expected.live | held if alive else self.expected.live - held

    def needed(self, gone: set[int]) -> object:
        def ask(offsets: Int64s) -> Bools:
            return bools(int(offset) not in gone for offset in offsets)

        return ask

    def lose(self, gone: set[int], low: int, high: int) -> None:
        for offset in [o for o in gone if low <= o < high]:
            self.expected.rows.pop(offset, None)
            self.expected.live.discard(offset)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_random_history_leaves_the_rows_a_list_would_hold(data: st.DataObject) -> None:
    pair = Pair(data.draw(key_schemas(max_columns=4)))
    for _ in range(data.draw(st.integers(1, 10))):
        end, rows = pair.expected.end, pair.rows
        step = data.draw(
            st.sampled_from(["add", "add", "add", "live", "dead", "carry", "merge", "cut", "evolve"])
        )
        some = data.draw(st.sets(st.integers(0, max(0, end - 1)), max_size=12))
        if step == "add":
            batch = data.draw(batches(rows.schema))
            flags = st.lists(st.booleans(), min_size=batch.num_rows, max_size=batch.num_rows)
            pair.add(
                batch, data.draw(flags), data.draw(flags), gap=data.draw(st.sampled_from([0, 0, 1, 5000]))
            )
        elif step in ("live", "dead"):
            pair.mark(sorted(some), step == "live")
        elif step == "carry":
            until, before = data.draw(st.integers(rows.carried, end)), rows.carried
            new = rows.write_carry(pair.path(), until, pair.needed(some))
            more = sorted(
                data.draw(st.sets(st.sampled_from(sorted(pair.expected.rows)))) if pair.expected.rows else []
            )
            pair.mark(more, True)
            rows.adopt_carry(new)
            pair.lose(some, before, until)
        elif step == "merge" and rows.base_files:
            first = data.draw(st.integers(0, len(rows.base_files) - 1))
            last = data.draw(st.integers(first + 1, len(rows.base_files)))
            low, high = rows.base_files[first].start, rows.base_files[last - 1].end
            new = rows.write_merge(pair.path(), first, last, pair.needed(some))
            pair.mark(sorted(some)[:3], False)
            gone = rows.adopt_merge(first, last, new)
            assert len(gone) == last - first
            pair.lose(some, low, high)
        elif step == "cut":
            until = data.draw(st.integers(rows.carried, end))
            rows.cut(until)
            pair.lose(set(pair.expected.rows), until, end)
            pair.expected.end = until
        elif step == "evolve":
            kind = data.draw(scalar_types(nullable=True))
            rows.evolve(rows.schema.add_column(f"new{len(rows.schema.columns)}", kind))
            fields = list(rows.schema.to_arrow())
            for offset, (row, tombstone) in list(pair.expected.rows.items()):
                wider = pa.RecordBatch.from_arrays(
                    [*row.columns, pa.nulls(1, fields[-1].type)], schema=rows.schema.to_arrow()
                )
                pair.expected.rows[offset] = (wider, tombstone)
        assert (rows.end, rows.carried <= pair.expected.end) == (pair.expected.end, True)
    check(pair.rows, pair.expected)
    check(pair.rows, pair.expected, [0])
    opened = Rows(
        pair.files,
        pair.rows.schema,
        base_files=[BaseFile.open(pair.files, file.path) for file in pair.rows.base_files],
        carried=pair.rows.carried,
    )
    below = {offset: row for offset, row in pair.expected.rows.items() if offset < opened.carried}
    check(opened, Expected(below, set(), opened.carried))


def numbers(start: int, count: int) -> pa.RecordBatch:
    ids = range(start, start + count)
    return pa.RecordBatch.from_pydict({"id": list(ids), "name": [f"row {number}" for number in ids]})


def store(*, stored: int) -> tuple[Rows, Schema]:
    """Rows 0 .. stored, each at its own offset."""
    schema = Schema.from_arrow(numbers(0, 1).schema)
    rows = Rows(disk(), schema)
    for start in range(0, stored, 10_000):
        count = min(10_000, stored - start)
        everything = np.ones(count, np.bool_)
        rows.add(numbers(start, count), base_offset=start, stored=everything, tombstone=~everything)
    return rows, schema


def read(rows: Rows, offsets: list[int], directory: object = None) -> list[int]:
    used = directory or rows.directory
    return gather(used, *rows.locate(ints(offsets), used), [0]).column(0).to_pylist()


def test_more_rows_than_a_block_holds_go_on_in_the_next() -> None:
    rows, _ = store(stored=150_000)
    asked = [0, 65_535, 65_536, 131_071, 131_072, 149_999, 1]
    assert read(rows, asked) == asked
    assert len(rows.directory.sources) == 3
    assert [len(block.offsets) for block in rows.blocks(0, 150_000)] == [65_536, 65_536, 18_928]
    rows.adopt_carry(rows.write_carry(f"{FOLDER}/a", 140_000, lambda offsets: offsets % 2 == 0))
    assert read(rows, [0, 65_536, 131_072, 139_998, 140_001]) == [0, 65_536, 131_072, 139_998, 140_001]
    assert rows.locate(ints([1, 139_999]))[0].tolist() == [-1, -1]
    assert [len(block.offsets) for block in rows.blocks(0, 150_000)] == [65_536, 4_464, 10_000]
    assert [len(block.offsets) for block in rows.blocks(139_000, 140_500)] == [500, 500]
    assert rows.stored_rows == 80_000


def test_an_old_directory_reads_the_same_after_growth_carry_cut_and_merge() -> None:
    rows, _ = store(stored=1_500)
    before = rows.directory
    asked = [0, 700, 1_000, 1_400, 1_499]
    rows.adopt_carry(rows.write_carry(f"{FOLDER}/a", 1_000, lambda offsets: offsets < 0))
    rows.cut(1_200)
    everything = np.ones(5_000, np.bool_)
    rows.add(numbers(1_000_000, 5_000), base_offset=1_200, stored=everything, tombstone=~everything)
    assert read(rows, asked, before) == asked
    assert sum(len(block.offsets) for block in rows.blocks(0, 1_500, directory=before)) == 1_500
    assert read(rows, [1_199, 1_200, 6_199]) == [1_199, 1_000_000, 1_004_999]
    assert rows.locate(ints([0, 999]))[0].tolist() == [-1, -1]


def test_rows_that_die_while_a_file_is_written_are_dead_in_it() -> None:
    rows, _ = store(stored=100)
    rows.set_live(ints(range(100)))
    new = rows.write_carry(f"{FOLDER}/a", 50, lambda offsets: offsets != 7)
    rows.set_dead(ints([3, 60]))
    rows.adopt_carry(new)
    alive = [int(o) for block in rows.blocks(0, 100) for o in block.offsets[block.live]]
    assert alive == [o for o in range(100) if o not in (3, 7, 60)]
    assert rows.live_count == 97
    assert [facts.live for facts in rows.file_facts()] == [48]


def test_a_few_rows_far_apart_are_found_too() -> None:
    rows, _ = store(stored=60_000)
    wanted = [5, 7_777, 59_999]
    new = rows.write_carry(f"{FOLDER}/a", 60_000, lambda offsets: np.isin(offsets, wanted))
    assert new.file.form == 1, "a list of offsets is smaller than a bitmap"
    rows.adopt_carry(new)
    assert read(rows, wanted) == wanted
    assert rows.locate(ints([4, 6, 59_998]))[0].tolist() == [-1, -1, -1]


def test_a_batch_of_an_older_schema_is_mapped_by_column_id() -> None:
    schema = Schema.from_arrow(numbers(0, 1).schema)
    newer = schema.add_column("more", scalar_int())
    rows = Rows(disk(), newer)
    rows.add(
        numbers(0, 3),
        base_offset=0,
        stored=bools([True] * 3),
        tombstone=bools([False] * 3),
        column_ids=[column.id for column in schema.columns],
    )
    (block,) = rows.blocks(0, 3)
    assert block.batch.column(2).to_pylist() == [None] * 3
    assert block.batch.column(0).to_pylist() == [0, 1, 2]


def scalar_int() -> object:
    from strom.model import types

    return types.BigInt()


def test_blocks_hold_the_rows_themselves_not_copies() -> None:
    rows, _ = store(stored=10)
    (first,), (second,) = rows.blocks(0, 10), rows.blocks(0, 10)
    assert first.batch.column(0).buffers()[1].address == second.batch.column(0).buffers()[1].address
    assert same(first.batch, numbers(0, 10))


def test_the_first_null_of_a_column_is_seen_by_those_who_look_afterwards() -> None:
    rows, _ = store(stored=10)
    before = rows.directory
    late = pa.RecordBatch.from_pydict({"id": [10], "name": [None]}, schema=numbers(0, 1).schema)
    rows.add(late, base_offset=10, stored=bools([True]), tombstone=bools([False]))
    names = gather(rows.directory, *rows.locate(ints([9, 10])), [1]).column(0).to_pylist()
    assert names == ["row 9", None]
    assert read(rows, [0, 9], before) == [0, 9]


def test_a_file_begun_before_a_column_came_fits_after_it() -> None:
    rows, schema = store(stored=10)
    directory = rows.directory
    rows.evolve(schema.add_column("more", scalar_int()))
    rows.adopt_carry(rows.write_carry(f"{FOLDER}/a", 10, lambda offsets: offsets >= 0, directory))
    (block,) = rows.blocks(0, 10)
    assert block.batch.column(0).to_pylist() == list(range(10))
    assert block.batch.column(2).null_count == 10


def test_a_scan_sees_what_was_there_when_it_was_asked_for() -> None:
    rows, _ = store(stored=10)
    asked = rows.blocks(0, 10)
    rows.adopt_carry(rows.write_carry(f"{FOLDER}/a", 10, lambda offsets: offsets < 0))
    assert [len(block.offsets) for block in asked] == [10]
    assert list(rows.blocks(0, 10)) == []


def test_what_a_scan_holds_of_a_growing_block_does_not_change() -> None:
    """The checksum is taken before sending: not even bits after the last row may change in between."""
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("n", pa.int32()), ("b", pa.bool_())])

    def some(start: int, count: int) -> pa.RecordBatch:
        ids = np.arange(start, start + count)
        even = ids % 2 == 0
        return pa.record_batch(
            [ids, pa.array(ids.astype(np.int32), mask=even), pa.array(~even)], schema=schema
        )

    def add(batch: pa.RecordBatch) -> None:
        every = np.ones(batch.num_rows, np.bool_)
        rows.add(batch, base_offset=rows.end, stored=every, tombstone=~every)

    rows = Rows(disk(), Schema.from_arrow(schema, primary_key=["id"]))
    add(some(0, 1003))
    (block,) = rows.blocks(0, rows.end)
    held = block.batch
    buffers = [one for column in held.columns for one in column.buffers() if one is not None]
    before = [one.to_pybytes() for one in buffers]
    add(some(1003, 30))
    assert [one.to_pybytes() for one in buffers] == before
    assert len(buffers) == 4  # values of each, and which numbers are NULL
