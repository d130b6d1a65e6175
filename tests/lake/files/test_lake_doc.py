"""docs/formats/lake.md says what the code does."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import numpy as np

from strom.lake.files import sidecar
from strom.lake.files.field_ids import BUCKET_ID, OFFSET_ID, TIMESTAMP_ID
from strom.lake.files.file_writer import ROW_GROUP_ROWS
from strom.lake.files.offset_print import print_of
from strom.lake.iceberg.summary import INLINE_BYTES_MAX, LakeOffsets
from strom.model.lake.lake import LakeKey, Tiered

PAGE = (Path(__file__).parents[3] / "docs" / "formats" / "lake.md").read_text()


def test_the_page_has_the_head_of_the_offsets_file() -> None:
    rows = re.findall(r"^\| (\d+) \| (\d+) \| (\w+) \| (\w+) \|", PAGE, re.M)
    content = sidecar.encode(sidecar.held_offsets(np.array([3, 5, 9], np.int64)))
    found = {
        name: struct.unpack_from("<" + form, content, int(position))[0] for position, _, name, form in rows
    }
    assert all(int(length) == struct.calcsize(form) for _, length, _, form in rows)
    assert found["magic"] == b"STROMOFF"
    assert (found["version"], found["form"], found["first"], found["last"], found["rows"]) == (2, 1, 3, 9, 3)
    assert found["length"] == 8


def test_the_page_has_the_numbers() -> None:
    for number in (BUCKET_ID, OFFSET_ID, TIMESTAMP_ID, INLINE_BYTES_MAX):
        assert str(number) in PAGE
    assert f"{ROW_GROUP_ROWS:,}" in PAGE


def test_the_page_shows_offsets_that_can_be_read() -> None:
    (example,) = re.findall(r"```json\n(.*?)\n```", PAGE, re.S)
    found = LakeOffsets.from_json(example)
    assert found.offsets == {LakeKey(3, 0): Tiered(1500, 2)}
    assert found.partitions == {3: "2024-01-15"}
    assert found.bounds == {0: ("1", "99"), 1: None}
    assert found.live == {("2024-01-15", 0): print_of(np.array([1, 5, 1499], np.int64))}
