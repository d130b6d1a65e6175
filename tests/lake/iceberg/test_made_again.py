"""A partition that retention dropped and that was made again goes on in the lake, whichever of its buckets has rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from lake.lake_places import Lake
from strom.lake.files.file_description import DataFileDescription
from strom.lake.files.file_writer import FilePartition
from strom.lake.iceberg.commit import commit_round
from strom.lake.iceberg.lake_head import read_head
from strom.model.lake.lake import LakeKey, Tiered
from strom.model.schema import Schema
from strom.model.table import TableDescription

SCHEMA = Schema.from_arrow(pa.schema([("p", pa.string()), ("id", pa.int64())]))
OLD = FilePartition(3, "x")


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    found = Lake(tmp_path, TableDescription(SCHEMA, partition_keys=("p",), bucket_count=2))
    yield found
    found.catalog.close()


def file(lake: Lake, place: FilePartition, bucket: int, first: int, *ids: int) -> DataFileDescription:
    rows = pa.RecordBatch.from_pydict({"p": ["x"] * len(ids), "id": list(ids)}, schema=SCHEMA.to_arrow())
    return lake.file(rows, range(first, first + len(ids)), bucket=bucket, partition=place)


@pytest.mark.parametrize("new_id", range(4, 13))
def test_the_new_one_takes_over_where_a_round_tells_all_that_is_known(lake: Lake, new_id: int) -> None:
    lake.round(file(lake, OLD, 0, 0, 1, 2), end=2, partition=OLD)
    new = FilePartition(new_id, "x")
    head = commit_round(
        lake.table,
        lake.head,
        round_id="second",
        added=[file(lake, new, 0, 2, 3)],
        offsets={**lake.head.offsets, LakeKey(new_id, 0): Tiered(3, 2)},
        partitions={3: "x", new_id: "x"},
    )
    assert dict(head.offsets) == {LakeKey(new_id, 0): Tiered(3, 2)}


def test_a_bucket_that_the_new_ones_first_round_leaves_out_keeps_its_place(lake: Lake) -> None:
    lake.round(file(lake, OLD, 0, 0, 1, 2), end=2, partition=OLD)
    lake.round(file(lake, OLD, 1, 0, 5, 6, 7), end=3, bucket=1, partition=OLD)
    new = FilePartition(9, "x")
    lake.round(file(lake, new, 0, 2, 3), end=3, epoch=2, partition=new)
    assert dict(lake.head.offsets) == {LakeKey(9, 0): Tiered(3, 2), LakeKey(9, 1): Tiered(3, 1)}
    assert lake.head == read_head(lake.table)
    assert sorted(lake.ids()) == [1, 2, 3, 5, 6, 7]
