"""What is remembered of one batch must not vouch for the next one that only looks like it."""

from __future__ import annotations

import struct

import pyarrow as pa
import pytest

from strom.errors import MalformedBatch
from strom.record.batch import check, read_columns, read_header, write_crc
from strom.record.checksum import crc32c, crc32c_parts
from strom.record.columns import ColumnLayout
from strom.record.decode import decode
from strom.record.encode import encode
from strom.record.project import Projection, project_batch

SCHEMA = pa.schema([("text", pa.string()), ("number", pa.int64())])
LAYOUT = ColumnLayout.of(SCHEMA)


def _batch(letter: str, rows: int = 1000) -> bytearray:
    columns = [pa.array([letter * 10] * rows), pa.array(range(rows), pa.int64())]
    return encode(pa.record_batch(columns, schema=SCHEMA), schema_id=1)


@pytest.mark.parametrize("read", ["check", "decode"])
def test_offsets_that_point_outside_are_found_after_a_sound_batch_with_the_same_metadata(read: str) -> None:
    sound, bad = _batch("a"), _batch("a")
    header = read_header(bad)
    position, length = read_columns(bad, header).buffers[1]
    struct.pack_into("<i", bad, position + length - 4, 1 << 30)
    write_crc(bad, header.magic)
    for batch, fits in ((sound, True), (bad, False), (sound, True)):
        if fits:
            check(batch, layout=LAYOUT)
            assert decode(batch, SCHEMA).num_rows == 1000
        else:
            with pytest.raises(MalformedBatch, match="outside"):
                check(batch, layout=LAYOUT) if read == "check" else decode(batch, SCHEMA)


def test_batches_of_different_shapes_are_projected_in_turn() -> None:
    projection = Projection(LAYOUT, [0])
    for letter, rows in (("a", 1000), ("b", 1000), ("c", 700), ("d", 1000), ("e", 700)):
        found = decode(b"".join(project_batch(_batch(letter, rows), projection)), projection.schema)
        assert found.column(0).to_pylist() == [letter * 10] * rows


def test_parts_are_summed_up_within_their_buffer_only() -> None:
    content = bytes(range(256)) * 1024
    parts = [(0, 5), (7, 0), (100, 70_000), (len(content) - 3, 3)]
    assert crc32c_parts(content, parts) == tuple(
        crc32c(content[start : start + size]) for start, size in parts
    )
    with pytest.raises(ValueError, match="outside"):
        crc32c_parts(content, [(len(content) - 1, 70_000)])
