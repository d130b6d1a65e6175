"""Damaged files of deletes and offsets are told in Strom's words; without a file of offsets the column is read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lake.lake_places import Lake, events, planned
from strom.errors import LakeCorrupt
from strom.model.bucket import BucketId
from strom.spark.cold.dead_offsets import dead_offsets
from strom.spark.connect.tasks import LakePart


def part_of(lake: Lake, offsets: list[int], *rows: int) -> LakePart:
    """A file with these offsets, and a file of deletes that names these rows of it."""
    file = lake.file(events(*offsets), offsets)
    deletes = f"{lake.table.location}/data/deletes.parquet"
    found = pa.table({"file_path": [file.path] * len(rows), "pos": pa.array(rows, pa.int64())})
    pq.write_table(found, lake.table.storage.path(deletes))
    return LakePart(BucketId(1, None, 0), None, planned(file, deletes), np.array([99], "<i8").tobytes())


def found(lake: Lake, part: LakePart) -> list[int]:
    return sorted(dead_offsets(lake.table.storage, [part])[part.file.path].tolist())


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


@pytest.mark.parametrize("offsets", [[5, 6, 7, 8], [5, 7, 11, 12]], ids=["consecutive", "with gaps"])
def test_rows_that_deletes_name_are_known_by_their_offsets(lake: Lake, offsets: list[int]) -> None:
    part = part_of(lake, offsets, 1, 3)
    assert found(lake, part) == [offsets[1], offsets[3], 99]


def test_without_its_file_of_offsets_the_column_is_read(lake: Lake) -> None:
    part = part_of(lake, [5, 7, 11], 2)
    Path(lake.table.storage.path(part.file.path + ".offsets")).unlink()
    assert found(lake, part) == [11, 99]


def test_a_damaged_file_of_deletes_is_named(lake: Lake) -> None:
    part = part_of(lake, [5, 7, 11], 2)
    place = Path(lake.table.storage.path(part.file.deletes[0]))
    for content in (b"", b"PAR1 no Parquet at all PAR1", place.read_bytes()[:-30]):
        place.write_bytes(content)
        with pytest.raises(LakeCorrupt, match=r"deletes\.parquet"):
            dead_offsets(lake.table.storage, [part])
    pq.write_table(pa.table({"other": [1]}), place)
    with pytest.raises(LakeCorrupt, match=r"deletes\.parquet is no file of position deletes"):
        dead_offsets(lake.table.storage, [part])


@pytest.mark.parametrize("offsets", [[5, 6, 7], [5, 7, 11]], ids=["consecutive", "with gaps"])
@pytest.mark.parametrize("row", [-1, 3, 1 << 40])
def test_deletes_of_rows_that_a_file_does_not_have_are_refused(
    lake: Lake, offsets: list[int], row: int
) -> None:
    part = part_of(lake, offsets, row)
    with pytest.raises(LakeCorrupt, match="has 3 rows, and deletes name others"):
        dead_offsets(lake.table.storage, [part])


def test_a_damaged_file_of_offsets_is_named(lake: Lake) -> None:
    part = part_of(lake, [5, 7, 11], 2)
    Path(lake.table.storage.path(part.file.path + ".offsets")).write_bytes(b"STROMOFF and no more")
    with pytest.raises(LakeCorrupt, match=r"parquet\.offsets"):
        dead_offsets(lake.table.storage, [part])
