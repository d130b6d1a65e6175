"""A base file gives the rows that were written, or says that it is damaged."""

from __future__ import annotations

import errno
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kv.stored_rows import FOLDER, batches, bools, disk, ints, joined, key_schemas
from strategies import same
from strom.errors import ChecksumMismatch, Corrupt, StorageFull
from strom.kv.gather.gather import gather
from strom.kv.rows.base_file import BaseFile
from strom.kv.rows.base_writer import BaseFileWriter
from strom.kv.rows.rows import Rows
from strom.model.schema import Schema
from strom.runtime.files import Files, LocalFiles

PATH = f"{FOLDER}/rows.base"


def write(files: Files, path: str, schema: Schema, found: list[pa.RecordBatch], *, step: int = 3) -> int:
    """A file with a block per batch, rows ``step`` offsets apart; the end of its range."""
    offset = 0
    count = step * sum(batch.num_rows for batch in found)
    writer = BaseFileWriter(
        files,
        path,
        schema=schema.to_arrow(),
        schema_id=7,
        column_ids=[column.id for column in schema.columns],
        start=0,
        end=count,
    )
    for batch in found:
        if batch.num_rows:
            whole = joined([batch], schema.to_arrow())
            offsets = np.arange(offset, offset + step * batch.num_rows, step, dtype=np.int64)
            writer.append(whole, offsets, offsets % 2 == 0)
            offset += step * batch.num_rows
    writer.finish()
    return count


def read(files: Files, path: str, schema: Schema, end: int, step: int = 3) -> pa.RecordBatch:
    """All rows, by offset, checked against what a scan gives."""
    rows = Rows(files, schema, base_files=[BaseFile.open(files, path)], carried=end)
    offsets = ints(range(0, end, step))
    source, row = rows.locate(offsets)
    assert (source >= 0).all()
    found = gather(rows.directory, source, row)
    blocks = list(rows.blocks(0, end))
    assert [int(one) for block in blocks for one in block.offsets] == offsets.tolist()
    assert [bool(one) for block in blocks for one in block.tombstone] == (offsets % 2 == 0).tolist()
    assert same(joined([block.batch for block in blocks], schema.to_arrow()), found)
    return found


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_what_was_written_is_read(data: st.DataObject) -> None:
    schema = data.draw(key_schemas())
    found = data.draw(st.lists(batches(schema), max_size=3))
    step = data.draw(st.sampled_from([1, 3, 700]))
    files = disk()
    end = write(files, PATH, schema, found, step=step)
    assert same(read(files, PATH, schema, end, step), joined(found, schema.to_arrow()))
    assert BaseFile.open(files, PATH).schema_id == 7


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_flipped_bit_is_noticed_or_harmless(data: st.DataObject) -> None:
    schema = data.draw(key_schemas(max_columns=3))
    found = data.draw(st.lists(batches(schema), min_size=1, max_size=2))
    files = disk()
    end = write(files, PATH, schema, found)
    expected = joined(found, schema.to_arrow())
    for position in data.draw(st.lists(st.integers(0, files.size(PATH) - 1), min_size=1, max_size=12)):
        bit = data.draw(st.integers(0, 7))
        files.flip(PATH, position, bit)
        try:
            assert same(read(files, PATH, schema, end), expected)
        except ChecksumMismatch:
            pass
        files.flip(PATH, position, bit)
    assert same(read(files, PATH, schema, end), expected)


SMALL = Schema.from_arrow(pa.schema([("a", pa.int64()), ("b", pa.string()), ("c", pa.list_(pa.int8()))]))
ROWS = pa.RecordBatch.from_pydict(
    {"a": [1, None, 3], "b": ["x", "", None], "c": [[1], None, [2, 3]]}, schema=SMALL.to_arrow()
)


def test_every_byte_of_a_small_file_is_guarded() -> None:
    files = disk()
    end = write(files, PATH, SMALL, [ROWS])
    content = files.read_whole(PATH)
    noticed = 0
    for position in range(len(content)):
        files.flip(PATH, position, position % 8)
        try:
            assert same(read(files, PATH, SMALL, end), ROWS)
        except ChecksumMismatch:
            noticed += 1
        files.flip(PATH, position, position % 8)
    zeros = content.count(b"\0")
    assert noticed >= len(content) - zeros, "only a zero can be padding"


def test_a_damaged_column_does_not_hide_the_others() -> None:
    files = disk()
    end = write(files, PATH, SMALL, [ROWS])
    files.flip(PATH, files.read_whole(PATH).index((3).to_bytes(8, "little")))
    rows = Rows(files, SMALL, base_files=[BaseFile.open(files, PATH)], carried=end)
    source, row = rows.locate(ints([0, 3, 6]))
    assert gather(rows.directory, source, row, [1]).column(0).to_pylist() == ["x", "", None]
    for _ in range(2):
        with pytest.raises(ChecksumMismatch, match=PATH):
            gather(rows.directory, source, row, [0])
    with pytest.raises(ChecksumMismatch):
        list(rows.blocks(0, end, [0]))


def test_a_disk_that_cannot_read_a_column_is_an_error_not_the_end() -> None:
    files = disk()
    end = write(files, PATH, SMALL, [ROWS])
    file = BaseFile.open(files, PATH)
    rows = Rows(files, SMALL, base_files=[file], carried=end)
    places = rows.locate(ints([0, 3, 6]))
    working = file._file

    class Failing:
        def read_at(self, position: int, length: int) -> bytes:
            raise OSError(errno.EIO, "the disk does not answer")

    file._file = Failing()  # type: ignore[assignment]
    for _ in range(2):
        with pytest.raises(OSError, match="does not answer"):
            gather(rows.directory, *places)
    file._file = working
    assert same(gather(rows.directory, *places), ROWS)
    file._file = Failing()  # type: ignore[assignment]
    assert same(gather(rows.directory, *places), ROWS), "what was checked is not read again"


@pytest.mark.parametrize("keep", [0, 10, 64, 95, 96, 300])
def test_a_file_cut_short_is_not_opened(keep: int) -> None:
    files = disk()
    write(files, PATH, SMALL, [ROWS])
    files.open(PATH).truncate(keep)
    with pytest.raises(Corrupt):
        BaseFile.open(files, PATH)


def test_a_finished_file_survives_power_loss() -> None:
    files = disk()
    end = write(files, PATH, SMALL, [ROWS])
    files.crash()
    assert same(read(files, PATH, SMALL, end), ROWS)


def test_a_file_on_the_real_disk_is_mapped(tmp_path: Path) -> None:
    path = f"{tmp_path}/rows.base"
    end = write(LocalFiles(), path, SMALL, [ROWS, ROWS])
    assert same(read(LocalFiles(), path, SMALL, end), joined([ROWS, ROWS], SMALL.to_arrow()))


def test_a_full_disk_leaves_no_half_written_file() -> None:
    files = disk()
    rows = Rows(files, SMALL)
    rows.add(ROWS, base_offset=0, stored=bools([True] * 3), tombstone=bools([False] * 3))
    files.fill(70)
    with pytest.raises(StorageFull):
        rows.write_carry(PATH, 3, lambda offsets: offsets >= 0)
    assert not files.exists(PATH)
    files.fill(None)
    rows.adopt_carry(rows.write_carry(PATH, 3, lambda offsets: offsets >= 0))
    assert rows.carried == 3


def test_a_column_that_changed_its_type_is_not_misread() -> None:
    files = disk()
    write(files, PATH, SMALL, [ROWS])
    other = Schema.from_arrow(pa.schema([("a", pa.int32())]))
    with pytest.raises(ChecksumMismatch, match="type"):
        Rows(files, other, base_files=[BaseFile.open(files, PATH)], carried=9)
