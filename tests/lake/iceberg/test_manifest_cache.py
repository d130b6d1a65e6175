"""What a manifest says to whoever did not write it: a file that was removed is named there, and is not in the table."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from lake.lake_places import Lake
from strom.lake.files.file_writer import FilePartition
from strom.lake.iceberg.commit import commit_round, drop_partitions
from strom.lake.iceberg.held_files import held_files
from strom.lake.iceberg.lake_head import read_head
from strom.model.lake.lake import LakeKey, Tiered
from strom.model.schema import Schema
from strom.model.table import TableDescription

SCHEMA = Schema.from_arrow(pa.schema([("p", pa.string()), ("id", pa.int64())]))
DESCRIPTION = TableDescription(SCHEMA, partition_keys=("p",), bucket_count=1)


def test_whoever_opens_the_lake_anew_does_not_find_files_that_were_removed(tmp_path: Path) -> None:
    lake = Lake(tmp_path, DESCRIPTION)
    places = [FilePartition(number, name) for number, name in enumerate("xy")]
    batches = [
        pa.RecordBatch.from_pydict({"p": [place.name], "id": [place.partition_id]}, schema=SCHEMA.to_arrow())
        for place in places
    ]
    head = commit_round(
        lake.table,
        lake.head,
        round_id="one",
        added=[lake.file(rows, [0], partition=place) for rows, place in zip(batches, places, strict=True)],
        offsets={LakeKey(place.partition_id, 0): Tiered(1, 1) for place in places},
        partitions={place.partition_id: place.name for place in places},
    )
    drop_partitions(lake.table, head, ["x"], round_id="drop")
    lake.catalog.close()
    another = Lake(tmp_path, DESCRIPTION)
    assert [file.partition_name for file in held_files(another.table).data] == ["y"]
    assert read_head(another.table).totals.files == 1
    another.catalog.close()
