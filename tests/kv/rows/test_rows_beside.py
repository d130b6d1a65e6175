"""Rows are moved while others read and write them: readers see no wrong row, and more rows make nobody wait longer."""

from __future__ import annotations

import threading
import time

import numpy as np
import pyarrow as pa
import pytest

from kv.stored_rows import FOLDER, disk, ints
from strom.errors import ChecksumMismatch
from strom.kv.gather.column_source import kinds_of, source_of
from strom.kv.gather.directory import Directory
from strom.kv.gather.gather import gather, gather_message
from strom.kv.rows import live_bits as live
from strom.kv.rows.base_file import BaseFile
from strom.kv.rows.rows import Rows
from strom.kv.rows.tail import RowTail
from strom.model.schema import Schema

ARROW = pa.schema([("id", pa.int64()), ("name", pa.string()), ("odd", pa.bool_())])
SCHEMA = Schema.from_arrow(ARROW)


def numbers(start: int, count: int) -> pa.RecordBatch:
    """Rows whose columns all follow from the offset; every seventh name is NULL."""
    ids = range(start, start + count)
    names = [None if number % 7 == 0 else f"row {number}" for number in ids]
    columns = {"id": list(ids), "name": names, "odd": [n % 2 == 1 for n in ids]}
    return pa.RecordBatch.from_pydict(columns, schema=ARROW)


def add(rows: Rows, count: int) -> None:
    everything = np.ones(count, np.bool_)
    rows.add(numbers(rows.end, count), base_offset=rows.end, stored=everything, tombstone=~everything)


def check_rows(rows: Rows, directory: Directory, end: int, rng: np.random.Generator) -> None:
    """Rows below ``end``, by offset and by scan, are what their offsets say."""
    asked = rng.integers(0, end, 50)
    found = gather(directory, *rows.locate(asked, directory))
    assert found.column(0).to_pylist() == asked.tolist()
    assert found.column(1).to_pylist() == [None if n % 7 == 0 else f"row {n}" for n in asked.tolist()]
    low = int(rng.integers(0, end))
    high = min(end, low + 3_000)
    blocks = list(rows.blocks(low, high, directory=directory))
    assert np.concatenate([block.offsets for block in blocks]).tolist() == list(range(low, high))
    assert [v for block in blocks for v in block.batch.column(0).to_pylist()] == list(range(low, high))


def test_a_reader_of_snapshots_sees_every_row_while_rows_are_added_carried_and_merged() -> None:
    rows, lock, stop = Rows(disk(), SCHEMA), threading.Lock(), threading.Event()
    add(rows, 100)
    failures: list[BaseException] = []
    reads = 0

    def read(seed: int) -> None:
        nonlocal reads
        rng = np.random.default_rng(seed)
        try:
            while not stop.is_set():
                with lock:
                    directory, end = rows.directory, rows.end
                check_rows(rows, directory, end, rng)
                reads += 1
        except BaseException as error:
            failures.append(error)

    def everything(offsets: np.ndarray) -> np.ndarray:
        return offsets >= 0

    reader = threading.Thread(target=read, args=(1,))
    reader.start()
    written, until = 0, time.monotonic() + 2
    while time.monotonic() < until and not failures:
        for size in (1, 100, 2_000):
            with lock:
                start = rows.end
                add(rows, size)
                rows.set_live(np.arange(start, start + size))
        written += 1
        if written % 5 == 0:
            with lock:
                directory, end = rows.directory, rows.end - 1_000
            new = rows.write_carry(f"{FOLDER}/{written}", end, everything, directory)
            with lock:
                rows.adopt_carry(new)
        if len(rows.base_files) == 4:
            new = rows.write_merge(f"{FOLDER}/{written}m", 0, 4, everything)
            with lock:
                rows.adopt_merge(0, 4, new)
    stop.set()
    reader.join(30)
    assert not failures, failures[0]
    assert reads > 3
    assert written > 20, "carries and merges took place"
    assert rows.live_count == rows.end - 100
    check_rows(rows, rows.directory, rows.end, np.random.default_rng(2))


def test_what_becomes_live_or_dead_before_a_file_is_adopted_is_so_in_it() -> None:
    rows = Rows(disk(), SCHEMA)
    add(rows, 200)
    rows.set_live(np.arange(0, 100))
    new = rows.write_carry(f"{FOLDER}/a", 150, lambda offsets: offsets != 9)
    rows.set_dead(ints([1, 2, 9]))
    rows.set_live(ints([2, 120, 180]))
    rows.adopt_carry(new)
    rows.set_dead(ints([3]))
    expected = (set(range(100)) | {120, 180}) - {1, 3, 9}
    assert {int(o) for b in rows.blocks(0, 200) for o in b.offsets[b.live]} == expected
    assert rows.live_count == len(expected)
    merged = rows.write_merge(f"{FOLDER}/b", 0, 1, lambda offsets: offsets != 11)
    rows.set_dead(ints([11, 12]))
    rows.adopt_merge(0, 1, merged)
    expected -= {11, 12}
    assert {int(o) for b in rows.blocks(0, 200) for o in b.offsets[b.live]} == expected
    assert rows.live_count == len(expected)
    assert sum(facts.live for facts in rows.file_facts()) == len(expected) - 1


def test_a_truncation_while_a_file_is_written_leaves_its_live_bits_true() -> None:
    rows = Rows(disk(), SCHEMA)
    add(rows, 100)
    rows.set_live(np.arange(0, 100))
    directory = rows.directory
    rows.set_dead(ints([5]))
    rows.cut(90)
    rows.set_dead(ints([6]))
    new = rows.write_carry(f"{FOLDER}/a", 50, lambda offsets: offsets >= 0, directory)
    rows.cut(80)
    rows.set_dead(ints([7]))
    rows.adopt_carry(new)
    assert {int(o) for b in rows.blocks(0, 80) for o in b.offsets[b.live]} == set(range(80)) - {5, 6, 7}
    assert rows.live_count == 77


def test_a_journal_ends_with_the_file_it_was_kept_for() -> None:
    rows = Rows(disk(), SCHEMA)
    add(rows, 10)
    new = rows.write_carry(f"{FOLDER}/a", 5, lambda offsets: offsets >= 0)
    journal = new.journal
    rows.set_live(ints([1]))
    assert len(journal.changes) == 1
    rows.adopt_carry(new)
    rows.set_live(ints([2]))
    assert len(journal.changes) == 1
    again = rows.write_carry(f"{FOLDER}/b", 8, lambda offsets: offsets >= 0)
    assert rows._journal() is again.journal
    del again
    assert rows._journal() is None, "a file that nobody adopts costs nothing"


def test_the_number_of_live_rows_stands_behind_their_bits() -> None:
    bits = live.bits_of(np.arange(1_000) % 3 == 0)
    assert live.count(bits) == 334
    where = np.array([bits.ctypes.data], np.int64)
    rows = np.array([0, 1, 2, 3], np.int32)
    assert live.mark(where, np.zeros(4, np.int32), rows, 1) == 2
    assert live.mark(where, np.array([0, -1, 0, 0], np.int32), rows, 0) == 3
    assert live.count(bits) == 333
    assert int(np.unpackbits(bits[: live.BITS_BYTES]).sum()) == 333


def test_a_block_whose_data_would_grow_too_large_is_closed_early() -> None:
    rows = Rows(disk(), SCHEMA, block_data_bytes=4_000)
    for _ in range(20):
        add(rows, 100)
    sizes = [len(block.offsets) for block in rows.blocks(0, 2_000)]
    assert sum(sizes) == 2_000
    assert max(sizes) < 700, "about 7 bytes a row"
    check_rows(rows, rows.directory, 2_000, np.random.default_rng(3))
    rows.set_live(np.arange(0, 2_000))
    rows.adopt_carry(rows.write_carry(f"{FOLDER}/a", 1_950, lambda offsets: offsets >= 0))
    assert rows.base_files[0].blocks > 2
    assert max(np.diff(rows.base_files[0].block_rows)) < 700
    assert rows.live_count == 2_000
    check_rows(rows, rows.directory, 2_000, np.random.default_rng(4))
    opened = BaseFile.open(rows._files, f"{FOLDER}/a")
    reopened = Rows(rows._files, SCHEMA, base_files=[opened], carried=1_950)
    check_rows(reopened, reopened.directory, 1_950, np.random.default_rng(5))


def test_a_truncation_leaves_what_an_older_snapshot_reads() -> None:
    rows = Rows(disk(), SCHEMA)
    add(rows, 300)
    before = rows.directory
    rows.cut(100)
    everything = np.ones(200, np.bool_)
    rows.add(numbers(5_000, 200), base_offset=100, stored=everything, tombstone=~everything)
    check_rows(rows, before, 300, np.random.default_rng(6))
    new = gather(rows.directory, *rows.locate(ints([99, 100, 299])), [0, 1]).to_pydict()
    assert new == {"id": [99, 5_000, 5_199], "name": ["row 99", "row 5000", "row 5199"]}


def test_offsets_beyond_a_chunk_of_positions_are_found_after_drops_and_cuts() -> None:
    rows = Rows(disk(), SCHEMA)
    none = np.zeros(0, np.bool_)
    rows.add(numbers(0, 0), base_offset=0, stored=none, tombstone=none, next_offset=65_530)
    everything = np.ones(10, np.bool_)
    rows.add(numbers(65_530, 10), base_offset=65_530, stored=everything, tombstone=~everything)
    rows.add(numbers(0, 0), base_offset=65_540, stored=none, tombstone=none, next_offset=300_000)
    rows.add(numbers(300_000, 10), base_offset=300_000, stored=everything, tombstone=~everything)
    asked = ints([65_530, 65_535, 65_536, 65_539, 300_000, 300_009])
    assert gather(rows.directory, *rows.locate(asked), [0]).column(0).to_pylist() == asked.tolist()
    nowhere = ints([0, 65_529, 65_540, 200_000, 299_999, 300_010, 10**12, -1])
    assert (rows.locate(nowhere)[0] == -1).all()
    rows.adopt_carry(rows.write_carry(f"{FOLDER}/a", 200_000, lambda offsets: offsets >= 0))
    rows.cut(300_005)
    asked = asked[:-1]
    assert gather(rows.directory, *rows.locate(asked), [0]).column(0).to_pylist() == asked.tolist()
    assert rows.locate(ints([300_005, 300_009]))[0].tolist() == [-1, -1]


def test_block_numbers_begin_again_after_32_ki() -> None:
    rows = Rows(disk(), SCHEMA)
    rows._tail.first_block = 0x7FFF
    add(rows, 70_000)
    check_rows(rows, rows.directory, 70_000, np.random.default_rng(7))
    assert isinstance(rows._tail, RowTail)
    assert rows._tail.first_block + len(rows._tail.blocks) - 1 == 0x8000


def test_columns_checked_once_stay_checked_after_a_carry() -> None:
    files = disk()
    rows = Rows(files, SCHEMA)
    add(rows, 50)
    rows.adopt_carry(rows.write_carry(f"{FOLDER}/a", 10, lambda offsets: offsets >= 0))
    assert rows.directory.sound[0].tolist() == [0, 0, 0]
    gather(rows.directory, *rows.locate(ints([3])), [0])
    assert rows.directory.sound[0].tolist() == [1, 0, 0]
    rows.adopt_carry(rows.write_carry(f"{FOLDER}/b", 20, lambda offsets: offsets >= 0))
    assert rows.directory.sound[:2].tolist() == [[1, 0, 0], [0, 0, 0]]
    files.flip(f"{FOLDER}/b", files.read_whole(f"{FOLDER}/b").index((12).to_bytes(8, "little")))
    damaged = Rows(
        files,
        SCHEMA,
        base_files=[BaseFile.open(files, f"{FOLDER}/{name}") for name in "ab"],
        carried=20,
    )
    assert gather(damaged.directory, *damaged.locate(ints([3])), [0]).column(0).to_pylist() == [3]
    with pytest.raises(ChecksumMismatch):
        gather(damaged.directory, *damaged.locate(ints([3, 12])), [0])


def test_a_message_has_no_byte_that_was_not_written() -> None:
    batch = numbers(0, 13)
    directory = Directory(batch.schema, [source_of(batch, kinds_of(batch.schema))])
    source, row = np.zeros(13, np.int32), np.arange(13, dtype=np.int32)
    first, second = (bytes(gather_message(directory, source, row)) for _ in range(2))
    del batch
    junk = [pa.allocate_buffer(len(first) + 64) for _ in range(50)]
    for one in junk:
        np.frombuffer(one, np.uint8).setflags(write=False)
        memoryview(one).cast("B")[:] = b"\xa5" * one.size
    del one, junk
    assert first == second == bytes(gather_message(directory, source, row))
    assert pa.ipc.read_record_batch(pa.py_buffer(first), directory.schema).equals(numbers(0, 13))


@pytest.mark.parametrize("start", [0, 1, 8, 11])
def test_a_slice_is_read_from_where_it_begins(start: int) -> None:
    batch = numbers(0, 40).slice(start, 20)
    source = source_of(batch, kinds_of(batch.schema))
    directory = Directory(batch.schema, [source])
    found = gather(directory, np.zeros(20, np.int32), np.arange(20, dtype=np.int32))
    found.validate(full=True)
    assert found.equals(batch)
