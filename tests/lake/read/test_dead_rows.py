"""Rows that died since a file was written are left out of it: by their place where it is known, else by the column."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lake.lake_places import Lake, events, planned
from strom.client.plan.log_plan import ScanPlan
from strom.errors import LakeCorrupt
from strom.lake.files.file_reader import LakeFile, deleted_rows, read_file
from strom.lake.read import union_files
from strom.lake.read.union_files import read_planned
from strom.lake.read.union_plan import LakeLimits, UnionPlan
from strom.model.bucket import BucketId
from strom.model.filters.predicate_text import parse_predicate

BUCKET = BucketId(1, None, 0)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


def file_of(lake: Lake, offsets: list[int], *deleted: int) -> LakeFile:
    """A file whose ids are its offsets, and of which a file of deletes names these rows."""
    file = lake.file(events(*offsets), offsets)
    if not deleted:
        return planned(file)
    deletes = f"{lake.table.location}/data/deletes.parquet"
    found = pa.table({"file_path": [file.path] * len(deleted), "pos": pa.array(deleted, pa.int64())})
    pq.write_table(found, lake.table.storage.path(deletes))
    return planned(file, deletes)


def ids(
    lake: Lake, file: LakeFile, *dead: int, limits: LakeLimits | None = None, where: str = ""
) -> list[int]:
    plan = UnionPlan(
        1, None, (file,), ScanPlan(1, ()), {BUCKET: np.array(dead, np.int64)} if dead else {}, limits=limits
    )
    schema = lake.description.schema
    predicate = parse_predicate(where).check(schema) if where else None
    batches = read_planned(lake.table.storage, plan, schema, ["id"], predicate)
    return [number for batch in batches for number in batch.column("id").to_pylist()]


@pytest.mark.parametrize("offsets", [[5, 6, 7, 8, 9], [5, 7, 11, 12, 90]], ids=["consecutive", "with gaps"])
def test_the_dead_and_the_deleted_are_left_out_together(lake: Lake, offsets: list[int]) -> None:
    file = file_of(lake, offsets, 0, 3)
    assert ids(lake, file) == [offsets[1], offsets[2], offsets[4]]
    assert ids(lake, file, offsets[1], offsets[3]) == [offsets[2], offsets[4]]
    assert ids(lake, file, *offsets) == []


@pytest.mark.parametrize("offsets", [[5, 6, 7, 8, 9], [5, 7, 11, 12, 90]], ids=["consecutive", "with gaps"])
def test_the_column_of_offsets_is_not_read_for_it(
    lake: Lake, offsets: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []
    reading = read_file

    def watched(storage: object, file: object, schema: object, columns: list[str], *more: object) -> object:
        asked.append(columns)
        return reading(storage, file, schema, columns, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(union_files, "read_file", watched)
    assert ids(lake, file_of(lake, offsets), offsets[2]) == [*offsets[:2], *offsets[3:]]
    assert asked == [["id"]]


@pytest.mark.parametrize("deleted", [(0,), (0, 2), (1, 1)])
def test_a_row_that_two_files_of_deletes_name_is_one_row(lake: Lake, deleted: tuple[int, ...]) -> None:
    """As two engines leave them that delete it side by side."""
    file = file_of(lake, [5, 7, 11, 12], *deleted)
    left = [offset for row, offset in enumerate([5, 7, 11, 12]) if row not in deleted]
    (deletes,) = file.deletes
    again = f"{lake.table.location}/data/again.parquet"
    lake.table.storage.write(again, bytes(lake.table.storage.read(deletes)))
    for named in ((deletes, again), (deletes, again, deletes)):
        both = dataclasses.replace(file, deletes=named)
        assert deleted_rows(lake.table.storage, both).tolist() == sorted(set(deleted))
        assert ids(lake, both) == left
        assert ids(lake, both, 12) == [offset for offset in left if offset != 12]


def test_offsets_that_the_file_does_not_hold_take_no_row(lake: Lake) -> None:
    assert ids(lake, file_of(lake, [5, 7, 11]), 6, 8, 10) == [5, 7, 11]


def test_a_part_and_a_filter_hold_beside_the_dead(lake: Lake) -> None:
    file = file_of(lake, [5, 7, 11, 12, 90], 1)
    assert ids(lake, file, 11, where="id > 5") == [12, 90]
    assert ids(lake, file, 11, limits=LakeLimits({BUCKET: 6}, {BUCKET: 90})) == [12]


def test_without_its_sidecar_the_column_is_read(lake: Lake) -> None:
    file = file_of(lake, [5, 7, 11], 0)
    Path(lake.table.storage.path(file.path + ".offsets")).unlink()
    assert ids(lake, file, 7) == [11]


def test_a_file_of_another_engine_in_another_order_is_read_by_its_column(lake: Lake) -> None:
    file = file_of(lake, [5, 6, 7, 8])
    rows = pq.read_table(lake.table.storage.path(file.path))
    path = f"{lake.table.location}/data/part-0.parquet"
    pq.write_table(rows.take([2, 0, 3, 1]), lake.table.storage.path(path))
    other = LakeFile(path, file.size, 4, 0, 5, 8)
    assert ids(lake, other, 5, 8) == [7, 6]


def test_a_sidecar_of_another_file_is_refused(lake: Lake) -> None:
    file, other = file_of(lake, [5, 7, 11]), file_of(lake, [5, 8, 12])
    there = Path(lake.table.storage.path(other.path + ".offsets"))
    Path(lake.table.storage.path(file.path + ".offsets")).write_bytes(there.read_bytes())
    with pytest.raises(LakeCorrupt, match="is not of its data file"):
        ids(lake, file, 7)
